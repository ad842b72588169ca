"""The words are true: printed pages are fresh, examples in pages run, links lead somewhere, every metric is explained."""

from __future__ import annotations

import contextlib
import doctest
import importlib.util
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pydantic import BaseModel

import toishi
from tests.tiny import save_tiny
from toishi.algorithms.rows import ROWS, Algorithm
from toishi.config import Config
from toishi.metrics import METRICS, REWARDS_OWN
from toishi.recipes import load_recipe, recipe_names
from toishi.tasks import ScriptedTask

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
IDS = [str(page.relative_to(ROOT)) for page in PAGES]


def script(name: str) -> ModuleType:
    """A module of scripts/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def run(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run that has everything: several updates a step, a KL term, tied groups, two rewards of which one abstains."""

    def letters(completions: list[str]) -> list[float]:
        return [sum(map(str.isalpha, text)) / max(len(text), 1) for text in completions]

    def digits(completions: list[str]) -> list[float | None]:
        return [None if not text else float(any(map(str.isdigit, text))) for text in completions]

    recipe = {
        "model": {"name": str(tiny), "dtype": "float32"},
        "algorithm": {"name": "grpo", "kl": "k3", "kl_coef": 0.01},
        "sampling": {"max_new_tokens": 6},
        "train": {"steps": 2, "prompts_per_step": 2, "group_size": 4, "inner_epochs": 2},
        "evaluation": {"prompts": 1, "samples": 2},
    }
    task = ScriptedTask(["one", "two", "three", "four"], heldout=["five"])
    folder = tmp_path_factory.mktemp("runs") / "run"
    return toishi.train(recipe, task=task, rewards=[letters, digits], folder=folder, quiet=True).folder


def test_printed_pages_are_fresh() -> None:
    stale = [str(path) for path, text in script("make_docs").pages().items() if (ROOT / path).read_text("utf-8") != text]
    assert not stale, f"run `make docs`: {', '.join(stale)}"


def test_every_algorithm_has_a_page_and_no_other() -> None:
    pages = {page.stem for page in (ROOT / "docs" / "algorithms").glob("*.md")} - {"index"}
    assert pages == set(ROWS)


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_examples_in_pages_run(page: Path) -> None:
    assert doctest.testfile(str(page), module_relative=False).failed == 0


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
    broken = [target for target in targets if "://" not in target and not (page.parent / target).exists()]
    assert not broken


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


def test_readme_opens_a_run_in_pandas_and_duckdb(run: Path) -> None:
    opening = [block for block in blocks("README.md", "python") if "{run}" in block]
    assert len(opening) == 2
    for block in opening:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(block, {"run": run})


def test_readme_trains_with_own_data_and_reward(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = [block for block in blocks("README.md", "python") if "toishi.train" in block]
    assert sum(bool(line) for line in block.splitlines()) <= 10
    monkeypatch.chdir(tmp_path)
    small = '{"train.steps": 2, "train.group_size": 2, "sampling.max_new_tokens": 4, "evaluation.samples": 1}'
    block = block.replace('"bundled"', repr(str(tiny))).replace('{"train.steps": 20}', small).replace("step=20", "step=2")
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        exec(block, {})
    assert "begins_right" in shown.getvalue()


def test_readme_shows_what_a_demo_prints() -> None:
    (shown,) = blocks("README.md", "text")
    assert "Held-out prompts" in shown
    assert "One group of step" in shown


def test_front_page_of_the_package_is_true(tiny: Path, tmp_path: Path) -> None:
    """The example in the docstring of `toishi`, with a small model and the folder of the test."""
    text = (toishi.__doc__ or "").split("\n\n", 1)[1].split("`import toishi`")[0]
    code = "\n".join(line.removeprefix("    ") for line in text.splitlines())
    small = {"train.steps": 5, "model.name": str(tiny), "sampling.max_new_tokens": 3, "evaluation.prompts": 0}
    code = code.replace('overrides={"train.steps": 5}', f"overrides={small | {'record.folder': str(tmp_path)}}")
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        exec(code, {})
    assert "short" in shown.getvalue()


def generic(key: str) -> str:
    """rewards/right/mean -> rewards/<name>/mean."""
    return re.sub(r"^rewards/.+/", "rewards/<name>/", key)


BOOKKEEPING = {"step", "time", "num_updates", "non_finite", "rollouts_sha256", "tokens_sha256", "previous", "seal"}


def test_the_table_of_metrics_and_what_is_emitted_are_the_same(run: Path) -> None:
    emitted = {generic(key) for line in toishi.Run.open(run).metrics for key in line if not key.startswith("updates/")}
    assert emitted - BOOKKEEPING == set(METRICS) - set(REWARDS_OWN)


def sections(model: type[BaseModel]) -> Iterator[tuple[str, Any]]:
    make_docs = script("make_docs")
    yield from ((f"{model.__name__}.{name}", field) for name, field in model.model_fields.items())
    for name, section in make_docs._sections(model):
        yield from ((f"{name}.{key}", field) for key, field in section.model_fields.items())


def test_every_key_says_what_it_means() -> None:
    silent = [name for name, field in [*sections(Config), *sections(Algorithm)] if not field.description]
    sections_speak_for_themselves = {f"Config.{name}" for name in Config.model_fields}
    assert set(silent) <= sections_speak_for_themselves


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_is_named_in_the_docs(name: str) -> None:
    assert f"`{name}`" in (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")


def test_the_tables_of_the_length_tutorial_add_up() -> None:
    """The means that the page shows are those of its columns of counts, and it shows every held-out prompt."""
    (shown,) = blocks("docs/tutorial-length.md", "text")
    rows = [line.split() for line in shown.splitlines() if re.match(r" *\d+ +\S", line)]
    assert [int(row[0]) for row in rows] == list(range(1, load_recipe("length-short").evaluation.prompts + 1))
    counts = [[float(cell) for cell in row[-6:]] for row in rows]
    columns = [sum(column) / len(counts) for column in zip(*counts, strict=True)]
    means = [float(mean) for mean in re.findall(r"(?:bundled|short|long) +([\d.]+) \[", shown)]
    assert means == pytest.approx(columns, abs=0.1)  # sampled counts are rounded to a tenth
