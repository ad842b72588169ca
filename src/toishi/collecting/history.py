"""Training prompts by how much their success moved during a run: the example for one-example training.

    v = variance of (s_1, ..., s_E),   s_e = share of right answers when the prompt was asked for the e-th time

(historical variance, arXiv 2504.20571). A prompt that was never, always, or equally often answered rightly has none.

Decisions:
1. The run's record has all of it: nothing is sampled. A visit is a step at which the prompt was asked; several groups of one
   step are one visit.
2. Answers without the score that decides are left out of a visit, and a visit without any such score is none.
3. Equal variances keep the order of the first visit.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from toishi.collecting.right import Right, right_among
from toishi.collecting.samples import Asked
from toishi.errors import DataError
from toishi.record.reader import Run
from toishi.recorded import recorded_config

LEAST_VISITS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Lived:
    """A prompt and what became of it, visit by visit.

    >>> asked = Asked(number=0, id="a", prompt="?")
    >>> round(Lived(asked=asked, rates=(0.0, 0.5, 1.0)).variance, 4)
    0.1667
    """

    asked: Asked
    rates: tuple[float, ...]

    @property
    def variance(self) -> float:
        """Over the visits, as of a whole population."""
        return statistics.pvariance(self.rates)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.rates)

    def row(self, run: Run, right: Right) -> dict[str, Any]:
        """As it stood in the data, with `id`, `prompt`, and what was measured."""
        prompt = self.asked.prompt if isinstance(self.asked.prompt, str) else [dict(turn) for turn in self.asked.prompt]
        measured = {
            "historical_variance": self.variance,
            "history": {"rates": list(self.rates), "rule": right.words, "run": str(run.folder)},
        }
        return {"id": self.asked.id, "prompt": prompt} | dict(self.asked.columns) | measured


def history(run: Run, *, reward: str | None = None, threshold: float = 0.5) -> tuple[Right, list[Lived]]:
    """The rule, and the run's prompts, those whose success moved most first.

    Raises DataError when no prompt was asked twice, ConfigError when it is not clear which reward tells right from wrong.
    """
    config = recorded_config(run)
    right = right_among([one.name for one in config.rewards], reward, threshold)
    asked: dict[str, Asked] = {}
    visits: dict[str, list[float]] = {}
    for step in run.steps:
        verdicts: dict[str, list[bool]] = {}
        for group in run.step(step).groups:
            one = Asked.of(len(asked), group)
            asked.setdefault(one.id, one)
            found = [verdict for answer in one.answers if (verdict := right(answer)) is not None]
            verdicts.setdefault(one.id, []).extend(found)
        for name, known in verdicts.items():
            if known:
                visits.setdefault(name, []).append(sum(known) / len(known))
    lived = [Lived(asked=asked[name], rates=tuple(rates)) for name, rates in visits.items() if len(rates) >= LEAST_VISITS]
    if not lived:
        raise DataError(
            f"{run.folder}: no prompt was asked twice in its {len(run.steps)} steps, so there is no history to rank by; train "
            f"on a pool that comes round several times, such as `toishi train sums --set task.pool=24 --set train.steps=60`"
        )
    return right, sorted(lived, key=lambda one: -one.variance)


def told(lived: Sequence[Lived], most: int = 10) -> list[tuple[str, str, str, str, str]]:
    """The first rows of a table: prompt, variance, mean, visits, success visit by visit."""
    return [
        (
            one.asked.shown,
            f"{one.variance:.4f}",
            f"{one.mean:.3f}",
            str(len(one.rates)),
            " ".join(f"{rate:.2f}" for rate in one.rates),
        )
        for one in lived[:most]
    ]
