"""The fast way to log-probs against the module's own logits, for every family that is known, and its refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.policy.test_capabilities import options_of
from tests.tiny import save_tiny, tiny_model
from toishi.config import ModelConfig
from toishi.ops.logprobs import logprobs_and_entropy
from toishi.policy.capabilities import FULL_ATTENTION_TYPES
from toishi.policy.head import FromHidden, FromLogits, HeadChoice, choose_head
from toishi.policy.loading import load_model
from toishi.policy.policy import Policy

IDS = torch.tensor([5, 6, 7, 8, 9, 10])
KEEP = torch.tensor([3, 4, 3, 5])
TARGETS = torch.tensor([9, 10, 11, 127])
WEIGHTS = torch.tensor([0.5, -1.0, 2.0, 0.25], dtype=torch.float64)

SHAPED: dict[str, dict[str, Any]] = {
    "cohere": {"logit_scale": 0.25},
    "cohere2": {"logit_scale": 0.25},
    "gemma2": {"final_logit_softcapping": 2.0, "attn_implementation": "eager"},
    "gemma3_text": {"final_logit_softcapping": 2.0},
    "granite": {"logits_scaling": 3.0},
    "granitemoe": {"logits_scaling": 3.0},
}
"""What these do between hidden states and logits, with numbers that matter at the size of a tiny model."""


def policy_of(family: str, dtype: torch.dtype = torch.float64) -> Policy:
    options = options_of(family) | SHAPED.get(family, {})
    return Policy(tiny_model(family, dtype=dtype, **options), compute_dtype=dtype)


def numbers(policy: Policy) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Log-probs and entropies, and the gradient of some combination of both in every trained weight."""
    policy.zero_grad()
    found = policy.predict(IDS, torch.arange(len(IDS)), KEEP)
    logprobs_N, entropy_N = found.logprobs_and_entropy(TARGETS, 0.7)
    torch.autograd.backward([logprobs_N, entropy_N], [WEIGHTS.to(logprobs_N.dtype), 0.3 * WEIGHTS.to(logprobs_N.dtype)])
    gradients = {name: master.grad for name, master in policy.masters.items() if master.grad is not None}
    policy.zero_grad()
    return logprobs_N.detach(), entropy_N.detach(), gradients


def both_ways(policy: Policy) -> tuple[tuple[Tensor, Tensor, dict[str, Tensor]], tuple[Tensor, Tensor, dict[str, Tensor]]]:
    fast, chosen = numbers(policy), policy.head
    policy.head = HeadChoice(fast=None, why="for comparison")
    plain, policy.head = numbers(policy), chosen
    return fast, plain


@pytest.mark.parametrize("family", sorted(FULL_ATTENTION_TYPES))
def test_every_known_family_takes_the_fast_way_and_gets_the_same_numbers(family: str) -> None:
    policy = policy_of(family)
    assert policy.head.fast is not None, policy.head.why
    assert "verified" in policy.head.why
    assert isinstance(policy.predict(IDS, torch.arange(len(IDS)), KEEP), FromHidden)
    (logprobs, entropy, gradients), (plain_logprobs, plain_entropy, plain_gradients) = both_ways(policy)
    logits = policy.module(IDS[None], use_cache=False).logits[0, KEEP].double()
    own_logprobs, own_entropy = logprobs_and_entropy(logits, TARGETS, 0.7)
    for value in (logprobs, plain_logprobs):
        torch.testing.assert_close(value.double(), own_logprobs.detach(), rtol=0, atol=1e-10)
    for value in (entropy, plain_entropy):
        torch.testing.assert_close(value.double(), own_entropy.detach(), rtol=0, atol=1e-10)
    assert gradients.keys() == plain_gradients.keys()
    # Norms and rotations compute in float32 in most families, whatever the weights are; OPT's key biases have a gradient of 0.
    for name, gradient in gradients.items():
        assert (gradient - plain_gradients[name]).norm() <= 1e-6 * plain_gradients[name].norm() + 1e-12, name


