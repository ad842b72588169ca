"""What guesses the value of a text: a head of one number on hidden states, of the policy's own trunk or of a model beside it.

Decisions:
1. The head starts at 0: the first values are 0, so the first advantages are what was earned, and no random number is drawn.
2. It computes in the masters' precision, whatever the trunk does.
3. With a trunk of its own the critic is a second model of the same kind, trained in the same manner (all weights, or adapters).
   An output layer that shares no weights with the input embedding is not trained in it: nothing comes of it.
4. Its own weights have their own optimizer. A shared trunk is stepped by the policy's, on the sum of both losses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from toishi.config import OptimizerConfig
from toishi.errors import ConfigError
from toishi.policy.head import Predictions
from toishi.policy.optimizer import make_optimizer
from toishi.policy.policy import Policy, gradient_norm


class Critic:
    """Values of texts, and the weights of its own that give them.

    trunk     the policy itself, or a model beside it
    masters   name -> weight that is the critic's own: the head, and a trunk of its own
    """

    def __init__(self, trunk: Policy, config: OptimizerConfig, *, owns_trunk: bool) -> None:
        require_hidden_states(trunk)
        self.trunk, self.owns_trunk, self.device = trunk, owns_trunk, trunk.device
        dtype = next(iter(trunk.masters.values())).dtype
        width = trunk.module.config.get_text_config().hidden_size
        self.weight_D = nn.Parameter(torch.zeros(width, dtype=dtype, device=self.device))
        self.bias = nn.Parameter(torch.zeros((), dtype=dtype, device=self.device))
        self.masters: dict[str, Tensor] = {"head.weight": self.weight_D, "head.bias": self.bias}
        if owns_trunk:
            self.masters |= {f"trunk.{name}": master for name, master in trunk.masters.items()}
        self.optimizer = make_optimizer(self, config)

    def values(self, predicted: Predictions) -> Tensor:
        """Value (N,) of the text up to each position of a pass through the trunk; it hangs on the trunk's graph.

        V = w · h + b, with h the last hidden state
        """
        hidden_ND = predicted.hidden_ND
        assert hidden_ND is not None, "a trunk with a model below its head gives hidden states"
        return hidden_ND.to(self.weight_D.dtype) @ self.weight_D + self.bias

    def zero_grad(self) -> None:
        """Forget the gradient of its own weights."""
        for master in self.masters.values():
            master.grad = None

    def grad_norm(self) -> float:
        """Norm of the gradient of its own weights. Raises NumericsError when it is not finite."""
        return gradient_norm(self.masters)

    def step(self) -> None:
        """One optimizer step on its own weights."""
        self.optimizer.step()
        if self.owns_trunk:
            self.trunk.publish()

    def state(self) -> dict[str, Any]:
        """Weights and optimizer as they are now, for a checkpoint."""
        return {"masters": {name: m.detach() for name, m in self.masters.items()}, "optimizer": self.optimizer.state_dict()}

    @torch.no_grad()
    def load(self, state: Mapping[str, Any]) -> None:
        """Puts a `state` back, bit for bit."""
        for name, master in self.masters.items():
            master.copy_(state["masters"][name])
        if self.owns_trunk:
            self.trunk.publish()
        self.optimizer.load_state_dict(state["optimizer"])


def require_hidden_states(policy: Policy) -> None:
    """Raises ConfigError for a model that a critic cannot read."""
    if policy.head.base is None:
        raise ConfigError(
            f"baseline 'critic' reads the last hidden state, and {type(policy.module).__name__} has no model below its head "
            "that gives one; choose a row without a critic, or another model"
        )


def without_output_layer(module: Any) -> Any:
    """The model with its output layer left out of training, unless its weight is the input embedding's as well."""
    head = module.get_output_embeddings()
    if head is not None and head.weight is not module.get_input_embeddings().weight:
        head.requires_grad_(False)
    return module
