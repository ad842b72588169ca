"""Where the recorder listens in TRL's GRPOTrainer: four of its functions, replaced on the trainer by ones that also tell.

Decisions:
1. A callback is not handed the trainer. It is found in the frames that called the callback, and nowhere else is looked.
2. The trainer's own function runs first, outside of any guard, and its result is handed on as it is; the one addition is a key
   that says which answer a row is, since TRL shuffles its samples.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch

from toishi.callbacks.samples import Generation, Judged
from toishi.callbacks.updates import ROW, MicroBatch

WRAPPED = (
    "_calculate_rewards",
    "_generate_and_score_completions",
    "_compute_loss",
    "_get_per_token_logps_and_entropies",
    "_get_grad_norm",
)


class Listener(Protocol):
    """Who is told."""

    def generated(self, generation: Generation) -> int:
        """A generation was scored; answers the step's number of its first row."""

    def computed(self, batch: MicroBatch) -> None:
        """A micro-batch went forward."""

    def measured(self, grad_norm: float) -> None:
        """The gradient's norm before clipping."""

    def guarded(self, work: Callable[[], Any]) -> Any:
        """Does `work`; a failure of it is kept away from the training."""


def find_trainer(callback: object) -> Any:
    """The trainer in whose loop the callback is being called; None outside of one."""
    frame = inspect.currentframe()
    try:
        while frame is not None:
            owner = frame.f_locals.get("self")
            handler = getattr(owner, "callback_handler", None)
            if handler is not None and callback in getattr(handler, "callbacks", ()):
                return owner
            frame = frame.f_back
        return None
    finally:
        del frame


def listen(trainer: Any, listener: Listener) -> Callable[[], None]:
    """Replaces the functions on the trainer; the returned one puts them back."""
    wires = _Wires(trainer, listener)
    for name in WRAPPED:
        trainer.__dict__[name] = getattr(wires, name.lstrip("_"))

    def put_back() -> None:
        for name in WRAPPED:
            trainer.__dict__.pop(name, None)

    return put_back


class _Wires:
    """The functions that stand in for the trainer's, and what they pass to one another."""

    def __init__(self, trainer: Any, listener: Listener) -> None:
        self.trainer, self.listener = trainer, listener
        self.own: dict[str, Callable[..., Any]] = {name: getattr(trainer, name) for name in WRAPPED}
        self.judged: Judged | None = None
        self.batch: MicroBatch | None = None

    def calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
        """Keeps what was judged."""
        values_BF = self.own["_calculate_rewards"](inputs, prompts, completions, completion_ids_list)
        if self.trainer.model.training:
            self.judged = Judged(
                rows=inputs,
                prompts=prompts,
                completions=completions,
                token_ids=completion_ids_list,
                values_BF=values_BF.detach().cpu().double(),
            )
        return values_BF

    def generate_and_score_completions(self, inputs: Any) -> Any:
        """Tells of a generation, and numbers its rows."""
        output = self.own["_generate_and_score_completions"](inputs)
        if not self.trainer.model.training:
            return output
        first = self.listener.guarded(lambda: self._told(output))
        if first is None:
            return output
        count = len(output["prompt_ids"])
        return {**output, ROW: torch.arange(first, first + count, device=output["prompt_ids"].device)}

    def _told(self, output: Mapping[str, Any]) -> int:
        if self.judged is None:
            raise RuntimeError("a generation without rewards")
        judged, self.judged = self.judged, None
        generation = Generation(judged=judged, output=output, policy_version=int(self.trainer.state.global_step))
        return self.listener.generated(generation)

    def compute_loss(self, model: Any, inputs: Any) -> Any:
        """Tells of a micro-batch with its loss."""
        if not self.trainer.model.training or ROW not in inputs:
            return self.own["_compute_loss"](model, inputs)
        batch = self.batch = MicroBatch(inputs)
        try:
            loss = self.own["_compute_loss"](model, inputs)
        finally:
            self.batch = None
        batch.loss = float(loss.detach())
        self.listener.guarded(lambda: self.listener.computed(batch))
        return loss

    def get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        """Watches the log-probs that a loss is being made of."""
        found = self.own["_get_per_token_logps_and_entropies"](*args, **kwargs)
        batch = self.batch
        if batch is not None:
            self.listener.guarded(lambda: batch.watch(found[0], found[1]))
        return found

    def get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        """Tells the gradient's norm, which TRL computes anyway."""
        found = self.own["_get_grad_norm"](model, grad_norm=grad_norm)
        self.listener.guarded(lambda: self.listener.measured(float(found)))
        return found
