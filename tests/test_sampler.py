"""Opening a run or a model for asking."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.tiny import save_tiny
from toishi.config import load_config
from toishi.errors import RecordError
from toishi.loop import train
from toishi.record.reader import Run
from toishi.sampler import Sampler, Source, checkpoint_of
from toishi.types import Prompt


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model") / "llama", "llama")


@pytest.fixture(scope="module")
def folder(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    plain = {
        "model": {"name": str(tiny), "dtype": "float32", "lora": {"rank": 2}},
        "task": {"name": "sums", "heldout": 3},
        "rewards": [{"name": "vowels", "function": "tests.making:vowels"}],
        "sampling": {"max_new_tokens": 6},
        "train": {"steps": 4, "prompts_per_step": 2, "group_size": 2},
        "optimizer": {"lr": 0.01},
        "evaluation": {"prompts": 3, "samples": 1, "every": 2},
        "checkpoint": {"every": 2},
    }
    return train(load_config(plain), tmp_path_factory.mktemp("runs") / "run").folder


def test_a_run_is_opened_at_its_last_checkpoint_with_its_adapter(folder: Path, tiny: Path) -> None:
    source = Source.find(str(folder))
    assert source.step == 4
    assert source.model.name == str(tiny)
    assert source.model.adapter == str(folder / "checkpoints" / "step_000004" / "model")
    sampler = Sampler.open(source.model, seed=0)
    assert sampler.policy.num_trained < sampler.policy.num_parameters
    assert sampler.renderer.render(Prompt(id="a", text="hello")).token_ids


def test_best_is_the_kept_checkpoint_of_the_highest_greedy_value(folder: Path) -> None:
    run = Run.open(folder)
    kept = {int(path.name.removeprefix("step_")) for path in (folder / "checkpoints").iterdir()}
    values = {line["step"]: line["value"] for line in run.evaluations if line["mode"] == "greedy" and line["step"] in kept}
    best = checkpoint_of(run, "best").name
    assert values[int(best.removeprefix("step_"))] == max(values.values())


def test_a_step_is_opened_by_its_number_and_an_unknown_one_lists_the_others(folder: Path) -> None:
    run = Run.open(folder)
    assert checkpoint_of(run, "0").name == "step_000000"
    for which in ("77", "lst"):
        with pytest.raises(RecordError, match=r"expected last, best, or a step of 0, .*4"):
            checkpoint_of(run, which)


def test_a_damaged_checkpoint_is_passed_over(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / "checkpoints" / "step_000004" / "state.pt").write_bytes(b"damaged")
    assert checkpoint_of(Run.open(copy), "last").name != "step_000004"
    shutil.rmtree(copy / "checkpoints")
    with pytest.raises(RecordError, match="no whole checkpoint"):
        checkpoint_of(Run.open(copy))


def test_a_model_is_opened_as_it_is(tiny: Path) -> None:
    source = Source.find(str(tiny))
    assert (source.model.name, source.run, source.step) == (str(tiny), None, 0)
