"""Weights of tokens: each reduction against its written-out formula, and the sums that follow from it."""

from __future__ import annotations

import pytest
import torch

from toishi.ops.reduce import token_weights

SEQUENCE = torch.tensor([0, 0, 0, 1])
LENGTHS = torch.tensor([3, 1])


@pytest.mark.parametrize(
    ("reduction", "expected"),
    [
        ("token_mean", (1 / 10, 1 / 10)),
        ("sequence_mean_token_mean", (1 / 12, 1 / 4)),
        ("sequence_sum", (1 / 4, 1 / 4)),
        ("constant_length", (1 / 32, 1 / 32)),
    ],
)
def test_denominators_are_those_of_the_whole_update(reduction: str, expected: tuple[float, float]) -> None:
    weights = token_weights(SEQUENCE, LENGTHS, reduction, num_tokens=10, num_sequences=4, max_length=8)
    assert weights.dtype == torch.float64
    assert weights.tolist() == pytest.approx((expected[0],) * 3 + (expected[1],), abs=1e-15)


def test_dtype_is_the_callers() -> None:
    weights = token_weights(SEQUENCE, LENGTHS, "token_mean", num_tokens=4, num_sequences=2, max_length=8, dtype=torch.float32)
    assert weights.dtype == torch.float32


@pytest.mark.parametrize("reduction", ["token_mean", "sequence_mean_token_mean"])
def test_means_have_total_weight_one(reduction: str) -> None:
    weights = token_weights(SEQUENCE, LENGTHS, reduction, num_tokens=4, num_sequences=2, max_length=8)
    assert weights.sum().item() == pytest.approx(1.0, abs=1e-15)


def test_unknown_reduction() -> None:
    with pytest.raises(ValueError, match="unknown reduction 'mean'; known: token_mean"):
        token_weights(SEQUENCE, LENGTHS, "mean", num_tokens=4, num_sequences=2, max_length=8)


@pytest.mark.parametrize("zero", ["num_tokens", "num_sequences", "max_length"])
def test_an_update_without_tokens_is_not_averaged(zero: str) -> None:
    counts = {"num_tokens": 4, "num_sequences": 2, "max_length": 8} | {zero: 0}
    tokens, sequences, limit = counts.values()
    with pytest.raises(ValueError, match=f"{zero}=0"):
        token_weights(SEQUENCE, LENGTHS, "token_mean", num_tokens=tokens, num_sequences=sequences, max_length=limit)
