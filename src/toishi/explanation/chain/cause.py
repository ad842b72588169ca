"""Where a move against the score came from, as far as the contrast with SFT tells.

Decisions:
1. The contrast tried a short step along this prompt's whole gradient, and one along the part of the answers with a negative
   advantage. What is left of the whole without that part is the part of the others, to first order.
2. A cause is named only where these trials have the signs for it. Everything else is a list of possibilities.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from toishi.explanation.chain.model import Chain

Side = Literal["positive", "negative", "both", "outside"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """What short trial steps did to an answer, in nats, and whose pushes carry its measured move.

    alone     along this prompt's gradient
    negative  along the part of its answers below the baseline
    positive  the rest of `alone`, to first order
    """

    alone: float
    negative: float
    positive: float
    side: Side


def cause(chain: Chain, member: int, change: float) -> Cause | None:
    """Which pushes moved an answer by `change` nats against its score; None without a contrast on this prompt.

    `outside` when this prompt's gradient alone moves it the other way.
    """
    if chain.sft is None:
        return None
    contrast, name = chain.sft.contrast, f"member {member}"
    by_name = {direction.name: direction for direction in contrast.directions}
    if name not in contrast.answers or by_name["grpo"].gradient_norm <= 0:
        return None
    index = contrast.answers.index(name)
    whole, part = by_name["grpo"], by_name["grpo_negative"]
    alone, negative = whole.changes[index], part.changes[index]
    positive = alone - negative * part.gradient_norm / whole.gradient_norm
    return Cause(alone=alone, negative=negative, positive=positive, side=_side(alone, negative, positive, change))


def _side(alone: float, negative: float, positive: float, change: float) -> Side:
    if alone * change <= 0:
        return "outside"
    if negative * change <= 0:
        return "positive"
    return "negative" if positive * change <= 0 else "both"
