"""Which answers count as right: one reward's value, or the whole reward, against a threshold.

Decisions:
1. Without a name the recipe's only reward decides; of several, one has to be named (`total` is their sum): a sum of right, form
   and length is no answer to whether an answer is right.
2. An answer without that score is neither right nor wrong. It is left out and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toishi.collecting.samples import Answer, Asked, Header
from toishi.errors import ConfigError, nearest

TOTAL = "total"


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """An answer is right if `reward` gave it at least `threshold`.

    >>> right = Right(reward="number", threshold=0.5)
    >>> answers = [Answer(text="", tokens=1, finish_reason="stop", reward=v, scores={"number": v}) for v in (1.0, 0.0, None)]
    >>> [right(answer) for answer in answers]
    [True, False, None]
    """

    reward: str
    threshold: float

    def value(self, answer: Answer) -> float | None:
        """The number that decides."""
        return answer.reward if self.reward == TOTAL else answer.scores.get(self.reward)

    def __call__(self, answer: Answer) -> bool | None:
        value = self.value(answer)
        return None if value is None else value >= self.threshold

    @property
    def words(self) -> str:
        """For a person."""
        return f"{self.reward} >= {self.threshold:g}"


def right_by(header: Header, reward: str | None, threshold: float) -> Right:
    """The rule for the answers of a samples file. Raises ConfigError when no reward is named and several could be meant."""
    return right_among([str(one["name"]) for one in header.config["rewards"]], reward, threshold)


def right_among(names: Sequence[str], reward: str | None, threshold: float) -> Right:
    """The rule where the rewards go by these names. Raises as `right_by`."""
    if reward is None and len(names) > 1:
        raise ConfigError(
            f"the recipe has {len(names)} rewards ({', '.join(names)}): say which one tells right from wrong with --reward "
            f"NAME, or --reward {TOTAL} for their sum"
        )
    if reward is not None and reward not in (*names, TOTAL):
        raise ConfigError(f"--reward: there is no reward '{reward}'; {nearest(reward, [*names, TOTAL])}")
    return Right(reward=reward or names[0], threshold=threshold)


def in_between(right: Right, asked: Sequence[Asked]) -> str:
    """A note where the deciding values are more than two, so that the threshold matters; else ""."""
    values = {value for one in asked for answer in one.answers if (value := right.value(answer)) is not None}
    if len(values) <= 2:
        return ""
    return f"'{right.reward}' gave {len(values)} different values: what counts as right is --threshold {right.threshold:g}"
