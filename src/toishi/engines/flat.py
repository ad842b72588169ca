"""One decoding step of the commonest architectures, written out: the module's own parts in a row, a position for each row.

Decisions:
1. With few rows a step is made of many small operations, and what transformers does around them (mask creation, argument
   handling, a module call for everything) costs as much as the attention. Here a step is embedding, layers, norm and head, on
   tensors (rows, hidden size); rotary positions are turned in the precision that attention computes in.
2. Only for families whose layers are written out here and compared with their modules (tests/engines/test_flat.py). A part of
   another class, a hook or a replaced `forward` inside a layer: then there is no flat step, and the module's forward decodes.
   Gradient checkpointing replaces a `forward` too, but without gradients the layer's own one runs.
3. Embedding, rotary frequencies, per-head norms, head and linear layers that are not plain (adapters) are called as modules.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from transformers.activations import SiLUActivation

from toishi.engines.packed import Products
from toishi.engines.shared import SharedCache, SharedLayer
from toishi.policy.fused import is_drop_in
from toishi.policy.recomputing import without_gradients

FLAT_TYPES = frozenset({"llama", "mistral", "qwen2", "qwen3"})
"""Pre-norm layers: RMS norms, q/k/v/o with rotary positions over the whole head, a SiLU-gated MLP."""


_SILU = (nn.SiLU, SiLUActivation)


def flat_step(module: Any, cache: Any, products: Products) -> Callable[[Tensor, Tensor], Tensor] | None:
    """The step of a model that is written out here: (ids_B, positions_B) -> logits (B, V). None for other models and caches."""
    inner = module.get_base_model() if hasattr(module, "get_base_model") else module
    if not isinstance(cache, SharedCache) or not _is_written_out(inner):
        return None
    model, head = inner.model, inner.lm_head
    layers = [_layer(layer, held, products) for layer, held in zip(model.layers, cache.layers, strict=True)]
    scales_H1 = _scales(model.layers[0].self_attn, cache.dtype)
    final = _norm(model.norm)

    def step(ids_B: Tensor, positions_B: Tensor) -> Tensor:
        hidden = model.embed_tokens(ids_B[:, None])[:, 0]
        cos_BHD, sin_BHD = (part * scales_H1 for part in model.rotary_emb(hidden, positions_B[:, None]))
        for layer in layers:
            hidden = layer(hidden, cos_BHD, sin_BHD)
        logits: Tensor = head(final(hidden)[:, None])[:, 0]
        return logits

    return step


def _layer(layer: Any, held: SharedLayer, products: Products) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """A decoder layer for one token of every row: (hidden, cos, sin) -> hidden."""
    attention, mlp = layer.self_attn, layer.mlp
    before, after = _norm(layer.input_layernorm), _norm(layer.post_attention_layernorm)
    project = products.beside(attention.q_proj, attention.k_proj, attention.v_proj)
    leave, down = products.added(attention.o_proj), products.added(mlp.down_proj)
    gated = products.gated(mlp.gate_proj, mlp.up_proj)
    size, repeats = attention.head_dim, attention.num_key_value_groups
    q_norm, k_norm = getattr(attention, "q_norm", None), getattr(attention, "k_norm", None)

    def step(hidden: Tensor, cos_BHD: Tensor, sin_BHD: Tensor) -> Tensor:
        heads = project(before(hidden)).view(len(hidden), -1, size)
        num_keys = heads.shape[1] // (repeats + 2)
        queries_keys, values = heads[:, :-num_keys], heads[:, -num_keys:]
        if q_norm is not None and k_norm is not None:
            queries_keys = torch.cat([q_norm(queries_keys[:, :-num_keys]), k_norm(queries_keys[:, -num_keys:])], dim=1)
        turned = rotated(queries_keys.to(cos_BHD.dtype), cos_BHD, sin_BHD)
        held.write(turned[:, -num_keys:], values)
        attended = held.attend(turned[:, :-num_keys], None)
        hidden = leave(attended.flatten(1).to(hidden.dtype), hidden)
        return down(gated(after(hidden)), hidden)

    return step


def _scales(attention: Any, dtype: torch.dtype) -> Tensor:
    """What query heads and then key heads are multiplied with (H, 1): cosines and sines carry it, so it takes no pass."""
    keys = attention.k_proj.out_features // attention.head_dim
    scales = [attention.scaling] * keys * attention.num_key_value_groups + [1.0] * keys
    return torch.tensor(scales, dtype=dtype)[:, None]


def rotated(heads: Tensor, cos_BHD: Tensor, sin_BHD: Tensor) -> Tensor:
    """Rotary positions for heads (B, H, D): each half of a head turned with the other one.

    >>> quarter = torch.tensor([[[0.0, 0.0]]]), torch.tensor([[[1.0, 1.0]]])
    >>> rotated(torch.tensor([[[3.0, 5.0]]]), *quarter).tolist()
    [[[-5.0, 3.0]]]
    """
    half = heads.shape[-1] // 2
    turned = heads * cos_BHD
    turned[..., :half].addcmul_(heads[..., half:], sin_BHD[..., :half], value=-1)
    turned[..., half:].addcmul_(heads[..., :half], sin_BHD[..., half:])
    return turned


def _norm(norm: Any) -> Callable[[Tensor], Tensor]:
    """An RMS norm that rounds before the weight, as the module does. In float64 the module itself, which computes in fp32."""
    weight, eps, size = norm.weight, norm.variance_epsilon, norm.weight.shape
    if weight.dtype == torch.float64:
        return norm.forward  # type: ignore[no-any-return]
    return lambda hidden: torch.rms_norm(hidden, size, None, eps).mul_(weight)


def _is_written_out(inner: Any) -> bool:
    """Every part is of the class that is written out here, and nobody listens to it, replaced it or moved it."""
    family, source = inner.config.model_type, type(inner).__module__
    if family not in FLAT_TYPES or source != f"transformers.models.{family}.modeling_{family}":
        return False
    if inner.config.hidden_act != "silu" or inner.training or torch.is_autocast_enabled(inner.device.type):
        return False
    if sys.modules[source].apply_rotary_pos_emb.__module__ != source:
        return False
    is_known = all(type(part).__module__ == source and _is_untouched(part) for part in _parts(inner))
    return is_known and _is_in_order(inner.model.layers)


def _is_in_order(layers: Any) -> bool:
    """Every layer stands where its cache is, with the activation and the scale that are written out."""
    scale = layers[0].self_attn.scaling
    return all(
        layer.self_attn.layer_idx == place and layer.self_attn.scaling == scale and type(layer.mlp.act_fn) in _SILU
        for place, layer in enumerate(layers)
    )


def _parts(inner: Any) -> Iterator[nn.Module]:
    """The parts whose forward is not called."""
    yield from (inner, inner.model, inner.model.norm)
    for layer in inner.model.layers:
        yield from (layer, layer.self_attn, layer.mlp, layer.input_layernorm, layer.post_attention_layernorm)


def _is_untouched(part: nn.Module) -> bool:
    """It computes as its class was written, or by a drop-in of ours."""
    forward, written = getattr(without_gradients(part), "__func__", None), type(part).forward
    is_own = is_drop_in(part) or (forward is written and written.__module__ == type(part).__module__)
    return is_own and not part._forward_hooks and not part._forward_pre_hooks
