"""Gradient checkpointing: a layer keeps its input alone, and computes its inside again in the backward pass.

Decisions:
1. transformers' own switch works in training mode only, where dropout and routing noise may be on. Here the module stays in
   eval mode: each decoder layer is wrapped where it stands.
2. Without gradients nothing is wrapped, so sampling keeps its cache.
3. What surrounds the forward pass (a packed row's attention) surrounds the second computation as well; a layer recomputed
   outside of it would silently attend to other tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from toishi.errors import ConfigError

Surroundings = Callable[[], AbstractContextManager[Any]]

_SURROUNDINGS: ContextVar[Surroundings] = ContextVar("surroundings of the forward pass in progress", default=nullcontext)


def recompute_layers(module: nn.Module) -> None:
    """Wrap every decoder layer, for good. Raises ConfigError for a model without layers that can be told apart."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    layers = [part for part in module.modules() if isinstance(part, GradientCheckpointingLayer)]
    if not layers:
        raise ConfigError(
            f"train.gradient_checkpointing: {type(module).__name__} has no layers that transformers marks as "
            "checkpointable. Set it to false, and make train.micro_batch_tokens smaller to save memory"
        )
    for layer in layers:
        layer.forward = _Recomputed(layer.forward)


def without_gradients(part: nn.Module) -> Callable[..., Any]:
    """The forward that runs while no gradients are recorded: the wrapped one, where `recompute_layers` has been."""
    forward: Callable[..., Any] = part.forward
    return forward.forward if isinstance(forward, _Recomputed) else forward


@contextmanager
def within(surroundings: Surroundings) -> Iterator[Any]:
    """Enter `surroundings` now, and again whenever a layer that runs inside is computed again; gives what they give."""
    token = _SURROUNDINGS.set(surroundings)
    try:
        with surroundings() as given:
            yield given
    finally:
        _SURROUNDINGS.reset(token)


class _Recomputed:
    def __init__(self, forward: Callable[..., Any]) -> None:
        self.forward = forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return self.forward(*args, **kwargs)
        surroundings = _SURROUNDINGS.get()
        return checkpoint(
            self.forward,
            *args,
            use_reentrant=False,
            preserve_rng_state=False,  # no dropout: nothing is drawn
            context_fn=lambda: (nullcontext(), surroundings()),
            **kwargs,
        )
