"""The sizes of a model of 135 million weights, by hand: 30 layers, hidden size 576, 3 of 9 heads with keys, a tied head."""

from __future__ import annotations

from toishi.config import Config, load_config
from toishi.memory import ModelShape

SMALL = ModelShape(
    parameters=134_515_008,
    trained=134_515_008,
    linear=30 * (576 * 576 * 2 + 576 * 192 * 2 + 3 * 576 * 1536),
    vocabulary=49_152,
    hidden=576,
    widest=1536,
    layers=30,
    key_value_width=192,
    kept_per_token=700_000.0,
    kept_per_square=0.0,
    fast_head=True,
    shared_rows=True,
    mixed_rows=True,
    compute_bytes=4,
    device="cpu",
)


def recipe(**overrides: object) -> Config:
    """A recipe with some values; `train__steps` is train.steps."""
    return load_config({}, {key.replace("__", "."): value for key, value in overrides.items()})
