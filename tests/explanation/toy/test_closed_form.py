"""The closed form against float64 autograd, for random vocabularies, judges, answers, rows and moved models."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from toishi.algorithms.rows import ROWS, Algorithm
from toishi.errors import ConfigError
from toishi.explanation.toy import closed_form
from toishi.explanation.toy.compute import paper_row, row_with, walk
from toishi.explanation.toy.model import World, drawn, evaluate, initial_logits, packed
from toishi.explanation.toy.updating import evaluated, scored

CLOSE = 1e-10
WALKED = [
    name
    for name, row in ROWS.items()
    if row.source == "sampled" and row.credit in ("sequence", "reward_to_go") and not row.needs_teacher
]


@st.composite
def worlds(draw: DrawFn) -> World:
    size = draw(st.integers(2, 6))
    words = tuple(f"w{index}" for index in range(size))
    rows = [
        torch.tensor(draw(st.lists(st.floats(-3, 3), min_size=size, max_size=size)), dtype=torch.float64).softmax(-1).tolist()
        for _ in range(2)
    ]
    points = st.one_of(st.none(), st.floats(0, 10), st.sampled_from([0.0, 3.0, 10.0]))
    scores = tuple(draw(st.lists(points, min_size=size, max_size=size)))
    world = World(words=words, first=tuple(rows[0]), second=tuple(rows[1]), scores=scores, answers=((0,),), target=(0,))
    return replace(world, answers=drawn(world, draw(st.integers(1, 8)), draw(st.integers(0, 10_000))))


@st.composite
def any_row(draw: DrawFn) -> Algorithm:
    row = paper_row(draw(st.sampled_from([*WALKED, "trl"])))
    changes: dict[str, object] = {
        "clip_low": draw(st.floats(0, 0.5)),
        "clip_high": draw(st.floats(0, 0.5)),
        "ratio_level": draw(st.sampled_from(["token", "sequence_mean", "sequence_sum"])),
        "surrogate": draw(st.sampled_from(["score_function", "clipped", "dual_clip", "stop_gradient"])),
        "reduction": draw(st.sampled_from(["token_mean", "sequence_mean_token_mean", "sequence_sum", "constant_length"])),
        "entropy_coef": draw(st.sampled_from([0.0, 0.1])),
        "dual_clip": draw(st.floats(1.1, 3.0)),
        "off_policy": draw(st.sampled_from(["none", "truncated_importance", "mask"])),
    }
    kl = draw(st.sampled_from(["none", "k2", "k3", "ratio_k3", "k1_in_reward"]))
    if (row.scale != "group_mean" and row.policy_term) or kl != "k1_in_reward":  # the rows that refuse KL in the reward
        changes |= {"kl": kl, "kl_coef": 0.0 if kl == "none" else draw(st.floats(0.01, 1.0))}
    return row_with(row, changes)


@given(worlds(), any_row(), st.lists(st.floats(-1, 1), min_size=12, max_size=12))
@settings(max_examples=250, deadline=None)
def test_equals_autograd(world: World, row: Algorithm, shifts: list[float]) -> None:
    """On the model that wrote the answers, and on one that has moved away from it."""
    _, rollouts = scored(world, row)
    start_PV = initial_logits(world)
    moved_PV = start_PV + torch.tensor(shifts[: start_PV.numel()], dtype=torch.float64).view_as(start_PV)
    for logits_PV in (start_PV, moved_PV):
        found = evaluated(world, row, rollouts, logits_PV)
        assert (found.gradient_PV - found.autograd_PV).abs().max().item() < CLOSE


@given(worlds(), any_row())
@settings(max_examples=40, deadline=None)
def test_a_whole_walk_holds_together(world: World, row: Algorithm) -> None:
    found = walk(world, row, inner_steps=3)
    for update in found.updates:
        assert update.max_difference < CLOSE
        parts = [*update.by_answer, update.entropy_part]
        for position in ("first", "second"):
            total = [sum(values) for values in zip(*(getattr(part, position) for part in parts), strict=True)]
            assert total == pytest.approx(getattr(update.gradient, position), abs=CLOSE)
        assert sum(update.step.after.probabilities.first) == pytest.approx(1)
    assert sum(move.before * move.growth for move in found.moves) == pytest.approx(found.moves[0].total)
    left_out = [answer for answer in found.answers if answer.score is None]
    assert all(answer.advantage == 0 and not answer.takes_part for answer in left_out)


@pytest.mark.parametrize("kl", ["k2", "k3", "ratio_k3"])
def test_a_tokens_kl_weight_against_finite_differences(kl: str) -> None:
    """One token, log-prob -1 where the reference has -1.5 and the sampler had -1.2."""
    row = row_with(paper_row("grpo"), {"kl": kl, "kl_coef": 1.0})
    one = torch.ones(1, dtype=torch.float64)

    def estimate(logprob: float) -> float:
        d, ratio = -1.5 - logprob, float(torch.tensor(logprob + 1.2, dtype=torch.float64).exp())
        k3 = float(torch.tensor(d, dtype=torch.float64).exp()) - d - 1
        return {"k2": d * d / 2, "k3": k3, "ratio_k3": ratio * k3}[kl]

    weights = closed_form.token_weights(
        row,
        packed([(0,)]),
        advantages_N=0 * one,
        shares_N=one,
        logprobs_N=-1.0 * one,
        old_logprobs_N=-1.2 * one,
        ref_logprobs_N=-1.5 * one,
    )
    slope = (estimate(-1.0 + 1e-6) - estimate(-1.0 - 1e-6)) / 2e-6
    assert weights.total_N.item() == pytest.approx(slope, abs=1e-8)


def test_a_tokens_weight_is_what_autograd_says_of_its_log_prob() -> None:
    """The second update of the worked step; weights by hand: 0 where held, else -advantage · ratio · share."""
    found = walk(World()).updates[1]
    by_hand = [0, -1.414214 * 1.051093 / 8, -0.471405 * 0.991591 / 8, -0.471405 * 1.051093 / 8, 0, 0.942809 * 1.051093 / 8, 0]
    assert [token.weight for token in found.tokens] == pytest.approx(by_hand, abs=1e-6)
    assert [token.push for token in found.tokens] == pytest.approx([-weight for weight in by_hand], abs=1e-6)


def test_gradient_of_the_entropy_term_against_finite_differences() -> None:
    row = row_with(paper_row("entropy_only"), {"entropy_coef": 1.0})
    tokens, logits_PV = packed([(0, 1), (1,)]), torch.tensor([[0.3, -0.2], [1.0, 0.1]], dtype=torch.float64)

    def loss(shifted_PV: Tensor) -> float:
        return -evaluate(shifted_PV, tokens)[1].mean().item()

    found = closed_form.entropy_gradient(row, tokens, logits_PV)
    for place in ((0, 0), (0, 1), (1, 0), (1, 1)):
        shift_PV = torch.zeros_like(logits_PV)
        shift_PV[place] = 1e-6
        assert found[place].item() == pytest.approx((loss(logits_PV + shift_PV) - loss(logits_PV - shift_PV)) / 2e-6, abs=1e-8)


def test_answers_are_drawn_as_often_as_the_model_says() -> None:
    world = World()
    answers = drawn(world, 4000, seed=1)
    shares = [sum(answer[0] == word for answer in answers) / 4000 for word in range(4)]
    assert shares == pytest.approx(world.first, abs=0.03)
    assert all((len(answer) == 1) == (answer[0] == world.end) for answer in answers)
    ends = [answer[1] == world.end for answer in answers if len(answer) == 2]
    assert sum(ends) / len(ends) == pytest.approx(0.6, abs=0.03)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"first": (0.5, 0.5)}, "got 2 probabilities of the first word, expected 4: one for each of good, ok, bad, <end>"),
        ({"second": (0.0, 0.2, 0.2, 0.6)}, "must lie between 0 and 1"),
        ({"first": (0.4, 0.3, 0.2, 0.2)}, "sum to 1.1, expected 1; divide each by 1.1"),
        ({"scores": (8.0, 6.0, 3.0)}, "got 3 scores of the judge, expected 4"),
        ({"scores": (8.0, 6.0, 3.0, 11.0)}, r"scores \[11.0\] lie outside 0 to 10"),
        ({"scores": (8.0, 6.0, 3.0, float("nan"))}, "lie outside 0 to 10"),
        ({"points": 0.0}, "must be a number above 0"),
        ({"comments": ("fine",)}, "got 1 comments of the judge"),
        ({"words": ("a", "a", "b", "c")}, "at least two different words"),
        ({"answers": ()}, "at least one answer"),
    ],
)
def test_a_world_that_does_not_fit_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        replace(World(), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimizer": "adma"}, "unknown optimizer 'adma'"),
        ({"lr": 0.0}, "learning rate must be a number above 0"),
        ({"beta": -1.0}, "beta"),
        ({"inner_steps": 0}, "at least one update"),
        ({"row": paper_row("sft")}, "row 'sft': source 'written' is not walked here"),
        ({"row": paper_row("reward_model")}, "predicts 'score' is not walked here"),
        ({"row": row_with(paper_row("ppo"), {"truncation": "bootstrap"})}, "truncation 'bootstrap' is not walked here"),
        ({"row": paper_row("opd")}, "needs_teacher 'True' is not walked here"),
        ({"row": row_with(paper_row("grpo"), {"surrogate": "dynamic"})}, "surrogate 'dynamic' is not walked here"),
    ],
)
def test_a_walk_that_cannot_be_walked_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        walk(World(), **options)  # type: ignore[arg-type]
