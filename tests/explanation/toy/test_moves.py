"""The learning rate at which a word's probability turns, against steps that are really taken."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toishi.explanation.toy.compute import walk
from toishi.explanation.toy.model import World
from toishi.explanation.toy.moves import turning_rate

numbers = st.floats(-2.0, 2.0)


def test_the_worked_step_turns_where_steps_on_both_sides_say() -> None:
    turns = {move.word: move.turns_at for move in walk(World()).moves}
    assert turns["good"] is turns["bad"] is turns["<end>"] is None
    rate = turns["ok"]
    assert rate is not None
    assert 1.5 < rate < 1.7
    for lr, sign in ((0.1, 1), (1.0, 1), (1.5, 1), (1.7, -1), (2.0, -1)):
        after = walk(World(), lr=lr).updates[0].step.after.probabilities.first[1]
        assert (after - 0.3) * sign > 0
    assert walk(World(), lr=rate).updates[0].step.after.probabilities.first[1] == pytest.approx(0.3, abs=1e-12)


def test_the_rate_is_the_same_whatever_rate_the_step_was_taken_with() -> None:
    rates = [walk(World(), lr=lr).moves[1].turns_at for lr in (0.5, 2.0, 4.0)]
    assert rates == pytest.approx([rates[0]] * 3)


def test_adam_moves_two_words_alike_so_neither_turns() -> None:
    assert {move.turns_at for move in walk(World(), optimizer="adam").moves} == {None}


@given(st.lists(st.tuples(st.floats(0.05, 1.0), numbers), min_size=2, max_size=5), st.integers(0, 4))
def test_a_rate_is_where_the_probability_is_what_it_was(words: list[tuple[float, float]], index: int) -> None:
    index %= len(words)
    total = math.fsum(weight for weight, _ in words)
    chances, directions = [weight / total for weight, _ in words], [direction for _, direction in words]

    def gained(rate: float) -> float:
        grown = [p * math.exp(rate * (c - max(directions))) for p, c in zip(chances, directions, strict=True)]
        return grown[index] / math.fsum(grown) - chances[index]

    rate = turning_rate(chances, directions, index)
    if rate is None:
        assert not (gained(0.01) > 1e-6 and gained(30.0) < -1e-6)
        return
    assert gained(rate / 2) >= -1e-12
    assert gained(rate) == pytest.approx(0.0, abs=1e-9)
    assert gained(rate * 2) <= 1e-12
