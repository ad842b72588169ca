"""What is asked of a recorded step: other scores, answers left out, another rule.

Decisions:
1. All changes of one question hold together. Scores and left-out answers are those of one group; the rule is the whole step's.
2. Only what acts after the answers were sampled can be asked: `algorithm.*` and `optimizer.*`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from toishi.errors import ConfigError

Key = int | str | tuple[str, int]
Scores = Mapping[Any, float]
"""Keys are `Key`; Any, since a mapping's key type is invariant: a plain dict[int, float] has to be accepted as well."""
SECTIONS = ("algorithm", "optimizer")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewScore:
    """What a reward would have said of an answer, on the reward's own scale. `reward` None: the only one that there is."""

    member: int
    value: float
    reward: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A question. `settings` holds dotted keys of the configuration and their values."""

    scores: tuple[NewScore, ...] = ()
    drop: tuple[int, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)


def read_score(text: str) -> tuple[Key, float]:
    """`3=9` or `style:3=0.5`, as on the command line.

    >>> read_score("3=9"), read_score("style:3=0.5")
    ((3, 9.0), (('style', 3), 0.5))
    """
    where, equals, number = text.partition("=")
    name, colon, member = where.rpartition(":")
    try:
        if not equals or (colon and not name.strip()):
            raise ValueError
        place, value = int(member), float(number)
    except ValueError:
        raise ConfigError(
            f"--score {text!r}: expected ANSWER=SCORE or REWARD:ANSWER=SCORE, for example --score 3=9 or --score style:3=0.5"
        ) from None
    return ((name.strip(), place) if colon else place), value


def read_scores(texts: Iterable[str]) -> dict[Key, float]:
    """Several of them. Raises ConfigError for an answer that is scored twice.

    >>> read_scores(["3=9", "style:3=0.5"])
    {3: 9.0, ('style', 3): 0.5}
    """
    found: dict[Key, float] = {}
    for text in texts:
        key, value = read_score(text)
        if key in found:
            raise ConfigError(f"--score {text!r}: the same score is given twice, first as {found[key]:g}; say it once")
        found[key] = value
    return found


def change_of(scores: Scores | None = None, drop: Iterable[int] = (), settings: Mapping[str, Any] | None = None) -> Change:
    """The question, if it is one.

    scores  answer, or (reward, answer), or "reward:answer" -> what it would have got
    Raises ConfigError for an empty one, a score that is no finite number, an answer both scored and left out, and settings that
    act before the answers are there.

    >>> change_of({3: 9.0, ("style", 1): 0.5}, drop=[2]).scores[1]
    NewScore(member=1, value=0.5, reward='style')
    """
    if scores is not None and not isinstance(scores, Mapping):
        raise ConfigError(f"scores: expected a mapping such as {{3: 9}}, got {scores!r:.80}")
    found = tuple(_new_score(key, value) for key, value in (scores or {}).items())
    left = tuple(dict.fromkeys(_member(member, "drop") for member in drop))
    both = sorted({score.member for score in found} & set(left))
    if both:
        raise ConfigError(f"answer {both[0]} is both scored and left out; choose one")
    if not (found or left or settings):
        raise ConfigError("nothing is changed: say which score (--score 3=9), which answer to leave out (--drop 3) or --set")
    for key in settings or {}:
        if key.split(".")[0] not in SECTIONS:
            raise ConfigError(
                f"--set {key}: the step's answers are sampled and scored already; only algorithm.* and optimizer.* can change"
            )
        if key == "algorithm.name":
            raise ConfigError("--set algorithm.name: it is only the rule's name; another whole rule is --set algorithm=dr_grpo")
    return Change(scores=found, drop=left, settings=dict(settings or {}))


def _new_score(key: Key, value: Any) -> NewScore:
    if isinstance(key, str):
        name, colon, member = key.rpartition(":")
        if not member.isdigit():
            raise ConfigError(f"scores: expected an answer's number, or 'reward:number', got {key!r:.80}")
        key = (name, int(member)) if colon else int(member)
    if isinstance(key, tuple) and not (len(key) == 2 and isinstance(key[0], str)):
        raise ConfigError(f"scores: expected (reward, answer), got {key!r:.80}")
    reward, place = key if isinstance(key, tuple) else (None, key)
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise ConfigError(f"answer {place}: expected a finite number as its score, got {value!r:.80}")
    return NewScore(member=_member(place, "scores"), value=float(value), reward=reward)


def _member(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigError(f"{where}: expected the number of an answer, from 0, got {value!r:.80}")
    return value
