"""Fewer passes over memory in the layers of an unmodified transformers model, on a CPU.

Decisions:
1. Parts are known by their exact transformers class; a part whose forward somebody replaced, or a class that does not give the
   drop-in's numbers when both are tried on small random inputs, stays as it is: an unknown release costs speed only.
2. A drop-in is an attribute of one part of one model: no class and no other model changes, saved weights are the same, and a
   copy of the model has its own. Linear layers are called as before, so adapters and hooks on them work.
3. A norm stays plain in float64: the plain modules compute it in fp32, and a drop-in would differ.
4. On a GPU everything stays plain.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

from toishi.policy.fused.functions import gated_silu, rms_norm, rotate

_PREFIXES = {
    "llama": "Llama",
    "mistral": "Mistral",
    "qwen2": "Qwen2",
    "qwen3": "Qwen3",
    "smollm3": "SmolLM3",
    "gemma": "Gemma",
    "gemma2": "Gemma2",
    "phi3": "Phi3",
    "olmo2": "Olmo2",
}
"""Family -> how its classes' names begin."""
_NORMS: dict[str, dict[str, Any]] = {
    "gemma": {"offset": 1.0, "round_last": True},
    "gemma2": {"offset": 1.0, "round_last": True},
    "olmo2": {"round_last": True},
}
"""Family -> what its norm does otherwise than Llama's."""
_GATED = frozenset({"llama", "mistral", "qwen2", "qwen3", "smollm3", "olmo2"})
_ROTARY = frozenset({"llama", "mistral", "qwen2", "qwen3", "smollm3", "gemma", "gemma2"})
_MARK = "_toishi_fused"

Forward = Callable[..., Any]


def fuse(module: nn.Module) -> int:
    """Give every known part of `module` its drop-in; how many got one. A second call changes nothing."""
    parts = [(part, forward) for part in module.modules() if (forward := _drop_in(part)) is not None]
    for part, forward in parts:
        part.__dict__["forward"] = MethodType(forward, part)
    return len(parts)


@contextmanager
def plain(module: nn.Module) -> Iterator[None]:
    """Inside, every part of `module` computes as transformers wrote it."""
    fused = [(part, part.__dict__["forward"]) for part in module.modules() if is_drop_in(part)]
    for part, _ in fused:
        del part.__dict__["forward"]
    try:
        yield
    finally:
        for part, forward in fused:
            part.__dict__["forward"] = forward


def is_drop_in(part: nn.Module) -> bool:
    """Whether `part` computes by a drop-in: the numbers of its own class, made otherwise."""
    return hasattr(part.__dict__.get("forward"), _MARK)


def _drop_in(part: nn.Module) -> Forward | None:
    """The forward that replaces that of `part`, or None: unknown, replaced by somebody, or not on a CPU."""
    kind = type(part)
    family = kind.__module__.rpartition(".modeling_")[2]
    if kind.__module__ != f"transformers.models.{family}.modeling_{family}" or family not in _PREFIXES:
        return None
    if "forward" in part.__dict__ or any(weight.device.type != "cpu" for weight in part.parameters()):
        return None
    if getattr(sys.modules[kind.__module__], kind.__name__, None) is not kind:
        return None
    role = kind.__name__.removeprefix(_PREFIXES[family])
    make = _MAKERS.get(role)
    if make is None or (role == "MLP" and not _is_silu(part)):
        return None
    return make(kind, family)


@cache
def _norm(kind: Any, family: str) -> Forward | None:
    options = _NORMS.get(family, {})
    eps_name = "eps" if options.get("offset") else "variance_epsilon"
    plain_forward: Forward = kind.forward

    def forward(self: Any, x: Tensor) -> Tensor:
        if x.dtype == torch.float64 or x.device.type != "cpu":
            return plain_forward(self, x)  # type: ignore[no-any-return]
        return rms_norm(x, self.weight, getattr(self, eps_name), **options)

    with torch.random.fork_rng(devices=[]), torch.no_grad():
        trial: Any = kind(8, eps=0.1)
        trial.weight.uniform_(0.5, 1.5)
        x = torch.randn(3, 8)
        agrees = hasattr(trial, eps_name) and _agree(plain_forward(trial, x), forward(trial, x))
    return _marked(forward) if agrees else None


@cache
def _gated(kind: Any, family: str) -> Forward | None:
    if family not in _GATED:
        return None
    plain_forward: Forward = kind.forward

    def forward(self: Any, x: Tensor) -> Tensor:
        return self.down_proj(gated_silu(self.gate_proj(x), self.up_proj(x)))  # type: ignore[no-any-return]

    with torch.random.fork_rng(devices=[]), torch.no_grad():
        trial: Any = nn.Module()
        trial.gate_proj, trial.up_proj, trial.down_proj = nn.Linear(4, 8), nn.Linear(4, 8), nn.Linear(8, 4)
        trial.act_fn, x = nn.SiLU(), torch.randn(3, 4)
        agrees = _agree(plain_forward(trial, x), forward(trial, x))
    return _marked(forward) if agrees else None


@cache
def _rotary(kind: Any, family: str) -> Forward | None:
    """The plain forward itself, which finds `rotate` where it looks for transformers' function."""
    name, function = "apply_rotary_pos_emb", _undeprecated(kind.forward)
    if family not in _ROTARY or function is None or name not in function.__code__.co_names:
        return None
    with torch.random.fork_rng(devices=[]):
        q, k, cos, sin = torch.randn(1, 3, 5, 8), torch.randn(1, 1, 5, 8), torch.randn(1, 5, 8), torch.randn(1, 5, 8)
    theirs = function.__globals__[name](q, k, cos, sin)
    if not all(map(_agree, theirs, rotate(q, k, cos, sin))):
        return None
    made = FunctionType(
        function.__code__,
        {**function.__globals__, name: rotate},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return _marked(made)


def _undeprecated(function: Any) -> FunctionType | None:
    """The function below the wrapper that renames old keyword arguments, which the model's own layers never pass."""
    while hasattr(function, "__wrapped__"):
        if not function.__code__.co_filename.endswith(("utils/deprecation.py", "utils\\deprecation.py")):
            return None
        function = function.__wrapped__
    return function if isinstance(function, FunctionType) else None


def _agree(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one, other, rtol=1e-5, atol=1e-6)


def _is_silu(part: Any) -> bool:
    name = type(part.act_fn).__name__ if hasattr(part, "act_fn") else ""
    return name in ("SiLU", "SiLUActivation")


def _marked(forward: Any) -> Forward:
    setattr(forward, _MARK, True)
    return forward  # type: ignore[no-any-return]


_MAKERS: dict[str, Callable[[Any, str], Forward | None]] = {"RMSNorm": _norm, "MLP": _gated, "Attention": _rotary}
