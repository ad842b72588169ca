"""Generalised advantage estimation: a hand-worked answer, the two ends of lambda, and the recursion against the sum."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from toishi.ops.gae import gae

REWARDS, VALUES = torch.tensor([0.0, 0.8], dtype=torch.float64), torch.tensor([0.5, 0.7], dtype=torch.float64)
SMALL = st.floats(-2, 2)


def test_two_tokens_by_hand() -> None:
    found = gae(REWARDS, VALUES, gamma=1.0, lam=0.95)
    assert found.delta_T.tolist() == pytest.approx([0.2, 0.1])
    assert found.advantages_T.tolist() == pytest.approx([0.295, 0.1])
    assert found.returns_T.tolist() == pytest.approx([0.795, 0.8])


@pytest.mark.parametrize(("lam", "expected"), [(0.0, [0.2, 0.1]), (1.0, [0.3, 0.1])])
def test_ends_of_lambda(lam: float, expected: list[float]) -> None:
    assert gae(REWARDS, VALUES, lam=lam).advantages_T.tolist() == pytest.approx(expected)


@given(st.lists(st.tuples(SMALL, SMALL), min_size=1, max_size=6), st.floats(0, 1), st.floats(0, 1))
def test_is_the_discounted_sum_of_surprises(pairs: list[tuple[float, float]], gamma: float, lam: float) -> None:
    rewards, values = zip(*pairs, strict=True)
    surprises = [r + gamma * after - v for r, v, after in zip(rewards, values, [*values[1:], 0.0], strict=True)]
    sums = [sum((gamma * lam) ** k * d for k, d in enumerate(surprises[t:])) for t in range(len(pairs))]
    found = gae(torch.tensor(rewards).double(), torch.tensor(values).double(), gamma=gamma, lam=lam)
    assert found.advantages_T.tolist() == pytest.approx(sums, abs=1e-6)


def test_refuses_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="one value per token"):
        gae(REWARDS, VALUES[:1])
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        gae(REWARDS, VALUES, lam=1.5)
