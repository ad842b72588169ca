"""`reasoning_gym`: any of the package's procedural data sets, by name.

Decisions:
1. Each problem is made from its own seed, a hash of (seed, part, index): some of the package's data sets draw from a stream
   over their whole size, and only a data set of size 1 is a function of its seed for all of them.
2. Held-out problems are made first; a training problem whose text equals one of theirs is made again from the next seed.
3. The whole entry stays in the column `entry`, and the data set's options in `dataset_config`, so that the package's own scorer
   can be used as a reward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any

from pydantic import Field

from toishi.errors import ConfigError, DataError, MissingExtraError, nearest
from toishi.tasks.listed import asked
from toishi.tasks.order import keyed_hash, text_key
from toishi.types import Prompt

TRIES = 200


@dataclass(frozen=True, kw_only=True)
class Gym:
    """Options of the task `reasoning_gym`.

    dataset  such as "chain_sum"
    config   options of that data set, such as {min_terms: 2, max_terms: 2}
    """

    dataset: str
    config: Mapping[str, Any] = field(default_factory=dict)
    heldout: Annotated[int, Field(ge=0)] = 64
    as_chat: bool = True

    def build(self, *, seed: int) -> GymTask:
        try:
            from reasoning_gym.factory import DATASETS
        except ImportError:
            raise MissingExtraError("reasoning-gym", extra="gym", purpose="the task 'reasoning_gym'") from None
        if self.dataset not in DATASETS:
            raise ConfigError(f"task.dataset: reasoning_gym has no '{self.dataset}'; {nearest(self.dataset, DATASETS)}")
        known = [name for name in DATASETS[self.dataset][1].__dataclass_fields__ if name not in ("seed", "size")]
        for key in self.config:
            if key not in known:
                raise ConfigError(f"task.config.{key}: unknown option of '{self.dataset}'; {nearest(key, known)}")
        task = GymTask(self, seed)
        task.heldout_prompts()
        return task


@dataclass(frozen=True)
class GymTask:
    """The task `reasoning_gym`: gold is the entry's answer, in the column `answer`."""

    options: Gym
    seed: int
    name: str = "reasoning_gym"
    gold_column: str = "answer"
    columns: frozenset[str] = frozenset({"answer", "entry", "dataset_config"})
    num_train: None = None

    def train_prompt(self, index: int) -> Prompt:
        for attempt in range(TRIES):
            prompt = self._made("train", index, attempt)
            if text_key(prompt) not in self._heldout:
                return prompt
        raise DataError(
            f"task.dataset '{self.options.dataset}': {TRIES} training problems in a row were held-out ones; "
            "it has too few different problems for this task.heldout. Hold out fewer, or widen task.config"
        )

    def heldout_prompts(self) -> Sequence[Prompt]:
        return list(self._heldout.values())

    @cached_property
    def _heldout(self) -> dict[str, Prompt]:
        """Held-out prompts by text, no text twice."""
        chosen: dict[str, Prompt] = {}
        for number in range(self.options.heldout * TRIES):
            if len(chosen) == self.options.heldout:
                break
            prompt = self._made("heldout", number)
            chosen.setdefault(text_key(prompt), prompt)
        if len(chosen) < self.options.heldout:
            raise DataError(
                f"task.heldout: '{self.options.dataset}' gave only {len(chosen)} different problems in "
                f"{self.options.heldout * TRIES} tries, expected {self.options.heldout}. Hold out fewer, or widen task.config"
            )
        return chosen

    def _made(self, *key: int | str) -> Prompt:
        import reasoning_gym

        seed = keyed_hash(self.seed, *key) % 2**31
        try:
            entry = reasoning_gym.create_dataset(self.options.dataset, seed=seed, size=1, **self.options.config)[0]
        except (AssertionError, TypeError, ValueError) as error:
            raise ConfigError(f"task.config: '{self.options.dataset}' refuses {dict(self.options.config)}: {error}") from error
        columns = {"answer": entry["answer"], "entry": entry, "dataset_config": dict(self.options.config)}
        id = f"{self.options.dataset}/{seed}"
        return asked(id, entry["question"], as_chat=self.options.as_chat, gold=entry["answer"], columns=columns)
