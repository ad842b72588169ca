"""Who moved what, seen from one group: values that the page and `--json` show."""

from __future__ import annotations

from dataclasses import dataclass

from toishi.record.influence import TextInfluence


@dataclass(frozen=True, slots=True, kw_only=True)
class Pull:
    """What an answer's push did to a text to first order, in nats. `group` and `member` name the answer that pushed."""

    group: int
    member: int
    nats: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedText:
    """A text and what moved it.

    pulls  of all answers of the step, its own first, then by size
    """

    text: TextInfluence
    pulls: tuple[Pull, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixEffect:
    """A part of the model and its share of what the step did for the answers that it pushed, with their signs."""

    layer: str
    kind: str
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class InfluenceLink:
    """Who moved what in the step's update.

    refused      why there is no account; empty when there is one
    explained    share of the measured changes of all texts that is first order: 1 - gap
    divides      whether the optimizer divides every weight's push by that weight's usual size (AdamW)
    update, num_updates  which of the step's optimizer updates this is, from 0, and how many it made
    members      the group's answers by advantage, best first: the order of `cosines`
    cosines      of the gradients of the group's answers with one another
    effects      by layer and kind of matrix; they add up to 1. Empty when the step did nothing for what it pushed
    elsewhere    share of the push by answers of the step's other prompts
    bend         mean of what a straight line cannot hold, over all texts (nats)
    sums_off     largest distance between a text's parts and its measured change, and between all shares and 1
    """

    refused: str
    divides: bool
    update: int
    num_updates: int
    trust: str
    precision: str
    explained: float
    largest: float
    gradient_norm: float
    norm_from_products: float
    sum_error: float
    clip_factor: float
    changed_share: float
    survived: float | None
    step_norm: float
    bend: float
    fixed_share: float
    elsewhere: float
    moved: tuple[MovedText, ...]
    members: tuple[int, ...]
    cosines: tuple[tuple[float, ...], ...]
    effects: tuple[MatrixEffect, ...]
    sums_off: float
