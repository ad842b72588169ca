"""Lengths counted by hand, and models that are asked the same."""

from __future__ import annotations

import pytest

from tests.tiny import save_tiny
from toishi.comparison import Answers, Comparison, compare_models
from toishi.config import Config, load_config
from toishi.engines.base import Request
from toishi.errors import ConfigError
from toishi.evaluate import Mode
from toishi.rewards.length import text_tokens
from toishi.rewards.scripted import answered
from toishi.rollout import EVALUATION_STREAM
from toishi.sampler import Sampler, Source
from toishi.session import sampling_of
from toishi.types import Prompt

# Words are tokens; an answer that stopped has one token more, which is no text.
SHORT = Answers(
    model="short", mode="sampled",
    completions=((answered("a"), answered("a b c")), (answered("a b"), answered("a b c d", "length"))),
)  # fmt: skip
LONG = Answers(
    model="long", mode="sampled",
    completions=((answered("a b c d"), answered("a b c d e f")), (answered("a b c d"), answered("a b c d"))),
)  # fmt: skip


def test_lengths_by_hand() -> None:
    """short: (1 + 3) / 2 = 2 and (2 + 4) / 2 = 3, mean 2.5; long: 5 and 4, mean 4.5; apart by 3 and 1, mean 2."""
    assert (SHORT.lengths, LONG.lengths) == ((2.0, 3.0), (5.0, 4.0))
    assert (SHORT.mean.value, LONG.mean.value, LONG.difference(SHORT).value) == (2.5, 4.5, 2.0)
    assert (SHORT.truncated, LONG.truncated) == (0.25, 0.0)
    assert (LONG.difference(SHORT).low, LONG.difference(SHORT).high) == (1.0, 3.0)


def test_the_record_has_every_answer_and_no_interval_of_two_prompts() -> None:
    found = Comparison(prompts=(Prompt(id="a", text="A?"), Prompt(id="b", text="B?")), answers=(SHORT, LONG))
    record = found.as_record()
    assert record["prompts"] == [{"id": "a", "prompt": "A?"}, {"id": "b", "prompt": "B?"}]
    short, long = record["models"]
    assert (short["mean_tokens"], short["difference"], short["interval"]) == (2.5, None, None)
    assert (long["mean_tokens"], long["difference"], long["difference_interval"]) == (4.5, 2.0, None)
    assert short["answers"][1][1] == {"tokens": 4, "finish_reason": "length", "text": "a b c d"}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, Source]]:
    folder = tmp_path_factory.mktemp("models")
    saved = {family: save_tiny(folder / family, family) for family in ("llama", "qwen2")}
    return [(name, Source.find(str(path))) for name, path in saved.items()]


@pytest.fixture(scope="module")
def config() -> Config:
    return load_config({
        "task": {"name": "sums", "heldout": 12}, "sampling": {"max_new_tokens": 10, "temperature": 0.7},
        "evaluation": {"samples": 2}, "seed": 4,
    })  # fmt: skip


PROMPTS = [Prompt(id=str(n), text=f"What is {n} + {n}?") for n in range(12)]


def test_every_model_is_asked_the_same_with_the_same_random_numbers(models: list[tuple[str, Source]], config: Config) -> None:
    """Against requests that are written out here and asked one by one."""
    told: list[tuple[str, Mode]] = []
    found = compare_models(models, config, PROMPTS, on_model=lambda model, mode: told.append((model, mode)))
    assert told == [("llama", "greedy"), ("llama", "sampled"), ("qwen2", "greedy"), ("qwen2", "sampled")]
    assert [(answers.model, answers.mode) for answers in found.answers] == [
        ("llama", "greedy"), ("qwen2", "greedy"), ("llama", "sampled"), ("qwen2", "sampled"),
    ]  # fmt: skip
    for name, source in models:
        sampler = Sampler.open(source.model, seed=4)
        for mode, count in (("greedy", 1), ("sampled", 2)):
            (answers,) = [each for each in found.answers if (each.model, each.mode) == (name, mode)]
            for place in (0, 7):
                ids = sampler.renderer.render(PROMPTS[place]).token_ids
                for member in range(count):
                    request = Request(prompt_ids=ids, key=(4, EVALUATION_STREAM, 0, place, member))
                    (alone,) = sampler.engine.generate([request], sampling_of(config, greedy=mode == "greedy"))
                    assert answers.completions[place][member].token_ids == alone.token_ids
                    assert text_tokens(alone) == len(alone.token_ids) - (alone.finish_reason == "stop")


def test_a_model_does_not_differ_from_itself(models: list[tuple[str, Source]], config: Config) -> None:
    found = compare_models([models[0], ("again", models[0][1])], config, PROMPTS)
    for mode in found.modes:
        first, again = found.of_mode(mode)
        apart = again.difference(first)
        assert (apart.value, apart.low, apart.high) == (0.0, 0.0, 0.0)


def test_nothing_to_ask(models: list[tuple[str, Source]], config: Config) -> None:
    with pytest.raises(ConfigError, match=r"nothing to ask: .* set task\.heldout"):
        compare_models(models, config, [])
