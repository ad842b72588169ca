"""TRLRecorder leaves TRL's training alone, and what it writes is TRL's own step, recomputed link by link."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:trl"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

pytest.importorskip("trl")

from tests.callbacks.training import length, odd, require_same_weights, silent, trained, trainer  # noqa: E402
from toishi.callbacks import TRLRecorder  # noqa: E402
from toishi.errors import ConfigError, RecordError  # noqa: E402
from toishi.explanation.audit import audit  # noqa: E402
from toishi.explanation.chain.build import explain_chain  # noqa: E402
from toishi.record import Run  # noqa: E402

CASES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "accumulation": {"gradient_accumulation_steps": 2, "loss_type": "grpo"},
    "iterations, KL, chat": {"num_iterations": 2, "beta": 0.1, "chat": True},
    "two updates a generation": {"steps_per_generation": 2, "loss_type": "dr_grpo", "scale_rewards": "none"},
    "two generations an update": {"gradient_accumulation_steps": 4, "steps_per_generation": 2, "loss_type": "grpo"},
    "cispo": {"num_iterations": 2, "loss_type": "cispo", "epsilon_high": 5.0},
    "sequence ratio": {"num_iterations": 2, "loss_type": "grpo", "importance_sampling_level": "sequence"},
    "two-sided clip, plain k3": {"num_iterations": 2, "delta": 1.5, "beta": 0.1, "use_bias_correction_kl": False},
    "batch spread": {"scale_rewards": "batch", "per_device_train_batch_size": 8, "loss_type": "bnpo"},
    "truncated answers masked": {"mask_truncated_completions": True},
    "evaluations between": {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 4},
}


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_every_link_follows_and_the_weights_are_the_same(options: dict[str, Any], tmp_path: Path) -> None:
    """The record's token weights are the gradients of TRL's own backward pass; the audit forms them from toishi's row."""
    with_it = trained(tmp_path, TRLRecorder(tmp_path / "run"), **options)
    require_same_weights(with_it, trained(tmp_path, **options))
    run = Run.open(tmp_path / "run")
    report = audit(run)
    assert report.ok, report.findings
    assert set(report.missing) == {"sft"}
    assert sum(line["num_updates"] for line in run.metrics) == 2
    assert all(line["trl/weight_gap"] <= 1e-6 for line in run.metrics)
    for step in run.steps:
        for group in run.step(step).groups:
            chain = explain_chain(run, step, group=group.rollouts[0].id.group)
            assert chain.broken is None, [check for check in chain.checks if not check.ok]
            assert chain.effect is not None
            assert [name for name in ("weights", "gradient", "change") if getattr(chain, name) is None] == []


def test_what_is_recorded_is_what_trl_says(tmp_path: Path) -> None:
    """Rewards, advantages and loss against TRL's own logs of the step."""
    told: list[dict[str, float]] = []

    class Listening(TRLRecorder):
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            told.append(dict(logs))

    options = {"logging_strategy": "steps", "logging_steps": 1, "max_steps": 1, "reward_weights": [1.0, 0.5]}
    ended = trained(tmp_path, Listening(tmp_path / "run"), **options)
    run = Run.open(tmp_path / "run")
    report, line = run.step(1), run.line(1)
    rollouts = report.rollouts
    assert [rollout.advantage for rollout in rollouts] == list(ended._logs["advantages"])
    assert [rollout.completion.text for rollout in rollouts] == list(ended._logs["completion"])
    for rollout, first, second in zip(rollouts, ended._logs["rewards"]["length"], ended._logs["rewards"]["odd"], strict=True):
        one, other = rollout.scores
        assert (one.value, one.weight, other.weight) == (first, 1.0, 0.5)
        assert (other.value is None) == (second != second)
    assert line["reward/mean"] == pytest.approx(told[0]["reward"], abs=1e-6)
    assert line["updates/0/grad_norm"] == pytest.approx(told[0]["grad_norm"], rel=1e-5)
    assert line["updates/0/loss"] == pytest.approx(told[0]["loss"], abs=1e-6)
    assert [score.status for rollout in rollouts for score in rollout.scores].count("abstained") == 2


def test_log_probs_after_the_step_are_the_trained_models(tmp_path: Path) -> None:
    """Against a plain forward pass of the model that TRL leaves behind."""
    ended = trained(tmp_path, TRLRecorder(tmp_path / "run"), max_steps=1)
    run = Run.open(tmp_path / "run")
    chain = explain_chain(run, 1, group=0)
    rollout = run.step(1).groups[0].rollouts[2]
    ids = torch.tensor([[*rollout.prompt.token_ids, *rollout.completion.token_ids]])
    ended.model.eval()
    with torch.no_grad():
        logits = ended.model(input_ids=ids).logits[0].double()
    start = len(rollout.prompt.token_ids)
    logprobs = torch.log_softmax(logits, -1)[torch.arange(start - 1, ids.shape[1] - 1), ids[0, start:]]
    assert chain.effect is not None
    answer = next(answer for answer in chain.effect.answers if answer.member == 2)
    assert [token.after for token in answer.tokens] == pytest.approx(logprobs.tolist(), abs=1e-4)
    assert abs(answer.change) > 1e-3


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        ({"loss_type": "sapo"}, {"weights"}),
        ({"steps_per_generation": 2}, {"weights"}),
        ({"entropy_coef": 0.01}, {"weights"}),
        ({"multi_objective_aggregation": "normalize_then_sum"}, {"baseline", "advantage"}),
        ({"weight_decay": 0.1}, {"change"}),
        ({"family": "gpt2"}, {"effect"}),
    ],
)
def test_what_has_no_row_is_named(options: dict[str, Any], missing: set[str], tmp_path: Path) -> None:
    """GPT-2 trains with dropout: its weights have to be the same here too."""
    with_it = trained(tmp_path, TRLRecorder(tmp_path / "run"), **options)
    require_same_weights(with_it, trained(tmp_path, **options))
    run = Run.open(tmp_path / "run")
    report, chain = audit(run), explain_chain(run, 1, group=0)
    assert report.ok, report.findings
    assert set(report.missing) == missing | {"sft"}
    assert set(chain.absent) == missing | {"sft"}
    assert chain.broken is None
    streams = run.step(1).updates[0].streams
    assert all(any(stream.token_weight) for stream in streams if any(stream.advantage))


