"""A critic's advantages token by token, done again in plain arithmetic: reward, value, surprise, and what follows from them.

Decision: the recursion is written out over one answer's numbers, without the tables and tensors that the run used, so that
these are two roads to the same number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from toishi.algorithms.rows import Algorithm
from toishi.algorithms.shaping import shaped, token_rewards
from toishi.types import RESIDUE, Group, Rollout


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenAdvantage:
    """One token with loss.

    token      its place in the answer
    reward     what was earned at it
    value, after  the critic's value of the text before it, and of the text before the next (0 after the last)
    surprise   reward + gamma · after - value
    raw        surprise + gamma · lambda · raw of the next token
    target     raw + value: what the value is to become
    advantage  raw, whitened where the row whitens
    """

    token: int
    reward: float
    value: float
    after: float
    surprise: float
    raw: float
    target: float
    advantage: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Whitening:
    """Mean and spread of the raw advantages of all tokens of the step that count; `divisor` is 0 where all are equal."""

    mean: float
    divisor: float


def raw_surprises(rollout: Rollout, row: Algorithm, max_new_tokens: int) -> tuple[TokenAdvantage, ...]:
    """The tokens with loss of one answer, before whitening; none for an answer that does not count or was not valued."""
    if rollout.values is None:
        return ()
    answer = shaped(rollout, row, max_new_tokens)
    if not answer.counts:
        return ()
    places = [place for place, trained in enumerate(answer.loss_mask_T) if trained]
    found: list[TokenAdvantage] = []
    after, following = answer.value_after, 0.0
    for place, reward in reversed(list(zip(places, token_rewards(answer), strict=True))):
        value = answer.values_T[place]
        surprise = reward + row.gamma * after - value
        raw = surprise + row.gamma * row.gae_lambda * following
        found.append(
            TokenAdvantage(
                token=place,
                reward=reward,
                value=value,
                after=after,
                surprise=surprise,
                raw=raw,
                target=raw + value,
                advantage=raw,
            )
        )
        after, following = value, raw
    return tuple(reversed(found))


def whitening_of(groups: Sequence[Group], row: Algorithm, max_new_tokens: int) -> Whitening | None:
    """What the row whitens by, over all tokens of the step; None where it does not."""
    if not row.whiten:
        return None
    raw = [token.raw for group in groups for rollout in group.rollouts for token in raw_surprises(rollout, row, max_new_tokens)]
    if not raw or max(raw) - min(raw) <= RESIDUE * max(map(abs, raw)):
        return Whitening(mean=raw[0] if raw else 0.0, divisor=0.0)
    mean = math.fsum(raw) / len(raw)
    variance = math.fsum((number - mean) ** 2 for number in raw) / max(1, len(raw) - row.std_ddof)
    return Whitening(mean=mean, divisor=math.sqrt(variance))


def whitened(tokens: Sequence[TokenAdvantage], whitening: Whitening | None, row: Algorithm) -> tuple[TokenAdvantage, ...]:
    """The same tokens with the advantages that the update used, the row's filter on single tokens included."""
    return tuple(replace(token, advantage=_advantage(token.raw, whitening, row)) for token in tokens)


def _advantage(raw: float, whitening: Whitening | None, row: Algorithm) -> float:
    if whitening is not None:
        raw = (raw - whitening.mean) / (whitening.divisor + row.std_epsilon) if whitening.divisor else 0.0
    return max(raw, 0.0) if row.filter == "keep_positive" else raw


def worked_token(
    token: TokenAdvantage, following: TokenAdvantage | None, whitening: Whitening | None, row: Algorithm, digits: int = 4
) -> str:
    """One token's advantage with its numbers: reward, values, and the next token's raw advantage.

    >>> from toishi.algorithms.rows import algorithm
    >>> last = TokenAdvantage(token=1, reward=0.8, value=0.7, after=0.0, surprise=0.1, raw=0.1, target=0.8, advantage=0.1)
    >>> first = replace(last, token=0, reward=0.0, value=0.5, after=0.7, surprise=0.2, raw=0.295, target=0.795)
    >>> row = algorithm("a2c").model_copy(update={"gae_lambda": 0.95})
    >>> worked_token(first, last, None, row), worked_token(last, None, None, row)
    ('0 + 1*0.7 - 0.5 + 0.95*(0.1)', '0.8 + 1*0 - 0.7')
    """

    def short(number: float) -> str:
        return f"{number:.{digits}f}".rstrip("0").rstrip(".")

    def signed(number: float) -> str:
        return f"({short(number)})" if number < 0 else short(number)

    text = f"{short(token.reward)} + {row.gamma:g}*{signed(token.after)} - {signed(token.value)}"
    if following is not None and row.gamma * row.gae_lambda > 0:
        text += f" + {row.gamma * row.gae_lambda:g}*({short(following.raw)})"
    if whitening is None:
        return text
    return f"({text} - {signed(whitening.mean)}) / ({short(whitening.divisor)} + {row.std_epsilon:g})"
