"""The whole loop on tiny models: determinism, resume after kill -9, saved models, refusals before any weight changes."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tests.tiny import save_tiny
from toishi import loop
from toishi.checkpoints import load_checkpoint
from toishi.config import Config, load_config
from toishi.display import Display
from toishi.errors import ConfigError, HealthStop, NumericsError, RewardError
from toishi.given import given_objects, with_given
from toishi.policy.fused import plain
from toishi.record.reader import Run
from toishi.record.writer import RunWriter
from toishi.rewards.base import Judgement
from toishi.rewards.scripted import ScriptedReward
from toishi.tasks.scripted import ScriptedTask
from toishi.tracing import live
from toishi.update import update_policy


def recipe(model: Path, **overrides: Any) -> Config:
    plain = {
        "name": "tiny",
        "model": {"name": str(model), "dtype": "float32"},
        "task": {"name": "sums", "heldout": 4},
        "rewards": [{"name": "vowels", "kind": "function", "function": "tests.making:vowels"}],
        "sampling": {"max_new_tokens": 8},
        "train": {"steps": 6, "prompts_per_step": 2, "group_size": 3},
        "optimizer": {"lr": 3e-3},
        "evaluation": {"prompts": 4, "samples": 2, "every": 3},
        "checkpoint": {"every": 3},
    }
    return load_config(plain, overrides)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model") / "llama", "llama")


def what_happened(folder: Path) -> dict[str, Any]:
    """Everything of a run that must be equal bit for bit: metrics but times, answers, token streams, evaluations, weights."""
    run = Run.open(folder)
    metrics = [
        {
            key: value
            for key, value in line.items()
            if not key.startswith(("time", "tokens/per_s", "seal", "previous")) and "sha256" not in key
        }
        for line in run.metrics
    ]
    steps = {number: (run.step(number).groups, run.step(number).updates) for number in run.steps}
    evaluations = [{k: v for k, v in line.items() if k not in ("time", "seal", "previous")} for line in run.evaluations]
    weights = load_file(folder / "checkpoints" / "step_000006" / "model" / "model.safetensors")
    return {"metrics": metrics, "steps": steps, "evaluations": evaluations, "weights": weights}


def assert_same_run(found: Path, wanted: Path) -> None:
    one, other = what_happened(found), what_happened(wanted)
    for key in ("metrics", "evaluations", "steps"):
        assert one[key] == other[key], key
    assert one["weights"].keys() == other["weights"].keys()
    assert all(torch.equal(one["weights"][name], other["weights"][name]) for name in one["weights"])


@pytest.fixture(scope="module")
def straight(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six steps without interruption."""
    return loop.train(recipe(tiny), tmp_path_factory.mktemp("straight") / "run").folder


def test_same_seed_same_bits(tiny: Path, straight: Path, tmp_path: Path) -> None:
    again = loop.train(recipe(tiny), tmp_path / "run").folder
    assert_same_run(again, straight)
    other = loop.train(recipe(tiny, seed=1), tmp_path / "other").folder
    assert what_happened(other)["steps"] != what_happened(straight)["steps"]


def test_training_moves_the_reward(straight: Path) -> None:
    run = Run.open(straight)
    assert list(run.steps) == [1, 2, 3, 4, 5, 6]
    assert [line["step"] for line in run.evaluations] == [0, 0, 3, 6, 6]
    last = run.evaluations[-1]
    assert last["change"] is not None
    assert last["mode"] == "sampled"


SCRIPT = """
import sys
from pathlib import Path
from tests.test_loop import recipe
from toishi import loop
from toishi.checkpoints import load_checkpoint
loop.train(recipe(Path(sys.argv[1]), **{"train.steps": 6, **eval(sys.argv[3])}), sys.argv[2])
"""


