"""What each stage gained on held-out prompts, and whether that can be told.

Decisions:
1. A stage is compared with the model that it started from, prompt by prompt: the difference is paired, with a 95% bootstrap
   interval over prompts.
2. Four verdicts, by the interval of the difference alone. It lies above 0: helped. Below 0: harmed. It holds 0, and its upper
   end is below the smallest gain that would matter (`worth`): did not help. It holds 0 and a gain that would matter: cannot be
   told. With fewer prompts than an interval needs nothing can be told.
3. Greedy answers decide where they were measured: sampling sharpens as entropy falls, which is no learning by itself.
4. Of many intervals some exclude 0 by chance. How many were looked at is said beside the verdicts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from toishi.evaluate import Evaluation
from toishi.pipelines.measuring import of_mode
from toishi.pipelines.running import PipelineView, StageView

Outcome = Literal["helped", "harmed", "no_help", "unclear"]
WORDS: Mapping[str, str] = {
    "helped": "helped",
    "harmed": "made it worse",
    "no_help": "did not help",
    "unclear": "cannot be told",
}
MODES = ("greedy", "sampled")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What a stage did to one measurement. `before`, `after`: means over the prompts; `change`: of the same prompts, paired.

    is_aim  whether the stage is meant to raise it
    """

    stage: str
    measure: str
    mode: str
    prompts: int
    before: float
    before_interval: tuple[float, float] | None
    after: float
    after_interval: tuple[float, float] | None
    change: float
    interval: tuple[float, float] | None
    worth: float
    is_aim: bool

    @property
    def outcome(self) -> Outcome:
        """The verdict by the interval."""
        return outcome(self.interval, self.worth)

    def as_record(self) -> dict[str, Any]:
        return asdict(self) | {"outcome": self.outcome}


def outcome(interval: tuple[float, float] | None, worth: float) -> Outcome:
    """
    >>> [outcome(one, 0.05) for one in ((0.01, 0.2), (-0.2, -0.01), (-0.1, 0.04), (-0.1, 0.06), None)]
    ['helped', 'harmed', 'no_help', 'unclear', 'unclear']
    """
    if interval is None:
        return "unclear"
    low, high = interval
    if low > 0:
        return "helped"
    return "harmed" if high < 0 else "no_help" if high < worth else "unclear"


def gains_of(view: PipelineView) -> list[Gain]:
    """The gains of all stages that made a model out of another, in order, every mode by itself."""
    return [gain for stage in view.stages for gain in _gains(view, stage)]


def _gains(view: PipelineView, stage: StageView) -> Iterator[Gain]:
    for name, after in stage.after.items():
        for mode in MODES:
            found = _gain(view, stage, name, of_mode(stage.before.get(name, []), mode), of_mode(after, mode))
            if found is not None:
                yield found


def _gain(view: PipelineView, stage: StageView, name: str, before: Evaluation | None, after: Evaluation | None) -> Gain | None:
    if before is None or after is None:
        return None
    compared = after.compared_with(before)
    if compared.change is None:
        return None
    return Gain(
        stage=stage.name, measure=name, mode=after.mode, prompts=after.num_prompts,
        before=before.value, before_interval=before.interval, after=after.value, after_interval=after.interval,
        change=compared.change, interval=compared.change_interval,
        worth=view.pipeline.file.measure[name].worth, is_aim=name in stage.aim,
    )  # fmt: skip


def deciding(gains: Sequence[Gain]) -> list[Gain]:
    """Of each stage and measurement the gain that decides: greedy answers where they were measured."""
    first: dict[tuple[str, str], Gain] = {}
    for gain in gains:
        first.setdefault((gain.stage, gain.measure), gain)
    return list(first.values())
