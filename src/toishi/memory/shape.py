"""What a model keeps of a forward pass, measured on the model itself, and the other sizes that memory depends on.

Decisions:
1. What a layer keeps for its backward pass depends on the architecture, on adapters, on which parts have drop-ins and on how
   attention is computed. So it is not written down per architecture: two short passes with gradients run through the model at
   hand, and every tensor that autograd saves is counted once.
2. Two lengths tell what grows with the tokens from what grows with their square (the mask of a packed row).
3. With gradient checkpointing the same passes run with the layers' own forwards: what is kept then is each layer's input, and
   what one layer keeps, for the layer that is computed again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from toishi.engines.packed import LEAST_WEIGHTS
from toishi.policy.head import output_layer
from toishi.policy.layout import Layout, Span
from toishi.policy.recomputing import without_gradients

if TYPE_CHECKING:
    from toishi.policy.policy import Policy

_LENGTHS = (64, 128)
_ANSWERS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """The sizes that memory depends on.

    linear            weights in linear layers that sampling on a CPU lays out anew, without the head
    key_value_width   numbers of a token's keys in a layer (its values have as many)
    kept_per_token, kept_per_square  bytes that a forward pass of n tokens keeps for its backward pass: a n + b n²
    own_head          weights of an output layer that shares none with the input embedding; 0 where it does
    widest            numbers of a token in the widest linear layer below the head
    fast_head         log-probs come from slices of the vocabulary (policy.head), not from whole logits
    shared_rows, mixed_rows  whether a row holds several answers, and answers to several prompts
    compute_bytes     bytes of a number in the compute precision
    teacher_bytes     of a frozen model beside the policy, that it learns from; 0 without one
    reward_bytes      of the models that rewards hold in this process
    """

    parameters: int
    trained: int
    linear: int
    vocabulary: int
    hidden: int
    widest: int
    layers: int
    key_value_width: int
    kept_per_token: float
    kept_per_square: float
    fast_head: bool
    shared_rows: bool
    mixed_rows: bool
    compute_bytes: int
    device: str
    own_head: int = 0
    teacher_bytes: int = 0
    reward_bytes: int = 0

    @classmethod
    def of(cls, policy: Policy, *, shared_rows: bool = True, reward_bytes: int = 0) -> ModelShape:
        """Read from a policy, and measured on it: two passes over few tokens. `shared_rows` False is one answer a row."""
        module = policy.module
        config = module.config.get_text_config()
        heads = int(getattr(config, "num_attention_heads", 1))
        head_dim = int(getattr(config, "head_dim", None) or config.hidden_size // heads)
        key_value_heads = int(getattr(config, "num_key_value_heads", None) or heads)
        head = output_layer(module)
        per_token, per_square = _kept(policy, shared_rows)
        return cls(
            parameters=policy.num_parameters,
            trained=policy.num_trained,
            linear=sum(part.weight.numel() for part in module.modules() if _is_laid_out(part) and part is not head),
            vocabulary=int(head.weight.shape[0]),
            hidden=int(config.hidden_size),
            widest=max(max(weight.shape) for weight in _matrices(module, head)),
            layers=int(config.num_hidden_layers),
            key_value_width=head_dim * key_value_heads,
            kept_per_token=per_token,
            kept_per_square=per_square,
            fast_head=policy.head.fast is not None or policy.scores_answers,
            shared_rows=shared_rows,
            mixed_rows=shared_rows and policy.mixes_groups,
            compute_bytes=policy.compute_dtype.itemsize,
            device=str(policy.device),
            own_head=0 if head.weight is module.get_input_embeddings().weight else head.weight.numel(),
            teacher_bytes=_teacher_bytes(policy),
            reward_bytes=reward_bytes,
        )

    @property
    def on_cpu(self) -> bool:
        return self.device == "cpu"

    def kept_bytes(self, tokens: int) -> int:
        """What a forward pass of so many tokens keeps for its backward pass, without the head."""
        return round(self.kept_per_token * tokens + self.kept_per_square * tokens**2)


def _teacher_bytes(policy: Policy) -> int:
    model = None if policy.teacher is None else policy.teacher.model
    return 0 if model is None else model.num_parameters * model.compute_dtype.itemsize


def _is_laid_out(part: nn.Module) -> bool:
    return type(part) is nn.Linear and part.weight.numel() >= LEAST_WEIGHTS


def _matrices(module: Any, head: Any) -> list[Tensor]:
    """Weights of the layers: no head, no embedding, no vector."""
    aside = {id(head.weight), *(id(part.weight) for part in module.modules() if isinstance(part, nn.Embedding))}
    return [weight for weight in module.parameters() if weight.dim() == 2 and id(weight) not in aside]


def _kept(policy: Policy, packed: bool) -> tuple[float, float]:
    """(a, b) of a n + b n² bytes for n tokens."""
    limit = getattr(policy.module.config.get_text_config(), "max_position_embeddings", None) or _LENGTHS[-1]
    lengths = (min(length, limit * length // _LENGTHS[-1]) for length in _LENGTHS)
    (short, few), (long, many) = ((length, _saved_bytes(policy, length, packed)) for length in lengths)
    per_square = max(0.0, (many / long - few / short) / (long - short))
    return few / short - per_square * short, per_square


def _saved_bytes(policy: Policy, length: int, packed: bool) -> int:
    """Bytes that autograd saves in a forward pass of so many tokens, every piece of memory once; weights are not counted."""
    ids_L = torch.arange(length, device=policy.device).remainder(policy.module.get_input_embeddings().weight.shape[0])
    positions_L = torch.arange(length, device=policy.device)
    span = Span(start=0, prompt_length=length // 2, answer_lengths=(length // 2 // _ANSWERS,) * _ANSWERS)
    keep_N = torch.tensor([length - 1], device=policy.device)
    aside = {weight.untyped_storage().data_ptr() for weight in policy.module.parameters()}
    seen: dict[int, Tensor] = {}

    def note(saved: Tensor) -> Tensor:
        storage = saved.untyped_storage()
        if storage.data_ptr() not in aside:
            seen[storage.data_ptr()] = saved  # held, so that no other tensor gets the same place
        return saved

    hooks = torch.autograd.graph.saved_tensors_hooks(note, lambda saved: saved)
    with _layers_keep(policy.module), torch.enable_grad(), hooks:
        policy.predict(ids_L, positions_L, keep_N, Layout((span,)) if packed else None)
    return sum(saved.untyped_storage().nbytes() for saved in seen.values())


@contextmanager
def _layers_keep(module: nn.Module) -> Iterator[None]:
    """Inside, layers that would compute their inside again keep it."""
    replaced = [(part, vars(part)["forward"]) for part in module.modules() if "forward" in vars(part)]
    for part, _ in replaced:
        part.forward = without_gradients(part)
    try:
        yield
    finally:
        for part, forward in replaced:
            part.forward = forward
