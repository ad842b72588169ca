"""Recorded steps done again: bit for bit in every kind of run, and whatever is wrong on the way is named."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.replay.forging import forge_line, forge_run, forge_step, with_rollout, with_stream
from tests.test_loop import longer, recipe, train_scripted
from tests.tiny import save_tiny
from toishi import loop
from toishi.errors import ModelError, RecordError
from toishi.record import Run
from toishi.replay.plan import damage, plan_replay
from toishi.replay.redo import ReplayReport, replay
from toishi.types import GroupBaseline, StepReport

SMALL = {"train.steps": 3, "evaluation.prompts": 0, "checkpoint.every": 2}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model") / "llama", "llama")


@pytest.fixture(scope="module")
def made(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three steps with two inner epochs and a KL term; checkpoints after steps 0, 2 and 3."""
    overrides = {"train.inner_epochs": 2, "algorithm": {"name": "grpo", "kl": "k3", "kl_coef": 0.1}, "checkpoint.keep_last": 9}
    return loop.train(recipe(tiny, **SMALL, **overrides), tmp_path_factory.mktemp("made") / "run").folder


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    """A copy that may be damaged."""
    return Path(shutil.copytree(made, tmp_path / "copy"))


def redone(folder: Path, step: int) -> ReplayReport:
    record = Run.open(folder)
    return replay(record, plan_replay(record, step))


def assert_all_steps_come_out_again(folder: Path) -> None:
    for step in Run.open(folder).steps:
        report = redone(folder, step)
        assert report.ok, report.difference
        assert report.elsewhere == ()
        assert report.bit_for_bit
        assert sum(link.compared for link in report.links if link.link == "weights checksum") == len(report.steps)


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "lora": {"model.lora": {"rank": 2}},
    "accumulation": {"train.micro_batch_tokens": 20, "train.group_size": 4},
    "two inner epochs, two minibatches": {"train.inner_epochs": 2, "train.minibatches": 2},
    "kl": {"algorithm": {"name": "grpo", "kl": "k3", "kl_coef": 0.5}},
    "kl to a reference that is renewed": {
        "algorithm": {"name": "grpo", "kl": "k3", "kl_coef": 0.5, "reference_every": 2},
        "train.steps": 5,
    },
    "kl in the reward, lora": {"algorithm": {"name": "reinforce_pp", "kl_coef": 0.1}, "model.lora": {"rank": 2}},
    "bfloat16": {"model.dtype": "bfloat16"},
    "sgd with momentum and decay": {
        "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 0.1, "warmup_steps": 2, "decay": "cosine"}
    },
    "shared critic": {"algorithm": "ppo", "train.inner_epochs": 2, "train.minibatches": 2},
    "separate critic, adapters, bfloat16": {
        "algorithm": {"name": "ppo", "kl_coef": 0.1},
        "model.lora": {"rank": 2},
        "model.dtype": "bfloat16",
        "critic": {"kind": "separate", "optimizer": {"name": "adamw", "lr": 1e-2}},
    },
    "critic alone at first, cut answers bootstrapped": {
        "algorithm": {"name": "a2c", "truncation": "bootstrap"},
        "critic": {"warmup_steps": 2},
    },
    "no streams": {"record.tokens": False},
    "ended by an anchor": {"checkpoint.anchor_every": 1},
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_step_comes_out_again_bit_for_bit(kind: str, tiny: Path, tmp_path: Path) -> None:
    assert_all_steps_come_out_again(loop.train(recipe(tiny, **SMALL | KINDS[kind]), tmp_path / "run").folder)


def test_a_run_of_python_objects_needs_neither_task_nor_rewards(tiny: Path, tmp_path: Path) -> None:
    config = recipe(tiny, **SMALL, **{"train.refill_rounds": 1, "algorithm": "dapo"})
    values = lambda prompt, completion: float(sum(completion.token_ids) % 3)  # noqa: E731
    assert_all_steps_come_out_again(train_scripted(config, tmp_path / "run", values))


def test_skipped_updates_come_out_again(tiny: Path, tmp_path: Path) -> None:
    folder = train_scripted(recipe(tiny, **SMALL), tmp_path / "run", (0.5,))
    assert [line["update/skipped"] for line in Run.open(folder).metrics] == [1.0, 1.0, 1.0]
    assert_all_steps_come_out_again(folder)


