"""Why a word's probability moved: its own push against the growth of all words together."""

from __future__ import annotations

import torch

from toishi.explanation.toy.model import World, initial_logits
from toishi.explanation.toy.walk import Update, WordMove
from toishi.types import Group

NOTHING = 1e-9


def word_moves(world: World, group: Group, update: Update) -> tuple[WordMove, ...]:
    """One entry for each first word: p_after / p_before = e^(change of its logit) / Σ_v p_v e^(change of v's logit)."""
    changes_V = torch.tensor(update.step.change.first, dtype=torch.float64)
    start_V = initial_logits(world).softmax(-1)[0]
    total = (start_V * changes_V.exp()).sum().item()
    return tuple(_move(world, group, update, index, total) for index in range(len(world.words)))


def _move(world: World, group: Group, update: Update, index: int, total: float) -> WordMove:
    change = update.step.change.first[index]
    growth = torch.tensor(change, dtype=torch.float64).exp().item()
    own = [rollout.advantage_per_token[0] for rollout in group.rollouts if rollout.completion.token_ids[0] == index]
    advantage = sum(own) / len(own) if own else None
    return WordMove(
        word=world.words[index],
        advantage=advantage,
        change=change,
        growth=growth,
        total=total,
        factor=growth / total,
        before=world.first[index],
        after=update.step.after.probabilities.first[index],
        surprising=advantage is not None and advantage * (growth / total - 1) < -NOTHING,
    )
