"""The kinds of stages: what each can be told, what it makes, and the function of the product that does it.

Adding a kind: a section (sections.py), a function `make(work) -> Made`, and a line in `KINDS`. Nothing else knows their names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from toishi.config import Config
from toishi.pipelines import choosing, making, training
from toishi.pipelines.sections import (
    CollectStage,
    JoinStage,
    PairsStage,
    SelectStage,
    ShrinkStage,
    Stage,
    TrainStage,
)
from toishi.pipelines.store import Made
from toishi.pipelines.work import Work


def _no_problem(stage: Any, config: Config | None) -> Iterator[str]:
    yield from ()


def _never(stage: Any, config: Config | None) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of stage.

    section   its keys
    outputs   names of what it makes, as later stages call it
    make      does it, or goes on with what was interrupted in the stage's folder
    problems  what is wrong with a stage before anything is loaded, beside what its recipe's own checks find
    speaks    whether its `model` answers prompts, so that it is measured
    starts    the model that it starts from; "" where it makes none
    """

    section: type[Stage]
    outputs: tuple[str, ...]
    make: Callable[[Work], Made]
    problems: Callable[[Any, Config | None], Iterator[str]] = _no_problem
    speaks: Callable[[Any, Config | None], bool] = _never
    starts: Callable[[Any], str] = lambda stage: ""


KINDS: Mapping[str, Kind] = {
    "train": Kind(
        section=TrainStage,
        outputs=("model",),
        make=training.make,
        problems=training.problems,
        speaks=training.speaks,
        starts=lambda stage: stage.model,
    ),
    "collect": Kind(section=CollectStage, outputs=("data",), make=choosing.collect, problems=choosing.problems_of_collect),
    "select": Kind(section=SelectStage, outputs=("data",), make=choosing.select, problems=choosing.problems_of_select),
    "pairs": Kind(section=PairsStage, outputs=("data",), make=choosing.pairs, problems=choosing.problems_of_pairs),
    "join": Kind(section=JoinStage, outputs=("data",), make=making.join),
    "shrink": Kind(
        section=ShrinkStage,
        outputs=("model",),
        make=making.shrink,
        speaks=lambda stage, config: True,
        starts=lambda stage: stage.model,
    ),
}