@pytest.mark.parametrize("tied", [True, False])
def test_gradients_agree_to_the_last_places_in_a_model_of_float64(tied: bool) -> None:
    policy = Policy(tiny_model("gpt2", dtype=torch.float64, tie_word_embeddings=tied), compute_dtype=torch.float64)
    assert policy.head.fast is not None
    (logprobs, _, gradients), (plain_logprobs, _, plain_gradients) = both_ways(policy)
    torch.testing.assert_close(logprobs, plain_logprobs, rtol=0, atol=1e-12)
    assert ("lm_head.weight" in gradients) is not tied
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, plain_gradients[name], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("family", ["llama", "gemma2", "granite", "phi"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_lower_precisions_are_verified_too(family: str, dtype: torch.dtype) -> None:
    model = tiny_model(family, **SHAPED.get(family, {}))
    policy = Policy(model, compute_dtype=dtype)
    assert policy.head.fast is not None, policy.head.why
    (logprobs, entropy, _), (plain_logprobs, plain_entropy, _) = both_ways(policy)
    bound = 1e-5 if dtype == torch.float32 else 0.05
    torch.testing.assert_close(logprobs, plain_logprobs, rtol=0, atol=bound)
    torch.testing.assert_close(entropy, plain_entropy, rtol=0, atol=bound)


def test_logits_at_chosen_places() -> None:
    policy = policy_of("gemma2")
    found = policy.predict(IDS, torch.arange(len(IDS)), KEEP)
    own = policy.module(IDS[None], use_cache=False).logits[0, KEEP]
    torch.testing.assert_close(found.logits(torch.tensor([2, 0])), own[[2, 0]], rtol=0, atol=1e-12)
    plain = FromLogits(logits_NV=own)
    assert torch.equal(plain.logits(torch.tensor([1])), own[[1]])


def test_logits_never_exist_in_a_training_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest tensor that the graph keeps is a weight or a hidden state, not (N, V)."""
    policy = policy_of("llama")
    saved: list[tuple[int, ...]] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tuple(tensor.shape))
        return tensor

    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("the module's head was run")

    monkeypatch.setattr(policy.module.lm_head, "forward", fail)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        policy.predict(IDS, torch.arange(len(IDS)), KEEP).logprobs_and_entropy(TARGETS, 0.7)
    assert (len(KEEP), 128) not in saved
    assert (len(KEEP), 32) in saved


@pytest.mark.parametrize("change", ["square", "small cap", "embedding norm"])
def test_a_model_that_does_something_else_takes_the_plain_way(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("llama", dtype=torch.float64)
    original = type(model).forward

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        output = original(self, *args, **kwargs)
        logits: Tensor = output.logits
        changed: dict[str, Callable[[], Tensor]] = {
            "square": lambda: logits + 1e-3 * logits.square(),
            "small cap": lambda: 200 * torch.tanh(logits / 200),  # would hide among logits of usual size
            "embedding norm": lambda: logits / logits.norm(dim=-1, keepdim=True),
        }
        output.logits = changed[change]()
        return output

    monkeypatch.setattr(type(model), "forward", forward)
    policy = Policy(model, compute_dtype=torch.float64)
    assert policy.head.fast is None
    assert "is not what LlamaForCausalLM computes" in policy.head.why
    found = policy.predict(IDS, torch.arange(len(IDS)), KEEP)
    assert isinstance(found, FromLogits)
    logprobs, entropy = found.logprobs_and_entropy(TARGETS, 0.7)
    wanted = logprobs_and_entropy(model(IDS[None], use_cache=False).logits[0, KEEP], TARGETS, 0.7)
    torch.testing.assert_close((logprobs, entropy), wanted, rtol=0, atol=1e-12)


def test_a_head_with_hooks_or_without_a_base_takes_the_plain_way() -> None:
    model = tiny_model("llama")
    model.lm_head.register_forward_hook(lambda _part, _given, output: 2 * output)
    assert choose_head(model).why.startswith("the head has hooks")
    other = tiny_model("llama")
    other.base_model_prefix = ""
    assert "no base model" in choose_head(other).why


def adapted(tmp_path: Path, **lora: Any) -> Policy:
    save_tiny(tmp_path)
    loaded = load_model(ModelConfig(name=str(tmp_path), dtype="float64", lora={"rank": 2, **lora}), seed=0)  # type: ignore[arg-type]
    policy = Policy(loaded.module, compute_dtype=torch.float64)
    with torch.no_grad():
        for number, master in enumerate(policy.masters.values()):
            master.add_(torch.randn(master.shape, generator=torch.Generator().manual_seed(number), dtype=master.dtype) * 0.1)
    return policy


def test_adapters_in_the_layers_take_the_fast_way_and_the_head_stays_frozen(tmp_path: Path) -> None:
    policy = adapted(tmp_path)
    assert policy.head.fast is not None, policy.head.why
    (logprobs, entropy, gradients), (plain_logprobs, plain_entropy, plain_gradients) = both_ways(policy)
    torch.testing.assert_close((logprobs, entropy), (plain_logprobs, plain_entropy), rtol=0, atol=1e-12)
    own = policy.module(input_ids=IDS[None], use_cache=False).logits[0, KEEP]
    torch.testing.assert_close(logprobs, logprobs_and_entropy(own, TARGETS, 0.7)[0].detach(), rtol=0, atol=1e-10)
    assert all("lora_" in name for name in gradients)
    for name, gradient in gradients.items():
        assert (gradient - plain_gradients[name]).norm() <= 1e-6 * plain_gradients[name].norm(), name
    assert policy.module.get_base_model().lm_head.weight.grad is None


def test_an_adapter_on_the_head_takes_the_plain_way(tmp_path: Path) -> None:
    policy = adapted(tmp_path, target_modules=("q_proj", "lm_head"))
    assert policy.head.fast is None
    assert policy.head.why == "the head is a Linear of peft: log-probs from the model's own logits"
    logprobs, _, gradients = numbers(policy)
    own = policy.module(input_ids=IDS[None], use_cache=False).logits[0, KEEP]
    torch.testing.assert_close(logprobs, logprobs_and_entropy(own, TARGETS, 0.7)[0].detach(), rtol=0, atol=1e-10)
    assert any("lm_head.lora_" in name for name in gradients)


@pytest.mark.parametrize("tied", [True, False])
def test_the_heads_gradient_goes_to_its_master_at_once(tied: bool) -> None:
    """In bf16, over two passes: as autograd gives it to the plain head, and closer to the gradient in fp32."""
    found, plain = (summed_gradients(tied, torch.bfloat16, is_fast=is_fast) for is_fast in (True, False))
    exact = summed_gradients(tied, torch.float32, is_fast=False)
    assert found.keys() == plain.keys() == exact.keys()
    for name, gradient in exact.items():
        assert found[name].dtype == torch.float32
        assert (found[name] - gradient).norm() <= 1.1 * (plain[name] - gradient).norm(), name
        assert (found[name] - gradient).norm() <= 0.05 * gradient.norm(), name


def summed_gradients(tied: bool, dtype: torch.dtype, *, is_fast: bool) -> dict[str, Tensor]:
    """Gradients of two passes, by name, at weights that bf16 can hold."""
    module = tiny_model("llama", tie_word_embeddings=tied).to(torch.bfloat16).float()
    policy = Policy(module, compute_dtype=dtype)
    assert policy.head.fast is not None
    if not is_fast:
        policy.head = HeadChoice(fast=None, why="")
    for temperature in (1.0, 0.7):
        logprobs, entropy = policy.predict(IDS, torch.arange(len(IDS)), KEEP).logprobs_and_entropy(TARGETS, temperature)
        (logprobs.sum() + 0.1 * entropy.sum()).backward()  # type: ignore[no-untyped-call]
    return {name: master.grad.clone() for name, master in policy.masters.items() if master.grad is not None}
