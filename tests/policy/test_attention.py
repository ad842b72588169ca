"""Rows of several groups, attended to in parts, against the unmodified model over one padded sequence per answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import settings as budget
from hypothesis import strategies as st
from torch import Tensor

from tests.making import completion, group, tiny_policy
from tests.policy.test_capabilities import options_of
from tests.tiny import InFloat64, tiny_model
from toishi.ops import attention as blocks
from toishi.packing import pack_row
from toishi.policy import attention
from toishi.policy.attention import attends_in_parts
from toishi.policy.capabilities import FULL_ATTENTION_TYPES
from toishi.policy.layout import Layout, Span
from toishi.policy.policy import Policy
from toishi.types import Group, Prompt, Rollout, RolloutId

FAMILIES = sorted(FULL_ATTENTION_TYPES)


def three_groups() -> tuple[Group, ...]:
    """A prompt of one token, answers of one token (nothing of them is fed), equal and unequal lengths, one of 40 tokens."""
    tokens = iter(torch.randint(5, 120, (200,), generator=torch.Generator().manual_seed(0)).tolist())
    sizes = [(6, (3, 1, 5, 5)), (1, (7,)), (4, (1, 1)), (9, (40, 2, 40))]
    return tuple(
        group(number, take(tokens, prompt), [take(tokens, size) for size in answers], [0.0] * len(answers))
        for number, (prompt, answers) in enumerate(sizes)
    )


def take(tokens: Any, number: int) -> list[int]:
    return [next(tokens) for _ in range(number)]


def packed_logprobs(policy: Policy, rollouts: Sequence[Rollout]) -> Tensor:
    row = pack_row(rollouts)
    logits_NV = policy.logits(row.input_ids_L, row.position_ids_L, row.keep_N, row.layout)
    return torch.log_softmax(logits_NV, -1).gather(1, row.targets_N[:, None])[:, 0]


def padded_logprobs(module: Any, rollouts: Sequence[Rollout]) -> Tensor:
    """By transformers alone: right-padded sequences, its own masks and positions."""
    rows = [[*r.prompt.token_ids, *r.completion.token_ids] for r in rollouts]
    longest = max(map(len, rows))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    real = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    logprobs = torch.log_softmax(module(input_ids=ids, attention_mask=real, use_cache=False).logits, -1)
    return torch.stack(
        [
            logprobs[number, len(r.prompt.token_ids) + offset - 1, token]
            for number, r in enumerate(rollouts)
            for offset, (token, trained) in enumerate(zip(r.completion.token_ids, r.completion.loss_mask, strict=True))
            if trained
        ]
    )


def gradient(module: Any, logprobs: Tensor) -> Tensor:
    weights = torch.randn(len(logprobs), generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    total = (logprobs * weights.to(logprobs.dtype)).sum()
    found = torch.autograd.grad(total, list(module.parameters()), allow_unused=True, materialize_grads=True)
    return torch.cat([tensor.flatten() for tensor in found])


def compare(policy: Policy, rollouts: Sequence[Rollout], *, values: float, gradients: float) -> None:
    plain = type(policy.module)(policy.module.config).to(policy.compute_dtype).eval()
    plain.load_state_dict(policy.module.state_dict())
    with InFloat64():
        found, wanted = packed_logprobs(policy, rollouts), padded_logprobs(plain, rollouts)
        assert (found - wanted).detach().norm() <= values * wanted.detach().norm()
        one, other = gradient(policy.module, found), gradient(plain, wanted)
    assert other.norm() > 0
    assert (one - other).norm() <= gradients * other.norm()


def made(family: str, dtype: torch.dtype = torch.float64, **options: Any) -> Policy:
    if family == "gemma2":  # its soft-capped scores are only in transformers' eager attention
        options["attn_implementation"] = "eager"
    return Policy(tiny_model(family, dtype=dtype, **options_of(family) | options), compute_dtype=dtype)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which way each layer went."""
    seen: list[str] = []

    def watch(name: str, way: str) -> None:
        real = getattr(attention, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            seen.append(way)
            return real(*args, **kwargs)

        monkeypatch.setattr(attention, name, call)

    watch("merge", "parts")
    watch("sdpa_attention_forward", "mask")
    return seen


@pytest.mark.parametrize("family", FAMILIES)
def test_several_groups_in_a_row_equal_padded_sequences(family: str, runs: list[str]) -> None:
    options: dict[str, Any] = {"sliding_window": 64} if family == "mistral" else {}
    policy = made(family, **options)
    rollouts = [rollout for one in three_groups() for rollout in one.rollouts]
    compare(policy, rollouts, values=1e-10, gradients=1e-10)
    assert ("parts" in runs) == (family != "gemma2")
    assert "mask" not in runs


LONG: dict[str, Any] = {"rope_theta": 1e4, "original_max_position_embeddings": 128}
ROPES: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0},
    "dynamic": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0},
    "yarn": LONG | {"rope_type": "yarn", "factor": 2.0},
    "llama3": LONG | {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
}
VARIANTS: dict[str, dict[str, Any]] = {
    "a key head for every query head": {"num_key_value_heads": 4},
    "one key head": {"num_key_value_heads": 1},
    "tied": {"tie_word_embeddings": True},
    "untied": {"tie_word_embeddings": False},
    **{f"{name} rope": {"rope_parameters": rope} for name, rope in ROPES.items()},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants_of_llama(variant: str) -> None:
    rollouts = [rollout for one in three_groups() for rollout in one.rollouts]
    compare(made("llama", **VARIANTS[variant]), rollouts, values=1e-10, gradients=1e-10)


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gemma", "gpt2", "phi", "opt", "smollm3"])
def test_float32(family: str) -> None:
    rollouts = [rollout for one in three_groups() for rollout in one.rollouts]
    compare(made(family, torch.float32), rollouts, values=1e-5, gradients=1e-5)


@budget(max_examples=25, deadline=None)
@given(data=st.data())
def test_random_rows(data: st.DataObject) -> None:
    """Any number of groups and answers, prompts and answers of one token, tokens without loss."""
    token = st.integers(5, 120)
    rollouts = []
    for number in range(data.draw(st.integers(1, 4))):
        prompt = Prompt(id=f"p{number}", text="?", token_ids=tuple(data.draw(st.lists(token, min_size=1, max_size=9))))
        for member in range(data.draw(st.integers(1, 4))):
            ids = data.draw(st.lists(token, min_size=1, max_size=30))
            loss = data.draw(st.lists(st.integers(0, 1), min_size=len(ids), max_size=len(ids)).filter(any))
            rollouts.append(Rollout(id=RolloutId(1, number, member), prompt=prompt, completion=completion(ids, loss)))
    compare(tiny_policy("gpt2"), rollouts, values=1e-10, gradients=1e-10)


def test_bfloat16_is_as_near_to_float32_as_the_mask_is() -> None:
    rollouts = [rollout for one in three_groups() for rollout in one.rollouts]
    policy = Policy(tiny_model("llama"), compute_dtype=torch.bfloat16)
    plain = Policy(tiny_model("llama"), compute_dtype=torch.bfloat16)
    exact = Policy(tiny_model("llama"), compute_dtype=torch.float32)
    with torch.no_grad():
        for name, weight in exact.module.named_parameters():
            weight.copy_(policy.module.get_parameter(name))
    row = pack_row(rollouts)
    assert row.layout is not None
    wanted = gradient(exact.module, packed_logprobs(exact, rollouts))
    found = gradient(policy.module, packed_logprobs(policy, rollouts))
    mask = row.layout.allowed_LL()[None, None]
    logits = plain.module(
        input_ids=row.input_ids_L[None], position_ids=row.position_ids_L[None], attention_mask=mask, logits_to_keep=row.keep_N
    ).logits[0]
    masked = gradient(plain.module, torch.log_softmax(logits, -1).gather(1, row.targets_N[:, None])[:, 0])
    assert (found - wanted).norm() <= 1.2 * (masked - wanted).norm()


def test_twice_the_same_bits() -> None:
    rollouts = [rollout for one in three_groups() for rollout in one.rollouts]
    policy = Policy(tiny_model("llama"), compute_dtype=torch.bfloat16)
    one, other = (gradient(policy.module, packed_logprobs(policy, rollouts)) for _ in range(2))
    assert torch.equal(one, other)


def test_a_window_shorter_than_a_sequence_is_refused() -> None:
    """The capability table lets no such row be packed; if one came, it would be an error and not a wrong result."""
    rollouts = [rollout for one in three_groups() for rollout in one.rollouts]
    with pytest.raises(AssertionError, match="capabilities"):
        packed_logprobs(made("mistral", sliding_window=16), rollouts)


def test_an_unknown_keyword_takes_the_mask(monkeypatch: pytest.MonkeyPatch, runs: list[str]) -> None:
    """An additive position bias changes the result: it must reach the model's own attention."""
    policy = tiny_policy("gpt2")
    rollouts = three_groups()[0].rollouts
    row = pack_row(rollouts)
    assert row.layout is not None
    length = len(row.input_ids_L)
    bias = torch.randn(1, 1, length, length, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    ids = {"input_ids": row.input_ids_L[None], "position_ids": row.position_ids_L[None], "use_cache": False}
    with torch.no_grad(), attention.attending(policy.module, row.layout) as mask:
        assert mask is None
        found = policy.module(**ids, position_bias=bias).logits
    with torch.no_grad():
        wanted = policy.module(**ids, position_bias=bias, attention_mask=row.layout.allowed_LL()[None, None]).logits
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
    assert set(runs) == {"mask"}


def test_where_parts_are_used() -> None:
    model = tiny_model("llama")
    assert attends_in_parts(model)
    assert not attends_in_parts(tiny_model("llama", attn_implementation="eager"))
    assert not attends_in_parts(tiny_model("llama").half())
    assert not attends_in_parts(tiny_model("llama").train())
    assert not attends_in_parts(tiny_model("llama").to("meta"))


def test_the_models_own_attention_is_back_afterwards() -> None:
    policy = tiny_policy()
    layout = Layout((Span(start=0, prompt_length=2, answer_lengths=(1,)),))
    with attention.attending(policy.module, layout):
        assert policy.module.config._attn_implementation != "sdpa"
    assert policy.module.config._attn_implementation == "sdpa"
    with pytest.raises(IndexError):
        policy.logits(torch.tensor([500, 0, 0]), torch.arange(3), torch.tensor([0]), layout)  # no such token
    assert policy.module.config._attn_implementation == "sdpa"


def test_scores_grow_with_answers_not_with_their_square(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the answers and twice the groups: twice the scores each."""
    counted: list[int] = []
    real = blocks._scores

    def count(*args: Any) -> Tensor:
        scores = real(*args)
        counted.append(scores.numel())
        return scores

    monkeypatch.setattr(blocks, "_scores", count)
    policy = tiny_policy("gpt2")

    def scores(groups: int, answers: int) -> int:
        counted.clear()
        rows = [group(n, range(10 + n, 30 + n), [[7] * 21] * answers, [0.0] * answers) for n in range(groups)]
        packed_logprobs(policy, [rollout for one in rows for rollout in one.rollouts])
        return sum(counted)

    prompt = 2 * 4 * 20 * 20  # layers, heads, queries, keys
    one_answer = 2 * prompt  # over itself and over the prompt
    assert scores(1, 2) == prompt + 2 * one_answer
    assert scores(1, 4) == prompt + 4 * one_answer
    assert scores(3, 4) == 3 * (prompt + 4 * one_answer)
