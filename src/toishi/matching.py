"""At which temperature a model's answers waver as much as another's: the base at matched temperature, a control.

Training lowers the entropy of answers, and so does a lower temperature, without any training. What a trained model has over
its base at the temperature where both have the same entropy, sharpening alone does not explain.

Decisions:
1. Entropy is the mean over all tokens of sampled answers to the held-out prompts, of the distributions they were drawn from.
2. It grows with the temperature, which is found by halving an interval, on a scale of logarithms. It is measured on samples, so
   the match is within a tolerance, and what was found is told.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from toishi.config import Config
from toishi.errors import ConfigError
from toishi.rollout import EVALUATION_STREAM, sample_groups
from toishi.sampler import Sampler, Source, heldout_of
from toishi.session import gather, sampling_of
from toishi.types import Prompt

LOWEST, HIGHEST = 0.05, 2.0
CLOSE = 0.02
"""Relative difference of entropies that counts as none."""
MOST_TRIES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """A temperature, the mean entropy of a token there, and the one that was wanted, nats."""

    temperature: float
    entropy: float
    wanted: float

    @property
    def words(self) -> str:
        """For a person."""
        return (
            f"temperature {self.temperature:.3f}: mean entropy of a token {self.entropy:.4f} nats, where {self.wanted:.4f} was "
            "to be matched"
        )


def matched(source: Source, like: Source, config: Config) -> Matched:
    """The temperature for `source` at which it wavers as `like` does at the configuration's, on the held-out prompts.

    Raises ConfigError when nothing is held out, or when no temperature in reach gives that entropy.
    """
    heldout = heldout_of(gather(config), config)
    wanted = entropy_of(like, heldout, config)(config.sampling.temperature)
    return match(entropy_of(source, heldout, config), wanted)


def entropy_of(source: Source, heldout: Sequence[Prompt], config: Config) -> Callable[[float], float]:
    """Loads a model; what it gives tells the mean entropy of a token at a temperature."""
    sampler = Sampler.open(source.model, seed=config.seed, run=source.run)
    prompts = [sampler.renderer.render(prompt) for prompt in heldout]

    def at(temperature: float) -> float:
        warm = config.sampling.model_copy(update={"temperature": temperature})
        sampling = sampling_of(config.model_copy(update={"sampling": warm}))
        groups = sample_groups(
            prompts, sampler.engine, sampling, seed=config.seed, step=0, group_size=config.evaluation.samples,
            stream=EVALUATION_STREAM,
        )  # fmt: skip
        entropies = [value for group in groups for rollout in group.rollouts for value in rollout.completion.entropies]
        return math.fsum(entropies) / max(1, len(entropies))

    return at


def match(entropy_at: Callable[[float], float], wanted: float) -> Matched:
    """The temperature at which a growing function of it is near `wanted`.

    >>> found = match(lambda temperature: temperature**2, 0.25)
    >>> round(found.temperature, 2)
    0.5
    """
    low, high = LOWEST, HIGHEST
    ends = (entropy_at(low), entropy_at(high))
    if not ends[0] <= wanted <= ends[1]:
        raise ConfigError(
            f"no temperature from {LOWEST:g} to {HIGHEST:g} matches: the entropy to match is {wanted:.4f} nats, the model's "
            f"goes from {ends[0]:.4f} to {ends[1]:.4f}; compare greedy answers instead"
        )
    for _ in range(MOST_TRIES):
        middle = math.sqrt(low * high)
        found = Matched(temperature=middle, entropy=entropy_at(middle), wanted=wanted)
        if abs(found.entropy - wanted) <= CLOSE * wanted:
            break
        low, high = (middle, high) if found.entropy < wanted else (low, middle)
    return found
