"""Which architectures may use the fast path, and how a hand-made attention mask reaches them.

Decisions:
1. Fast means two things, and both need that a position sees nothing but the tokens its mask row allows and the position id
   it is given: *batched decode* (different prompts, left-padded, in one batch) and *shared prompt* (several completions
   packed behind one copy of their prompt).
2. Only model types whose packed log-probs a test compares with separate rows stand in the table. All others train and
   sample correctly by the plain path, one sequence per row, and `why` says so in words.
3. A sliding window, or rope frequencies that depend on the length of the row, are harmless up to a length. So the
   answer depends on `context`, the longest prompt plus completion of the run.

How to pass a mask (transformers 5): a 4-D `attention_mask` (1 or B, 1, queries, keys) is handed to every layer untouched,
with explicit `position_ids` (B, queries) and `logits_to_keep` as an index tensor over the packed positions.

- `sdpa` takes it as bool, True = may look. That is independent of the compute precision and of autocast.
- `eager` *adds* it to the scores: a bool mask would silently let everything be seen. It has to be 0 / very negative. The
  softmax of most eager implementations runs in fp32, so the negative number is that of fp32 (of a narrower compute type
  where there is one): the fp64 minimum would become -inf there.
- Every row must allow at least one key (padding looks at itself), or the softmax of that row has no value.
- The mask replaces a sliding window, it is not combined with one. Hence the limit on `context` above.

`model_mask` does this for a module's attention implementation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

FULL_ATTENTION_TYPES: frozenset[str] = frozenset(
    {
        "apertus",
        "arcee",
        "cohere",
        "cohere2",
        "ernie4_5",
        "exaone4",
        "gemma",
        "gemma2",
        "gemma3_text",
        "glm",
        "glm4",
        "gpt2",
        "gpt_bigcode",
        "gpt_neox",
        "granite",
        "granitemoe",
        "helium",
        "hunyuan_v1_dense",
        "llama",
        "ministral",
        "mistral",
        "mixtral",
        "nemotron",
        "olmo",
        "olmo2",
        "olmo3",
        "olmoe",
        "opt",
        "persimmon",
        "phi",
        "phi3",
        "qwen2",
        "qwen2_moe",
        "qwen3",
        "qwen3_moe",
        "seed_oss",
        "smollm3",
        "stablelm",
        "starcoder2",
    }
)
"""Causal attention with rotary or learned absolute positions taken from `position_ids`, compared in tests."""

_ATTENTION_LAYERS = frozenset({"full_attention", "sliding_attention"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What the fast path may do with a model.

    batched_decode  different prompts may be decoded in one left-padded batch
    shared_prompt   several completions may stand behind one copy of their prompt, with a 4-D mask and position ids
    why             the reason in words, for the person who starts a run
    """

    batched_decode: bool
    shared_prompt: bool
    why: str


def capabilities(config: Any, *, context: int | None = None) -> Capabilities:
    """What may run fast for this transformers configuration.

    context: longest prompt + completion in tokens; None means as long as the model allows.

    >>> from transformers import LlamaConfig, MambaConfig, MistralConfig
    >>> capabilities(LlamaConfig()).shared_prompt
    True
    >>> capabilities(MistralConfig(sliding_window=4096), context=5000).why
    'sliding window of 4096 tokens is shorter than the 5000 tokens of a prompt and its completion: plain path'
    >>> capabilities(MambaConfig()).why
    "model type 'mamba' is not among those whose packed form is verified: plain path"
    """
    obstacle = _unknown_type(config) or _foreign_layers(config) or _too_long(config, context)
    if obstacle:
        return Capabilities(batched_decode=False, shared_prompt=False, why=f"{obstacle}: plain path")
    why = f"model type '{config.model_type}' has causal attention with positions from position_ids: fast path"
    return Capabilities(batched_decode=True, shared_prompt=True, why=why)


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionLimit:
    """How many tokens a model has positions for; `is_hard` when a learned table ends there and nothing can stand beyond."""

    tokens: int
    is_hard: bool


def position_limit(module: Any) -> PositionLimit | None:
    """The limit of a loaded model; None when its configuration names none.

    A learned table of positions is known by its name (GPT-2's `wpe`, OPT's `embed_positions`). OPT keeps
    `offset` rows of it free.
    """
    for name, part in module.named_modules():
        last = name.rpartition(".")[2]
        if isinstance(part, nn.Embedding) and (last == "wpe" or "position" in last):
            return PositionLimit(tokens=part.num_embeddings - int(getattr(part, "offset", 0)), is_hard=True)
    stated = getattr(module.config, "max_position_embeddings", None)
    return PositionLimit(tokens=stated, is_hard=False) if isinstance(stated, int) and stated > 0 else None


def model_mask(allowed: Tensor, module: Any) -> Tensor:
    """A bool mask (..., queries, keys; True = may look) in the form that the module's attention takes.

    >>> from types import SimpleNamespace
    >>> eager = SimpleNamespace(config=SimpleNamespace(_attn_implementation="eager"), dtype=torch.float64)
    >>> model_mask(torch.tensor([[True, False]]), eager)[0, 0].item()
    0.0
    """
    if module.config._attn_implementation != "eager":
        return allowed
    lowest = max(torch.finfo(module.dtype).min, torch.finfo(torch.float32).min)
    return torch.zeros(allowed.shape, dtype=module.dtype, device=allowed.device).masked_fill_(~allowed, lowest)


def _unknown_type(config: Any) -> str:
    if config.model_type in FULL_ATTENTION_TYPES:
        return ""
    return f"model type '{config.model_type}' is not among those whose packed form is verified"


def _foreign_layers(config: Any) -> str:
    foreign = sorted(set(getattr(config, "layer_types", None) or ()) - _ATTENTION_LAYERS)
    return f"layers of type {', '.join(foreign)} carry a state that packing would mix" if foreign else ""


def _too_long(config: Any, context: int | None) -> str:
    needed = context or config.max_position_embeddings
    return _short_window(config, needed) or _length_rope(config, needed)


def _short_window(config: Any, needed: int) -> str:
    window = getattr(config, "sliding_window", None)
    layer_types = getattr(config, "layer_types", None)
    is_used = getattr(config, "use_sliding_window", True) if layer_types is None else "sliding_attention" in layer_types
    if not window or not is_used or window >= needed:
        return ""
    return f"sliding window of {window} tokens is shorter than the {needed} tokens of a prompt and its completion"


def _length_rope(config: Any, needed: int) -> str:
    """`dynamic` and `longrope` recompute their frequencies from the longest row once it passes the original length."""
    for rope in _rope_entries(config):
        kind = str(rope.get("rope_type", "default"))
        limit = rope.get("original_max_position_embeddings") or config.max_position_embeddings
        if ("dynamic" in kind or kind == "longrope") and needed > limit:
            return f"rope type '{kind}' changes with the row's length beyond {limit} tokens ({needed} needed)"
    return ""


def _rope_entries(config: Any) -> list[dict[str, Any]]:
    """One entry, or one for each layer type."""
    parameters = getattr(config, "rope_parameters", None) or {}
    nested = [entry for entry in parameters.values() if isinstance(entry, dict)]
    return nested or [parameters]
