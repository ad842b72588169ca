"""Writes a model so that plain transformers (and peft) load it.

Decisions:
1. Given the fp32 masters, they are what is written, not the lower-precision copy that computed.
2. config.json states the precision of the file. transformers loads in the stated one by default, so a wrong word would
   round the weights at the next load.
3. With adapters the folder is a peft adapter; the merged full model is written on request, merged in the masters' precision.
4. The folder is written in place; making it appear whole is the caller's business (checkpoints write aside and rename).
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from toishi.errors import ConfigError
from toishi.quiet import quiet_transformers


def save_model(
    module: Any,
    tokenizer: Any,
    folder: Path,
    *,
    weights: Mapping[str, Tensor] | None = None,
    dtype: torch.dtype = torch.float32,
    merge_adapter: bool = False,
) -> None:
    """Writes safetensors, configuration, generation configuration and tokenizer into `folder`.

    weights        values by parameter name that replace the module's own (the masters of a lower-precision module)
    dtype          precision of the file's floating-point weights
    merge_adapter  for a PeftModel: write the full model with the adapter merged in, instead of the adapter alone
    """
    is_adapter = hasattr(module, "peft_config")
    if merge_adapter and not is_adapter:
        raise ConfigError("merge_adapter: the model has no adapter to merge; expected a model with LoRA adapters")
    with quiet_transformers():
        if is_adapter and not merge_adapter:
            state = _converted(_state(module, weights), dtype)
            module.save_pretrained(folder, state_dict=state, save_embedding_layers=False)
        elif is_adapter:
            _save_full(_merged(module, weights), folder, None, dtype)
        else:
            _save_full(module, folder, weights, dtype)
        tokenizer.save_pretrained(folder)


def _save_full(model: Any, folder: Path, weights: Mapping[str, Tensor] | None, dtype: torch.dtype) -> None:
    model.save_pretrained(folder, state_dict=_converted(_state(model, weights), dtype))
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["dtype"] = str(dtype).removeprefix("torch.")
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _state(module: Any, weights: Mapping[str, Tensor] | None) -> dict[str, Tensor]:
    """The state dict with `weights` in the place of the parameters they belong to, under every name of a tied one."""
    state = module.state_dict(keep_vars=True)
    if weights is None:
        return dict(state)
    by_parameter = {id(parameter): weights[name] for name, parameter in module.named_parameters() if name in weights}
    return {name: by_parameter.get(id(value), value) for name, value in state.items()}


def _converted(state: Mapping[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """One converted tensor per stored one, so that tied weights stay tied."""
    converted = {id(value): value.detach().to(dtype) if value.is_floating_point() else value for value in state.values()}
    return {name: converted[id(value)] for name, value in state.items()}


def _merged(module: Any, weights: Mapping[str, Tensor] | None) -> Any:
    """A full model with the adapter added to the base weights, in float32 or wider; `module` is left as it is."""
    merged = copy.deepcopy(module)
    merged.to(torch.promote_types(torch.float32, module.dtype))
    with torch.no_grad():
        for name, parameter in merged.named_parameters():
            if weights is not None and name in weights:
                parameter.copy_(weights[name])
    return merged.merge_and_unload()
