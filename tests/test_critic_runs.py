"""Whole runs with a critic: killed and resumed, done again, audited, explained, traced; and the record of values."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.replay.forging import forge_line, forge_step, with_rollout, with_stream
from tests.test_loop import _recorded, assert_same_run, kill_after, recipe
from tests.tiny import save_tiny
from toishi import loop
from toishi.algorithms.critic import CRITIC_METRICS
from toishi.checkpoints import load_checkpoint
from toishi.config import load_config
from toishi.errors import ConfigError
from toishi.explanation.audit import AuditReport, audit
from toishi.explanation.chain.build import build_chain, explain_chain
from toishi.explanation.chain.evidence import read_step
from toishi.explanation.chain.story import page
from toishi.explanation.chain.voice import Voice, known_languages
from toishi.explanation.page.render_html import html_page
from toishi.metrics import METRICS
from toishi.record import Run
from toishi.record.trace_files import read_trace
from toishi.replay.plan import plan_replay
from toishi.replay.redo import replay

PPO: dict[str, Any] = {"algorithm": "ppo", "train.inner_epochs": 2, "critic.optimizer.lr": 1e-2}
KINDS: dict[str, dict[str, Any]] = {
    "shared": PPO,
    "separate": PPO | {"critic.kind": "separate", "critic.warmup_steps": 1},
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model") / "llama", "llama")


@pytest.fixture(scope="module")
def runs(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Six steps of each kind."""
    folder = tmp_path_factory.mktemp("runs")
    return {kind: loop.train(recipe(tiny, **options), folder / kind).folder for kind, options in KINDS.items()}


@pytest.fixture
def copied(runs: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(runs["shared"], tmp_path / "copy"))


def whats(report: AuditReport) -> str:
    return "\n".join(f"{one.file} | {one.row} | {one.what} | {one.got} | {one.expected}" for one in report.findings)


@pytest.mark.parametrize("kind", KINDS)
def test_killed_and_resumed_is_the_same_run(kind: str, tiny: Path, runs: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    kill_after(tiny, folder, 4, KINDS[kind])
    assert _recorded(folder) >= 4
    loop.resume(folder)
    assert_same_run(folder, runs[kind])
    found, wanted = (load_checkpoint(run / "checkpoints" / "step_000006").state["critic"] for run in (folder, runs[kind]))
    assert found["masters"].keys() == wanted["masters"].keys()
    assert all(torch.equal(found["masters"][name], weight) for name, weight in wanted["masters"].items())
    assert any(bool(weight.any()) for name, weight in wanted["masters"].items() if name.startswith("head."))


@pytest.mark.parametrize("kind", KINDS)
def test_an_audit_finds_everything_in_order(kind: str, runs: dict[str, Path]) -> None:
    report = audit(runs[kind])
    assert whats(report) == ""
    assert not report.notes


def test_values_and_returns_are_on_record(runs: dict[str, Path]) -> None:
    report = Run.open(runs["shared"]).step(5)
    for rollout in report.rollouts:
        assert rollout.values is not None
        assert rollout.returns is not None
        assert len(rollout.values) == len(rollout.returns) == rollout.completion.num_tokens
    first, second = (update.streams[0] for update in report.updates)
    assert any(first.value_weight)
    assert first.value != second.value
    line = Run.open(runs["shared"]).line(5)
    assert set(CRITIC_METRICS) <= set(METRICS) & set(line)
    assert all(line[name] is not None for name in CRITIC_METRICS)


def test_without_a_critic_its_metrics_are_null(tiny: Path, tmp_path: Path) -> None:
    folder = loop.train(recipe(tiny, **{"train.steps": 1, "evaluation.prompts": 0}), tmp_path / "run").folder
    (line,) = Run.open(folder).metrics
    assert [line[name] for name in CRITIC_METRICS] == [None] * len(CRITIC_METRICS)
    assert all(one.values is None and one.returns is None for one in Run.open(folder).step(1).rollouts)


def altered(name: str) -> Any:
    def change(rollout: Any) -> Any:
        first, *others = getattr(rollout, name)
        return replace(rollout, **{name: (first + 0.01, *others)})

    return change


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda report: with_rollout(report, altered("values")), "token_advantages of token 0"),
        (lambda report: with_rollout(report, altered("returns")), "return (what a value is to become) of token 0"),
        (lambda report: with_rollout(report, altered("advantage")), "token_advantages of token 0"),
        (lambda report: with_stream(report, "value_weight", 0, lambda number: number + 0.01), "value_weight of token 0"),
        (lambda report: with_stream(report, "value", 0, lambda number: number + 0.01, update=1), "value_weight of token 0"),
    ],
)
def test_an_altered_number_is_found_by_what_follows_from_it(change: Any, what: str, copied: Path) -> None:
    forge_step(copied, 5, change)
    assert what in whats(audit(copied))


