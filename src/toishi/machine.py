"""What is measured or chosen once for a run, so that a resume and a replay compute the same bits."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from toishi.config import Config, ModelConfig
from toishi.memory import fixed_budget
from toishi.policy.precision import choose_device, choose_dtype


@dataclass(frozen=True)
class Machine:
    """Decided once, stored in run.json, used again on resume and replay.

    micro_batch_tokens  packed tokens of a forward pass, which rounding depends on; None until memory is planned, and for runs
                        that say it in their configuration alone
    """

    dtype: str
    device: str
    threads: int
    micro_batch_tokens: int | None = None

    @classmethod
    def decide(cls, config: ModelConfig) -> Machine:
        """Device, precision and threads; memory is planned when the model is there."""
        device = choose_device(config.device)
        dtype = choose_dtype(config.dtype, device)
        return cls(dtype=str(dtype).removeprefix("torch."), device=str(device), threads=torch.get_num_threads())

    @property
    def torch_dtype(self) -> torch.dtype:
        """The compute precision itself."""
        return getattr(torch, self.dtype)  # type: ignore[no-any-return]

    def token_budget(self, config: Config) -> int:
        """Packed tokens of a forward pass."""
        return self.micro_batch_tokens or fixed_budget(config, self.device)
