"""What is loaded is what was saved, whole and without dropout; everything else is refused with a remedy."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    GPT2LMHeadModel,
    T5Config,
    T5ForConditionalGeneration,
)

from tests.tiny import CHATML, FAMILIES, save_tiny, tiny_config, tiny_model, tiny_tokenizer
from toishi.config import ModelConfig
from toishi.errors import ConfigError, ModelError
from toishi.policy import loading
from toishi.policy.chat import Renderer
from toishi.policy.fingerprint import weights_fingerprint
from toishi.policy.loading import load_model

IDS = torch.tensor([[5, 6, 7, 8, 9]])


def load(name: Path | str, **options: Any) -> loading.LoadedModel:
    return load_model(ModelConfig(name=str(name), **options), seed=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_loads_as_saved(family: str, tmp_path: Path) -> None:
    loaded = load(save_tiny(tmp_path, family, seed=3))
    expected = tiny_model(family, seed=3)(input_ids=IDS).logits
    assert torch.equal(loaded.module(input_ids=IDS).logits, expected)
    assert {weight.dtype for weight in loaded.module.parameters()} == {torch.float32}
    assert not loaded.module.training
    assert loaded.tokenizer.decode(loaded.tokenizer("12 ok", add_special_tokens=False)["input_ids"]) == "12 ok"
    assert len(loaded.tokenizer) == loaded.module.get_input_embeddings().num_embeddings
    assert loaded.source == str(tmp_path)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_dropout_is_off_even_in_train_mode(family: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "llama": {"attention_dropout": 0.5},
        "gpt2": {"resid_pdrop": 0.5, "attn_pdrop": 0.5, "embd_pdrop": 0.5},
    }
    module = load(save_tiny(tmp_path, family, **options[family])).module
    expected = module(input_ids=IDS).logits
    assert torch.equal(module.train()(input_ids=IDS).logits, expected)


def test_float64_is_the_same_weights_wider(tmp_path: Path) -> None:
    narrow, wide = load(save_tiny(tmp_path)), load(tmp_path, dtype="float64")
    assert {weight.dtype for weight in wide.module.parameters()} == {torch.float64}
    for first, second in zip(narrow.module.parameters(), wide.module.parameters(), strict=True):
        assert torch.equal(first.double(), second)
    assert narrow.fingerprint == wide.fingerprint


def test_fingerprint_is_sha256_of_the_stored_weights(tmp_path: Path) -> None:
    loaded = load(save_tiny(tmp_path))
    stored = load_file(tmp_path / "model.safetensors")
    lines = [
        f"{name} {tuple(stored[name].shape)} {hashlib.sha256(stored[name].numpy().tobytes()).hexdigest()}"
        for name in sorted(stored)
    ]
    assert loaded.fingerprint == hashlib.sha256("\n".join(lines).encode()).hexdigest()


def test_fingerprint_sees_one_changed_weight() -> None:
    model = tiny_model("llama")
    before = weights_fingerprint(model)
    with torch.no_grad():
        model.get_input_embeddings().weight[7, 3] += 1e-6
    assert weights_fingerprint(model) != before


def test_bfloat16_file_is_loaded_as_float32(tmp_path: Path) -> None:
    tiny_model("llama", dtype=torch.bfloat16).save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    assert {weight.dtype for weight in load(tmp_path).module.parameters()} == {torch.float32}


def test_row_of_the_padding_token_gets_its_gradient(tmp_path: Path) -> None:
    """pad = eos = 4: transformers builds the embedding with padding_idx=4, whose input gradient torch drops."""
    save_tiny(tmp_path, "llama", pad_token_id=4)
    assert tiny_model("llama", pad_token_id=4).get_input_embeddings().padding_idx == 4
    embedding = load(tmp_path).module
    embedding(input_ids=torch.tensor([[4, 5]])).logits.sum().backward()
    assert embedding.get_input_embeddings().weight.grad[4].abs().sum() > 0


@pytest.mark.parametrize("template", [CHATML + "!", "file"])
def test_chat_template_is_replaced_by_text_or_file(template: str, tmp_path: Path) -> None:
    file = tmp_path / "template.jinja"
    file.write_text(CHATML + "!")
    given = str(file) if template == "file" else template
    assert load(save_tiny(tmp_path / "model"), chat_template=given).tokenizer.chat_template == CHATML + "!"


def test_chat_template_that_is_neither_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="neither Jinja text nor a readable file"):
        load(save_tiny(tmp_path), chat_template="no/such.jinja")


def test_missing_weight_is_refused(tmp_path: Path) -> None:
    weights_file = save_tiny(tmp_path) / "model.safetensors"
    weights = load_file(weights_file)
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, weights_file, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"1 weights are missing \(model\.layers\.1\.mlp\.up_proj\.weight\)"):
        load(tmp_path)


def test_weight_of_another_shape_is_refused(tmp_path: Path) -> None:
    weights_file = save_tiny(tmp_path) / "model.safetensors"
    weights = load_file(weights_file)
    weights["model.norm.weight"] = torch.ones(7)
    save_file(weights, weights_file, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"1 weights are of another shape .*model\.norm\.weight"):
        load(tmp_path)


def test_damaged_weight_file_is_refused(tmp_path: Path) -> None:
    weights_file = save_tiny(tmp_path) / "model.safetensors"
    weights_file.write_bytes(weights_file.read_bytes()[:1000])
    with pytest.raises(ModelError, match=r"the weights of .* cannot be loaded"):
        load(tmp_path)


def test_classifier_is_refused(tmp_path: Path) -> None:
    AutoModelForSequenceClassification.from_config(tiny_config("llama", tie_word_embeddings=True)).save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="holds a LlamaForSequenceClassification, expected a causal language model"):
        load(tmp_path)


def test_encoder_decoder_is_refused(tmp_path: Path) -> None:
    config = T5Config(vocab_size=128, d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2, decoder_start_token_id=0)
    T5ForConditionalGeneration(config).save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="T5ForConditionalGeneration"):
        load(tmp_path)


def test_old_head_names_pass(tmp_path: Path) -> None:
    assert isinstance(load(save_tiny(tmp_path, "gpt2")).module, GPT2LMHeadModel)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": None}))
    assert isinstance(load(tmp_path).module, GPT2LMHeadModel)


@pytest.mark.parametrize("family", ["llama", "gpt2", "qwen2", "gemma"])
def test_folder_without_tokenizer_is_refused(family: str, tmp_path: Path) -> None:
    tiny_model(family).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="has no usable tokenizer"):
        load(tmp_path)


def test_folder_without_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is not a causal language model that transformers loads"):
        load(tmp_path)


@pytest.mark.parametrize("name", ["./nowhere", "/no/where", "~/no-such-folder-here", "a/b/c"])
def test_folder_that_does_not_exist_is_refused(name: str) -> None:
    with pytest.raises(ModelError, match="does not exist"):
        load(name)


def test_unreachable_hub_says_where_it_looked_and_what_works_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("no route to host.\nlong trace")

    monkeypatch.setattr(loading, "hf_hub_download", refuse)
    with pytest.raises(ModelError) as caught:
        load("someone/some-model")
    message = str(caught.value)
    for part in (
        "someone/some-model is no folder here",
        "nor from its cache",
        "no route to host.",
        "'bundled'",
        "toishi fetch",
    ):
        assert part in message
    assert "long trace" not in message


def test_changed_cache_folder_is_refused(tmp_path: Path) -> None:
    save_tiny(tmp_path, seed=1)
    (tmp_path / "toishi.json").write_text(json.dumps({"fingerprint": weights_fingerprint(tiny_model("llama", seed=2))}))
    with pytest.raises(ModelError, match="are not those that were written there"):
        load(tmp_path)
    (tmp_path / "toishi.json").write_text(json.dumps({"fingerprint": weights_fingerprint(tiny_model("llama", seed=1))}))
    assert load(tmp_path).fingerprint == weights_fingerprint(tiny_model("llama", seed=1))


def test_loading_leaves_the_random_state_alone(tmp_path: Path) -> None:
    save_tiny(tmp_path)
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    load(tmp_path, lora={"rank": 2})
    assert torch.equal(torch.rand(3), expected)


def test_folder_may_move(tmp_path: Path) -> None:
    first = load(save_tiny(tmp_path / "a"))
    shutil.move(tmp_path / "a", tmp_path / "b")
    assert load(tmp_path / "b").fingerprint == first.fingerprint
    assert AutoConfig.from_pretrained(tmp_path / "b").model_type == "llama"


def _config_changed(folder: Path, **changes: Any) -> ModelConfig:
    save_tiny(folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return ModelConfig(name=str(folder))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 33}, "its config.json cannot be used: .*hidden size \\(33\\) is not a multiple.*Mend that entry"),
        ({"hidden_size": "32"}, "config.json"),
        ({"num_hidden_layers": None}, "config.json"),
    ],
)
def test_a_configuration_that_contradicts_itself_names_file_and_remedy(tmp_path: Path, changes: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load_model(_config_changed(tmp_path, **changes), seed=0)


def test_a_stop_id_that_is_no_token_names_the_files(tmp_path: Path) -> None:
    loaded = load_model(_config_changed(tmp_path, eos_token_id=-1), seed=0)
    with pytest.raises(ModelError, match=r"eos_token_id -1 is no token id; look in .*config\.json and generation_config\.json"):
        Renderer(loaded.tokenizer, loaded.module)


def test_a_name_longer_than_any_file_is_no_model() -> None:
    with pytest.raises(ModelError, match="is no folder here"):
        load_model(ModelConfig(name="a" * 300), seed=0)
