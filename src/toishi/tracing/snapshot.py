"""Weights and optimizer as they were, in memory: for a step that only at its end shows that it is worth a trace."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from toishi.policy.critic import Critic
from toishi.policy.policy import Policy


@dataclass(frozen=True)
class Snapshot:
    """A copy of the masters, of the optimizer's state, and of the critic's where there is one."""

    masters: dict[str, Tensor]
    optimizer: dict[str, Any]
    critic: dict[str, Any] | None

    @classmethod
    def take(cls, policy: Policy, optimizer: torch.optim.Optimizer, critic: Critic | None = None) -> Snapshot:
        masters = {name: master.detach().clone() for name, master in policy.masters.items()}
        state = None if critic is None else copy.deepcopy(critic.state())
        return cls(masters, copy.deepcopy(optimizer.state_dict()), state)

    def put_back(self, policy: Policy, optimizer: torch.optim.Optimizer, critic: Critic | None = None) -> None:
        """Weights and optimizers are again what they were, bit for bit. May be done more than once."""
        policy.load_masters(self.masters)
        optimizer.load_state_dict(copy.deepcopy(self.optimizer))  # the optimizer would go on in the copy's own tensors
        if critic is not None and self.critic is not None:
            critic.load(copy.deepcopy(self.critic))
