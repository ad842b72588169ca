"""Looks at TRL's model without touching the training: log-probs of the step's answers, and what became of every matrix.

Decisions:
1. Passes are made in eval mode without gradients, in TRL's own micro-batches and by TRL's own function. Every module's mode and
   the random state are put back: the training that follows is the same to the bit.
2. The matrices are watched by the observer of toishi's own traces, where the optimizer is one whose step it knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from toishi.callbacks.updates import ROW, MicroBatch
from toishi.record.trace import Trace, TracedText
from toishi.tracing.matrices import MatrixObserver
from toishi.types import Group

KNOWN_OPTIMIZERS = (torch.optim.AdamW, torch.optim.SGD)
PASSED_ON = (
    *("pixel_values", "image_grid_thw", "num_images", "pixel_attention_mask", "spatial_shapes", "num_tiles", "image_sizes"),
    *("token_type_ids", "mm_token_type_ids", "image_position_ids"),
)


@dataclass(slots=True)
class Masters:
    """What the observer of matrices asks of a policy: the trained weights, which the optimizer steps on themselves."""

    masters: dict[str, Tensor]
    compute_dtype: torch.dtype
    has_separate_masters: bool = False


def trained_weights(model: Any) -> dict[str, Tensor]:
    """Name -> trained parameter."""
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


def matrix_observer(model: Any, optimizer: Any) -> MatrixObserver:
    """Watches the optimizer's updates."""
    weights = trained_weights(model)
    dtype = next(iter(weights.values())).dtype
    return MatrixObserver(Masters(weights, dtype), bare(optimizer))  # type: ignore[arg-type]


def bare(optimizer: Any) -> Any:
    """The torch optimizer inside accelerate's."""
    return getattr(optimizer, "optimizer", optimizer)


def compute_dtype(trainer: Any) -> str:
    """Name of the precision that TRL's forward passes compute in."""
    if trainer.args.bf16 or trainer.args.fp16:
        return "bfloat16" if trainer.args.bf16 else "float16"
    return str(next(trainer.model.parameters()).dtype).removeprefix("torch.")


def unknown_step(model: Any, optimizer: Any) -> str:
    """Why the optimizer's step cannot be told matrix by matrix; empty when it can."""
    inner = bare(optimizer)
    if type(inner) not in KNOWN_OPTIMIZERS:
        return f"The step of {type(inner).__name__} is not one that toishi can tell apart from decay and rounding."
    if len({(group["lr"], group["weight_decay"]) for group in inner.param_groups}) > 1:
        return "The weights are in several optimizer groups with different learning rates or weight decay."
    dtypes = {weight.dtype for weight in trained_weights(model).values()}
    if dtypes - {torch.float32, torch.float64} or len(dtypes) != 1:
        return f"The trained weights are held in {', '.join(sorted(map(str, dtypes)))}."
    return ""


@contextmanager
def looking(model: Any) -> Iterator[None]:
    """Eval mode and no gradients inside; every module's mode and the random state come back."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())), torch.no_grad():
            model.eval()
            yield
    finally:
        for module, mode in modes:
            module.training = mode


def logprobs(trainer: Any, batches: Sequence[MicroBatch]) -> dict[int, Tensor]:
    """Number of each answer -> log-probs [T] of its tokens under the weights of the moment, at the sampling temperature."""
    found: dict[int, Tensor] = {}
    with looking(trainer.model):
        for batch in batches:
            inputs = batch.inputs
            values_BT, _, _ = trainer._get_per_token_logps_and_entropies(
                trainer.model,
                torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1),
                torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1),
                inputs["completion_ids"].size(1),
                **{name: inputs[name] for name in PASSED_ON if inputs.get(name) is not None},
            )
            found |= {row: values_BT[place].double().cpu() for place, row in enumerate(batch.rows)}
    return found


def distinct(batches: Sequence[MicroBatch], waiting: Sequence[Any]) -> list[MicroBatch]:
    """Every micro-batch of the step once: those that were used, and those that wait in TRL's buffer."""
    seen: dict[int, MicroBatch] = {id(batch.inputs): batch for batch in batches}
    for inputs in waiting:
        if ROW in inputs:
            seen.setdefault(id(inputs), MicroBatch(inputs))
    return list(seen.values())


def trace_of(
    step: int,
    groups: Sequence[Group],
    before: dict[int, Tensor],
    after: dict[int, Tensor],
    token_texts: Any,
    observer: MatrixObserver | None,
    trainer: Any,
) -> Trace:
    """The trace of a recorded step: answers before and after, and the matrices where they could be watched."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    return Trace(
        step=step,
        why="recorded by TRLRecorder",
        dtype=compute_dtype(trainer),
        temperature=float(trainer.temperature),
        failure="",
        notes=(),
        updates=() if observer is None else tuple(observer.totals),
        positions=(),
        check=None,
        contrast=None,
        texts=tuple(
            _text(number, rollout, before, after, token_texts)
            for number, rollout in enumerate(rollouts)
            if number in before and number in after
        ),
        matrices=() if observer is None else tuple(observer.matrices),
    )


def _text(number: int, rollout: Any, before: dict[int, Tensor], after: dict[int, Tensor], token_texts: Any) -> TracedText:
    completion = rollout.completion

    def masked(values_T: Tensor) -> tuple[float, ...]:
        numbers = values_T[: completion.num_tokens].tolist()
        return tuple(value if trained else 0.0 for value, trained in zip(numbers, completion.loss_mask, strict=True))

    return TracedText(
        kind="rollout",
        group=rollout.id.group,
        member=rollout.id.member,
        prompt_id=rollout.prompt.id,
        text=completion.text,
        token_ids=completion.token_ids,
        token_texts=tuple(token_texts(completion.token_ids)),
        loss_mask=completion.loss_mask,
        before=masked(before[number]),
        after=masked(after[number]),
    )
