"""The engine on a real model in float32: answers are those of one-by-one sampling of the unmodified module.

One-by-one sampling draws a token from the module's distribution after the tokens before it: the cumulative sums of its blocks
of 256 tokens are inverted at the request's first uniform number for that position, those inside the block at the second. So one
plain pass of the module over prompt and answer (no cache, no batch, no mask, no packing) checks an answer: at every position
both numbers must lie in the intervals of the token that was found. Where one first lies outside, the two samplings part; that
is allowed only within 1e-5 of an interval's end, and seldom.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch

from toishi.config import ModelConfig
from toishi.engines import packed
from toishi.engines.base import Request, Sampling
from toishi.engines.torch import TorchEngine
from toishi.ops.random import uniforms
from toishi.policy.loading import LoadedModel, load_model
from toishi.types import Completion

pytestmark = [pytest.mark.slow, pytest.mark.bundled, pytest.mark.timeout(3600)]

TEXTS = (
    "The capital of France is",
    "Q: What is 17 plus 25?\nA:",
    "Once upon a time, in a village by the sea, there lived",
    "def fibonacci(n):\n    ",
    "Water boils at a temperature of",
    "The three primary colours are red,",
    "Dear Ms Tanaka,\n\nThank you for your letter of",
    "To make pancakes you need flour, eggs and",
)
SIBLINGS, TOKENS, CLOSE = 128, 8, 1e-5


@dataclass(frozen=True)
class Parting:
    """Where an answer leaves one-by-one sampling: position, and how far outside its interval a number lies."""

    position: int
    distance: float


@cache
def bundled() -> LoadedModel:
    model = load_model(ModelConfig.model_validate({"name": "bundled", "dtype": "float32"}), seed=0)
    model.module.eval().requires_grad_(False)
    return model


@pytest.fixture(autouse=True)
def rearranged_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short answers too are computed as long ones are."""
    monkeypatch.setattr(packed, "LEAST_STEPS", 1)


def generated(requests: Sequence[Request], tokens: int) -> list[Completion]:
    engine = TorchEngine(bundled().module, stop_ids=[], decode=str, batched_prompts=True)
    return engine.generate(requests, Sampling(max_new_tokens=tokens))


def parting(module: Any, request: Request, answer: Sequence[int]) -> Parting | None:
    """The first token whose intervals in the module's own distribution do not hold the request's numbers."""
    start = len(request.prompt_ids) - 1
    with torch.no_grad():
        logits_TV = module(input_ids=torch.tensor([[*request.prompt_ids, *answer]]), use_cache=False).logits[0, start:-1]
    probs_TV = logits_TV.double().softmax(-1)
    draws = uniforms(request.key, 2 * len(answer)).reshape(-1, 2).tolist()
    for position, (token, (first, second)) in enumerate(zip(answer, draws, strict=True)):
        blocks = probs_TV[position].split(256)
        sums = torch.stack([block.sum() for block in blocks])
        distance = max(outside(sums, token // 256, first), outside(blocks[token // 256], token % 256, second))
        if distance > 0:
            return Parting(position, distance)
    return None


def outside(weights: torch.Tensor, place: int, number: float) -> float:
    """How far the number is from the place's interval of cumulative shares; 0 in it."""
    shares = weights / weights.sum()
    end = float(shares[: place + 1].sum())
    return max(end - float(shares[place]) - number, number - end, 0.0)


def partings(requests: Sequence[Request], tokens: int) -> list[Parting]:
    found = [
        parting(bundled().module, request, answer.token_ids)
        for request, answer in zip(requests, generated(requests, tokens), strict=True)
    ]
    return [one for one in found if one is not None]


def test_answers_to_natural_prompts_are_those_of_one_by_one_sampling() -> None:
    """1,024 answers: one that is not identical parts at a draw within 1e-5 of a boundary, and 99.9% are identical."""
    prompts = [tuple(bundled().tokenizer(text)["input_ids"]) for text in TEXTS]
    requests = [Request(prompt_ids=ids, key=(11, g, m)) for g, ids in enumerate(prompts) for m in range(SIBLINGS)]
    parted = partings(requests, TOKENS)
    assert [one for one in parted if one.distance > CLOSE] == []
    assert len(parted) <= len(requests) // 1000, f"{len(parted)} of {len(requests)} part"


def test_answers_to_random_ids_part_only_at_boundaries() -> None:
    """After random ids the distribution is flat: thousands of narrow intervals, so rounding meets a boundary more often."""
    ids = torch.randint(10, 40000, (4, 37), generator=torch.Generator().manual_seed(0)).tolist()
    requests = [Request(prompt_ids=tuple(prompt), key=(1, g, m)) for g, prompt in enumerate(ids) for m in range(8)]
    assert [one for one in partings(requests, 16) if one.distance > CLOSE] == []


def test_a_wrong_token_is_noticed() -> None:
    """The check itself: one token of an answer exchanged is found at its position."""
    request = Request(prompt_ids=tuple(bundled().tokenizer(TEXTS[0])["input_ids"]), key=(11, 0, 0))
    (answer,) = generated([request], TOKENS)
    wrong = [*answer.token_ids[:3], answer.token_ids[3] + 1, *answer.token_ids[4:]]
    found = parting(bundled().module, request, wrong)
    assert found is not None
    assert found.position == 3
