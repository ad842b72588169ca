"""The fast path against one-by-one sampling of the unmodified model: the same tokens from the same seeds."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engines.one_by_one import Reference, sampled_one_by_one
from tests.policy.test_capabilities import options_of
from tests.tiny import FAMILIES, VOCAB_SIZE, tiny_model
from toishi.engines import fast, shared
from toishi.engines import rows as drawing
from toishi.engines.base import Request, Sampling
from toishi.engines.cache import RowCache
from toishi.engines.torch import TorchEngine
from toishi.policy.capabilities import FULL_ATTENTION_TYPES
from toishi.types import Completion

TOLERANCE = 1e-10
WINDOW = 16  # of the tiny mistral: prompt and answer fit into it here


@cache
def model(family: str, dtype: torch.dtype = torch.float64) -> Any:
    return tiny_model(family, dtype=dtype).requires_grad_(False)


def generated(
    module: Any, requests: list[Request], sampling: Sampling, *, stop_ids: list[int], max_rows: int = 64, batched: bool = True
) -> list[Completion]:
    engine = TorchEngine(module, stop_ids=stop_ids, decode=text_of, batched_prompts=batched, max_rows=max_rows)
    return engine.generate(requests, sampling)


def text_of(ids: Any) -> str:
    return " ".join(str(token) for token in ids) + " "


def require_same(found: Completion, wanted: Reference, tolerance: float = TOLERANCE) -> None:
    assert found.token_ids == wanted.token_ids
    assert found.finish_reason == ("stop" if wanted.stopped else "length")
    assert found.sampled_logprobs == pytest.approx(wanted.logprobs, rel=0, abs=tolerance)
    assert found.entropies == pytest.approx(wanted.entropies, rel=0, abs=tolerance)


SAMPLINGS = st.builds(
    Sampling,
    max_new_tokens=st.integers(1, 8),
    temperature=st.sampled_from([0.6, 1.0, 1.5]),
    top_p=st.sampled_from([1.0, 1.0, 0.9, 0.3]),
    top_k=st.sampled_from([0, 0, 1, 5, 300]),
    min_p=st.sampled_from([0.0, 0.0, 0.1]),
    greedy=st.sampled_from([False, False, False, True]),
)
PROMPTS = st.lists(st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=1, max_size=WINDOW - 8), min_size=1, max_size=4)
QUIET = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=12, **QUIET)  # type: ignore[arg-type]
@given(
    prompts=PROMPTS,
    members=st.integers(1, 4),
    sampling=SAMPLINGS,
    max_rows=st.sampled_from([1, 2, 7, 64]),
    stop_ids=st.sets(st.integers(0, VOCAB_SIZE - 1), max_size=40),
    seed=st.integers(0, 2**31),
    shuffle=st.randoms(use_true_random=False),
    rows_apart=st.booleans(),
)
def test_tokens_are_those_of_one_by_one_sampling(
    family: str,
    prompts: list[list[int]],
    members: int,
    sampling: Sampling,
    max_rows: int,
    stop_ids: set[int],
    seed: int,
    shuffle: Any,
    rows_apart: bool,
) -> None:
    requests = [Request(prompt_ids=tuple(p), key=(seed, g, m)) for g, p in enumerate(prompts) for m in range(members)]
    shuffle.shuffle(requests)
    module, stops = model(family), sorted(stop_ids)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared, "_FIRST_TOKENS", 2)  # so that room for own tokens has to grow
        patch.setattr(drawing, "_CACHED_NUMBERS", 3 * VOCAB_SIZE)  # so that rows are drawn three at a time
        if rows_apart:
            patch.setattr(fast, "SharedCache", RowCache)  # what a GPU uses
        found = generated(module, requests, sampling, stop_ids=stops, max_rows=max_rows)
    for request, completion in zip(requests, found, strict=True):
        require_same(completion, sampled_one_by_one(module, request, sampling, stops))


@pytest.mark.parametrize("family", FAMILIES)
def test_in_float32_answers_differ_only_where_a_draw_hits_a_boundary(family: str) -> None:
    """Every divergence begins at a token whose uniform number lies within 1e-5 of the end of its interval."""
    module, stops, sampling = model(family, torch.float32), list(range(20)), Sampling(max_new_tokens=4)
    requests = [Request(prompt_ids=tuple(range(30, 30 + n)), key=(5, n, m)) for n in range(1, 9) for m in range(64)]
    found = generated(module, requests, sampling, stop_ids=stops, max_rows=48)
    diverged = 0
    for request, completion in zip(requests, found, strict=True):
        wanted = sampled_one_by_one(module, request, sampling, stops)
        if completion.token_ids != wanted.token_ids:
            pairs = zip(completion.token_ids, wanted.token_ids, strict=False)
            first = next(at for at, (one, other) in enumerate(pairs) if one != other)
            assert wanted.margins[first] < 1e-5
            diverged += 1
    assert diverged <= len(requests) // 1000


@pytest.mark.parametrize("batched", [True, False])
def test_stop_strings_end_an_answer_where_its_text_first_holds_them(batched: bool) -> None:
    module, sampling = model("llama"), Sampling(max_new_tokens=8)
    requests = [Request(prompt_ids=(7, 8, 9)[: 1 + m % 3], key=(3, m)) for m in range(24)]
    free = generated(module, requests, sampling, stop_ids=[], batched=batched)
    marks = (f" {free[0].token_ids[2]} ", f" {free[5].token_ids[1]} ")
    cut = generated(module, requests, replace(sampling, stop=marks), stop_ids=[], max_rows=5, batched=batched)
    ended = 0
    for whole, part in zip(free, cut, strict=True):
        texts = [text_of(whole.token_ids[:count]) for count in range(1, 9)]
        end = next((count for count, text in enumerate(texts, 1) if any(mark in text for mark in marks)), None)
        assert part.token_ids == whole.token_ids[: end or 8]
        assert part.finish_reason == ("length" if end is None else "stop")
        assert not any(mark in part.text for mark in marks)
        ended += end is not None
    assert 2 <= ended < len(requests)


def test_many_samples_of_one_prompt() -> None:
    """pass@k at a large k: more rows than places, one prompt, no answer twice at the same key."""
    module, sampling = model("qwen2"), Sampling(max_new_tokens=3)
    requests = [Request(prompt_ids=(11, 12), key=(1, m)) for m in range(600)]
    found = generated(module, requests, sampling, stop_ids=[4])
    for at in (0, 63, 64, 333, 599):
        require_same(found[at], sampled_one_by_one(module, requests[at], sampling, [4]))
    assert len({completion.token_ids for completion in found}) > 300


def test_equal_prompts_in_different_groups_are_computed_once() -> None:
    module, calls = model("llama"), []
    handle = module.get_input_embeddings().register_forward_hook(lambda _m, inputs, _o: calls.append(tuple(inputs[0].shape)))
    requests = [Request(prompt_ids=p, key=(2, g, m)) for g, p in enumerate([(5, 6, 7), (8, 9), (5, 6, 7)]) for m in range(3)]
    try:
        generated(module, requests, Sampling(max_new_tokens=3), stop_ids=[])
    finally:
        handle.remove()
    assert calls == [(2, 3), (9, 1), (9, 1)]


def test_finished_rows_cost_nothing_and_waiting_rows_take_their_places() -> None:
    """All tokens but the first of each answer are fed; never more than max_rows rows, and no step without need."""
    module, fed = model("llama"), []
    handle = module.get_input_embeddings().register_forward_hook(lambda _m, inputs, _o: fed.append(inputs[0].shape))
    requests = [Request(prompt_ids=(5, 6, 7), key=(2, m)) for m in range(40)]
    try:
        found = generated(module, requests, Sampling(max_new_tokens=12), stop_ids=list(range(30)), max_rows=8)
    finally:
        handle.remove()
    steps = [shape[0] for shape in fed if shape[1] == 1]
    assert sum(steps) == sum(completion.num_tokens - 1 for completion in found)
    assert max(steps) == 8
    assert all(count == 8 for count in steps[: len(steps) - 12])


def test_impossible_tokens_are_allowed() -> None:
    """A model may give -inf to part of its vocabulary: never drawn, and entropies stay numbers."""
    module = tiny_model("llama", dtype=torch.float64)
    bias = torch.zeros(VOCAB_SIZE, dtype=torch.float64)
    bias[40:] = -torch.inf
    module.lm_head.register_forward_hook(lambda _m, _i, output: output + bias)
    request = Request(prompt_ids=(5, 6), key=(9,))
    (found,) = generated(module, [request], Sampling(max_new_tokens=6), stop_ids=[])
    require_same(found, sampled_one_by_one(module, request, Sampling(max_new_tokens=6), []))
    assert max(found.token_ids) < 40


TYPES = [(family, kind) for family in sorted(FULL_ATTENTION_TYPES) for kind in ("shared", "apart")]


@pytest.mark.parametrize(("family", "kind"), TYPES)
def test_every_type_of_the_capability_table(family: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through transformers' interfaces, whatever a family does around its attention: scaling, soft-caps, norms, biases."""
    if kind == "apart":
        monkeypatch.setattr(fast, "SharedCache", RowCache)
    # Gemma 2 has no other attention than eager; most eager attentions take the softmax in float32 also in a float64 model.
    attention, tolerance = ("eager", 1e-5) if family == "gemma2" else ("sdpa", TOLERANCE)
    module = tiny_model(family, dtype=torch.float64, attn_implementation=attention, **options_of(family)).requires_grad_(False)
    requests = [Request(prompt_ids=tuple(range(5, 5 + n)), key=(n, m)) for n in (1, 3, 6) for m in range(3)]
    sampling = Sampling(max_new_tokens=5)
    found = generated(module, requests, sampling, stop_ids=list(range(15)), max_rows=5)
    for request, completion in zip(requests, found, strict=True):
        require_same(completion, sampled_one_by_one(module, request, sampling, list(range(15))), tolerance)
    assert module.config._attn_implementation == attention
