"""The seeds of learning tests."""

from __future__ import annotations

import pytest

SEEDS = (0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3, 4)))
"""Two in every run, all five with the slow tests."""
