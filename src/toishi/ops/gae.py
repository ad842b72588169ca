"""Generalised advantage estimation: what PPO puts where GRPO puts the group's comparison.

Decision: an answer of a language model ends with its last token, and nothing comes after it. Only where one was cut and that is
to count as a time-out, the value of the text so far stands for what was cut off.
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


def gae(rewards_T: Tensor, values_T: Tensor, *, gamma: float = 1.0, lam: float = 0.95, after: Tensor | None = None) -> Gae:
    """Advantages of the tokens of one answer (arXiv 1506.02438, eq. 16), over the last dimension.

        delta_t = r_t + gamma · V_{t+1} - V_t        A_t = delta_t + gamma · lam · A_{t+1}        R_t = A_t + V_t

    values_T  value of the text before each token
    after     value of the text after the last token, without the last dimension; None = 0, the answer ended there
    Raises ValueError when the shapes differ or gamma or lam lies outside [0, 1].

    A reward of .8 at the end of two tokens that a value model expected .5 and .7 at:

    >>> found = gae(torch.tensor([0.0, 0.8]).double(), torch.tensor([0.5, 0.7]).double())
    >>> [stream.round(decimals=4).tolist() for stream in (found.delta_T, found.advantages_T, found.returns_T)]
    [[0.2, 0.1], [0.295, 0.1], [0.795, 0.8]]

    The same cut off after its second token, where the value is .6:

    >>> cut = gae(torch.tensor([0.0, 0.8]), torch.tensor([0.5, 0.7]), lam=1.0, after=torch.tensor(0.6))
    >>> [round(number, 4) for number in cut.returns_T.tolist()]
    [1.4, 1.4]
    """
    if rewards_T.shape != values_T.shape:
        raise ValueError(f"one reward and one value per token: got shapes {tuple(rewards_T.shape)} and {tuple(values_T.shape)}")
    if not (0 <= gamma <= 1 and 0 <= lam <= 1):
        raise ValueError(f"gamma and lam must lie in [0, 1], got gamma={gamma}, lam={lam}")
    last = torch.zeros_like(values_T[..., :1]) if after is None else after.unsqueeze(-1)
    following_T = torch.cat([values_T[..., 1:], last], dim=-1)
    delta_T = rewards_T + gamma * following_T - values_T
    advantages_T = reward_to_go(delta_T, gamma * lam)
    return Gae(delta_T, advantages_T, advantages_T + values_T)
