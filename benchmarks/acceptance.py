"""The bars that toishi holds itself to, each computed from one run's JSON, passed or failed in plain words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

PRECISION_CLASS = ("trl", "trl-plain", "trl-8x4")
"""Rows of TRL that train as toishi does: fp32 weights, bf16 compute."""


@dataclass(frozen=True)
class Bar:
    """`value` is None when the run did not measure it; then `is_met` is None as well."""

    what: str
    bound: str
    value: float | None
    is_met: bool | None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def at_least(what: str, value: float | None, bound: float, unit: str = "x") -> Bar:
    """
    >>> at_least("speed", 2.0, 2.3).is_met, at_least("speed", None, 2.3).is_met
    (False, None)
    """
    return Bar(what, f">= {bound:g}{unit}", value, None if value is None else value >= bound)


def at_most(what: str, value: float | None, bound: float, unit: str = "x") -> Bar:
    """The other way round."""
    return Bar(what, f"<= {bound:g}{unit}", value, None if value is None else value <= bound)


def bars(result: Mapping[str, Any]) -> list[Bar]:
    """All of them, in the order in which they are read."""
    return [*_sampling(result), *_steps(result), *_memory(result), *_limits(result), *_growth(result)]


def training_share(table: Mapping[str, Any], row: Mapping[str, Any], limit: str = "own_shapes_flops") -> float | None:
    """Share of the products' limit that a row's training pass reaches (benchmarks/limits.py says what counts)."""
    found = table["limits"].get("training")
    if not found or not row.get("training_s"):
        return None
    return float(found["training_flop"] / row["training_s"] / found[limit])


def decoding_share(table: Mapping[str, Any]) -> float | None:
    """Share of the products' limit that decoding steps reach; the median over pairs of calls."""
    found = table["limits"].get("decode")
    if not found:
        return None
    seconds = sorted(long - short for short, long in zip(found["short_s"], found["long_s"], strict=True))
    return float(found["decoding_flop"] / seconds[len(seconds) // 2] / found["products_flops"])


def _sampling(result: Mapping[str, Any]) -> Iterator[Bar]:
    yield at_least(
        "sampling 32 answers at S: tokens/s over TRL's generation phase", _ratio(result, "S", "trl", "generation_s"), 2.8
    )
    yield at_least(
        "sampling 32 answers at S: tokens/s over vLLM's on this CPU", _ratio(result, "S", "vllm", "generation_s"), 1.35
    )
    yield at_least("sampling at V: tokens/s over TRL's generation phase", _ratio(result, "V", "trl", "generation_s"), 5.0)


def _steps(result: Mapping[str, Any]) -> Iterator[Bar]:
    for shape, bound in (("S", 2.3), ("L", 4.5), ("V", 6.0)):
        yield at_least(
            f"whole step at {shape}: times faster than TRL as it comes", _ratio(result, shape, "trl", "step_s"), bound
        )
    for shape, bound in (("S", 2.3), ("L", 4.5), ("V", 6.0)):
        found = [_ratio(result, shape, name, "step_s") for name in PRECISION_CLASS]
        known = [value for value in found if value is not None]
        what = f"whole step at {shape}: times faster than the fastest TRL row of the same precision"
        yield at_least(what, min(known) if len(known) > 1 else None, bound)


def _memory(result: Mapping[str, Any]) -> Iterator[Bar]:
    for shape in ("S", "L"):
        found = _ratio(result, shape, "trl", "peak_bytes")
        yield at_most(f"peak memory of the process at {shape}, as a share of TRL's", None if found is None else 1 / found, 0.5)


def _limits(result: Mapping[str, Any]) -> Iterator[Bar]:
    for shape in ("S", "L", "V"):
        table = result["tables"].get(shape)
        share = None if table is None else training_share(table, _row(table, "toishi"))
        yield at_least(f"training pass at {shape}, share of what products of its shapes reach", share, 0.55, "")
    table = result["tables"].get("S")
    share = None if table is None else decoding_share(table)
    yield at_least("decoding steps with 64 answers, share of what products with 64 rows reach", share, 0.70, "")


def _growth(result: Mapping[str, Any]) -> Iterator[Bar]:
    fit = result.get("growth", {}).get("fit")
    what = "cost of a step at L, one prompt: times from G = 2 to G = 32 (prompt + G x completion grows as much)"
    yield at_most(what, fit and fit["measured_ratio"], round(fit["shared"]["ratio"], 2) if fit else 5.0)


def _row(table: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next((row for row in table["rows"] if row["system"] == name), {})
    return found


def _ratio(result: Mapping[str, Any], shape: str, peer: str, number: str) -> float | None:
    """How many times more of `number` the peer needs than toishi; None unless both were measured."""
    table = result["tables"].get(shape)
    if table is None:
        return None
    ours, theirs = _row(table, "toishi").get(number), _row(table, peer).get(number)
    return theirs / ours if ours and theirs else None