def kill_after(tiny: Path, folder: Path, lines: int, overrides: Mapping[str, Any] | None = None) -> None:
    """Start the run in a process of its own and kill it hard when `lines` steps are on record."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(["src", "."])}
    root = Path(__file__).parent.parent
    command = [sys.executable, "-c", SCRIPT, str(tiny), str(folder), repr(overrides or {})]
    process = subprocess.Popen(command, cwd=root, env=environment)
    try:
        for _ in range(6000):
            if _recorded(folder) >= lines or process.poll() is not None:
                break
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def _recorded(folder: Path) -> int:
    path = folder / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.parametrize("lines", [1, 4])
def test_killed_and_resumed_is_the_same_run(tiny: Path, straight: Path, tmp_path: Path, lines: int) -> None:
    """Killed after step 1 (only the initial checkpoint) and after step 4 (one step past the checkpoint)."""
    folder = tmp_path / "run"
    kill_after(tiny, folder, lines)
    before = _recorded(folder)
    assert before >= lines
    result = loop.resume(folder)
    assert result.finished
    assert_same_run(folder, straight)
    undone = sorted((folder / "undone").rglob("metrics.jsonl")) if (folder / "undone").exists() else []
    moved = sum(path.read_text().count("\n") for path in undone)
    assert moved == before - (0 if before < 3 else 3 if before < 6 else 6)


def test_resume_restores_adam_and_the_reference(tiny: Path, tmp_path: Path) -> None:
    """LoRA with a KL term: the reference is the model of step 0, not that of the checkpoint."""
    overrides = {"model.lora": {"rank": 2}, "algorithm": {"name": "grpo", "kl": "k3", "kl_coef": 0.5}}
    wanted = loop.train(recipe(tiny, **overrides), tmp_path / "straight").folder
    half = loop.train(recipe(tiny, **overrides, **{"train.steps": 3}), tmp_path / "half").folder
    longer(half, 6)
    loop.resume(half)
    one, other = Run.open(half), Run.open(wanted)
    for step in (4, 5, 6):
        assert one.step(step).groups == other.step(step).groups
        assert one.step(step).updates == other.step(step).updates
    assert other.metrics[-1]["update/kl_policy_ref"] > 0
    assert other.metrics[0]["update/kl_policy_ref"] == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("stopped_after", [1, 3, 4])
def test_a_renewed_reference_is_the_policy_of_that_moment(tiny: Path, tmp_path: Path, stopped_after: int) -> None:
    """Every 2 steps: KL is 0 at steps 1, 3 and 5, where policy and reference are one, and only there; resumed at any step."""
    algorithm = {"name": "grpo", "kl": "k3", "kl_coef": 0.5, "reference_every": 2}
    overrides = {"algorithm": algorithm, "checkpoint": {"every": 1, "keep_last": 9}}
    wanted = Run.open(loop.train(recipe(tiny, **overrides), tmp_path / "straight").folder)
    half = loop.train(recipe(tiny, **overrides, **{"train.steps": stopped_after}), tmp_path / "half").folder
    longer(half, 6)
    loop.resume(half)
    found = Run.open(half)
    for step in range(stopped_after + 1, 7):
        assert found.step(step).updates == wanted.step(step).updates
    values = {line["step"]: line["update/kl_policy_ref"] for line in wanted.metrics}
    for step in range(1, 7):
        assert (abs(values[step]) < 1e-9) == (step % 2 == 1), values
    reference = load_checkpoint(wanted.folder / "checkpoints" / "step_000005").state["reference"]
    policy = load_file(wanted.folder / "checkpoints" / "step_000004" / "model" / "model.safetensors")
    assert all(reference[name].equal(policy[name]) for name in policy)


def test_without_samples_greedy_answers_alone_are_measured(tiny: Path, tmp_path: Path) -> None:
    changes = {"train.steps": 1, "evaluation": {"prompts": 4, "samples": 0, "every": 0}}
    found = Run.open(loop.train(recipe(tiny, **changes), tmp_path / "run").folder).evaluations
    assert [(line["step"], line["mode"]) for line in found] == [(0, "greedy"), (1, "greedy")]
    with pytest.raises(ConfigError, match=r"evaluation.samples is 0 and evaluation.greedy is false: nothing would be measured"):
        recipe(tiny, evaluation={"samples": 0, "greedy": False})


def test_a_reference_that_nothing_compares_with_is_not_renewed(tiny: Path) -> None:
    with pytest.raises(ConfigError, match="reference_every=2 has no effect: no KL term and no credit compares"):
        recipe(tiny, algorithm={"name": "grpo", "reference_every": 2})


def test_a_finished_run_resumes_to_nothing(straight: Path) -> None:
    before = (straight / "metrics.jsonl").read_bytes()
    result = loop.resume(straight)
    assert result.finished
    assert (straight / "metrics.jsonl").read_bytes() == before


def longer(folder: Path, steps: int) -> None:
    """Edit the run's own configuration so that it has more steps to go."""
    config = Run.open(folder).run["config"]
    RunWriter.open(folder).update_run({"config": config | {"train": config["train"] | {"steps": steps}}})


