"""The same prompts asked of several models: every answer, how long it is, and how the mean lengths differ.

Decisions:
1. The prompt is the unit, as in `evaluate`: a prompt's length is the mean over its answers, intervals come from a bootstrap
   over prompts, and differences to the first model are paired on the same prompts.
2. A length counts the tokens of the text: the token that ended the answer is left out, as in the reward `length`.
3. Equal seeds and equal places draw the same random numbers for every model, so what differs is the weights.
4. Models are loaded one after another; one is gone before the next comes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toishi.config import Config
from toishi.engines.base import Engine, Sampling
from toishi.errors import ConfigError
from toishi.evaluate import Mode, ends
from toishi.ops.stats import Interval, mean_interval, paired_difference
from toishi.rendering import refuse_long
from toishi.rewards.length import text_tokens
from toishi.rollout import EVALUATION_STREAM, sample_groups
from toishi.sampler import Sampler, Source
from toishi.session import sampling_of
from toishi.types import Completion, Prompt

Around = Callable[[Engine, str, Sequence[Prompt]], Engine]
"""(engine, the model's name, rendered prompts) -> an engine around it, such as one that tells of its answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """One model's answers in one mode; `completions` holds those to each prompt, in the order of the prompts."""

    model: str
    mode: Mode
    completions: tuple[tuple[Completion, ...], ...]

    @property
    def lengths(self) -> tuple[float, ...]:
        """Prompt by prompt: tokens of an answer, the mean over the prompt's answers."""
        return tuple(sum(map(text_tokens, answers)) / len(answers) for answers in self.completions)

    @property
    def mean(self) -> Interval:
        """Tokens of an answer, over prompts, with the bootstrap's 95% interval."""
        return mean_interval(self.lengths)

    @property
    def truncated(self) -> float:
        """Share of answers that the token limit cut."""
        every = [answer.is_truncated for answers in self.completions for answer in answers]
        return sum(every) / len(every)

    def difference(self, other: Answers) -> Interval:
        """How much longer the answers are than the other's, paired on the prompts."""
        return paired_difference(self.lengths, other.lengths)

    def as_record(self, first: Answers) -> dict[str, Any]:
        """Plain values; intervals are None with too few prompts (`evaluate.MIN_PROMPTS`)."""
        count, apart = len(self.completions), self.difference(first)
        return {
            "model": self.model,
            "mode": self.mode,
            "mean_tokens": self.mean.value,
            "interval": ends(self.mean, count),
            "difference": None if self is first else apart.value,
            "difference_interval": None if self is first else ends(apart, count),
            "truncated": self.truncated,
            "answers": [
                [
                    {"tokens": text_tokens(answer), "finish_reason": answer.finish_reason, "text": answer.text}
                    for answer in answers
                ]
                for answers in self.completions
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What every model answered. `answers` holds, for each mode, the models in the order in which they were named."""

    prompts: tuple[Prompt, ...]
    answers: tuple[Answers, ...]

    def of_mode(self, mode: Mode) -> tuple[Answers, ...]:
        """The models' answers in one mode; () where it was not asked for."""
        return tuple(found for found in self.answers if found.mode == mode)

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The modes that there are, in order."""
        return tuple(dict.fromkeys(found.mode for found in self.answers))

    def as_record(self) -> dict[str, Any]:
        """Plain values for JSON."""
        firsts = {mode: self.of_mode(mode)[0] for mode in self.modes}
        return {
            "prompts": [{"id": prompt.id, "prompt": prompt.shown} for prompt in self.prompts],
            "models": [found.as_record(firsts[found.mode]) for found in self.answers],
        }


def compare_models(
    sources: Sequence[tuple[str, Source]],
    config: Config,
    prompts: Sequence[Prompt],
    *,
    around: Around = lambda engine, model, prompts: engine,
    on_model: Callable[[str, Mode], None] = lambda model, mode: None,
) -> Comparison:
    """Ask every model the same prompts: one greedy answer each, and `evaluation.samples` drawn as `sampling` says.

    sources   (name, model), loaded in this order; differences are to the first
    around    put around every engine
    on_model  called before a model is asked

    Raises ConfigError without prompts, and what `Sampler.open` raises.
    """
    if not prompts:
        raise ConfigError("nothing to ask: the task holds no prompt out, or evaluation.prompts is 0; set task.heldout")
    modes: list[Mode] = ["greedy", "sampled"] if config.evaluation.greedy else ["sampled"]
    found: list[Answers] = []
    for name, source in sources:
        sampler = Sampler.open(source.model, seed=config.seed, run=source.run)
        rendered = [sampler.renderer.render(prompt) for prompt in prompts]
        refuse_long(rendered, config.sampling.max_prompt_tokens)
        engine = around(sampler.engine, name, rendered)
        for mode in modes:
            on_model(name, mode)
            found.append(_asked(name, mode, engine, rendered, config))
        del sampler, engine
    return Comparison(prompts=tuple(prompts), answers=tuple(sorted(found, key=lambda answers: modes.index(answers.mode))))


def _asked(name: str, mode: Mode, engine: Engine, prompts: Sequence[Prompt], config: Config) -> Answers:
    sampling: Sampling = sampling_of(config, greedy=mode == "greedy")
    count = 1 if sampling.greedy else config.evaluation.samples
    groups = sample_groups(prompts, engine, sampling, seed=config.seed, step=0, group_size=count, stream=EVALUATION_STREAM)
    completions = tuple(tuple(rollout.completion for rollout in group.rollouts) for group in groups)
    return Answers(model=name, mode=mode, completions=completions)


def names_of(sources: Sequence[str]) -> tuple[str, ...]:
    """Short names: of every path so many of its last parts that no two are the same; the same model twice is numbered.

    >>> names_of(["bundled", "runs/short", "runs/long/"]), names_of(["a/run", "b/run", "a/run"])
    (('bundled', 'short', 'long'), ('a/run', 'b/run', 'a/run (2)'))
    """
    parts = [Path(source).parts or (source,) for source in sources]
    distinct, count = set(parts), 1
    while len({each[-count:] for each in distinct}) < len(distinct):
        count += 1
    names = [str(Path(*each[-count:])) for each in parts]
    seen = [names[: place + 1].count(name) for place, name in enumerate(names)]
    return tuple(name if number == 1 else f"{name} ({number})" for name, number in zip(names, seen, strict=True))
