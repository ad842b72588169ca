"""The written-out step against the modules that it stands for, and the models that must not get it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from transformers.models.llama import modeling_llama

from tests.engines.one_by_one import sampled_one_by_one
from tests.tiny import tiny_model
from toishi.engines import fast, packed
from toishi.engines.base import Request, Sampling
from toishi.engines.flat import FLAT_TYPES, flat_step
from toishi.engines.torch import TorchEngine
from toishi.policy.policy import Policy
from toishi.policy.recomputing import recompute_layers
from toishi.types import Completion

REQUESTS = [Request(prompt_ids=tuple(range(5, 5 + n)), key=(n, m)) for n in (1, 3, 6) for m in range(3)]
STEPS = 6
SAMPLING = Sampling(max_new_tokens=STEPS)


def generated(module: Any, *, batched: bool = True) -> list[Completion]:
    engine = TorchEngine(module, stop_ids=[], decode=str, batched_prompts=batched)
    return engine.generate(REQUESTS, SAMPLING)


def is_flat(module: Any) -> bool:
    """Whether its rows are decoded by the written-out step."""
    made: list[bool] = []

    def watched(*given: Any) -> Any:
        step = flat_step(*given)
        made.append(step is not None)
        return step

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fast, "flat_step", watched)
        generated(module)
    assert len(made) == 1
    return made[0]


def require_close(found: list[Completion], wanted: list[Completion], tolerance: float) -> None:
    assert [one.token_ids for one in found] == [one.token_ids for one in wanted]
    for one, other in zip(found, wanted, strict=True):
        assert one.sampled_logprobs == pytest.approx(other.sampled_logprobs, rel=0, abs=tolerance)
        assert one.entropies == pytest.approx(other.entropies, rel=0, abs=tolerance)


def with_noise(module: Any) -> Any:
    """Biases and norms that a new model has as zeros and ones, made to count."""
    generator = torch.Generator().manual_seed(0)
    for parameter in module.parameters():
        if parameter.ndim == 1:
            parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator).to(parameter.dtype)
    return module.requires_grad_(False)


BIASES: dict[str, dict[str, Any]] = {"llama": {"attention_bias": True, "mlp_bias": True}, "qwen3": {"attention_bias": True}}


@pytest.mark.parametrize("rearranged", [True, False])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("family", sorted(FLAT_TYPES))
def test_answers_are_those_of_the_plain_path(
    family: str, biased: bool, rearranged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float32, with products on rearranged weights (and what follows a product inside it) and without."""
    options: dict[str, Any] = BIASES.get(family, {}) if biased else {}
    module = with_noise(tiny_model(family, **options))
    wanted = generated(module, batched=False)
    if rearranged:
        monkeypatch.setattr(packed, "LEAST_STEPS", 1)
        monkeypatch.setattr(packed, "LEAST_WEIGHTS", 1)
    assert is_flat(module)
    require_close(generated(module), wanted, 2e-5)


@pytest.mark.parametrize("family", sorted(FLAT_TYPES))
def test_answers_are_those_of_one_by_one_sampling_in_float64(family: str) -> None:
    module = with_noise(tiny_model(family, dtype=torch.float64, **BIASES.get(family, {})))
    assert is_flat(module)
    for request, found in zip(REQUESTS, generated(module), strict=True):
        wanted = sampled_one_by_one(module, request, SAMPLING, [])
        assert found.token_ids == wanted.token_ids
        assert found.sampled_logprobs == pytest.approx(wanted.logprobs, rel=0, abs=1e-9)