def test_a_damaged_checkpoint_is_passed_over(tiny: Path, straight: Path, tmp_path: Path) -> None:
    folder = loop.train(recipe(tiny, **{"train.steps": 3}), tmp_path / "run").folder
    weights = folder / "checkpoints" / "step_000003" / "model" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    longer(folder, 6)
    loop.resume(folder)
    assert Run.open(folder).step(6).updates == Run.open(straight).step(6).updates


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_saved_model_is_an_ordinary_transformers_model(tiny: Path, tmp_path: Path, dtype: str) -> None:
    """Loaded with plain transformers, the last checkpoint gives the log-probs of the policy that was saved."""
    session: list[Any] = []

    class Keeping(Display):
        def ended(self, ended: Any, finished: bool) -> None:
            session.append(ended)

    folder = loop.train(recipe(tiny, **{"train.steps": 2, "model.dtype": dtype}), tmp_path / "run", Keeping.silent()).folder
    saved = AutoModelForCausalLM.from_pretrained(folder / "checkpoints" / "step_000002" / "model")
    assert {weight.dtype for weight in saved.parameters()} == {torch.float32}
    policy = session[0].policy
    ids = torch.arange(5, 25)[None]
    with torch.no_grad(), plain(policy.module):
        mine = policy.module(input_ids=ids).logits
        theirs = saved.to(policy.compute_dtype)(input_ids=ids).logits
    assert torch.equal(mine, theirs)


def train_scripted(config: Config, folder: Path, values: Any, prompts: tuple[str, ...] = ("one two", "three four")) -> Path:
    given = given_objects(ScriptedTask(prompts, heldout=["five"]), [ScriptedReward(values=values)])
    return loop.train(with_given(config, given), folder, given=given).folder


def test_sampler_gap_is_recorded_and_small(tiny: Path, tmp_path: Path) -> None:
    for temperature in (0.6, 1.0):
        config = recipe(tiny, **{"sampling.temperature": temperature, "train.steps": 2, "checkpoint.every": 0})
        run = Run.open(loop.train(config, tmp_path / str(temperature)).folder)
        gaps = [line["sampler_gap/max_abs"] for line in run.metrics]
        assert len(gaps) == 2
        assert max(gaps) <= 1e-3


def test_a_sampler_that_disagrees_is_refused_before_the_first_update(tiny: Path, tmp_path: Path) -> None:
    config = recipe(tiny, **{"health.max_sampler_gap": 1e-12})
    with pytest.raises(HealthStop, match="No weight was changed"):
        loop.train(config, tmp_path / "run")
    assert Run.open(tmp_path / "run").steps == ()


def test_constant_reward_changes_no_weight(tiny: Path, tmp_path: Path) -> None:
    config = recipe(tiny, **{"train.steps": 2, "evaluation.prompts": 0})
    folder = train_scripted(config, tmp_path / "run", (0.5,))
    first, last = (
        load_file(folder / "checkpoints" / name / "model" / "model.safetensors") for name in ("step_000000", "step_000002")
    )
    assert all(torch.equal(first[name], last[name]) for name in first)
    assert [line["update/skipped"] for line in Run.open(folder).metrics] == [1.0, 1.0]


