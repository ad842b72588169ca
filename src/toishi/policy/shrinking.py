"""A smaller model out of a larger one: some of its layers, with embeddings, head and tokenizer as they are.

Decisions:
1. Layers are taken evenly, the first and the last always (as DistilBERT and Minitron start their students): what a model does
   to its embeddings first, and before its head, has no substitute in between.
2. What comes out says little before it is trained. It has the teacher's tokens, so that any kind of distillation works.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from toishi.config import ModelConfig
from toishi.errors import ModelError
from toishi.policy.loading import load_model
from toishi.policy.saving import save_model


def kept_layers(total: int, wanted: int) -> tuple[int, ...]:
    """Which of `total` layers stay, ascending.

    >>> kept_layers(6, 3), kept_layers(5, 5), kept_layers(4, 1)
    ((0, 2, 5), (0, 1, 2, 3, 4), (0,))
    """
    return (0,) if wanted == 1 else tuple(place * (total - 1) // (wanted - 1) for place in range(wanted))


def shrink_model(name: str, folder: Path, *, layers: int) -> dict[str, Any]:
    """Writes the model `name` with `layers` of its layers into `folder`; returns what was done, in plain values.

    Raises ModelError where the model has not more layers than that, or none that can be told apart.
    """
    loaded = load_model(ModelConfig(name=name), seed=0)
    module = loaded.module
    listed = _layers(module)
    total = 0 if listed is None else len(listed)
    if listed is None or total != module.config.num_hidden_layers:
        raise ModelError(f"{name}: a {type(module).__name__} has no plain list of layers to choose from; take another model")
    if not 1 <= layers < total:
        raise ModelError(f"{name} has {total} layers: a student has from 1 to {total - 1} of them, got {layers}")
    before, chosen = sum(weight.numel() for weight in module.parameters()), kept_layers(total, layers)
    kept = [listed[place] for place in chosen]
    del listed[:]
    listed.extend(kept)
    module.config.num_hidden_layers = layers
    if getattr(module.config, "layer_types", None):
        module.config.layer_types = [module.config.layer_types[place] for place in chosen]
    folder.mkdir(parents=True, exist_ok=True)
    weights = dict(module.named_parameters())
    save_model(module, loaded.tokenizer, folder, weights=weights, dtype=next(iter(weights.values())).dtype)
    after = sum(weight.numel() for weight in module.parameters())
    counts = {"parameters": after, "parameters_before": before}
    return {"from": loaded.source, "layers": list(chosen), "layers_before": total, **counts}


def _layers(module: Any) -> nn.ModuleList | None:
    """The list of layers: the longest one in the trunk."""
    lists = [part for part in module.base_model.modules() if isinstance(part, nn.ModuleList)]
    return max(lists, key=len, default=None)
