"""A critic on the toy: what it guesses before each word, what surprises it, and what it learns.

Decisions:
1. The critic is a table with one guess for each text that a word can follow, so that its gradient is a sum a person can add up.
2. It is stepped by the walk's optimizer at the walk's learning rate, as a critic that shares its trunk with the policy.
3. Surprises, targets and the value loss are the library's; the gradient is worked out by a formula and compared with autograd.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from toishi.algorithms.rows import Algorithm
from toishi.algorithms.shaping import shaped, token_rewards
from toishi.explanation.toy.model import MAX_WORDS, World, place_of
from toishi.explanation.toy.updating import optimizer_for
from toishi.explanation.toy.walk_beyond import CriticStep, Numbers, Valued, ValuedToken
from toishi.ops.advantages import batch_std
from toishi.ops.gae import Gae, gae
from toishi.ops.values import value_loss
from toishi.types import Rollout


def valued(
    world: World, row: Algorithm, rollouts: Sequence[Rollout], optimizer: str, lr: float | None, count: int
) -> Valued | None:
    """The critic's numbers in `count` updates on the answers that count; None for a row without one."""
    if not row.needs_critic:
        return None
    tokens = tuple(token for rollout in rollouts for token in _tokens(world, row, rollout))
    estimated_1N = torch.tensor([[token.estimated for token in tokens]], dtype=torch.float64)
    spread = batch_std(estimated_1N, torch.ones_like(estimated_1N).bool(), row.std_ddof).item() if tokens else 0.0
    first = next(iter(rollouts), None)
    ends = [() if first is None else tuple(_gae(row, first, lam).advantages_T.tolist()) for lam in (0.0, 1.0)]
    return Valued(
        gamma=row.gamma,
        lam=row.gae_lambda,
        coef=row.value_coef,
        clip=row.value_clip,
        epsilon=row.std_epsilon,
        mean=estimated_1N.mean().item() if row.whiten and tokens else None,
        std=spread if row.whiten and tokens else None,
        tokens=tokens,
        ends=(ends[0], ends[1]),
        steps=_steps(world, row, rollouts, tokens, optimizer, lr, count),
    )


def _gae(row: Algorithm, rollout: Rollout, lam: float) -> Gae:
    rewards_T = torch.tensor(token_rewards(shaped(rollout, row, MAX_WORDS)), dtype=torch.float64)
    values_T = torch.tensor(rollout.values, dtype=torch.float64)
    after = torch.tensor(rollout.value_after or 0.0, dtype=torch.float64)
    return gae(rewards_T, values_T, gamma=row.gamma, lam=lam, after=after)


def _tokens(world: World, row: Algorithm, rollout: Rollout) -> list[ValuedToken]:
    found, answer = _gae(row, rollout, row.gae_lambda), rollout.completion.token_ids
    values, estimated = [*(rollout.values or ()), rollout.value_after or 0.0], [*found.advantages_T.tolist(), 0.0]
    rewards = token_rewards(shaped(rollout, row, MAX_WORDS))
    return [
        ValuedToken(
            answer=rollout.id.member + 1,
            position=place + 1,
            word=world.words[word],
            value=values[place],
            following=values[place + 1],
            reward=rewards[place],
            surprise=found.delta_T[place].item(),
            ahead=estimated[place + 1],
            estimated=estimated[place],
            target=found.returns_T[place].item(),
            advantage=rollout.advantage_per_token[place],
        )
        for place, word in enumerate(answer)
    ]


def _steps(
    world: World,
    row: Algorithm,
    rollouts: Sequence[Rollout],
    tokens: Sequence[ValuedToken],
    optimizer: str,
    lr: float | None,
    count: int,
) -> tuple[CriticStep, ...]:
    guesses_S = torch.tensor(world.guesses, dtype=torch.float64, requires_grad=True)
    places = [place_of(rollout.completion.token_ids, at) for rollout in rollouts for at in range(rollout.completion.num_tokens)]
    place_N = torch.tensor(places, dtype=torch.long)
    old_N, targets_N = (
        torch.tensor(numbers, dtype=torch.float64)
        for numbers in ([token.value for token in tokens], [token.target for token in tokens])
    )
    stepping, found = optimizer_for(optimizer, guesses_S, lr), []
    for index in range(1, count + 1):
        before = _plain(guesses_S)
        loss_N, codes_N = value_loss(guesses_S[place_N], old_N, targets_N, row.value_clip)
        loss = loss_N.sum() / max(1, len(tokens))
        (autograd_S,) = torch.autograd.grad(row.value_coef * loss, guesses_S)
        slopes_S = _closed_form(row, guesses_S.detach(), place_N, targets_N, codes_N != 0)
        guesses_S.grad = slopes_S.clone()
        stepping.step()
        found.append(
            CriticStep(
                index=index,
                before=before,
                held=tuple((codes_N != 0).tolist()),
                loss=loss.item(),
                slopes=_plain(slopes_S),
                autograd=_plain(autograd_S),
                max_difference=(slopes_S - autograd_S).abs().max().item(),
                after=_plain(guesses_S),
            )
        )
    return tuple(found)


def _closed_form(row: Algorithm, guesses_S: Tensor, place_N: Tensor, targets_N: Tensor, held_N: Tensor) -> Tensor:
    """d (coef · mean of (guess - target)² / 2) / d guess: coef / N · Σ (guess - target) over the words after it."""
    apart_N = (guesses_S[place_N] - targets_N) * ~held_N
    return row.value_coef / max(1, len(targets_N)) * torch.zeros_like(guesses_S).index_add(0, place_N, apart_N)


def _plain(numbers_S: Tensor) -> Numbers:
    return tuple(numbers_S.detach().tolist())