def test_a_reward_that_breaks_its_contract_stops_before_any_weight_changes(tiny: Path, tmp_path: Path) -> None:
    config = recipe(tiny, **{"train.steps": 2, "evaluation.prompts": 0})
    with pytest.raises(RewardError, match="scripted"):
        train_scripted(config, tmp_path / "run", (1.0, float("nan"), 0.0))
    assert not (tmp_path / "run" / "metrics.jsonl").exists() or Run.open(tmp_path / "run").steps == ()


def test_not_a_number_writes_out_the_rows_and_keeps_the_checkpoint(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def poisoned(policy: Any, *args: Any, step: int, **kwargs: Any) -> Any:
        if step == 2:
            with torch.no_grad():
                next(iter(policy.module.parameters())).fill_(float("nan"))
        return update_policy(policy, *args, step=step, **kwargs)

    monkeypatch.setattr(live, "update_policy", poisoned)
    with pytest.raises(NumericsError, match="no weight was changed"):
        loop.train(recipe(tiny, **{"checkpoint.every": 1}), tmp_path / "run")
    assert (tmp_path / "run" / "failures" / "step_000002" / "rollouts.parquet").exists()
    monkeypatch.undo()
    assert loop.resume(tmp_path / "run").finished


def test_refill_samples_further_prompts_in_place_of_tied_groups(tiny: Path, tmp_path: Path) -> None:
    """Groups 0 and 1 are tied, the next two mixed: with refill the update has two mixed groups; the ceiling is kept."""
    asked: list[str] = []

    def values(prompt: Any, completion: Any) -> float:
        if not asked or asked[-1] != prompt.id:
            asked.append(prompt.id)
        return float(sum(completion.token_ids)) if len(asked) > 2 else 0.0

    overrides = {"train.refill_rounds": 3, "algorithm": "dapo", "train.steps": 1, "evaluation.prompts": 0}
    prompts = tuple(f"prompt number {n}" for n in range(8))
    folder = train_scripted(recipe(tiny, **overrides), tmp_path / "run", values, prompts)
    groups = Run.open(folder).step(1).groups
    assert len({group.prompt.id for group in groups}) == len(groups)
    assert [r.id.group for group in groups for r in group.rollouts] == sorted(
        r.id.group for group in groups for r in group.rollouts
    )
    (line,) = Run.open(folder).metrics
    assert line["groups/mixed"] + line["groups/dropped"] == line["groups/count"]
    assert line["prompts/next"] == len(groups)


def test_refill_stops_at_its_ceiling(tiny: Path, tmp_path: Path) -> None:
    overrides = {"train.refill_rounds": 2, "algorithm": "dapo", "train.steps": 1, "evaluation.prompts": 0}
    folder = train_scripted(recipe(tiny, **overrides), tmp_path / "run", (0.5,))
    (line,) = Run.open(folder).metrics
    assert (line["groups/count"], line["groups/refill_rounds"], line["groups/dropped"]) == (6, 2, 6)


def breaking(step: int, said: Any, steps_of: int = 6) -> Any:
    """Pays by the answer, but says `said` of each answer of `step` (`steps_of` answers a step), once: then it is repaired."""
    asked: list[str] = []

    def values(prompt: Any, completion: Any) -> Any:
        if not any(completion.sampled_logprobs):
            return float(len(completion.text))  # a made-up answer, before the start
        asked.append(prompt.id)
        broken = (step - 1) * steps_of < len(asked) <= step * steps_of
        return said if broken else float(sum(completion.token_ids) % 7)

    return values


def stopped(tiny: Path, folder: Path, values: Any, error: type[Exception], shown: io.StringIO) -> tuple[str, Any]:
    config = recipe(tiny, **{"checkpoint.every": 0, "evaluation.prompts": 0, "train.steps": 4})
    given = given_objects(ScriptedTask(("one two", "three four"), heldout=["five"]), [ScriptedReward(values=values)])
    with pytest.raises(error) as caught:
        loop.train(with_given(config, given), folder, Display(Console(file=shown, width=200)), given=given)
    return str(caught.value), given


def test_a_health_stop_saves_first_and_says_once_where_to_look(tiny: Path, tmp_path: Path) -> None:
    broken, shown = Judgement(value=None, status="failed", reason="no server", kind="unreachable"), io.StringIO()
    message, given = stopped(tiny, tmp_path / "run", breaking(2, broken), HealthStop, shown)
    assert "failed on 6 of 6 answers: 6 unreachable" in message
    assert f"toishi explain {tmp_path / 'run'} --step 2" in message
    assert "unreachable" not in shown.getvalue()  # the error says it, once
    assert f"toishi resume {tmp_path / 'run'}" in shown.getvalue()
    assert (tmp_path / "run" / "checkpoints" / "step_000002").is_dir()
    assert loop.resume(tmp_path / "run", given=given).finished
    assert list(Run.open(tmp_path / "run").steps) == [1, 2, 3, 4]
    assert not (tmp_path / "run" / "undone").exists()


def test_a_reward_that_breaks_its_contract_later_loses_no_step(tiny: Path, tmp_path: Path) -> None:
    _, given = stopped(tiny, tmp_path / "run", breaking(3, float("nan")), RewardError, io.StringIO())
    assert (tmp_path / "run" / "checkpoints" / "step_000002").is_dir()
    assert list(Run.open(tmp_path / "run").steps) == [1, 2]
    assert Run.open(tmp_path / "run").metrics[-1]["prompts/next"] == 4
    repaired = given_objects(given.task, [ScriptedReward(values=breaking(99, None))])
    assert loop.resume(tmp_path / "run", given=repaired).finished
    assert [line["prompts/next"] for line in Run.open(tmp_path / "run").metrics] == [2, 4, 6, 8]


def test_weights_that_are_not_finite_are_not_saved(tiny: Path, tmp_path: Path) -> None:
    class Poisoning(Display):
        def step(self, session: Any, report: Any) -> None:
            if report.step == 2:
                next(iter(session.policy.masters.values())).data.fill_(float("inf"))

    broken = Judgement(value=None, status="failed", reason="no server")
    given = given_objects(ScriptedTask(("one two", "three")), [ScriptedReward(values=breaking(2, broken))])
    config = recipe(tiny, **{"checkpoint.every": 0, "evaluation.prompts": 0})
    with pytest.raises(HealthStop):
        loop.train(with_given(config, given), tmp_path / "run", Poisoning.silent(), given=given)
    assert [folder.name for folder in (tmp_path / "run" / "checkpoints").iterdir()] == ["step_000000"]


@pytest.fixture
def interrupted() -> Iterator[None]:
    yield
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_ctrl_c_saves_and_resume_finishes(tiny: Path, straight: Path, tmp_path: Path, interrupted: None) -> None:
    class Interrupting(Display):
        def step(self, session: Any, report: Any) -> None:
            if report.step == 2:
                os.kill(os.getpid(), signal.SIGINT)

    result = loop.train(recipe(tiny), tmp_path / "run", Interrupting.silent())
    assert not result.finished
    assert result.step == 2
    assert (tmp_path / "run" / "checkpoints" / "step_000002").is_dir()
    assert loop.resume(tmp_path / "run").finished
    assert_same_run(tmp_path / "run", straight)


@pytest.mark.parametrize("out", [True, False])
def test_a_folder_that_cannot_be_is_told_before_anything_is_loaded(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: bool
) -> None:
    monkeypatch.setattr(loop, "gather", lambda *given: pytest.fail("loaded"))
    far = tmp_path / ("x" * 300)
    with pytest.raises(ConfigError, match=r"no path that can be used: File name too long.*--set name="):
        loop.train(recipe(tiny, **{"record.folder": str(far)}), far if out else None)
    assert list(tmp_path.iterdir()) == []
