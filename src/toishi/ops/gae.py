"""Generalised advantage estimation: what PPO puts where GRPO puts the group's comparison.

Decision: one trajectory, no bootstrap beyond its end: an answer of a language model ends with its last token.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from toishi.ops.advantages import reward_to_go


@dataclass(frozen=True, slots=True)
class Gae:
    """delta_T: surprise at each token; advantages_T: discounted sum of the surprises to come; returns_T: the value's target."""

    delta_T: Tensor
    advantages_T: Tensor
    returns_T: Tensor


def gae(rewards_T: Tensor, values_T: Tensor, *, gamma: float = 1.0, lam: float = 0.95) -> Gae:
    """Advantages of the tokens of one answer (arXiv 1506.02438, eq. 16), over the last dimension.

        delta_t = r_t + gamma · V_{t+1} - V_t        A_t = delta_t + gamma · lam · A_{t+1}        R_t = A_t + V_t

    values_T  value of the text before each token; the value after the last one is 0
    Raises ValueError when the shapes differ or gamma or lam lies outside [0, 1].

    A reward of .8 at the end of two tokens that a value model expected .5 and .7 at:

    >>> found = gae(torch.tensor([0.0, 0.8]).double(), torch.tensor([0.5, 0.7]).double())
    >>> [stream.round(decimals=4).tolist() for stream in (found.delta_T, found.advantages_T, found.returns_T)]
    [[0.2, 0.1], [0.295, 0.1], [0.795, 0.8]]
    """
    if rewards_T.shape != values_T.shape:
        raise ValueError(f"one reward and one value per token: got shapes {tuple(rewards_T.shape)} and {tuple(values_T.shape)}")
    if not (0 <= gamma <= 1 and 0 <= lam <= 1):
        raise ValueError(f"gamma and lam must lie in [0, 1], got gamma={gamma}, lam={lam}")
    following_T = torch.cat([values_T[..., 1:], torch.zeros_like(values_T[..., :1])], dim=-1)
    delta_T = rewards_T + gamma * following_T - values_T
    advantages_T = reward_to_go(delta_T, gamma * lam)
    return Gae(delta_T, advantages_T, advantages_T + values_T)
