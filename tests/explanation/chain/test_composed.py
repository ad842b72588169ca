"""A run whose rewards are gated, capped, levelled and left out: recorded, audited, recomputed and said in words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.explanation.chain.runs import PROMPTS, SHORT
from tests.explanation.chain.test_broken import with_group
from tests.test_loop import recipe
from toishi import loop
from toishi.config import RewardConfig
from toishi.explanation.audit import audit
from toishi.explanation.chain.build import build_chain, explain_chain
from toishi.explanation.chain.evidence import read_step
from toishi.explanation.chain.story import page
from toishi.explanation.chain.voice import Voice
from toishi.explanation.page.render_html import html_page
from toishi.given import given_objects, with_given
from toishi.record import Run
from toishi.rewards.base import Judgement
from toishi.rewards.scripted import ScriptedReward
from toishi.tasks.scripted import ScriptedTask
from toishi.types import Score

WORDS = "It is kind. " * 200
FAILED = Judgement(value=None, status="failed", reason="no answer within 30 s", kind="timed_out")
RIGHT = (1.0, 0.0, 1.0, 1.0)
STYLE = tuple(Judgement(value=value, reason=WORDS) for value in (0.9, 0.8, 0.2, 0.4))
JUDGE = (7.0, 7.2, 6.9, 7.1)
TERMS: tuple[dict[str, Any], ...] = (
    {"name": "right"},
    {"name": "style", "weight": 2.0, "gate": {"reward": "right"}, "cap": [0.0, 1.0]},
    {"name": "judge", "weight": 0.1, "noise": 0.3},
    {"name": "helper", "on_failure": "drop_reward"},
)


def make(model: Path, folder: Path, algorithm: dict[str, Any]) -> Run:
    rewards = [
        ScriptedReward(name="right", values=RIGHT),
        ScriptedReward(name="style", values=STYLE),
        ScriptedReward(name="judge", values=JUDGE),
        ScriptedReward(name="helper", values=(1.0, 0.5, FAILED, 0.0)),
    ]
    given = given_objects(ScriptedTask(PROMPTS, heldout=["five"]), rewards)
    config = with_given(recipe(model, **SHORT | {"algorithm": algorithm}), given)
    sections = [
        RewardConfig.model_validate(section.model_dump() | term) for section, term in zip(config.rewards, TERMS, strict=True)
    ]
    config = config.model_copy(update={"rewards": tuple(sections)})
    return Run.open(loop.train(config, folder, given=given).folder)


ALGORITHMS: dict[str, dict[str, Any]] = {
    "sum": {"name": "grpo"},
    "each": {"name": "grpo", "combine": "normalise_each"},
}


@pytest.fixture(scope="module", params=ALGORITHMS)
def run(request: pytest.FixtureRequest, tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return make(tiny, tmp_path_factory.mktemp("composed") / request.param, ALGORITHMS[request.param])


def scores_of(run: Run, reward: str) -> list[Score]:
    return [score for rollout in run.step(1).groups[0].rollouts for score in rollout.scores if score.reward == reward]


def test_the_record_holds_what_was_done_and_every_word(run: Run) -> None:
    # style: 2 * .9 is capped at 1; gated; .4; .8. judge: all .1 * 7.05, spread .0129 below 2 * .1 * .3
    assert run.step(1).groups[0].rewards == pytest.approx((2.705, 0.705, 2.105, 2.505), abs=1e-9)
    assert [(score.use, score.contribution) for score in scores_of(run, "style")] == [
        ("capped", 1.0),
        ("gated", 0.0),
        ("counted", 0.4),
        ("counted", 0.8),
    ]
    assert {score.use for score in scores_of(run, "judge")} == {"levelled"}
    helper = scores_of(run, "helper")
    assert [(score.use, score.contribution) for score in helper] == [("left_out", None)] * 4
    assert (helper[2].status, helper[2].kind) == ("failed", "timed_out")
    assert all(score.reason.endswith(WORDS) for score in scores_of(run, "style"))
    assert run.line(1)["groups/below_noise"] == 2
    assert run.line(1)["rewards/helper/failed/timed_out"] == 2
    assert run.line(1)["answers/unscored"] == 0


def test_the_audit_forms_it_again(run: Run) -> None:
    report = audit(run)
    assert report.findings == ()
    assert report.compared > 100


@pytest.mark.parametrize("language", ["en", "ja"])
def test_every_link_is_recomputed_and_the_page_says_what_was_done(run: Run, language: str) -> None:
    chain = explain_chain(run, 1, group=0, member=1, language=language)
    assert chain.broken is None
    assert all(check.ok for check in chain.checks)
    shown = html_page(page(chain, language))
    assert "gate closed: right is 0, needs at least 1" in shown
    assert "within its noise" in shown
    assert WORDS not in shown  # the screen shortens, the record does not
    if language == "en":
        assert "mean, within the noise)" in shown


def test_a_gate_opened_in_the_record_is_found(run: Run) -> None:
    evidence = read_step(run, 1)
    rows = {key: dict(row) for key, row in evidence.rows.items()}
    cells = [dict(cell) for cell in rows[0, 1]["scores"]]
    style = next(cell for cell in cells if cell["reward"] == "style")
    style |= {"use": "counted", "contribution": 1.6}
    rows[0, 1]["scores"] = cells
    chain = build_chain(replace(evidence, rows=rows), member=None, update=None, voice=Voice.of("en"))
    assert chain.broken == "scores"
    assert not chain.scores.check.ok
    assert chain.reward.check.ok


def test_a_right_answer_made_up_afterwards_changes_the_reward(run: Run) -> None:
    evidence = read_step(run, 1)

    def changed(group: Any) -> Any:
        rollouts = tuple(
            replace(r, scores=(replace(r.scores[0], value=1.0), *r.scores[1:])) if r.id.member == 1 else r
            for r in group.rollouts
        )
        return replace(group, rollouts=rollouts)

    chain = build_chain(with_group(evidence, changed), member=None, update=None, voice=Voice.of("en"))
    assert not chain.reward.check.ok
