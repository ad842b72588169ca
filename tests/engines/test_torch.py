"""The engine: exact frequencies, independence of the batch, stops, log-probs equal to the trainer's."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import pytest
import torch
from scipy.stats import chisquare

from tests.tiny import tiny_model
from toishi.engines.base import Request, Sampling
from toishi.engines.torch import TorchEngine
from toishi.errors import EngineError
from toishi.ops.logprobs import token_logprobs
from toishi.packing import pack_row
from toishi.policy.policy import Policy
from toishi.types import Completion, Prompt, Rollout, RolloutId

END = 4
PROMPTS = [(5, 6, 7, 8, 9, 10), (11, 12), (13, 14, 15)]


def text_of(ids: Sequence[int]) -> str:
    return " ".join(str(token) for token in ids if token != END)


def engine(
    family: str = "llama", dtype: torch.dtype = torch.float64, *, batched: bool = True, max_rows: int = 64
) -> TorchEngine:
    module = tiny_model(family, dtype=dtype)
    return TorchEngine(module, stop_ids=[END], decode=text_of, batched_prompts=batched, max_rows=max_rows)


def requests(members: int = 3) -> list[Request]:
    return [Request(prompt_ids=p, key=(0, g, m)) for g, p in enumerate(PROMPTS) for m in range(members)]


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gemma", "gpt2"])
def test_an_answer_does_not_depend_on_its_batch(family: str) -> None:
    """Whole batch, small batches with rows leaving, one group at a time, one by one: identical tokens and log-probs."""
    sampling = Sampling(max_new_tokens=12, temperature=1.3)
    together = engine(family).generate(requests(), sampling)
    assert len({completion.num_tokens for completion in together}) >= 1
    for other in (engine(family, max_rows=4), engine(family, batched=False)):
        assert_same(other.generate(requests(), sampling), together)
    one_by_one = [engine(family).generate([request], sampling)[0] for request in requests()]
    assert_same(one_by_one, together)
    assert_same(engine(family).generate(requests()[::-1], sampling)[::-1], together)


def assert_same(found: Sequence[Completion], wanted: Sequence[Completion]) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert one.token_ids == other.token_ids
        assert one.finish_reason == other.finish_reason
        assert one.sampled_logprobs == pytest.approx(other.sampled_logprobs, abs=1e-6)
        assert one.entropies == pytest.approx(other.entropies, abs=1e-6)


@pytest.mark.parametrize("temperature", [0.6, 1.0])
def test_logprobs_as_sampled_equal_logprobs_as_trained(temperature: float) -> None:
    """The sampler gap in fp32 stays below 1e-3 for every token, at both temperatures."""
    built = engine(dtype=torch.float32)
    policy = Policy(built.module, compute_dtype=torch.float32)
    completions = built.generate(requests(), Sampling(max_new_tokens=16, temperature=temperature))
    for request, completion in zip(requests(), completions, strict=True):
        prompt = Prompt(id="p", text="", token_ids=request.prompt_ids)
        row = pack_row([Rollout(id=RolloutId(1, 0, 0), prompt=prompt, completion=completion)])
        with torch.no_grad():
            logits_NV = policy.logits(row.input_ids_L, row.position_ids_L, row.keep_N, row.layout)
        trained = token_logprobs(logits_NV, row.targets_N, temperature).tolist()
        assert max(abs(a - b) for a, b in zip(trained, completion.sampled_logprobs, strict=True)) < 1e-4


@pytest.mark.parametrize("options", [{}, {"top_k": 5}, {"top_p": 0.6, "temperature": 0.6}])
def test_frequencies_match_exact_probabilities(options: dict[str, float]) -> None:
    """Two-token answers of a tiny model: chi-square against the probabilities computed from its logits."""
    built = engine()
    temperature = options.get("temperature", 1.0)
    draws = 4000
    sampling = Sampling(max_new_tokens=2, **options)  # type: ignore[arg-type]
    found = built.generate([Request(prompt_ids=PROMPTS[1], key=(7, m)) for m in range(draws)], sampling)
    counts = Counter(completion.token_ids for completion in found)
    expected = exact(built.module, PROMPTS[1], temperature, options)
    assert sum(expected.values()) == pytest.approx(1.0, abs=1e-9)
    assert set(counts) <= set(expected)
    common = sorted((key for key in expected if expected[key] * draws >= 5), key=lambda key: -expected[key])
    observed = [counts[key] for key in common]
    wanted = [expected[key] * draws for key in common]
    rest = draws - sum(wanted)
    if rest > 5:
        observed.append(draws - sum(observed))
        wanted.append(rest)
    scale = sum(observed) / sum(wanted)
    assert chisquare(observed, [value * scale for value in wanted]).pvalue > 1e-3


def exact(
    module: torch.nn.Module, prompt: tuple[int, ...], temperature: float, options: dict[str, float]
) -> dict[tuple[int, ...], float]:
    """Probability of every answer of at most two tokens, from plain forward passes and plain Python truncation."""

    def next_token(ids: tuple[int, ...]) -> dict[int, float]:
        with torch.no_grad():
            probs = torch.softmax(module(torch.tensor([ids])).logits[0, -1] / temperature, -1).tolist()
        ranked = sorted(range(len(probs)), key=lambda token: -probs[token])
        if "top_k" in options:
            ranked = ranked[: int(options["top_k"])]
        if "top_p" in options:
            sums = list(itertools.accumulate(probs[token] for token in ranked))
            ranked = ranked[: next(i for i, total in enumerate(sums) if total >= options["top_p"]) + 1]
        total = sum(probs[token] for token in ranked)
        return {token: probs[token] / total for token in ranked}

    answers: dict[tuple[int, ...], float] = {}
    for first, probability in next_token(prompt).items():
        if first == END:
            answers[(first,)] = probability
            continue
        for second, conditional in next_token((*prompt, first)).items():
            answers[(first, second)] = probability * conditional
    return answers


def test_reported_logprobs_are_those_of_the_distribution_that_was_drawn_from() -> None:
    """With top-k the log-prob is renormalised over the kept tokens, so an importance correction sees the truth."""
    built = engine()
    (found,) = built.generate([Request(prompt_ids=PROMPTS[0], key=(1,))], Sampling(max_new_tokens=1, top_k=3))
    with torch.no_grad():
        logits = built.module(torch.tensor([PROMPTS[0]])).logits[0, -1]
    top = logits.topk(3)
    position = top.indices.tolist().index(found.token_ids[0])
    assert found.sampled_logprobs[0] == pytest.approx(float(torch.log_softmax(top.values, -1)[position]), abs=1e-9)


def test_greedy_takes_the_likeliest_token_and_reports_full_logprobs() -> None:
    built = engine()
    (found,) = built.generate([Request(prompt_ids=PROMPTS[0], key=(1,))], Sampling(max_new_tokens=3, greedy=True))
    ids = list(PROMPTS[0])
    for token, logprob in zip(found.token_ids, found.sampled_logprobs, strict=True):
        with torch.no_grad():
            logprobs = torch.log_softmax(built.module(torch.tensor([ids])).logits[0, -1], -1)
        assert token == int(logprobs.argmax())
        assert logprob == pytest.approx(float(logprobs.max()), abs=1e-6)
        ids.append(token)


def test_stop_token_is_part_of_the_answer_and_not_of_its_text() -> None:
    module = tiny_model("llama", dtype=torch.float64)
    with torch.no_grad():
        module.get_output_embeddings().weight[END] = module.get_output_embeddings().weight.mean(0) * 50
    built = TorchEngine(module, stop_ids=[END, 9], decode=text_of, batched_prompts=True)
    found = built.generate(requests(8), Sampling(max_new_tokens=10))
    stopped = [completion for completion in found if completion.finish_reason == "stop"]
    assert stopped
    for completion in stopped:
        assert completion.token_ids[-1] in (END, 9)
        assert not set(completion.token_ids[:-1]) & {END, 9}
    for completion in found:
        assert completion.finish_reason == "stop" or completion.num_tokens == 10
        assert len(completion.sampled_logprobs) == len(completion.entropies) == completion.num_tokens


def test_stop_strings_end_the_answer_and_are_cut_from_its_text() -> None:
    built = engine()
    (free,) = built.generate([Request(prompt_ids=PROMPTS[0], key=(3,))], Sampling(max_new_tokens=6))
    mark = str(free.token_ids[2])
    (cut,) = built.generate([Request(prompt_ids=PROMPTS[0], key=(3,))], Sampling(max_new_tokens=6, stop=(mark,)))
    assert cut.finish_reason == "stop"
    assert cut.token_ids == free.token_ids[: cut.num_tokens]
    assert mark not in cut.text


def test_broken_weights_are_an_error_not_an_answer() -> None:
    built = engine()
    with torch.no_grad():
        built.module.get_input_embeddings().weight.fill_(float("nan"))
    with pytest.raises(EngineError, match="NaN or infinity"):
        built.generate(requests(1), Sampling(max_new_tokens=2))


def test_no_requests_no_answers() -> None:
    assert engine().generate([], Sampling(max_new_tokens=2)) == []
