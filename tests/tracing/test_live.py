"""Which steps of a run are traced, and that looking changes nothing."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.making import settings, tiny_policy, two_groups
from tests.test_loop import recipe
from tests.tiny import save_tiny
from toishi import loop
from toishi.algorithms.apply import assign_advantages
from toishi.config import OptimizerConfig
from toishi.errors import ConfigError, NumericsError
from toishi.metrics import WEIGHTS_CHECKSUM
from toishi.ops.checksum import weights_checksum
from toishi.policy.optimizer import make_optimizer
from toishi.record import Run
from toishi.record.influence_files import read_influence
from toishi.record.trace_files import has_trace, read_trace
from toishi.tracing import live
from toishi.tracing.live import kl_spike, reward_jump
from toishi.tracing.snapshot import Snapshot
from toishi.update import update_policy

SMALL = {"train.steps": 4, "evaluation.prompts": 0, "checkpoint.every": 0}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model") / "llama", "llama")


def traced_steps(folder: Path) -> list[int]:
    return [step for step in range(1, 10) if has_trace(folder, step)]


def test_nothing_is_traced_unless_asked_for(tiny: Path, tmp_path: Path) -> None:
    folder = loop.train(recipe(tiny, **SMALL), tmp_path / "run").folder
    assert traced_steps(folder) == []
    assert [line["time/trace_s"] < 0.01 for line in Run.open(folder).metrics] == [True] * 4


def test_the_first_step_and_every_third(tiny: Path, tmp_path: Path) -> None:
    overrides = {"record.trace_every": 3, "record.trace_when": ["first_step"]}
    folder = loop.train(recipe(tiny, **SMALL | overrides), tmp_path / "run").folder
    assert traced_steps(folder) == [1, 3]
    events = [(event["step"], event["message"]) for event in Run.open(folder).events if event["kind"] == "trace"]
    assert events == [(1, "the first step"), (3, "every 3 steps (record.trace_every)")]


@pytest.mark.parametrize("train", [{"inner_epochs": 2}, {"minibatches": 2}])
def test_of_several_updates_the_first_is_accounted_for(train: dict[str, int], tiny: Path, tmp_path: Path) -> None:
    """It is the only one of a run without the others, on the groups that it learned from."""
    several: dict[str, Any] = {f"train.{name}": value for name, value in train.items()} | SMALL | {"train.steps": 1}
    traced = several | {"record.trace_every": 1, "record.trace_influence": True, "optimizer.lr": 1e-4}
    plain = loop.train(recipe(tiny, **several | {"optimizer.lr": 1e-4}), tmp_path / "plain").folder
    folder = loop.train(recipe(tiny, **traced), tmp_path / "several").folder
    assert [line[WEIGHTS_CHECKSUM] for line in Run.open(folder).metrics] == [
        line[WEIGHTS_CHECKSUM] for line in Run.open(plain).metrics
    ]
    found, (_, second) = read_influence(folder, 1), Run.open(folder).step(1).updates
    assert (found.update, found.num_updates, found.refused) == (0, 2, "")
    assert found.sum_error < 1e-5
    assert found.gap < 0.1
    assert found.gradient_norm == pytest.approx(read_trace(folder, 1).updates[0].gradient_norm)
    assert any("first of the step's 2 optimizer updates" in note for note in read_trace(folder, 1).notes)
    learned = {text.group for text in found.texts if text.source is not None}
    everyone = {text.group for text in found.texts if text.kind == "rollout"}
    assert (learned == everyone) == ("inner_epochs" in train)
    if "inner_epochs" in train:  # the second update starts where the first ended
        ended = {stream.rollout.member: stream for stream in second.streams if stream.computed and stream.rollout.group == 0}
        for text in found.texts:
            if text.kind == "rollout" and text.group == 0 and text.member in ended:
                stream = ended[text.member]
                assert text.measured == pytest.approx(math.fsum(stream.logprob) - math.fsum(stream.old_logprob), abs=1e-4)


def test_an_unknown_trigger_is_refused(tiny: Path) -> None:
    with pytest.raises(ConfigError, match="trace_when"):
        recipe(tiny, **{"record.trace_when": ["sometimes"]})


def earlier(name: str, *values: float | None) -> list[dict[str, Any]]:
    return [{"step": step, name: value} for step, value in enumerate(values, start=1)]


def test_a_reward_jump_is_four_standard_deviations() -> None:
    """Rewards of the step: 1, 0, 0.5, 0 and 0, 1, 0.3, mean 0.4; before it 0.1 and 0.2 in turn: mean 0.15, deviation 0.05."""
    steady = earlier("reward/mean", *[0.1, 0.2] * 5)
    found = reward_jump(two_groups(), steady)
    assert found == "reward jump: mean 0.4, 0.15 ± 0.05 in the 10 steps before"
    assert reward_jump(two_groups(), earlier("reward/mean", *[0.3, 0.45] * 5)) is None
    assert reward_jump(two_groups(), steady[:4]) is None
    assert reward_jump(two_groups(), earlier("reward/mean", *[0.4] * 6)) is None
    assert reward_jump(two_groups(), earlier("reward/mean", 0.1, None, 0.2, math.nan, 0.1, 0.2)) is None


def test_a_kl_spike_is_five_times_the_usual() -> None:
    now = {"update/kl_old_policy_k3": 0.06, "update/kl_policy_ref": None}
    before = earlier("update/kl_old_policy_k3", *[0.01] * 6)
    assert kl_spike(now, before) == "KL spike: update/kl_old_policy_k3 is 0.06, median 0.01 in the 6 steps before"
    assert kl_spike(now | {"update/kl_old_policy_k3": 0.049}, before) is None
    assert kl_spike(now | {"update/kl_old_policy_k3": 0.009}, earlier("update/kl_old_policy_k3", *[0.001] * 6)) is None
    assert kl_spike(now, before[:3]) is None


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_step_that_spikes_is_done_again_in_the_same_bits(
    dtype: str, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overrides = SMALL | {"train.inner_epochs": 2, "model.dtype": dtype}
    plain = loop.train(recipe(tiny, **overrides), tmp_path / "plain").folder
    monkeypatch.setattr(live, "ENOUGH", 1)
    monkeypatch.setattr(live, "KL_SPIKE_NATS", 0.0)
    monkeypatch.setattr(live, "KL_SPIKE_TIMES", 0.1)
    folder = loop.train(recipe(tiny, **overrides, **{"record.trace_when": ["kl_spike"]}), tmp_path / "run").folder
    assert traced_steps(folder)
    assert all("KL spike" in read_trace(folder, step).why for step in traced_steps(folder))
    one, other = Run.open(plain), Run.open(folder)
    assert [line[WEIGHTS_CHECKSUM] for line in one.metrics] == [line[WEIGHTS_CHECKSUM] for line in other.metrics]
    assert [one.step(step).updates for step in one.steps] == [other.step(step).updates for step in other.steps]


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_a_snapshot_puts_weights_and_optimizer_back(name: Any) -> None:
    policy, chosen = tiny_policy(), settings("grpo")
    optimizer = make_optimizer(policy, OptimizerConfig(name=name, lr=0.01, momentum=0.9 if name == "sgd" else 0.0))
    groups = assign_advantages(two_groups(), chosen.algorithm, max_new_tokens=8)
    update_policy(policy, optimizer, groups, chosen, step=1)
    kept = Snapshot.take(policy, optimizer)
    ends = []
    for _ in range(2):
        update_policy(policy, optimizer, groups, chosen, step=2)
        ends.append(weights_checksum(policy.masters))
        kept.put_back(policy, optimizer)
    assert ends[0] == ends[1] != weights_checksum(kept.masters) == weights_checksum(policy.masters)


def test_a_step_that_is_not_finite_leaves_a_trace_of_where(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def poisoned(policy: Any, *args: Any, step: int, **kwargs: Any) -> Any:
        with torch.no_grad():
            policy.masters["model.norm.weight"][3] = float("nan")
        return update_policy(policy, *args, step=step, **kwargs)

    monkeypatch.setattr(live, "update_policy", poisoned)
    with pytest.raises(NumericsError):
        loop.train(recipe(tiny, **SMALL, **{"record.trace_when": ["nan"]}), tmp_path / "run")
    trace = read_trace(tmp_path / "run", 1)
    assert "no weight was changed" in trace.failure
    broken = [row.name for row in trace.matrices if math.isnan(row.weight_norm)]
    assert broken == ["model.norm.weight"]
    assert all(math.isnan(value) for text in trace.texts for value in text.after)
    assert all(math.isfinite(value) for text in trace.texts for value in text.before)