def test_rotary_frequencies_that_are_scaled() -> None:
    rope = {"rope_type": "llama3", "rope_theta": 100.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    rope["original_max_position_embeddings"] = 64
    module = tiny_model("llama", rope_parameters=rope).requires_grad_(False)
    assert is_flat(module)
    require_close(generated(module), generated(module, batched=False), 2e-5)


def test_in_bfloat16_probabilities_are_as_close_to_float32_as_the_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first fed token's next one, everywhere: fewer roundings must not make a larger error."""
    monkeypatch.setattr(packed, "LEAST_STEPS", 1)
    monkeypatch.setattr(packed, "LEAST_WEIGHTS", 1)
    module = tiny_model("llama", dtype=torch.bfloat16, initializer_range=0.1).requires_grad_(False)
    assert is_flat(module)
    flat = generated(module)
    monkeypatch.setattr(fast, "flat_step", lambda *_: None)
    plain, wide = generated(module), module.float()
    assert _error(wide, flat) < 1.3 * _error(wide, plain)
    assert 0 < _error(wide, flat) < 0.02


def _error(wide: Any, found: list[Completion]) -> float:
    """Root mean square error of the log-probs, against a float32 pass over the same tokens."""
    errors = []
    for request, one in zip(REQUESTS, found, strict=True):
        ids, start = torch.tensor([request.prompt_ids + one.token_ids]), len(request.prompt_ids) - 1
        logprobs = wide(input_ids=ids).logits[0, start:-1].log_softmax(-1)
        wanted = logprobs.gather(1, torch.tensor(one.token_ids)[:, None])[:, 0]
        errors.append(torch.tensor(one.sampled_logprobs) - wanted)
    return float(torch.cat(errors).square().mean().sqrt())


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # peft's
@pytest.mark.parametrize("rearranged", [True, False])
def test_adapters_are_called_as_modules(rearranged: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    peft = pytest.importorskip("peft")
    options = peft.LoraConfig(r=2, target_modules=["q_proj", "down_proj"], init_lora_weights=False)
    module = peft.get_peft_model(tiny_model("llama"), options).eval().requires_grad_(False)
    if rearranged:
        monkeypatch.setattr(packed, "LEAST_STEPS", 1)
        monkeypatch.setattr(packed, "LEAST_WEIGHTS", 1)
    found = generated(module)
    assert is_flat(module)
    require_close(found, generated(module, batched=False), 2e-5)
    with module.disable_adapter():
        assert [one.token_ids for one in generated(module, batched=False)] != [one.token_ids for one in found]


def test_checkpointed_layers_are_plain_layers_here() -> None:
    module = tiny_model("llama").requires_grad_(False)
    wanted = generated(module)
    recompute_layers(module)
    assert is_flat(module)
    require_close(generated(module), wanted, 0)


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("family", sorted(FLAT_TYPES))
def test_the_policy_of_a_run_gets_it(family: str, checkpointing: bool) -> None:
    """Drop-ins and checkpointed layers, which a policy gives its module, do not stand in its way."""
    options: dict[str, Any] = BIASES.get(family, {})
    module = with_noise(tiny_model(family, **options))
    wanted = generated(module, batched=False)
    policy = Policy(module.requires_grad_(True), compute_dtype=torch.float32, gradient_checkpointing=checkpointing)
    assert is_flat(policy.module)
    require_close(generated(policy.module), wanted, 2e-5)


def _listen(module: Any) -> None:
    module.model.layers[1].mlp.register_forward_hook(lambda *_: None)


def _listen_to_all(module: Any) -> None:
    module.register_forward_hook(lambda *_: None)


def _replace(module: Any) -> None:
    part = module.model.layers[0].post_attention_layernorm
    part.forward = lambda hidden: 2 * hidden


def _replace_all(module: Any) -> None:
    plain = module.forward

    def doubled(*given: Any, **named: Any) -> Any:
        output = plain(*given, **named)
        output.logits = 2 * output.logits
        return output

    module.forward = doubled


def _exchange(module: Any) -> None:
    module.model.layers[0].mlp = nn.Sequential(nn.Linear(32, 32))


def _activate_otherwise(module: Any) -> None:
    module.model.layers[1].mlp.act_fn = nn.Tanh()


def _scale_otherwise(module: Any) -> None:
    module.model.layers[1].self_attn.scaling *= 3


def _reorder(module: Any) -> None:
    module.model.layers = nn.ModuleList(reversed(module.model.layers))


CHANGES = [_listen, _listen_to_all, _replace, _replace_all, _exchange, _activate_otherwise, _scale_otherwise, _reorder]


@pytest.mark.filterwarnings("ignore:.*past_key_values:FutureWarning")  # a wrapper hides the newer name from its signature
@pytest.mark.parametrize("change", CHANGES)
def test_changed_layers_decode_through_their_own_forward(change: Any) -> None:
    module = tiny_model("llama").requires_grad_(False)
    assert is_flat(module)
    change(module)
    assert not is_flat(module)
    require_close(generated(module), generated(module, batched=False), 2e-5)


@pytest.mark.filterwarnings("ignore:.*past_key_values:FutureWarning")  # a wrapper hides the newer name from its signature
@pytest.mark.parametrize("name", ["LlamaMLP", "LlamaAttention", "LlamaDecoderLayer", "LlamaForCausalLM"])
def test_classes_whose_forward_was_replaced_decode_through_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tiny_model("llama").requires_grad_(False)
    plain = getattr(modeling_llama, name).forward
    assert is_flat(module)
    monkeypatch.setattr(getattr(modeling_llama, name), "forward", lambda self, *given, **named: plain(self, *given, **named))
    assert not is_flat(module)


def test_a_replaced_rotary_function_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    module = tiny_model("llama").requires_grad_(False)
    monkeypatch.setattr(modeling_llama, "apply_rotary_pos_emb", lambda q, k, cos, sin: (q, k))
    assert not is_flat(module)
    require_close(generated(module), generated(module, batched=False), 2e-5)


@pytest.mark.parametrize(("family", "options"), [("gemma", {}), ("olmo2", {}), ("llama", {"hidden_act": "gelu"})])
def test_other_models_decode_through_their_own_forward(family: str, options: dict[str, Any]) -> None:
    assert not is_flat(tiny_model(family, **options).requires_grad_(False))
