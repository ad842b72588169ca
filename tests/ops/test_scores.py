"""The expected score of a judge that is not sure."""

from __future__ import annotations

import pytest

from toishi.ops.scores import expected_score


def test_by_hand() -> None:
    """(.3 + 1.75 + 4.4 + .9) / .95; the rest of the probability is on other tokens."""
    found = expected_score([6, 7, 8, 9], [0.05, 0.25, 0.55, 0.10])
    assert found.mass == pytest.approx(0.95)
    assert found.most_likely == 8
    assert found.mean == pytest.approx(7.35 / 0.95)
    assert found.std == pytest.approx(0.713929, abs=1e-6)


def test_a_sure_judge_has_no_spread() -> None:
    found = expected_score([1, 2], [0.0, 1.0])
    assert (found.mean, found.std) == (2, 0)


@pytest.mark.parametrize("probabilities", [[0.5], [0.0, 0.0], [-0.1, 0.5], [0.9, 0.9]])
def test_refuses_what_is_no_distribution(probabilities: list[float]) -> None:
    with pytest.raises(ValueError, match="one probability >= 0 for each score"):
        expected_score([1, 2], probabilities)
