"""Every model type in the table: packed and batched log-probs against separate rows, one sequence each."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, MistralConfig, Phi3Config

from tests.tiny import tiny_config, tiny_model
from toishi.policy.capabilities import FULL_ATTENTION_TYPES, capabilities, model_mask

PROMPT = [5, 6, 7, 8, 9, 10, 11]
COMPLETIONS = ([12, 13, 14, 15], [16, 17, 18, 19, 20, 21])

# Most eager attentions take the softmax in float32, also in a float64 model.
TOLERANCE = {"sdpa": 1e-10, "eager": 2e-5}

EAGER_ONLY = {"gemma2"}
CASES = [
    (family, attention)
    for family in sorted(FULL_ATTENTION_TYPES)
    for attention in ("sdpa", "eager")
    if attention == "eager" or family not in EAGER_ONLY
]


def options_of(family: str) -> dict[str, Any]:
    """What a tiny model of the family needs besides the sizes."""
    if family in {"mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "granitemoe"}:
        sizes = {"moe_intermediate_size": 24, "shared_expert_intermediate_size": 24, "decoder_sparse_step": 1}
        experts = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2}
        # The grouped matrix product of the default has no float64 form.
        return sizes | experts | {"experts_implementation": "eager"}
    return {}


def _model(family: str, attention: str) -> Any:
    return tiny_model(family, dtype=torch.float64, attn_implementation=attention, **options_of(family)).requires_grad_(False)


def _separate(model: Any, prompt: list[int], completion: list[int]) -> Tensor:
    """Log-probs (completion, V) of a row of its own, with no mask and no positions given."""
    logits = model(input_ids=torch.tensor([prompt + completion]), use_cache=False).logits[0]
    return torch.log_softmax(logits[len(prompt) - 1 : -1], dim=-1)


def _packed_row() -> tuple[list[int], list[int], Tensor, list[int]]:
    """ids, positions, allowed (L, L) and the indices whose logits predict the completions' tokens."""
    ids, positions, owner, keep = list(PROMPT), list(range(len(PROMPT))), [0] * len(PROMPT), []
    for number, completion in enumerate(COMPLETIONS, start=1):
        keep += [len(PROMPT) - 1, *range(len(ids), len(ids) + len(completion) - 1)]
        ids += completion
        positions += range(len(PROMPT), len(PROMPT) + len(completion))
        owner += [number] * len(completion)
    allowed = torch.tensor([[k <= q and owner[k] in (0, owner[q]) for k in range(len(ids))] for q in range(len(ids))])
    return ids, positions, allowed, keep


@pytest.mark.parametrize(("family", "attention"), CASES)
def test_packed_completions_equal_separate_rows(family: str, attention: str) -> None:
    model = _model(family, attention)
    assert capabilities(model.config, context=len(PROMPT) + 6).shared_prompt
    ids, positions, allowed, keep = _packed_row()
    output = model(
        input_ids=torch.tensor([ids]),
        attention_mask=model_mask(allowed[None, None], model),
        position_ids=torch.tensor([positions]),
        logits_to_keep=torch.tensor(keep),
        use_cache=False,
    )
    expected = torch.cat([_separate(model, PROMPT, completion) for completion in COMPLETIONS])
    torch.testing.assert_close(torch.log_softmax(output.logits[0], dim=-1), expected, rtol=0, atol=TOLERANCE[attention])


@pytest.mark.parametrize(("family", "attention"), CASES)
def test_left_padded_batch_equals_separate_rows(family: str, attention: str) -> None:
    model = _model(family, attention)
    long, short = PROMPT + COMPLETIONS[1], PROMPT[:4]
    padding = len(long) - len(short)
    index = torch.arange(len(long))
    causal = index[:, None] >= index[None, :]
    is_real = torch.stack([index >= 0, index >= padding])
    # A padding position looks at itself only: a row that may look nowhere has no softmax.
    allowed = (causal[None] & is_real[:, None, :]) | torch.eye(len(long), dtype=torch.bool)
    output = model(
        input_ids=torch.tensor([long, [0] * padding + short]),
        attention_mask=model_mask(allowed[:, None], model),
        position_ids=torch.stack([index, (index - padding).clamp(min=0)]),
        use_cache=False,
    )
    batched = torch.log_softmax(output.logits[:, -4:-1], dim=-1)
    expected = torch.stack([_separate(model, row[:-3], row[-3:]) for row in (long, short)])
    torch.testing.assert_close(batched, expected, rtol=0, atol=TOLERANCE[attention])


