"""Drawing by inversion against plain prefix sums and exact frequencies; truncations by hand."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from toishi.ops.sampling import choose, filtered

UNIT = st.floats(0, 1, exclude_max=True)


@given(st.integers(1, 700), st.integers(0, 2**31 - 1), st.lists(st.tuples(UNIT, UNIT), min_size=1, max_size=20))
def test_a_block_and_a_token_in_it_by_plain_prefix_sums(vocabulary: int, seed: int, draws: list[tuple[float, float]]) -> None:
    weights = torch.rand(vocabulary, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    chosen = choose(weights.expand(len(draws), -1), draws)
    blocks = np.split(weights.numpy(), range(256, vocabulary, 256))
    for draw, token in zip(draws, chosen.tolist(), strict=True):
        levels = [(np.array([block.sum() for block in blocks]), token // 256), (blocks[token // 256], token % 256)]
        for number, (shares, place) in zip(draw, levels, strict=True):
            end = shares[: place + 1].sum()
            assert end - shares[place] - 1e-9 <= number * shares.sum() <= end + 1e-9


@given(st.lists(st.booleans(), min_size=2, max_size=600).filter(any), UNIT, UNIT)
def test_a_token_of_probability_zero_is_never_drawn(possible: list[bool], first: float, second: float) -> None:
    probs_V = torch.tensor(possible, dtype=torch.float32)
    probs_V /= probs_V.sum()
    (token,) = choose(probs_V[None], [(first, second)]).tolist()
    assert possible[token]


def test_frequencies_are_the_probabilities() -> None:
    """Evenly spaced pairs of numbers hit each token in proportion to its probability, inside blocks and over them."""
    probs = torch.zeros(520)
    probs[[0, 255, 256, 300, 519]] = torch.tensor([0.05, 0.15, 0.3, 0.3, 0.2])
    even = [(i + 0.5) / 40 for i in range(40)]
    draws = [(first, second) for first in even for second in even]
    counts = torch.bincount(choose(probs.expand(1600, -1), draws), minlength=520)
    assert counts[[0, 255, 256, 300, 519]].tolist() == [80, 240, 480, 480, 320]
    assert counts.sum() == 1600


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
