"""Which tokens of an answer carried its push: each token's own part of the answer's share, by forward-mode differentiation.

    share_t = c · profile_t · <∇ log p_t, gamma> / |gamma|²          Σ_t share_t = the answer's share

Decisions:
1. One pass for each answer carries the direction gamma forward beside the activations and gives every token's slope at once;
   backward, each token would cost a pass.
2. The slope is that of the token's own log-prob, given all before it. A token's push acts at earlier places as well: through
   what it saw there.
3. Made on request: a pass costs two to three forward passes of the answer on its own.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from toishi.ops.logprobs import token_logprobs
from toishi.policy.fused import plain
from toishi.tracing.influence.rows import Pass


@torch.no_grad()
def token_slopes(module: nn.Module, passes: Sequence[Pass], direction: Mapping[str, Tensor]) -> list[tuple[float, ...]]:
    """Of each pass's tokens with loss: the derivative of the log-prob along the direction, under the weights of the moment.

    direction  trained weight's name -> (its shape)
    """
    weights = {name: weight for name, weight in module.named_parameters() if name in direction}
    # torch's fused attention has no forward mode; its plain form has. A tangent that is a view would be copied with all
    # of the memory that it looks at, so each has memory of its own.
    with warnings.catch_warnings(), plain(module), sdpa_kernel(SDPBackend.MATH), forward_ad.dual_level():
        warnings.filterwarnings("ignore", message=".*torch.jit.script", category=DeprecationWarning)  # torch's own forward mode
        moving = {
            name: forward_ad.make_dual(weight.detach(), direction[name].to(weight.dtype, copy=True))  # type: ignore[no-untyped-call]
            for name, weight in weights.items()
        }
        return [_slopes(module, moving, one) for one in passes]


def _slopes(module: nn.Module, moving: Mapping[str, Tensor], one: Pass) -> tuple[float, ...]:
    device = next(iter(moving.values())).device
    answer, keep = one.rollout.completion.token_ids, torch.tensor(one.positions, device=device)
    inputs = {"input_ids": torch.tensor([one.input_ids], device=device), "logits_to_keep": keep, "use_cache": False}
    logits_NV = functional_call(module, dict(moving), kwargs=inputs).logits[0]
    targets_N = torch.tensor([answer[place] for place in one.places], device=device)
    logprobs_N = token_logprobs(logits_NV, targets_N, one.temperature)
    found = forward_ad.unpack_dual(logprobs_N).tangent  # type: ignore[no-untyped-call]
    return tuple(found.tolist()) if found is not None else (0.0,) * len(one.places)
