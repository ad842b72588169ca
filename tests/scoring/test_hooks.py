"""The optional hooks of rewards, in a whole run: prepared before the model, heard, counted, closed."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from rich.console import Console

from tests.test_loop import recipe
from tests.tiny import save_tiny
from toishi import loop
from toishi.display import Display
from toishi.errors import ConfigError, RewardError
from toishi.given import Given, given_objects, with_given
from toishi.preflight import preflight
from toishi.record import Run
from toishi.rewards.base import Closes, HasNotes, HasUsage, Judgement, Prepares
from toishi.types import Completion, Prompt

SHORT = {
    "train": {"steps": 2, "prompts_per_step": 2, "group_size": 3},
    "evaluation.prompts": 2,
    "checkpoint.every": 0,
}


@dataclass
class Hooked:
    """Writes down what it was asked to do."""

    refuses: str = ""
    breaks_in_step: bool = False
    name: str = "judge"
    columns: tuple[str, ...] = ()
    happened: list[str] = field(default_factory=list)
    prompts: tuple[Prompt, ...] = ()
    calls: int = 0

    def prepare(self, prompts: Sequence[Prompt]) -> None:
        self.happened.append("prepare")
        self.prompts = tuple(prompts)
        if self.refuses:
            raise ConfigError(self.refuses)

    def notes(self) -> list[str]:
        self.happened.append("notes")
        return ["flattery was paid 0.1 of 1"]

    def usage(self) -> Mapping[str, float]:
        return {"calls": self.calls}

    def close(self) -> None:
        self.happened.append("close")

    def score_group(self, prompt: Prompt, completions: Sequence[Completion]) -> list[tuple[Judgement, ...]]:
        if self.happened[-1] != "score":
            self.happened.append("score")
        if self.breaks_in_step and len(completions) == 3:
            return []
        self.calls += 1
        return [(Judgement(value=float(member)),) for member in range(len(completions))]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model") / "llama", "llama")


def given_reward(reward: Hooked) -> Given:
    return given_objects(None, [reward])


def test_hooks_are_found_by_their_names() -> None:
    hooked = Hooked()
    assert all(isinstance(hooked, hook) for hook in (Prepares, HasNotes, HasUsage, Closes))


def test_a_run_prepares_asks_counts_and_closes(tiny: Path, tmp_path: Path) -> None:
    reward = Hooked()
    given, shown = given_reward(reward), io.StringIO()
    display = Display(Console(file=shown, width=120))
    folder = loop.train(with_given(recipe(tiny, **SHORT), given), tmp_path / "run", display, given).folder
    assert reward.happened == ["prepare", "notes", "score", "close"]
    assert 1 <= len(reward.prompts) <= 8
    assert reward.prompts[0].gold is not None
    assert "reward 'judge': flattery was paid 0.1 of 1" in shown.getvalue()
    # two groups in each step; what evaluations and the dry run asked is not the step's
    assert [line["rewards/judge/calls"] for line in Run.open(folder).metrics] == [2.0, 2.0]


def test_a_reward_that_refuses_stops_before_a_model_is_loaded(tmp_path: Path) -> None:
    reward = Hooked(refuses="the judge pays for an empty answer")
    given = given_reward(reward)
    with pytest.raises(ConfigError, match="the judge pays for an empty answer"):
        loop.train(with_given(recipe(tmp_path / "no model here", **SHORT), given), tmp_path / "run", given=given)
    assert reward.happened == ["prepare", "close"]
    found = preflight(with_given(recipe(tmp_path, **SHORT), given), given)
    assert [(finding.part, finding.message) for finding in found.errors] == [("rewards", "the judge pays for an empty answer")]


def test_a_run_that_breaks_off_closes_its_rewards(tiny: Path, tmp_path: Path) -> None:
    reward = Hooked(breaks_in_step=True)
    given = given_reward(reward)
    with pytest.raises(RewardError, match="got 0 entries"):
        loop.train(with_given(recipe(tiny, **SHORT), given), tmp_path / "run", given=given)
    assert reward.happened[-1] == "close"
