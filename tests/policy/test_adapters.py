"""LoRA through peft: what is trained, what the seed decides, what is refused."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.tiny import save_tiny, tiny_model
from toishi.config import ModelConfig
from toishi.errors import ConfigError, MissingExtraError, ModelError
from toishi.policy.loading import LoadedModel, load_model

IDS = torch.tensor([[5, 6, 7, 8, 9]])


def load(folder: Path, *, seed: int = 0, **options: Any) -> LoadedModel:
    return load_model(ModelConfig(name=str(folder), **options), seed=seed)


def trained(module: Any) -> dict[str, torch.Tensor]:
    return {name: weight for name, weight in module.named_parameters() if weight.requires_grad}


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2"])
def test_fresh_adapters_are_all_that_is_trained_and_change_nothing(family: str, tmp_path: Path) -> None:
    loaded = load(save_tiny(tmp_path, family), lora={"rank": 2})
    names = list(trained(loaded.module))
    assert names
    assert all("lora_" in name for name in names)
    assert not any("lm_head" in name or "embed" in name or "wte" in name for name in names)
    assert torch.equal(loaded.module(input_ids=IDS).logits, tiny_model(family)(input_ids=IDS).logits)
    assert not loaded.module.training


def test_all_linear_means_every_projection(tmp_path: Path) -> None:
    names = trained(load(save_tiny(tmp_path), lora={"rank": 2}).module)
    layers = {name.split(".lora_")[0].rsplit(".", 1)[1] for name in names}
    assert layers == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    assert len(names) == 2 * 2 * 7


def test_named_targets_rank_and_scale(tmp_path: Path) -> None:
    lora = {"rank": 3, "alpha": 12, "target_modules": ("q_proj",)}
    module = load(save_tiny(tmp_path), lora=lora).module
    shapes = {tuple(weight.shape) for weight in trained(module).values()}
    assert shapes == {(3, 32), (32, 3)}
    assert module.base_model.model.model.layers[0].self_attn.q_proj.scaling["default"] == 4.0


def test_seed_alone_decides_the_fresh_weights(tmp_path: Path) -> None:
    save_tiny(tmp_path)
    first = trained(load(tmp_path, lora={"rank": 2}, seed=1).module)
    torch.manual_seed(99)
    again = trained(load(tmp_path, lora={"rank": 2}, seed=1).module)
    other = trained(load(tmp_path, lora={"rank": 2}, seed=2).module)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert all(not torch.equal(first[name], other[name]) for name in first if "lora_A" in name)


def test_fingerprint_is_that_of_the_base(tmp_path: Path) -> None:
    save_tiny(tmp_path)
    assert load(tmp_path, lora={"rank": 2}).fingerprint == load(tmp_path).fingerprint


def test_float64_adapters(tmp_path: Path) -> None:
    module = load(save_tiny(tmp_path), lora={"rank": 2}, dtype="float64").module
    assert {weight.dtype for weight in module.parameters()} == {torch.float64}


def _saved_adapter(tmp_path: Path) -> Path:
    module = load(save_tiny(tmp_path / "base"), lora={"rank": 2}, seed=5).module
    with torch.no_grad():
        for weight in trained(module).values():
            weight.add_(0.1)
    module.save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter"


def test_saved_adapter_is_continued(tmp_path: Path) -> None:
    adapter = _saved_adapter(tmp_path)
    module = load(tmp_path / "base", adapter=str(adapter)).module
    stored = load_file(adapter / "adapter_model.safetensors")
    assert {name.replace(".default", "") for name in trained(module)} == set(stored)
    for name, weight in trained(module).items():
        assert torch.equal(weight, stored[name.replace(".default", "")])


def test_incomplete_adapter_is_refused(tmp_path: Path) -> None:
    file = _saved_adapter(tmp_path) / "adapter_model.safetensors"
    weights = load_file(file)
    weights.popitem()
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"does not fit the model.*missing adapter keys"):
        load(tmp_path / "base", adapter=str(file.parent))


def test_adapter_of_another_size_is_refused(tmp_path: Path) -> None:
    adapter = _saved_adapter(tmp_path)
    save_tiny(tmp_path / "wide", hidden_size=48)
    with pytest.raises(ModelError, match="does not fit the model"):
        load(tmp_path / "wide", adapter=str(adapter))


def test_folder_without_adapter_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"holds no adapter_config\.json"):
        load(save_tiny(tmp_path), adapter=str(tmp_path))


def test_learned_prompt_is_refused(tmp_path: Path) -> None:
    options = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        peft.get_peft_model(tiny_model("llama"), options).save_pretrained(tmp_path / "adapter")
    with pytest.raises(ModelError, match="learns a prompt"):
        load(save_tiny(tmp_path / "base"), adapter=str(tmp_path / "adapter"))


def test_both_lora_and_adapter_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.lora and model\.adapter are both set"):
        load(save_tiny(tmp_path), lora={"rank": 2}, adapter="somewhere")


def test_unknown_target_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.lora: .*no_such_layer"):
        load(save_tiny(tmp_path), lora={"rank": 2, "target_modules": ("no_such_layer",)})


def test_without_peft_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(MissingExtraError, match=r"toishi\[lora\]"):
        load(save_tiny(tmp_path), lora={"rank": 2})
