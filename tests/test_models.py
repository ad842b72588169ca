"""Every family trains end to end from a folder on disk; adapters start from, and come back as, the model they were."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.test_loop import longer, recipe
from tests.tiny import InFloat64, save_tiny
from toishi import loop
from toishi.explanation.audit import audit
from toishi.policy.loading import load_model
from toishi.policy.saving import save_model
from toishi.record.reader import Run

SHORT = {"train.steps": 2, "evaluation.prompts": 2, "checkpoint.every": 0}
IDS = torch.arange(5, 40)[None]


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gemma", "gpt2", "mistral"])
def test_a_family_trains_and_its_record_audits_clean(family: str, tmp_path: Path) -> None:
    folder = loop.train(recipe(save_tiny(tmp_path / "model", family), **SHORT), tmp_path / "run").folder
    metrics = Run.open(folder).metrics
    assert [line["update/count"] for line in metrics] == [1, 1]
    assert max(line["sampler_gap/max_abs"] for line in metrics) < 1e-3
    assert audit(folder).findings == ()
    first, last = (
        AutoModelForCausalLM.from_pretrained(folder / "checkpoints" / name / "model") for name in ("step_000000", "step_000002")
    )
    with torch.no_grad():
        assert not torch.equal(first(IDS).logits, last(IDS).logits)


def test_from_an_existing_adapter_the_reference_is_that_adapter(tmp_path: Path) -> None:
    """KL is 0 at step 1 although the adapter is far from its base; the base itself never changes."""
    base = save_tiny(tmp_path / "base", "llama")
    first = loop.train(recipe(base, **SHORT, **{"model.lora": {"rank": 2}, "optimizer.lr": 0.05}), tmp_path / "first").folder
    adapter = first / "checkpoints" / "step_000002" / "model"
    with_kl = {"model.adapter": str(adapter), "algorithm": {"name": "grpo", "kl": "k3", "kl_coef": 0.1}}
    second = loop.train(recipe(base, **SHORT, **with_kl), tmp_path / "second").folder
    lines = Run.open(second).metrics
    assert lines[0]["update/kl_policy_ref"] == pytest.approx(0.0, abs=1e-9)
    assert lines[1]["update/kl_policy_ref"] > 0
    trained = load_model(recipe(base, **{"model.adapter": str(adapter)}).model, seed=0).module
    plain = AutoModelForCausalLM.from_pretrained(base)
    with torch.no_grad():
        moved = (trained(input_ids=IDS).logits - plain(IDS).logits).abs().max()
        with trained.disable_adapter():
            assert torch.equal(trained(input_ids=IDS).logits, plain(IDS).logits)
    assert moved > 1e-3


def test_reloaded_and_merged_adapters_agree_and_differ_from_the_base(tmp_path: Path) -> None:
    base = save_tiny(tmp_path / "base", "qwen2")
    run = loop.train(recipe(base, **SHORT, **{"model.lora": {"rank": 2}, "optimizer.lr": 0.05}), tmp_path / "run").folder
    adapter = run / "checkpoints" / "step_000002" / "model"
    loaded = load_model(recipe(base, **{"model.adapter": str(adapter)}).model, seed=0)
    save_model(loaded.module, loaded.tokenizer, tmp_path / "merged", merge_adapter=True)
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged").double()
    plain = AutoModelForCausalLM.from_pretrained(base).double()
    with torch.no_grad(), InFloat64():
        reloaded = torch.log_softmax(loaded.module.double()(input_ids=IDS).logits, -1)
        # The sums of base and adapter were rounded to float32 when they were saved; nothing else differs.
        assert (torch.log_softmax(merged(IDS).logits, -1) - reloaded).abs().max() < 5e-6
        assert (torch.log_softmax(plain(IDS).logits, -1) - reloaded).abs().max() > 1e-3


def test_bf16_on_disk_resumes_bit_for_bit(tmp_path: Path) -> None:
    """Weights of a memory-mapped file lie at odd addresses, where matrix kernels give other bits."""
    model = save_tiny(tmp_path / "model", "gpt2", dtype=torch.bfloat16)
    straight = loop.train(recipe(model), tmp_path / "straight").folder
    half = loop.train(recipe(model, **{"train.steps": 3}), tmp_path / "half").folder
    longer(half, 6)
    loop.resume(half)
    for step in (4, 5, 6):
        assert Run.open(half).step(step).updates == Run.open(straight).step(step).updates


def test_loaded_weights_lie_in_aligned_memory_of_their_own(tmp_path: Path) -> None:
    module = load_model(recipe(save_tiny(tmp_path / "model", "llama")).model, seed=0).module
    assert {weight.data_ptr() % 64 for weight in module.parameters()} == {0}


@pytest.mark.parametrize("cut", [{"sampling.top_p": 0.8}, {"sampling.top_k": 9}, {"sampling.min_p": 0.2}])
def test_truncated_sampling_trains_with_a_correction_and_like_is_compared_with_like(
    cut: dict[str, float], tmp_path: Path
) -> None:
    corrected = {"algorithm": {"name": "grpo", "off_policy": "truncated_importance"}}
    folder = loop.train(recipe(save_tiny(tmp_path / "model"), **SHORT, **cut, **corrected), tmp_path / "run").folder
    assert all(line["sampler_gap/max_abs"] < 1e-3 for line in Run.open(folder).metrics)
    assert audit(folder).findings == ()