def test_an_altered_metric_is_found(copied: Path) -> None:
    forge_line(copied, 5, lambda line: line | {"critic/explained_variance": 0.99})
    assert "critic/explained_variance" in whats(audit(copied))


@pytest.mark.parametrize("name", ["values", "returns"])
def test_a_replay_names_the_first_link_that_differs(name: str, copied: Path) -> None:
    forge_step(copied, 5, lambda report: with_rollout(report, altered(name)))
    run = Run.open(copied)
    difference = replay(run, plan_replay(run, 5)).difference
    assert difference is not None
    assert difference.link == {"values": "value before the step", "returns": "return"}[name]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", [1, 5])
def test_a_step_can_be_told(kind: str, step: int, runs: dict[str, Path]) -> None:
    run = Run.open(runs[kind])
    for language in known_languages():
        chain = explain_chain(run, step, language=language)
        assert chain.broken is None, next(check for check in chain.checks if not check.ok)
        text = html_page(page(chain, language))
        assert not re.search(r"\{\w+\}", text.split("</style>")[1]), "a word of the page was not filled in"
    assert chain.advantage.critic is not None
    assert chain.advantage.critic.learns_alone == (kind == "separate" and step == 1)
    told = next(found for found in chain.advantage.members if found.member == chain.member)
    rollout = next(one for one in run.step(step).rollouts if (one.id.group, one.id.member) == (chain.group, chain.member))
    assert [one.value for one in told.tokens] == list(rollout.values or ())
    assert [one.target for one in told.tokens] == pytest.approx(list(rollout.returns or ()), abs=1e-12)
    surprises = [one.reward + one.after - one.value for one in told.tokens]
    assert [one.surprise for one in told.tokens] == pytest.approx(surprises, abs=1e-12)
    assert sum(one.reward for one in told.tokens) == pytest.approx(rollout.reward)


def test_equal_rewards_teach_where_a_critic_guessed_otherwise(tiny: Path, tmp_path: Path) -> None:
    settings = {"algorithm": "a2c", "rewards": [{"name": "random", "probability": 1.0}], "train.steps": 1}
    run = Run.open(loop.train(recipe(tiny, **settings, **{"evaluation.prompts": 0}), tmp_path / "run").folder)
    chain = explain_chain(run, 1)
    assert [rollout.reward for rollout in run.step(1).rollouts if rollout.id.group == chain.group] == [
        1.0
    ] * chain.baseline.size
    assert not chain.baseline.tied
    assert any(one.advantage > 0 for found in chain.advantage.members for one in found.tokens)
    assert "nothing can be learned" not in html_page(page(chain, "en"))


def test_an_altered_value_breaks_the_chain_at_the_advantage(runs: dict[str, Path]) -> None:
    evidence = read_step(Run.open(runs["shared"]), 5)
    changed = with_rollout(evidence.report, altered("values"))
    chain = build_chain(replace(evidence, report=changed), member=None, update=None, voice=Voice.of("en"))
    assert chain.broken == "advantage"


@pytest.mark.parametrize("kind", KINDS)
def test_a_trace_ends_in_the_same_bits_and_says_what_it_cannot(kind: str, tiny: Path, tmp_path: Path) -> None:
    options = KINDS[kind] | {"train.steps": 2, "evaluation.prompts": 0, "train.inner_epochs": 1}
    plain = loop.train(recipe(tiny, **options), tmp_path / "plain").folder
    traced = recipe(tiny, **options, **{"record.trace_every": 1, "record.trace_influence": True})
    folder = loop.train(traced, tmp_path / "traced").folder
    for name in ("update/weights_checksum", "critic/weights_checksum"):
        assert [line[name] for line in Run.open(plain).metrics] == [line[name] for line in Run.open(folder).metrics]
    notes = " ".join(read_trace(folder, 2).notes)
    assert ("the critic's loss moved the shared weights as well" in notes) == (kind == "shared")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"algorithm": "grpo", "critic": {"kind": "separate"}}, "algorithm 'grpo' has no critic, so `critic` has no effect"),
        ({"algorithm": "ppo", "critic": {"warmup_steps": 30}}, "the policy would never learn"),
    ],
)
def test_impossible_critics_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(options)