def test_eager_attention_would_ignore_a_bool_mask() -> None:
    """The reason for `model_mask`: the packed row leaks between siblings when eager attention gets the bool mask."""
    model = _model("llama", "eager")
    ids, positions, allowed, keep = _packed_row()
    row = {"input_ids": torch.tensor([ids]), "position_ids": torch.tensor([positions]), "logits_to_keep": torch.tensor(keep)}
    leaked = model(**row, attention_mask=allowed[None, None], use_cache=False).logits
    right = model(**row, attention_mask=model_mask(allowed[None, None], model), use_cache=False).logits
    assert (leaked - right).abs().max() > 0.1


def test_mask_keeps_its_form_for_sdpa() -> None:
    allowed = torch.tensor([[True, False]])
    assert model_mask(allowed, tiny_model("llama")) is allowed


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_additive_mask_is_finite_and_survives_float32(dtype: torch.dtype) -> None:
    module = tiny_model("llama", attn_implementation="eager", dtype=dtype)
    mask = model_mask(torch.tensor([[True, False]]), module)
    assert mask.dtype == dtype
    assert mask[0, 0] == 0
    assert mask.to(torch.float32).isfinite().all()
    assert mask[0, 1] < -1e38


def test_sliding_window_counts_against_the_context() -> None:
    config = tiny_config("mistral")
    assert config.sliding_window == 16
    assert capabilities(config, context=16).shared_prompt
    assert not capabilities(config, context=17).shared_prompt
    assert "sliding window of 16" in capabilities(config).why
    assert capabilities(MistralConfig(sliding_window=None)).shared_prompt


def test_window_is_real_so_the_limit_matters() -> None:
    """Beyond the window the hand-made causal mask sees more than the model would."""
    model = _model("mistral", "sdpa")
    ids = torch.arange(5, 5 + 20)[None]
    causal = torch.ones(1, 1, 20, 20).tril().bool()
    difference = (model(input_ids=ids).logits - model(input_ids=ids, attention_mask=causal).logits).abs().amax(-1)[0]
    assert difference[:16].max() < 1e-10
    assert difference[16:].min() > 1e-3


def test_unused_sliding_window_is_no_obstacle() -> None:
    config = tiny_config("qwen2", sliding_window=8, use_sliding_window=False)
    assert capabilities(config).batched_decode


def test_sliding_layers_are_found_by_layer_type() -> None:
    config = tiny_config("gemma3_text", sliding_window=8, layer_types=["full_attention", "sliding_attention"])
    assert not capabilities(config, context=9).shared_prompt
    assert capabilities(config, context=8).shared_prompt


def test_longrope_counts_against_the_context() -> None:
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "max_position_embeddings": 256, "pad_token_id": 0}
    config = Phi3Config(**sizes, original_max_position_embeddings=64, rope_parameters=rope)
    assert capabilities(config, context=64).shared_prompt
    assert not capabilities(config, context=65).shared_prompt
    assert "longrope" in capabilities(config).why


def test_dynamic_rope_counts_against_the_context() -> None:
    rope = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}
    config = LlamaConfig(max_position_embeddings=64, rope_parameters=rope)
    assert capabilities(config, context=64).shared_prompt
    assert not capabilities(config, context=65).shared_prompt


def test_fixed_rope_scaling_is_no_obstacle() -> None:
    rope = {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}
    assert capabilities(LlamaConfig(rope_parameters=rope)).shared_prompt


@pytest.mark.parametrize("family", ["mamba", "lfm2", "qwen3_next", "bloom", "recurrent_gemma", "gpt_oss"])
def test_unverified_types_take_the_plain_path(family: str) -> None:
    answer = capabilities(tiny_config(family, **({} if family != "mamba" else {"state_size": 4})))
    assert not answer.batched_decode
    assert not answer.shared_prompt
    assert f"'{family}'" in answer.why


def test_layers_with_state_take_the_plain_path() -> None:
    config = tiny_config("qwen3")
    config.layer_types = ["full_attention", "linear_attention"]
    assert "linear_attention" in capabilities(config).why
