"""What is saved loads with plain transformers and peft, in the precision that was asked for."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.tiny import FAMILIES, save_tiny, tiny_model, tiny_tokenizer
from toishi.config import ModelConfig
from toishi.errors import ConfigError
from toishi.policy.loading import load_model
from toishi.policy.saving import save_model

IDS = torch.tensor([[5, 6, 7, 8, 9]])


@pytest.mark.parametrize("family", FAMILIES)
def test_plain_transformers_gives_the_same_logits(family: str, tmp_path: Path) -> None:
    model = tiny_model(family, seed=2)
    save_model(model, tiny_tokenizer(), tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert torch.equal(loaded(input_ids=IDS).logits, model(input_ids=IDS).logits)
    assert loaded.dtype == torch.float32
    assert AutoTokenizer.from_pretrained(tmp_path).chat_template == tiny_tokenizer().chat_template
    assert loaded.generation_config.eos_token_id == 4


@pytest.mark.parametrize("family", ["llama", "gemma", "gpt2"])
def test_masters_are_written_not_the_compute_copy(family: str, tmp_path: Path) -> None:
    """gemma and gpt2 tie head and embedding: the master must arrive under both names."""
    masters = tiny_model(family, seed=2)
    compute = tiny_model(family, seed=2, dtype=torch.bfloat16)
    save_model(compute, tiny_tokenizer(), tmp_path, weights=dict(masters.named_parameters()))
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert loaded.dtype == torch.float32
    assert torch.equal(loaded(input_ids=IDS).logits, masters(input_ids=IDS).logits)
    assert compute.dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_file_and_config_have_the_precision_asked_for(dtype: torch.dtype, tmp_path: Path) -> None:
    save_model(tiny_model("llama"), tiny_tokenizer(), tmp_path, dtype=dtype)
    assert {weight.dtype for weight in load_file(tmp_path / "model.safetensors").values()} == {dtype}
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == str(dtype).removeprefix("torch.")
    assert AutoModelForCausalLM.from_pretrained(tmp_path).dtype == dtype


def test_loads_again_with_the_same_fingerprint(tmp_path: Path) -> None:
    first = load_model(ModelConfig.model_validate({"name": str(save_tiny(tmp_path / "a"))}), seed=0)
    save_model(first.module, first.tokenizer, tmp_path / "b")
    again = load_model(ModelConfig.model_validate({"name": str(tmp_path / "b")}), seed=0)
    assert again.fingerprint == first.fingerprint


def _trained_adapter(tmp_path: Path, family: str, dtype: str = "float32") -> Any:
    save_tiny(tmp_path / "base", family)
    config = ModelConfig.model_validate({"name": str(tmp_path / "base"), "lora": {"rank": 2}, "dtype": dtype})
    module = load_model(config, seed=1).module
    with torch.no_grad():
        for weight in module.parameters():
            if weight.requires_grad:
                weight.add_(0.05)
    return module


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_adapter_folder_loads_with_peft(family: str, tmp_path: Path) -> None:
    module = _trained_adapter(tmp_path, family)
    save_model(module, tiny_tokenizer(), tmp_path / "adapter")
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        loaded = peft.PeftModel.from_pretrained(base, str(tmp_path / "adapter"))
    assert torch.equal(loaded(input_ids=IDS).logits, module(input_ids=IDS).logits)
    assert not (tmp_path / "adapter" / "model.safetensors").exists()
    assert (tmp_path / "adapter" / "tokenizer.json").is_file()


def test_adapter_masters_are_written(tmp_path: Path) -> None:
    module = _trained_adapter(tmp_path, "llama")
    masters = {name: weight.detach().clone() for name, weight in module.named_parameters() if weight.requires_grad}
    save_model(module.to(torch.bfloat16), tiny_tokenizer(), tmp_path / "adapter", weights=masters)
    stored = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    assert len(stored) == len(masters)
    for name, master in masters.items():
        assert torch.equal(stored[name.replace(".default", "")], master)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_merged_model_is_plain_and_equal(family: str, tmp_path: Path) -> None:
    module = _trained_adapter(tmp_path, family, dtype="float64")
    expected = module(input_ids=IDS).logits
    save_model(module, tiny_tokenizer(), tmp_path / "merged", merge_adapter=True, dtype=torch.float64)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    assert loaded.dtype == torch.float64
    torch.testing.assert_close(loaded(input_ids=IDS).logits, expected, rtol=0, atol=1e-10)
    assert torch.equal(module(input_ids=IDS).logits, expected)


def test_merging_uses_the_masters(tmp_path: Path) -> None:
    module = _trained_adapter(tmp_path, "llama")
    expected = module(input_ids=IDS).logits
    masters = {name: weight.detach().clone() for name, weight in module.named_parameters()}
    save_model(module.to(torch.bfloat16), tiny_tokenizer(), tmp_path / "merged", weights=masters, merge_adapter=True)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    torch.testing.assert_close(loaded(input_ids=IDS).logits, expected, rtol=0, atol=2e-5)
    assert module.dtype == torch.bfloat16


def test_merging_without_adapter_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no adapter to merge"):
        save_model(tiny_model("llama"), tiny_tokenizer(), tmp_path, merge_adapter=True)