def test_after_a_resume(tiny: Path, tmp_path: Path) -> None:
    overrides = SMALL | {"train.steps": 2, "model.lora": {"rank": 2}}
    folder = loop.train(recipe(tiny, **overrides), tmp_path / "run").folder
    longer(folder, 5)
    loop.resume(folder)
    assert Run.open(folder).steps == (1, 2, 3, 4, 5)
    assert_all_steps_come_out_again(folder)


def test_a_fresh_process_knows_the_machine_that_the_run_was_made_on(made: Path) -> None:
    """Nothing has loaded torch yet when the plan is made."""
    script = (
        "import sys; from toishi.record import Run; from toishi.replay.plan import plan_replay; "
        "assert 'torch' not in sys.modules; print(plan_replay(Run.open(__import__('pathlib').Path(sys.argv[1])), 2).elsewhere)"
    )
    source = str(Path(loop.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", script, str(made)],
        env=os.environ | {"PYTHONPATH": source},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "()", done.stdout + done.stderr


def test_the_nearest_checkpoint_is_taken(made: Path) -> None:
    record = Run.open(made)
    plans = [plan_replay(record, step) for step in record.steps]
    assert [(plan.start, list(plan.steps)) for plan in plans] == [(0, [1]), (0, [1, 2]), (2, [3])]
    assert plans[1].seconds == pytest.approx(sum(record.line(step)["time/update_s"] for step in (1, 2)))
    assert "2 steps (1 to 2)" in plans[1].text
    assert redone(made, 3).links[-1].link == "weight"


def files_read(folder: Path) -> list[Path]:
    shards = [folder / name / "step_000003.parquet" for name in ("rollouts", "tokens")]
    lines = [folder / name for name in ("run.json", "metrics.jsonl", "events.jsonl", "evaluations.jsonl")]
    checkpoint = folder / "checkpoints" / "step_000002"
    return [path for path in [*shards, *lines, *sorted(checkpoint.rglob("*"))] if path.is_file()]


def test_one_altered_byte_in_any_file_is_refused_by_name(run: Path) -> None:
    files = files_read(run)
    assert len(files) > 8
    for path in files:
        content = path.read_bytes()
        path.write_bytes(
            content[: len(content) // 2] + bytes([content[len(content) // 2] ^ 1]) + content[len(content) // 2 + 1 :]
        )
        with pytest.raises(RecordError) as refused:
            plan_replay(Run.open(run), 3)
        assert path.name in str(refused.value)
        path.write_bytes(content)
    assert plan_replay(Run.open(run), 3).start == 2


def test_damage_to_another_step_does_not_matter(run: Path) -> None:
    (run / "tokens" / "step_000001.parquet").write_bytes(b"")
    assert redone(run, 3).ok
    record = Run.open(run)
    found = list(damage(record, range(1, 4), run / "checkpoints" / "step_000000"))
    assert found == ["tokens/step_000001.parquet (token ids, log-probs, token weights) was changed after it was written"]


def test_a_line_that_was_taken_out_is_missed(run: Path) -> None:
    path = run / "events.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:1] + lines[2:]))
    with pytest.raises(RecordError, match=r"events.jsonl: the line before line 2 is not the one that was there"):
        plan_replay(Run.open(run), 3)


def test_a_missing_shard_or_checkpoint_is_refused(run: Path) -> None:
    (run / "rollouts" / "step_000003.parquet").unlink()
    with pytest.raises(RecordError, match=r"rollouts/step_000003.parquet \(answers, scores.*is missing"):
        plan_replay(Run.open(run), 3)
    with pytest.raises(RecordError, match="step 7 is not on record"):
        plan_replay(Run.open(run), 7)
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(RecordError, match="step_000000"):
        plan_replay(Run.open(run), 1)


def test_another_base_model_is_refused(tiny: Path, tmp_path: Path) -> None:
    model = Path(shutil.copytree(tiny, tmp_path / "model"))
    folder = loop.train(recipe(model, **SMALL, **{"model.lora": {"rank": 2}}), tmp_path / "run").folder
    save_tiny(model, "llama", seed=1)
    with pytest.raises(ModelError, match="not the model that this run started from"):
        redone(folder, 1)


def in_stream(name: str, token: int, change: Callable[[float], float], update: int = 0) -> Callable[[StepReport], StepReport]:
    return lambda report: with_stream(report, name, token, change, update)


def nudge(value: float) -> float:
    return value + 1e-6


FORGED: dict[str, tuple[Callable[[StepReport], StepReport], str, int | None]] = {
    "reward": (lambda r: with_rollout(r, lambda one: replace(one, reward=one.reward + 0.1)), "reward", None),
    "advantage": (lambda r: with_rollout(r, lambda one: replace(one, advantage=one.advantage * 2)), "advantage", None),
    "baseline": (
        lambda r: replace(r, groups=(replace(r.groups[0], baseline=GroupBaseline(mean=0.9, std=0.1, count=3)), *r.groups[1:])),
        "group mean",
        None,
    ),
    "old log-prob": (in_stream("old_logprob", 2, nudge), "old log-prob", 2),
    "log-prob": (in_stream("logprob", 3, nudge, 1), "log-prob", 3),
    "ratio": (in_stream("ratio", 1, nudge, 1), "ratio", 1),
    "clip": (in_stream("clip", 0, lambda code: 2), "clip branch", 0),
    "token weight": (in_stream("token_weight", 4, lambda weight: -weight), "token weight", 4),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_wrong_number_on_record_is_named_with_its_place(name: str, run: Path) -> None:
    change, link, token = FORGED[name]
    forge_step(run, 3, change)
    report = redone(run, 3)
    assert report.difference is not None
    assert (report.difference.link, report.difference.token, report.difference.step) == (link, token, 3)
    assert report.difference.place.startswith(("3/0/", "group 0", "3/1/"))
    assert not report.ok


def test_an_exchanged_token_shows_in_the_first_log_prob_after_it(run: Path) -> None:
    def change(rollout: Any) -> Any:
        ids = list(rollout.completion.token_ids)
        ids[2] = 40 if ids[2] != 40 else 41
        return replace(rollout, completion=replace(rollout.completion, token_ids=tuple(ids)))

    forge_step(run, 3, lambda report: with_rollout(report, change))
    found = redone(run, 3).difference
    assert found is not None
    assert (found.place, found.token) == ("3/0/1", 2)
    assert found.link == "reference log-prob"


@pytest.mark.parametrize(
    ("key", "value", "link"),
    [
        ("updates/1/loss", 0.5, "loss"),
        ("updates/0/grad_norm", 1.0, "gradient norm"),
        ("update/weights_checksum", "0" * 32, "weights checksum"),
        ("updates/0/lr", 1.0, "learning rate"),
    ],
)
def test_a_wrong_line_is_named(key: str, value: Any, link: str, run: Path) -> None:
    forge_line(run, 3, lambda line: line | {key: value})
    found = redone(run, 3).difference
    assert found is not None
    assert (found.link, found.recorded) == (link, value)


def test_a_wrong_step_on_the_way_ends_the_replay_there(run: Path) -> None:
    forge_line(run, 1, lambda line: line | {"update/weights_checksum": "0" * 32})
    report = redone(run, 2)
    assert report.steps == (1,)
    assert report.difference is not None
    assert "step 1: weights checksum of all trained weights" in report.difference.text


def elsewhere(folder: Path) -> None:
    def change(values: dict[str, Any]) -> dict[str, Any]:
        environment = values["environment"]
        return values | {"environment": environment | {"versions": environment["versions"] | {"torch": "1.0"}}}

    forge_run(folder, change)


def test_elsewhere_bounds_take_the_place_of_bits(run: Path) -> None:
    elsewhere(run)
    forge_step(run, 3, lambda report: with_stream(report, "logprob", 1, lambda value: value + 1e-5))
    report = redone(run, 3)
    assert report.ok
    assert not report.bit_for_bit
    assert report.elsewhere[0].startswith("torch was 1.0")
    forge_step(run, 3, lambda report: with_stream(report, "logprob", 1, lambda value: value + 0.1))
    found = redone(run, 3).difference
    assert found is not None
    assert (found.link, found.token) == ("log-prob", 1)


def test_wrong_weights_in_a_kept_checkpoint_are_beyond_the_bound(
    run: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound is a share of the way that the weights went, so weights that did not move at all are found elsewhere too."""
    elsewhere(run)
    monkeypatch.setattr("toishi.replay.redo.checkpoint_fault", lambda folder: None)
    first, last = (run / "checkpoints" / name / "model" / "model.safetensors" for name in ("step_000002", "step_000003"))
    last.write_bytes(first.read_bytes())
    found = redone(run, 3).difference
    assert found is not None
    assert found.link == "weight"
    assert "differ)" in found.place


def test_environment_facts_are_compared_only_where_both_are_known(made: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(made, tmp_path / "old"))
    forge_run(folder, lambda values: values | {"environment": {"toishi": values["environment"]["toishi"]}})
    assert plan_replay(Run.open(folder), 1).elsewhere == ()
