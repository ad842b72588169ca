"""The changed groups of a step, through the run's own composition and rule: exact.

Decisions:
1. A left-out answer is treated as the run treats one that failed: it leaves the baseline and the denominators of the loss.
2. A failed answer that is given a score joins the baseline, if no other reward failed on it.
3. The rule sees all groups of the step at once, so that what is taken over the whole step (batch statistics) changes as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from toishi.algorithms.apply import assign_advantages
from toishi.algorithms.composing import composed
from toishi.algorithms.rows import Algorithm
from toishi.algorithms.shaping import counts
from toishi.algorithms.terms import Term
from toishi.counterfactual.change import Change, NewScore
from toishi.counterfactual.ranges import Range
from toishi.errors import ConfigError, RecordError
from toishi.types import Group, Rollout, Score

LEFT_OUT = "left out (what if)"
_SAME = 1e-9


def changed_groups(
    groups: Sequence[Group],
    number: int,
    change: Change,
    row: Algorithm,
    *,
    terms: Sequence[Term],
    ranges: Mapping[str, Range],
    max_new_tokens: int,
) -> tuple[Group, ...]:
    """All groups of the step with new advantages; group `number` has the change's scores and left-out answers.

    row     the rule, with the change's settings in it
    terms   how each reward enters the sum
    Raises ConfigError for a group, an answer or a reward that is not there, a score outside its range, and a group in which
    nothing is left to compare.
    """
    changed = composed(with_scores(group_of(groups, number), change, terms, ranges), terms) if _acts(change) else None
    found = [group if changed is None or _number(group) != number else changed for group in groups]
    _require_enough(next(group for group in found if _number(group) == number), row, change)
    return assign_advantages(found, row, max_new_tokens=max_new_tokens)


def require_recorded(groups: Sequence[Group], row: Algorithm, max_new_tokens: int) -> None:
    """Raises RecordError unless the recorded advantages follow from the recorded rewards: else no other would."""
    again = assign_advantages(groups, row, max_new_tokens=max_new_tokens)
    for old, new in zip(groups, again, strict=True):
        for recorded, found in zip(old.rollouts, new.rollouts, strict=True):
            pairs = zip(recorded.advantage_per_token, found.advantage_per_token, strict=True)
            if any(abs(a - b) > _SAME * max(1.0, abs(b)) for a, b in pairs):
                raise RecordError(
                    f"the recorded advantage of {recorded.id} does not follow from the recorded rewards, so no other would; "
                    "look at it with: toishi audit RUN"
                )


def group_of(groups: Sequence[Group], number: int) -> Group:
    """The group with this number. Raises ConfigError, naming those that there are."""
    for group in groups:
        if _number(group) == number:
            return group
    raise ConfigError(f"the step has no group {number}; it has: {', '.join(str(_number(group)) for group in groups)}")


def with_scores(group: Group, change: Change, terms: Sequence[Term], ranges: Mapping[str, Range]) -> Group:
    """The group as judged otherwise; rewards and failures are not formed yet."""
    members = {rollout.id.member: rollout for rollout in group.rollouts}
    for asked in (*(score.member for score in change.scores), *change.drop):
        if asked not in members:
            have = ", ".join(map(str, members))
            raise ConfigError(f"group {_number(group)} has no answer {asked}; it has: {have}")
    given: set[tuple[int, str]] = set()
    for score in change.scores:
        name = _reward_name(group, score)
        if (score.member, name) in given:
            raise ConfigError(f"answer {score.member}, reward '{name}': its score is given twice; say it once")
        given.add((score.member, name))
        value = ranges.get(name, Range()).to_value(score.value, f"answer {score.member}, reward '{name}'")
        members[score.member] = _scored(members[score.member], name, value, terms)
    for member in change.drop:
        members[member] = replace(members[member], reward=None, status="failed", failure=LEFT_OUT)
    return replace(group, rollouts=tuple(members.values()))


def _acts(change: Change) -> bool:
    return bool(change.scores or change.drop)


def _number(group: Group) -> int:
    return group.rollouts[0].id.group


def _reward_name(group: Group, asked: NewScore) -> str:
    names = list(dict.fromkeys(score.reward for rollout in group.rollouts for score in rollout.scores))
    if asked.reward is None:
        if len(names) == 1:
            return names[0]
        raise ConfigError(
            f"answer {asked.member}: which reward's score? Say --score NAME:{asked.member}={asked.value:g}; "
            f"the rewards are: {', '.join(names) or 'none'}"
        )
    if asked.reward not in names:
        raise ConfigError(
            f"answer {asked.member}: there is no reward '{asked.reward}'; the rewards are: {', '.join(names) or 'none'}"
        )
    return asked.reward


def _scored(rollout: Rollout, name: str, value: float, terms: Sequence[Term]) -> Rollout:
    mine = [score for score in rollout.scores if score.reward == name]
    if any(score.span is not None for score in mine) or len(mine) > 1:
        raise ConfigError(
            f"answer {rollout.id.member}: reward '{name}' scored {len(mine)} parts of it, so it has no single score to change"
        )
    weight = next((term.weight for term in terms if term.name == name), 1.0)
    old = mine[0] if mine else Score(reward=name, value=None, weight=weight)
    new = replace(old, value=value, status="ok", kind="", reason="", use="counted", paid=None)
    scores = tuple(new if score is old else score for score in rollout.scores) if mine else (*rollout.scores, new)
    status = "truncated" if rollout.completion.is_truncated else "completed"
    return replace(rollout, scores=scores, status=status, failure="")  # type: ignore[arg-type]


def _require_enough(group: Group, row: Algorithm, change: Change) -> None:
    left = [rollout.id.member for rollout in group.rollouts if counts(rollout, row)]
    if change.drop and len(left) < (2 if row.needs_group else 1):
        raise ConfigError(
            f"group {_number(group)}: with {', '.join(map(str, change.drop))} left out, {len(left)} of {len(group.rollouts)} "
            f"answers count{f' ({left[0]})' if left else ''}, and the rule '{row.name}' has nothing to compare; leave fewer out"
        )
