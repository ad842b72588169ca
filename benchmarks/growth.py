"""How the cost of a step grows with the group, the prompt, the answer, the vocabulary and the model.

One prompt; everything but the quantity that grows stays as in the table (for vocabulary and model: random Llamas, 2 layers of
192 and 8,192 tokens where nothing else is said). Cost is seconds of a step, the median of alternating rounds.

The fit: with the prompt computed once for its whole group, a step costs about (prompt + G x completion); with every answer in
a row of its own, G x (prompt + completion). Both are lines in G, so a line with an intercept cannot tell them apart. What can:
the ratio of the cost at G = 32 to that at G = 2, and how well seconds are proportional to each (R^2 of a line through 0).
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.shapes import Shape, even
from benchmarks.systems import System
from benchmarks.table import Setting
from benchmarks.workers import Worker

GROUPS, PROMPTS, ANSWERS = (2, 4, 8, 16, 32), (32, 64, 128, 256, 512, 1024), (16, 32, 64, 128, 256)
VOCABULARIES = (2048, 8192, 32768, 65536, 131072)
MODELS = ((192, 2), (384, 4), (576, 8), (576, 16))


@dataclass(frozen=True)
class Point:
    """One measurement: which curve, where on it, the work, and the random model (vocabulary, width, layers) if it is one."""

    curve: str
    x: float
    shape: Shape
    random: tuple[int, int, int] | None = None


def points(*, is_quick: bool = False) -> list[Point]:
    """All points; a few small ones for a trial."""
    groups, prompts, answers = (GROUPS, PROMPTS, ANSWERS) if not is_quick else ((2, 4), (8, 16), (4, 8))
    long, new, group = (350, 64, 8) if not is_quick else (16, 4, 2)
    found = [Point("group size", G, _shape(long, G, new)) for G in groups]
    found += [Point("prompt tokens", length, _shape(length, group, new)) for length in prompts]
    found += [Point("new tokens", length, _shape(37, group, length)) for length in answers]
    if not is_quick:
        found += [Point("vocabulary", V, _shape(37, 8, 64), (V, 192, 2)) for V in VOCABULARIES]
        found += [Point("weights in layers, millions", 0, _shape(37, 8, 64), (8192, *size)) for size in MODELS]
    return found


def _shape(prompt: int, group: int, new: int) -> Shape:
    return even("growth", prompt_lengths=(prompt,), group_size=group, new=new)


def measure_growth(systems: Sequence[System], setting: Setting, wanted: Sequence[Point], scratch: Path) -> dict[str, Any]:
    """Seconds of every point for every system, and the fit over the group's size for toishi."""
    found: list[dict[str, Any]] = []
    for random in dict.fromkeys(point.random for point in wanted):
        model = setting.model if random is None else _random_model(random, scratch)
        of_model = [point for point in wanted if point.random == random]
        for system in systems:
            if random is None or system.name == "toishi":
                found += _measured(system, replace(setting, model=model), of_model)
    curve = [point for point in found if point["curve"] == "group size" and point["system"] == "toishi"]
    return {"points": found, "fit": fit(curve) if len(curve) > 1 else None}


def _measured(system: System, setting: Setting, wanted: Sequence[Point]) -> list[dict[str, Any]]:
    """One model's points, round by round. toishi changes its shape from step to step; a trainer of TRL is made for one."""
    if system.name != "toishi" and len(wanted) > 1:
        return [point for one in wanted for point in _measured(system, setting, [one])]
    seconds: list[list[float]] = [[] for _ in wanted]
    largest = max(wanted, key=lambda point: (len(point.shape.lengths_B), point.shape.max_new_tokens)).shape
    longest = replace(largest, prompt_lengths=(max(point.shape.prompt_lengths[0] for point in wanted),))
    log = setting.logs / f"growth-{system.name}.log"
    with Worker(system, system.interpreter(), setting.model, longest if len(wanted) > 1 else largest,
                log=log, device=setting.device, threads=setting.threads) as worker:  # fmt: skip
        worker.step(wanted[0].shape.with_lengths(4))
        for _ in range(setting.repeats):
            for point, found in zip(wanted, seconds, strict=True):
                found.append(worker.step(point.shape)["step_s"])
        millions = worker.ready.get("layer_weights", 0) / 1e6
    setting.say(f"growth: {system.name}, {', '.join(dict.fromkeys(point.curve for point in wanted))}")
    return [
        {
            "system": system.name, "curve": point.curve, "x": point.x or millions, "prompt": point.shape.prompt_lengths[0],
            "new": point.shape.max_new_tokens, "group": point.shape.group_size, "runs": found,
            "step_s": statistics.median(found),
        }
        for point, found in zip(wanted, seconds, strict=True)
    ]  # fmt: skip


def _random_model(sizes: tuple[int, int, int], scratch: Path) -> Path:
    from benchmarks.models import save_random

    vocab_size, hidden, layers = sizes
    folder = scratch / f"llama-{vocab_size}-{hidden}-{layers}"
    return folder if folder.exists() else save_random(folder, vocab_size=vocab_size, hidden=hidden, layers=layers)


def fit(curve: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Both laws against the points of the group's curve.

    >>> points = [{"x": G, "prompt": 350, "new": 64, "step_s": 0.01 * (350 + G * 64)} for G in (2, 8, 32)]
    >>> found = fit(points)
    >>> round(found["shared"]["r_squared"], 3), round(found["measured_ratio"], 2), round(found["separate"]["ratio"], 2)
    (1.0, 5.02, 16.0)
    >>> round(found["line"]["slope"], 4), round(found["line"]["r_squared"], 3)
    (0.01, 1.0)
    """
    seconds = [point["step_s"] for point in curve]
    laws = {
        "shared": [point["prompt"] + point["x"] * point["new"] for point in curve],
        "separate": [point["x"] * (point["prompt"] + point["new"]) for point in curve],
    }
    through_zero = {name: _proportional(tokens, seconds) | {"ratio": tokens[-1] / tokens[0]} for name, tokens in laws.items()}
    slope, intercept = statistics.linear_regression(laws["shared"], seconds)
    residual = [second - intercept - slope * tokens for tokens, second in zip(laws["shared"], seconds, strict=True)]
    line = {"slope": slope, "intercept": intercept, "r_squared": _r_squared(residual, seconds)}
    return through_zero | {"line": line, "measured_ratio": seconds[-1] / seconds[0]}


def _proportional(tokens: Sequence[float], seconds: Sequence[float]) -> dict[str, float]:
    slope = sum(x * y for x, y in zip(tokens, seconds, strict=True)) / sum(x * x for x in tokens)
    residual = [second - slope * token for token, second in zip(tokens, seconds, strict=True)]
    return {"slope": slope, "r_squared": _r_squared(residual, seconds)}


def _r_squared(residual: Sequence[float], values: Sequence[float]) -> float:
    mean = statistics.fmean(values)
    return 1 - sum(one**2 for one in residual) / sum((value - mean) ** 2 for value in values)
