"""The links of a step's chain, recorded against done again, in the order in which one follows from the other.

Decisions:
1. A number is equal when its bits are. Bounds apply only where bits cannot be expected to agree (other machine or versions).
2. The first link that differs is the finding: whatever comes after it differs because of it.
3. What the record does not hold is not compared, and the count of compared numbers says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from toishi.types import Group, Rollout, StepReport, TokenStreams, Update

Number = float | int | str | bool | None
Item = tuple[str, int | None, Number, Number]
"""(where it stands, token or None, recorded, found)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first number of a link that does not agree.

    place  rollout (step/group/member), group, or weight; token is its position in the answer
    """

    step: int
    update: int | None
    link: str
    place: str
    token: int | None
    recorded: Number
    found: Number

    @property
    def text(self) -> str:
        """The difference as a sentence."""
        where = self.place if self.token is None else f"{self.place}, token {self.token}"
        update = "" if self.update is None else f", update {self.update}"
        return f"step {self.step}{update}: {self.link} of {where} is {self.found} when done again, {self.recorded} on record"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkCheck:
    """One link of one step: how many numbers were compared, how many have the same bits, the largest distance.

    bound       how far apart they may be; 0 where bits must agree, None where nothing is asked
    difference  the first number beyond the bound
    """

    step: int
    update: int | None
    link: str
    compared: int
    same_bits: int
    largest: float
    bound: float | None
    difference: Difference | None

    @property
    def ok(self) -> bool:
        return self.difference is None


def check(step: int, update: int | None, link: str, items: Iterable[Item], bound: float | None) -> LinkCheck:
    """All numbers of one link. `bound` is a distance; text, missing numbers and truth values have none and must be equal.

    >>> found = check(3, 0, "loss", [("the update", None, 1.0, 1.0), ("the update", None, 1.0, 1.5)], 0.0)
    >>> (found.compared, found.same_bits, found.largest), found.difference.text
    ((2, 1, 0.5), 'step 3, update 0: loss of the update is 1.5 when done again, 1.0 on record')
    """
    compared, same, largest = 0, 0, 0.0
    first: Difference | None = None
    for place, token, recorded, found in items:
        apart = distance(recorded, found)
        compared, same, largest = compared + 1, same + (apart == 0.0), max(largest, apart)
        if first is None and bound is not None and apart > bound:
            first = Difference(step=step, update=update, link=link, place=place, token=token, recorded=recorded, found=found)
    return LinkCheck(
        step=step, update=update, link=link, compared=compared, same_bits=same, largest=largest, bound=bound, difference=first
    )


def distance(recorded: Number, found: Number) -> float:
    """
    >>> distance(1.0, 1.25), distance(None, 0.0), distance("a", "a"), distance(float("nan"), float("nan"))
    (0.25, inf, 0.0, 0.0)
    """
    if isinstance(recorded, str | None) or isinstance(found, str | None):
        return 0.0 if recorded == found else math.inf
    if recorded == found or (math.isnan(recorded) and math.isnan(found)):
        return 0.0
    apart = abs(recorded - found)
    return math.inf if math.isnan(apart) else apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How far numbers may be apart where bits cannot agree. All 0 on the machine, versions and threads of the run.

    sums      rewards, baselines, advantages: float64 sums, absolute
    nats      log-probs, entropies, KL terms; also ratios (relative to 1), token weights (relative to the update's largest)
              and the loss (relative to the largest advantage)
    gradient  gradient norm, relative
    weights   distance of the weights, as a share of the distance that they have moved since the checkpoint
    """

    sums: float = 0.0
    nats: float = 0.0
    gradient: float = 0.0
    weights: float = 0.0

    @property
    def exact(self) -> bool:
        return self == EXACT


EXACT = Bounds()
_ONE_STEP_ELSEWHERE = {
    "float64": Bounds(sums=1e-9, nats=1e-9, gradient=1e-7, weights=1e-5),
    "float32": Bounds(sums=1e-9, nats=1e-3, gradient=1e-2, weights=0.05),
    "bfloat16": Bounds(sums=1e-9, nats=0.25, gradient=0.25, weights=0.5),
}


def bounds_elsewhere(dtype: str, num_steps: int) -> Bounds:
    """What rounding may do on another machine, in `num_steps` steps one after another (differences add up).

    >>> bounds_elsewhere("float32", 2).nats
    0.002
    """
    one = _ONE_STEP_ELSEWHERE.get(dtype, _ONE_STEP_ELSEWHERE["bfloat16"])
    return Bounds(sums=one.sums, nats=one.nats * num_steps, gradient=one.gradient * num_steps, weights=one.weights * num_steps)