def test_answers_that_nobody_scores(tmp_path: Path) -> None:
    trainer(tmp_path, TRLRecorder(tmp_path / "run"), rewards=(silent,), max_steps=1).train()
    run = Run.open(tmp_path / "run")
    assert {rollout.reward for rollout in run.step(1).rollouts} == {None}
    assert run.line(1)["answers/unscored"] == 4
    assert audit(run).ok


def test_training_that_ends_inside_a_step(tmp_path: Path) -> None:
    trainer(tmp_path, TRLRecorder(tmp_path / "run"), num_iterations=2, max_steps=3).train()
    run = Run.open(tmp_path / "run")
    assert [line["num_updates"] for line in run.metrics] == [2, 1]
    assert run.line(2)["source/unfinished"] == 1
    assert audit(run).ok, audit(run).findings


def test_a_failure_of_the_recorder_is_told_once_and_the_training_goes_on(tmp_path: Path) -> None:
    class Broken(TRLRecorder):
        def _write(self, global_step: int, *, unfinished: bool) -> None:
            if global_step < 3:
                raise ZeroDivisionError("no disk")
            super()._write(global_step, unfinished=unfinished)

    with pytest.warns(UserWarning, match=r"TRLRecorder: step 1 is not recorded: ZeroDivisionError: no disk") as caught:
        with_it = trained(tmp_path, Broken(tmp_path / "run"), max_steps=3)
    assert len([one for one in caught if "TRLRecorder" in str(one.message)]) == 1
    require_same_weights(with_it, trained(tmp_path, max_steps=3))
    run = Run.open(tmp_path / "run")
    assert run.steps == (3,)
    assert [event["kind"] for event in run.events] == ["not_recorded", "not_recorded"]


def test_a_start_that_cannot_be_right_is_refused(tmp_path: Path) -> None:
    trainer(tmp_path, TRLRecorder(tmp_path / "run"), max_steps=1).train()
    with pytest.raises(RecordError, match="already holds a run"):
        trainer(tmp_path, TRLRecorder(tmp_path / "run"), max_steps=1).train()
    uneven: dict[str, Any] = {"gradient_accumulation_steps": 2, "steps_per_generation": 3}
    with pytest.raises(ConfigError, match="do not divide one another"):
        trainer(tmp_path, TRLRecorder(tmp_path / "other"), **uneven).train()
    with pytest.raises(ConfigError, match="trace_every"):
        TRLRecorder(tmp_path / "x", trace_every=-1)


def test_a_resumed_training_goes_on_in_the_same_folder(tmp_path: Path) -> None:
    options: dict[str, Any] = {"save_strategy": "steps", "save_steps": 1}
    trainer(tmp_path, TRLRecorder(tmp_path / "run"), max_steps=2, **options).train()
    again = trainer(tmp_path, TRLRecorder(tmp_path / "run"), max_steps=3, **options)
    again.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-1"))
    run = Run.open(tmp_path / "run")
    assert [line["trl/last_global_step"] for line in run.metrics] == [1, 2, 3]
    assert audit(run).ok, audit(run).findings


def test_without_traces_nothing_is_measured_twice(tmp_path: Path) -> None:
    trainer(tmp_path, TRLRecorder(tmp_path / "run", trace_every=0), max_steps=1).train()
    assert not (tmp_path / "run" / "traces").exists()
    assert audit(Run.open(tmp_path / "run")).ok


def train_until_killed(folder: Path) -> None:
    """Ends by SIGKILL in the middle of the third step's rewards."""
    calls: list[int] = []

    def deadly(completions: list[str], **_: Any) -> list[float]:
        calls.append(1)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return [float(len(text)) for text in completions]

    trainer(folder, TRLRecorder(folder / "run"), rewards=(deadly,), max_steps=9).train()


def test_a_killed_script_leaves_a_readable_folder(tmp_path: Path) -> None:
    child = multiprocessing.get_context("spawn").Process(target=train_until_killed, args=(tmp_path,))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    run = Run.open(tmp_path / "run")
    assert run.steps == (1, 2)
    assert audit(run).ok


def test_run_json_names_who_trained(tmp_path: Path) -> None:
    trainer(tmp_path, TRLRecorder(tmp_path / "run"), rewards=(length, odd), max_steps=1).train()
    found = json.loads((tmp_path / "run" / "run.json").read_text())
    assert found["source"]["program"] == "trl"
    assert found["config"]["rewards"] == [{"name": "length", "weight": 1.0}, {"name": "odd", "weight": 1.0}]
    assert found["config_given"]["trl"]["num_generations"] == 4
