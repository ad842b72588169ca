"""Trainable adapters around a frozen model, through peft.

Decisions:
1. Only adapter weights are trained; they have the precision of the base weights as loaded (the masters).
2. Fresh adapters are a function of the seed, drawn on the CPU, whatever was drawn before. Their second matrix is zero, so
   the model with fresh adapters is the base model.
3. 'all-linear' means every linear layer except the vocabulary head.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from toishi.config import LoraConfig, ModelConfig
from toishi.errors import ConfigError, MissingExtraError, ModelError


def with_adapters(base: Any, config: ModelConfig, *, seed: int) -> Any:
    """The model itself, or a PeftModel around it with fresh (`config.lora`) or continued (`config.adapter`) adapters.

    `base` is changed in place where adapters are put in.
    """
    if config.lora is not None and config.adapter is not None:
        raise ConfigError("model.lora and model.adapter are both set: give lora for a new adapter, or adapter to continue one")
    if config.lora is not None:
        return _fresh_adapters(base, config.lora, seed)
    if config.adapter is not None:
        return _saved_adapters(base, config.adapter)
    return base


def _peft() -> Any:
    try:
        import peft
    except ImportError:
        raise MissingExtraError("peft", extra="lora", purpose="LoRA training") from None
    return peft


@contextmanager
def _quiet_peft() -> Iterator[None]:
    """peft lags behind transformers' renamings; its users cannot act on the warnings about that."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning)
        yield


def _fresh_adapters(base: Any, lora: LoraConfig, seed: int) -> Any:
    peft = _peft()
    targets = lora.target_modules if isinstance(lora.target_modules, str) else list(lora.target_modules)
    is_transposed = any(type(part).__name__ == "Conv1D" for part in base.modules())
    options = peft.LoraConfig(
        r=lora.rank, lora_alpha=lora.alpha, target_modules=targets, fan_in_fan_out=is_transposed, task_type="CAUSAL_LM"
    )
    with torch.random.fork_rng(devices=[]), _quiet_peft():
        torch.manual_seed(seed)
        try:
            module = peft.get_peft_model(base, options)
        except ValueError as error:
            raise ConfigError(f"model.lora: {error}") from error
    return module.to(base.dtype)


def _saved_adapters(base: Any, folder: str) -> Any:
    peft = _peft()
    path = Path(folder).expanduser()
    if not (path / "adapter_config.json").is_file():
        raise ModelError(f"model.adapter: {path.absolute()} holds no adapter_config.json: give a folder that peft saved")
    if peft.PeftConfig.from_pretrained(str(path)).is_prompt_learning:
        raise ModelError(f"model.adapter: {path.absolute()} learns a prompt; expected adapters inside the layers, such as LoRA")
    with _quiet_peft():
        # peft only warns when the file lacks adapter weights, which would then start as random numbers.
        warnings.filterwarnings("error", message=".*missing adapter keys.*")
        try:
            module = peft.PeftModel.from_pretrained(base, str(path), is_trainable=True)
        except (ValueError, RuntimeError, UserWarning) as error:
            raise ModelError(f"model.adapter: {path.absolute()} does not fit the model: {error}") from error
    return module.to(base.dtype)
