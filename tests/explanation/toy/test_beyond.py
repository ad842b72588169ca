"""A2C, PPO and DPO on the toy, beside numbers that were worked by hand.

Four answers: good <end>, ok <end>, bad <end>, <end>, with rewards .8, .6, .3, .3 and first-word probabilities .4, .3, .2, .1
(second word <end>: .6). The critic guesses .5 at first, then .7 after good, .6 after ok, .4 after bad. SGD, learning rate 2.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from tests.cli.conftest import run_command
from toishi.errors import ConfigError
from toishi.explanation.page.blocks import Table, unfolded
from toishi.explanation.page.render_terminal import render
from toishi.explanation.toy.compute import paper_row, row_with, walk
from toishi.explanation.toy.messages import languages
from toishi.explanation.toy.model import World
from toishi.explanation.toy.story import page
from toishi.explanation.toy.walk import Walk

CLOSE = 1e-6
A2C, PPO, DPO = (walk(World(), paper_row(name)) for name in ("a2c", "ppo", "dpo"))


def by_token(walked: Walk, name: str) -> list[float]:
    assert walked.valued is not None
    return [getattr(token, name) for token in walked.valued.tokens]


def test_a2c_is_what_was_earned_minus_the_guess() -> None:
    assert by_token(A2C, "surprise") == pytest.approx([0.2, 0.1, 0.1, 0.0, -0.1, -0.1, -0.2])
    assert by_token(A2C, "advantage") == pytest.approx([0.3, 0.1, 0.1, 0.0, -0.2, -0.1, -0.2])
    assert by_token(A2C, "target") == pytest.approx([0.8, 0.8, 0.6, 0.6, 0.3, 0.3, 0.3])
    first = A2C.updates[0]
    # -1/7 (.3 ln .4 + .1 ln .6 + .1 ln .3 - .2 ln .2 - .1 ln .6 - .2 ln .1), by hand from the logarithms
    assert first.loss == pytest.approx(-0.055303, abs=CLOSE)
    # pushes sum to 0 at the first place, so each slope is minus its word's push: advantage / 7
    assert first.gradient.first == pytest.approx([-0.3 / 7, -0.1 / 7, 0.2 / 7, 0.2 / 7])
    assert first.gradient.second == pytest.approx([0.0] * 4)  # .1 + 0 - .1
    assert first.max_difference < 1e-15


def test_a2cs_critic() -> None:
    assert A2C.valued is not None
    first, second = A2C.valued.steps
    # distances -.3 -.1 -.1 0 .2 .1 .2: squares sum to .2; half of it over 7 words
    assert first.loss == pytest.approx(0.1 / 7)
    # half the mean distance of the words that follow each text: before anything -.3 - .1 + .2 + .2 = 0
    assert first.slopes == pytest.approx([0.0, 0.5 / 7 * -0.1, 0.0, 0.5 / 7 * 0.1])
    assert first.after == pytest.approx([0.5, 0.7 + 0.1 / 7, 0.6, 0.4 - 0.1 / 7])
    assert second.before == first.after
    assert max(first.max_difference, second.max_difference) < 1e-15


def test_ppo_fades_whitens_and_keeps_its_returns() -> None:
    assert PPO.valued is not None
    estimated = [0.295, 0.1, 0.1, 0.0, -0.195, -0.1, -0.2]  # .2 + .95 · .1, ..., -.1 - .95 · .1
    assert by_token(PPO, "estimated") == pytest.approx(estimated)
    assert by_token(PPO, "target") == pytest.approx([0.795, 0.8, 0.6, 0.6, 0.305, 0.3, 0.3])
    # their mean is 0; squares .087025 + .01 + .01 + .038025 + .01 + .04 = .19505, over 6: .0325083
    assert PPO.valued.mean == pytest.approx(0.0)
    assert PPO.valued.std == pytest.approx(0.180300, abs=CLOSE)
    assert by_token(PPO, "advantage") == pytest.approx([one / 0.18030067 for one in estimated], abs=CLOSE)
    assert PPO.valued.ends[0] == pytest.approx((0.2, 0.1))
    assert PPO.valued.ends[1] == pytest.approx((0.3, 0.1))
    assert PPO.updates[0].gradient.first == pytest.approx([-0.233737, -0.079233, 0.154504, 0.158465], abs=CLOSE)


def test_ppos_second_update_holds_what_went_too_far() -> None:
    second = PPO.updates[1]
    # changes of logits .467473 .158465 -.309009 -.316931; grown, and divided by their mean 1.209569
    ratios = [1.319442, 1.0, 0.968702, 1.0, 0.606972, 1.0, 0.602182]
    assert [token.ratio for token in second.tokens] == pytest.approx(ratios, abs=2 * CLOSE)
    assert [token.clip for token in second.tokens] == ["held_high", "free", "free", "free", "held_low", "free", "held_low"]
    # -1/7 (1.2 · 1.636156 + .554629 + .968702 · .554629 + 0 - .8 · 1.081527 - .554629 - .8 · 1.109258)
    assert second.loss == pytest.approx(-0.106861, abs=CLOSE)
    # only ok pushes, by .537270 / 7 = .076753: times the probabilities now .527778 .290611 - 1 .121394 .060218
    assert second.gradient.first == pytest.approx([0.040508, -0.054448, 0.009317, 0.004622], abs=CLOSE)


def test_a_guess_that_went_too_far_is_held() -> None:
    """SGD with learning rate 100 takes the guess after good from .7 to .7 + 100 · .1 / 7 · .1 = .842857: past .7 + .1."""
    near = walk(World(), row_with(paper_row("ppo"), {"value_clip": 0.02}), lr=100.0)
    assert near.valued is not None
    first, second = near.valued.steps
    assert first.after[1] == pytest.approx(0.842857, abs=CLOSE)
    # return .8: half (.842857 - .8)² is .000918, at the bound .72 half (.72 - .8)² is .0032: the larger one, and it is flat
    assert second.held[1]
    assert second.slopes[1] == 0.0
    assert second.max_difference < 1e-15


def test_dpo_by_its_closed_form() -> None:
    first, second = DPO.pairs
    assert (first.chosen, first.rejected) == (1, 3)
    assert first.apart == 0.0  # nothing has moved
    assert first.loss == pytest.approx(0.693147, abs=CLOSE)  # -log 1/2
    assert first.weight == pytest.approx(0.05)  # .1 · 1/2
    # -.05 [(1 - .4, -.3, -.2, -.1) - (-.4, -.3, 1 - .2, -.1)]; both end with <end>, so the second place cancels
    assert first.gradient[0] == pytest.approx([-0.05, 0.0, 0.05, 0.0])
    assert first.gradient[1] == pytest.approx([0.0] * 4)
    assert DPO.updates[0].gradient.first == pytest.approx(first.gradient[0])
    # logits of good and bad have moved by .1 and -.1; .4 e^.1 + .3 + .2 e^-.1 + .1 = 1.023036
    assert second.chosen_reward == pytest.approx(0.1 * (0.1 - 0.022774), abs=CLOSE)
    assert second.rejected_reward == pytest.approx(0.1 * (-0.1 - 0.022774), abs=CLOSE)
    assert second.apart == pytest.approx(0.02)
    assert second.loss == pytest.approx(0.683197, abs=CLOSE)  # log(1 + e^-.02)
    assert second.weight == pytest.approx(0.1 * 0.495000, abs=CLOSE)  # σ(-.02)
    assert max(pair.max_difference for pair in DPO.pairs) < 1e-15
    assert [update.gradient.first for update in DPO.updates] == [pytest.approx(pair.gradient[0]) for pair in DPO.pairs]


@pytest.mark.parametrize(("name", "changes"), [("ipo", {}), ("dpo", {"label_smoothing": 0.1}), ("dpo_online", {"beta": 2.0})])
def test_every_preference_loss_agrees_with_autograd_on_the_loss_itself(name: str, changes: dict[str, object]) -> None:
    found = walk(World(), row_with(paper_row(name), changes), lr=0.05, inner_steps=3)
    assert len(found.pairs) == 3
    assert max(pair.max_difference for pair in found.pairs) < 1e-12


@pytest.mark.parametrize("changes", [{"gamma": 0.9}, {"entropy_coef": 0.1}, {"kl": "k1_in_reward", "kl_coef": 0.1}])
def test_other_choices_of_a_row_with_a_critic(changes: dict[str, object]) -> None:
    found = walk(World(), row_with(paper_row("a2c"), changes), optimizer="adam", inner_steps=3)
    assert found.valued is not None
    assert max(update.max_difference for update in found.updates) < 1e-12
    assert max(step.max_difference for step in found.valued.steps) < 1e-12
    if "gamma" in changes:  # .9 · .7 - .5, .8 - .7
        assert by_token(found, "surprise")[:2] == pytest.approx([0.13, 0.1])


SPELLED = {
    "a2c": (
        "0 + 1 × 0.7 − 0.5 = +0.2",
        "+0.2 + 1 × 1 × (+0.1) = +0.3",
        "+0.3 + 0.5 = 0.8",
        "0.5 / 7 × [(0.7 − 0.8)] = −0.0071",
    ),
    "ppo": (
        *("0.8 + 1 × 0 − 0.7 = +0.1", "+0.2 + 1 × 0.95 × (+0.1) = +0.295", "+0.295 + 0.5 = 0.795"),
        *("(+0.295 − 0) / 0.1803 = +1.6362", "min(1.3194 × +1.6362, 1.2 × +1.6362) = min(+2.1588, +1.9634) = +1.9634"),
    ),
    "dpo": ("0.1 × +0.0772 = +0.0077", "+0.0077 − (−0.0123) = +0.0200", "0.1 × 0.4950 = 0.0495", "−log 0.5000 = 0.6931"),
}


@pytest.mark.parametrize("language", languages())
@pytest.mark.parametrize(("walked", "name"), [(A2C, "a2c"), (PPO, "ppo"), (DPO, "dpo")])
def test_numbers_are_spelled_out_in_every_language(walked: Walk, name: str, language: str) -> None:
    console = Console(width=400, no_color=True)
    told = page(walked, language)
    with console.capture() as capture:
        render(told, console)
    text = re.sub(r"\s+", " ", capture.get())
    assert [said for said in SPELLED[name] if said not in text] == []
    assert ("critic" in {section.key for section in told.sections}) == (name != "dpo")
    for section in told.sections:
        for block in unfolded(section.blocks):
            if isinstance(block, Table):
                assert all(len(line.cells) == len(block.columns) for line in block.lines)


def test_the_command_takes_guesses() -> None:
    found: Any = json.loads(run_command("explain", "toy", "--row", "ppo", "--values", ".4,.8,.6,.1", "--json").out)
    assert [token["value"] for token in found["valued"]["tokens"]] == [0.4, 0.8, 0.4, 0.6, 0.4, 0.1, 0.4]
    assert found["pairs"] == []
    with pytest.raises(ConfigError, match=r"got 2 values of the critic, expected 4: .* after each of good, ok, bad"):
        replace(World(), values=(0.5, 0.7))


def test_without_a_difference_there_is_no_pair() -> None:
    told = {section.key: section for section in page(walk(World(scores=(5.0,) * 4), paper_row("dpo")), "en").sections}
    assert told["advantages"].headline == "No pair: there is nothing to prefer."
