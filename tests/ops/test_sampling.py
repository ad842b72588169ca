"""Drawing by inversion against plain prefix sums and exact frequencies; truncations by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from toishi.ops.sampling import choose, filtered


@given(st.integers(1, 700), st.integers(0, 2**31 - 1), st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=20))
def test_two_levels_agree_with_plain_prefix_sums(vocabulary: int, seed: int, draws: list[float]) -> None:
    weights = torch.rand(vocabulary, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    probs_V = weights / weights.sum()
    chosen = choose(probs_V.expand(len(draws), -1), draws)
    cumulative = np.cumsum(probs_V.numpy())
    for draw, token in zip(draws, chosen.tolist(), strict=True):
        below = cumulative[token - 1] if token else 0.0
        assert below - 1e-12 <= draw * cumulative[-1] <= cumulative[token] + 1e-12


@given(st.lists(st.booleans(), min_size=2, max_size=600).filter(any), st.floats(0, 1, exclude_max=True))
def test_a_token_of_probability_zero_is_never_drawn(possible: list[bool], draw: float) -> None:
    probs_V = torch.tensor(possible, dtype=torch.float32)
    probs_V /= probs_V.sum()
    (token,) = choose(probs_V[None], [draw]).tolist()
    assert possible[token]


def test_frequencies_are_the_probabilities() -> None:
    """Evenly spaced draws hit each token in proportion to its probability, to one draw."""
    probs = [0.05, 0.0, 0.6, 0.15, 0.2]
    draws = [(i + 0.5) / 1000 for i in range(1000)]
    counts = torch.bincount(choose(torch.tensor(probs).expand(1000, -1), draws), minlength=5)
    assert counts.tolist() == pytest.approx([50, 0, 600, 150, 200], abs=1)


LOG = torch.tensor([[0.1, 0.4, 0.2, 0.3]], dtype=torch.float64).log()


def test_top_k_top_p_and_min_p_by_hand() -> None:
    def probs(**options: float) -> list[float]:
        return [round(p, 6) for p in filtered(LOG, **options).exp()[0].tolist()]  # type: ignore[arg-type]

    assert filtered(LOG) is LOG
    assert probs(top_k=2) == [0, 0.571429, 0, 0.428571]
    assert probs(top_k=9) == [0.1, 0.4, 0.2, 0.3]
    assert probs(top_p=0.7) == [0, 0.571429, 0, 0.428571]  # .4 + .3 reach .7
    assert probs(top_p=0.71) == [0, 0.444444, 0.222222, 0.333333]
    assert probs(top_p=0.01) == [0, 1, 0, 0]
    assert probs(min_p=0.5) == [0, 0.444444, 0.222222, 0.333333]  # at least half of .4
    assert probs(top_k=3, min_p=0.7) == [0, 0.571429, 0, 0.428571]
