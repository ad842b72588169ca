"""The advantage of a run's algorithm in words, and worked with the numbers of one answer.

Decisions:
1. The words are put together from the row's choices, as the calculation is; nothing branches on a row's name.
2. A worked line is shown only if it comes out as the recorded advantage: where a row does more (rewards of steps, KL paid
   token by token), there is no line rather than a wrong one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from toishi.algorithms.rows import Algorithm
from toishi.algorithms.shaping import Shaped, shaped
from toishi.types import RESIDUE, Group, Rollout

_SUBTRACTED = {
    "none": "",
    "group_mean": "mean",
    "leave_one_out": "mean of its siblings",
    "batch_mean": "mean of the step",
}
_DIVISORS = {"none": "", "group_std": "std", "batch_std": "std of the step", "group_mean": "mean"}
_PREFERENCES = {
    "sigmoid": "advantage = ±2·{beta}·{pull}, + for the best answer and - for the worst; "
    "h = {beta}·(their difference of {compared}) less the pair's margin",
    "ipo": "advantage = ±4·(1/(2·{beta}) - d)/tokens, + for the best answer and - for the worst; "
    "d = their difference of mean {compared} less the pair's margin",
}
_COMPARED = {"tokens": "log p/p_ref", "score": "scores"}
_AGREES = 1e-6


def formula(row: Algorithm) -> str:
    """How a reward becomes an advantage under this row.

    >>> from toishi.algorithms.rows import algorithm
    >>> formula(algorithm("grpo"))
    'advantage = (reward - mean) / (std + 0.0001)'
    >>> formula(algorithm("rloo"))
    'advantage = reward - mean of its siblings'
    >>> formula(algorithm("raft"))
    'advantage = 1 for the best answers of a group if their reward is above 0, and 0 for the others'
    """
    if not row.policy_term:
        terms = "entropy, KL and divergence" if row.divergence_coef else "entropy and KL"
        return f"advantages are not used: only the {terms} terms teach"
    if row.filter == "keep_best":
        return "advantage = 1 for the best answers of a group if their reward is above 0, and 0 for the others"
    if row.credit == "preference":
        text = _PREFERENCES[row.preference].format(
            beta=f"{row.beta:g}", pull=f"(σ(-h) - {row.label_smoothing:g})" if row.label_smoothing else "σ(-h)",
            compared=_COMPARED[row.predicts],
        )  # fmt: skip
        return f"{text}; both less 4·{row.centring:g}·(sum of the two scores)" if row.centring else text
    if row.credit == "teacher":
        return "advantage of a token = log p_teacher - log p: how much likelier the teacher finds it"
    if row.combine == "normalise_each":
        each = _expression(row, "value", _SUBTRACTED[row.baseline], _DIVISORS[row.scale])
        each = f"({each})" if row.scale == "none" else each
        text = f"advantage = {_over(row, f'Σ weight · {each}', 'std of these sums over the step')}, summed over the rewards"
        return f"{text}, and 0 where that is negative" if row.filter == "keep_positive" else text
    name = "advantage of a token" if row.credit == "reward_to_go" else "advantage"
    text = f"{name} = {_expression(row, _earned_words(row), _SUBTRACTED[row.baseline], _DIVISORS[row.scale])}"
    return f"{text}, and 0 where that is negative" if row.filter == "keep_positive" else text


def _earned_words(row: Algorithm) -> str:
    words = "2·reward - 1" if row.reward_map == "plus_minus" else "reward"
    if row.credit == "reward_to_go":
        words = f"{words} from it on"
    if row.truncation == "soft_penalty":
        words += " + length penalty"
    if row.kl == "k1_in_reward" and row.needs_reference:
        words += f" - {row.kl_coef:g}·Σ(log p - log p_ref)"
    return words


def _expression(row: Algorithm, earned: str, subtracted: str, divisor: str) -> str:
    difference = f"{earned} - {subtracted}" if subtracted else earned
    return _over(row, difference, divisor)


def _over(row: Algorithm, difference: str, divisor: str) -> str:
    if not divisor:
        return difference
    bottom = f"({divisor} + {row.std_epsilon:g})" if row.std_epsilon else divisor
    return f"({difference}) / {bottom}" if " " in difference else f"{difference} / {bottom}"


@dataclass(frozen=True, slots=True)
class _Answer:
    """A counting answer of the step with what it earned."""

    rollout: Rollout
    earned: float
    num_tokens: int
    parts: Mapping[str, tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardNumbers:
    """One reward of an answer compared by itself: part = weight · (value - subtracted) / (divisor + epsilon)."""

    reward: str
    weight: float
    value: float
    subtracted: float
    divisor: float | None
    part: float


@dataclass(frozen=True, slots=True)
class Numbers:
    """What stands in the formula for one answer; None where the row has no such part. `rewards`: with normalise_each."""

    subtracted: float | None
    divisor: float | None
    rewards: tuple[RewardNumbers, ...] = ()


def worked(
    group: Group,
    groups: Sequence[Group],
    row: Algorithm,
    max_new_tokens: int,
    member: int | None = None,
    digits: int = 4,
) -> str:
    """The formula with the numbers of one answer; empty where there is nothing to work out.

    member  whose numbers; by default those of the group's most telling answer
    digits  after the point, of what stands in the formula
    """
    answers = _answers([group], row, max_new_tokens)
    chosen = [answer for answer in answers if member in (None, answer.rollout.id.member)]
    if group.baseline is None or not group.baseline.kept or row.filter == "keep_best" or not row.policy_term or not chosen:
        return ""
    answer = max(chosen, key=lambda item: abs(_advantage(item.rollout)))
    advantage = _advantage(answer.rollout)
    numbers = _numbers(answer, answers, _answers(groups, row, max_new_tokens), group, row)
    if abs(_result(answer.earned, numbers, row) - advantage) > _AGREES * max(1.0, abs(advantage)):
        return ""
    if advantage == 0 and member is None:
        return ""
    what = "first token of member" if row.credit == "reward_to_go" else "member"
    expression = _in_digits(answer.earned, numbers, row, digits)
    return f"{what} {answer.rollout.id.member}: {expression} = {advantage:+.4f}"


def numbers_of(rollout: Rollout, group: Group, groups: Sequence[Group], row: Algorithm, max_new_tokens: int) -> Numbers | None:
    """What stands in the formula for an answer of the group; None for one that does not count."""
    answers = _answers([group], row, max_new_tokens)
    mine = next((answer for answer in answers if answer.rollout.id == rollout.id), None)
    if mine is None or group.baseline is None:
        return None
    return _numbers(mine, answers, _answers(groups, row, max_new_tokens), group, row)


def _answers(groups: Sequence[Group], row: Algorithm, max_new_tokens: int) -> list[_Answer]:
    found: list[tuple[Rollout, Shaped]] = [
        (rollout, shaped(rollout, row, max_new_tokens)) for group in groups for rollout in group.rollouts
    ]
    return [_Answer(rollout, answer.total, answer.num_tokens, answer.parts) for rollout, answer in found if answer.counts]


def _in_digits(earned: float, numbers: Numbers, row: Algorithm, digits: int) -> str:
    def short(value: float | None) -> str:
        return _digits(value, digits)

    if row.combine == "sum":
        return _expression(row, short(earned), short(numbers.subtracted), short(numbers.divisor))
    each = []
    for one in numbers.rewards:
        inner = _expression(row, short(one.value), short(one.subtracted), short(one.divisor))
        each.append(f"{short(one.weight)}·{inner if one.divisor is not None else f'({inner})'}")
    return _over(row, " + ".join(each) or "0", short(numbers.divisor))


def _numbers(
    answer: _Answer, siblings: Sequence[_Answer], everyone: Sequence[_Answer], group: Group, row: Algorithm
) -> Numbers:
    if row.combine == "normalise_each":
        return _numbers_of_each(answer, siblings, everyone, row)
    others = [other.earned for other in siblings if other.rollout.id != answer.rollout.id]
    weights = [other.num_tokens if row.statistics_over == "tokens" else 1 for other in everyone]
    mean, std = _weighted([other.earned for other in everyone], weights, row.std_ddof)
    baseline = group.baseline
    assert baseline is not None, "worked() has looked"
    subtracted = {
        "none": None,
        "group_mean": baseline.mean,
        "leave_one_out": sum(others) / len(others) if others else None,
        "batch_mean": mean,
    }
    divisor = {"none": None, "group_std": baseline.std, "batch_std": std, "group_mean": baseline.mean}
    return Numbers(subtracted[row.baseline], divisor[row.scale])


def _numbers_of_each(answer: _Answer, siblings: Sequence[_Answer], everyone: Sequence[_Answer], row: Algorithm) -> Numbers:
    by_group: dict[int, list[_Answer]] = {}
    for other in everyone:
        by_group.setdefault(other.rollout.id.group, []).append(other)
    sums = [sum(one.part for one in _of_rewards(other, by_group[other.rollout.id.group], row)) for other in everyone]
    return Numbers(None, _weighted(sums, [1] * len(sums), row.std_ddof)[1], _of_rewards(answer, siblings, row))


def _of_rewards(answer: _Answer, siblings: Sequence[_Answer], row: Algorithm) -> tuple[RewardNumbers, ...]:
    """Each reward of the answer, compared with what the same reward says of its siblings."""
    found = []
    for name, (weight, value) in answer.parts.items():
        values = [other.parts[name][1] for other in siblings if name in other.parts]
        mean, std = _weighted(values, [1] * len(values), row.std_ddof)
        others = (sum(values) - value) / (len(values) - 1) if len(values) > 1 else value
        subtracted = mean if row.baseline == "group_mean" else others
        tied = max(values) - min(values) <= RESIDUE * max(map(abs, values))
        divisor = None if row.scale == "none" else 0.0 if tied else std
        distance = 0.0 if tied else value - subtracted
        part = weight * distance / (1.0 if divisor is None else (divisor + row.std_epsilon) or 1.0)
        found.append(RewardNumbers(reward=name, weight=weight, value=value, subtracted=subtracted, divisor=divisor, part=part))
    return tuple(found)


def _weighted(values: Sequence[float], weights: Sequence[int], ddof: int) -> tuple[float, float]:
    """Mean and standard deviation of values that count `weights` times.

    >>> _weighted([1.0, 0.0], [3, 1], 0)[0]
    0.75
    """
    total = sum(weights)
    mean = sum(value * weight for value, weight in zip(values, weights, strict=True)) / max(1, total)
    squares = sum(weight * (value - mean) ** 2 for value, weight in zip(values, weights, strict=True))
    return mean, float((squares / max(1, total - ddof)) ** 0.5)


def _result(earned: float, numbers: Numbers, row: Algorithm) -> float:
    each = row.combine == "normalise_each"
    difference = sum(one.part for one in numbers.rewards) if each else earned - (numbers.subtracted or 0.0)
    result = difference if numbers.divisor is None else difference / (numbers.divisor + row.std_epsilon or 1.0)
    return max(result, 0.0) if row.filter == "keep_positive" else result


def _advantage(rollout: Rollout) -> float:
    """The answer's advantage; that of its first token when each token has its own."""
    return next(iter(rollout.advantage_per_token), 0.0)


def _digits(value: float | None, digits: int) -> str:
    """
    >>> _digits(0.5, 4), _digits(1 / 3, 4), _digits(None, 4)
    ('0.5', '0.3333', '')
    """
    return "" if value is None else f"{value:.{digits}f}".rstrip("0").rstrip(".")