def check_step(recorded: StepReport, found: StepReport, bounds: Bounds) -> Iterator[LinkCheck]:
    """Every link from the scores to the gradient norm, in order."""
    step = recorded.step
    pairs = list(zip(recorded.rollouts, found.rollouts, strict=True))
    groups = list(zip(recorded.groups, found.groups, strict=True))
    yield check(step, None, "reward", ((str(old.id), None, old.reward, new.reward) for old, new in pairs), bounds.sums)
    yield check(step, None, "reference log-prob", _reference(pairs), bounds.nats)
    for name in ("mean", "std", "count", "kept"):
        yield check(step, None, f"group {name}", _baselines(groups, name), bounds.sums)
    yield check(step, None, "advantage", _advantages(pairs), bounds.sums)
    largest = max((abs(value) for _, new in pairs for value in new.advantage_per_token), default=0.0)
    for before, after in zip(recorded.updates, found.updates, strict=True):
        yield from _check_update(before, after, bounds, largest)


def _check_update(recorded: Update, found: Update, bounds: Bounds, largest_advantage: float) -> Iterator[LinkCheck]:
    step, index = recorded.step, recorded.index
    if recorded.streams:
        yield check(step, index, "rollouts that took part", _participants(recorded, found), 0.0)
        streams = {stream.rollout: stream for stream in found.streams}
        both = [(old, streams[old.rollout]) for old in recorded.streams if old.rollout in streams]
        heaviest = max((abs(weight) for _, new in both for weight in new.token_weight), default=0.0)
        for name, (link, bound) in _stream_links(bounds, heaviest).items():
            yield check(step, index, link, _tokens(both, name, skip_other_branch=not bounds.exact), bound)
    gradient = 0.0 if bounds.exact else bounds.gradient * abs(found.scalars["update/grad_norm"])
    for name, link, bound in (
        ("update/tokens", "tokens in the denominator", 0.0),
        ("update/lr", "learning rate", bounds.sums),
        ("update/loss", "loss", bounds.nats * max(1.0, largest_advantage)),
        ("update/grad_norm", "gradient norm", gradient),
        ("update/grad_norm_clipped", "gradient norm after clipping", gradient),
        ("update/skipped", "skipped", 0.0),
    ):
        item: Item = ("the update", None, recorded.scalars.get(name), found.scalars.get(name))
        yield check(step, index, link, [item], bound)


def _stream_links(bounds: Bounds, heaviest: float) -> Mapping[str, tuple[str, float | None]]:
    """Where bits may differ, a token at a clipping bound may fall to the other side of it: the branch is then not asked for."""
    return {
        "old_logprob": ("old log-prob", bounds.nats),
        "logprob": ("log-prob", bounds.nats),
        "entropy": ("entropy", bounds.nats),
        "ratio": ("ratio", bounds.nats),
        "clip": ("clip branch", 0.0 if bounds.exact else None),
        "kl_policy_ref": ("KL term", bounds.nats),
        "divergence": ("divergence from the teacher", bounds.nats),
        "token_weight": ("token weight", bounds.nats * heaviest),
    }


def _tokens(pairs: Iterable[tuple[TokenStreams, TokenStreams]], name: str, *, skip_other_branch: bool) -> Iterator[Item]:
    for old, new in pairs:
        before, after = getattr(old, name), getattr(new, name)
        if len(before) != len(after):
            yield str(old.rollout), None, f"{len(before)} numbers", f"{len(after)} numbers"
            continue
        for token, (recorded, found) in enumerate(zip(before, after, strict=True)):
            if not (skip_other_branch and name == "token_weight" and old.clip[token] != new.clip[token]):
                yield str(old.rollout), token, recorded, found


_PART = {None: "absent", True: "computed", False: "not computed"}


def _participants(recorded: Update, found: Update) -> Iterator[Item]:
    took_part = {stream.rollout: stream.computed for stream in found.streams}
    for stream in recorded.streams:
        computed = took_part.get(stream.rollout)
        yield str(stream.rollout), None, _PART[stream.computed], _PART[computed]
    yield "the update", None, len(recorded.streams), len(found.streams)


def _reference(pairs: Sequence[tuple[Rollout, Rollout]]) -> Iterator[Item]:
    for old, new in pairs:
        if old.ref_logprobs is not None and new.ref_logprobs is not None:
            for token, (recorded, found) in enumerate(zip(old.ref_logprobs, new.ref_logprobs, strict=True)):
                yield str(old.id), token, recorded, found


def _baselines(groups: Iterable[tuple[Group, Group]], name: str) -> Iterator[Item]:
    for old, new in groups:
        number = old.rollouts[0].id.group
        yield f"group {number}", None, getattr(old.baseline, name, None), getattr(new.baseline, name, None)


def _advantages(pairs: Sequence[tuple[Rollout, Rollout]]) -> Iterator[Item]:
    for old, new in pairs:
        if isinstance(old.advantage, tuple) or isinstance(new.advantage, tuple):
            for token, values in enumerate(zip(old.advantage_per_token, new.advantage_per_token, strict=True)):
                yield str(old.id), token, *values
        else:
            yield str(old.id), None, old.advantage, new.advantage
