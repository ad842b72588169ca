"""What a critic is taught.

Decisions:
1. As with the policy's surrogate, a loss per token and a code per token: that a value was held is a fact about a token.
2. A held token is cut by selection, so that its gradient is exactly 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from toishi.ops.surrogates import FREE, HELD_HIGH, HELD_LOW


def value_loss(values_N: Tensor, old_values_N: Tensor, returns_N: Tensor, clip: float | None) -> tuple[Tensor, Tensor]:
    """Half the squared distance to the return, held near the value from before the step (arXiv 1707.06347's code):

        V_clip = clip(V, V_old - clip, V_old + clip)        loss = 1/2 max( (V - R)^2 , (V_clip - R)^2 )

    A value that has come nearer to its return by more than `clip` is held: no gradient. One that moves away is not.

    values_N      [N] now, differentiable
    old_values_N  [N] before the step's first update
    returns_N     [N] what they are to become
    clip          None = never held
    Returns the loss and int8 codes: 0 free, 1 held at the lower bound, 2 held at the upper bound, both [N].

    Return 1, old value 0, clip .2: a value of .5 counts as .2, one of -.5 as it is.

    >>> values = torch.tensor([0.5, 0.1, -0.5], requires_grad=True)
    >>> loss, held = value_loss(values, torch.zeros(3), torch.ones(3), clip=0.2)
    >>> loss.sum().backward()
    >>> [round(number, 4) for number in loss.tolist()], held.tolist(), [round(slope, 4) + 0.0 for slope in values.grad.tolist()]
    ([0.32, 0.405, 1.125], [2, 0, 0], [0.0, -0.9, -1.5])
    """
    plain_N = 0.5 * (values_N - returns_N).square()
    if clip is None:
        return plain_N, torch.full_like(plain_N, FREE, dtype=torch.int8)
    bounded_N = torch.minimum(torch.maximum(values_N.detach(), old_values_N - clip), old_values_N + clip)
    held_loss_N = 0.5 * (bounded_N - returns_N).square()
    held_N = held_loss_N > plain_N.detach()
    low_N, high_N = held_N & (values_N < old_values_N - clip), held_N & (values_N > old_values_N + clip)
    codes_N = low_N.to(torch.int8) * HELD_LOW + high_N.to(torch.int8) * HELD_HIGH
    return torch.where(low_N | high_N, held_loss_N, plain_N), codes_N
