"""Small arithmetic problems: "What is 3 + 12? Answer with just the number."

Decisions:
1. A problem is its tuple of terms. Up to 200 000 tuples the whole space is shuffled (each problem once an epoch); beyond
   that, problem number `index` is drawn by hash and the space is never listed.
2. Held-out problems are chosen first and kept as a set; training skips them, so the two are disjoint by construction.
3. With `commuted: apart` (default) 12 + 3 is the same problem as 3 + 12: if one is held out, neither is trained on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Annotated, Literal

from pydantic import Field

from toishi.errors import ConfigError, DataError
from toishi.tasks.listed import asked
from toishi.tasks.order import epoch_position, keyed_hash, keyed_order
from toishi.types import Prompt

LISTED_MAX = 200_000
Terms = tuple[int, ...]
Operation = Literal["add", "subtract", "multiply"]
_SIGN: dict[Operation, str] = {"add": "+", "subtract": "-", "multiply": "*"}


@dataclass(frozen=True, kw_only=True)
class Sums:
    """Options of the task `sums`.

    pool      train on so many problems alone; null = on all that are not held out
    only      train on these problems alone, as [[7, 8]] (one-example training); the held-out ones stay what they are
    written   also the columns completion and chosen (the right number as text) and rejected (a number 1 to 9 away from it)
    template  Python format with {expression} (such as "3 + 12"), or {a} and {b} for the first two terms
    """

    low: int = 1
    high: int = 20
    terms: Annotated[int, Field(ge=2, le=16)] = 2
    operation: Operation = "add"
    heldout: Annotated[int, Field(ge=0)] = 64
    commuted: Literal["apart", "ignore"] = "apart"
    template: str = "What is {expression}? Answer with just the number."
    as_chat: bool = True
    pool: Annotated[int, Field(ge=1)] | None = None
    only: tuple[tuple[int, ...], ...] = ()
    written: bool = False

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ConfigError(f"task.low={self.low} is above task.high={self.high}")
        self._check_only()
        try:
            example, other = self.question((self.low,) * self.terms), self.question((self.high,) * self.terms)
        except (KeyError, IndexError, ValueError, AttributeError) as error:
            raise ConfigError(
                f"task.template: {self.template!r} cannot be filled ({error}); it may use {{expression}}, {{a}} and {{b}}"
            ) from None
        if self.low < self.high and example == other:
            raise ConfigError(f"task.template: {self.template!r} does not show the problem; use {{expression}}")
        if 2 * self.heldout > self.different:
            raise ConfigError(
                f"task.heldout: {self.heldout} of {self.different} different problems is more than half; "
                "widen task.low..task.high, or hold out fewer"
            )

    def _check_only(self) -> None:
        """Raises ConfigError for problems that are not of this task, and for two ways to say what to train on."""
        if self.only and self.pool is not None:
            raise ConfigError(f"task.only names the problems and task.pool={self.pool} says how many; give one of the two")
        for terms in self.only:
            if len(terms) != self.terms or not all(self.low <= term <= self.high for term in terms):
                raise ConfigError(
                    f"task.only: {list(terms)} is no problem of this task, expected {self.terms} numbers from {self.low} to "
                    f"{self.high}; change it, or task.low..task.high"
                )

    @property
    def space(self) -> int:
        """How many tuples of terms there are."""
        return int((self.high - self.low + 1) ** self.terms)

    @property
    def different(self) -> int:
        """How many problems remain when those that `same` unites are counted once: multisets where the order is no matter."""
        return math.comb(self.high - self.low + self.terms, self.terms) if self._unordered else self.space

    @property
    def _unordered(self) -> bool:
        return self.commuted == "apart" and self.operation != "subtract"

    def question(self, terms: Terms) -> str:
        sign = f" {_SIGN[self.operation]} "
        expression = sign.join(str(term) if term >= 0 or place == 0 else f"({term})" for place, term in enumerate(terms))
        return self.template.format(expression=expression, a=terms[0], b=terms[1])

    def answer(self, terms: Terms) -> int:
        """
        >>> Sums(operation="subtract", terms=3).answer((9, 2, 3))
        4
        """
        match self.operation:
            case "add":
                return sum(terms)
            case "subtract":
                return terms[0] - sum(terms[1:])
            case "multiply":
                return math.prod(terms)

    def same(self, terms: Terms) -> Terms:
        """What two problems share when one of them must not be trained on because the other is held out."""
        return tuple(sorted(terms)) if self._unordered else terms

    def build(self, *, seed: int) -> SumsTask:
        return SumsTask(self, seed)


@dataclass(frozen=True)
class SumsTask:
    """The task `sums`: gold is an int, in the column `answer`; the column `terms` has the numbers.

    >>> prompt = SumsTask(Sums(), seed=0).train_prompt(0)
    >>> prompt.gold == sum(prompt.columns["terms"])
    True
    """

    options: Sums
    seed: int
    name: str = "sums"
    gold_column: str = "answer"

    @property
    def columns(self) -> frozenset[str]:
        return frozenset({"answer", "terms"} | ({"completion", "chosen", "rejected"} if self.options.written else set()))

    @property
    def num_train(self) -> int | None:
        return len(self._few) or (len(self._listed_train) if self._is_listed else None)

    def train_prompt(self, index: int) -> Prompt:
        listed = self._few or (self._listed_train if self._is_listed else ())
        if listed:
            return self._prompt(listed[epoch_position(index, len(listed), self.seed)])
        return self._prompt(self._drawn(index))

    @cached_property
    def _few(self) -> tuple[Terms, ...]:
        """The problems of `only`, or as many as `pool` says; empty where all are trained on."""
        options = self.options
        held = [terms for terms in options.only if options.same(terms) in self._heldout_keys]
        if held:
            raise DataError(
                f"task.only: {list(held[0])} is held out with seed {self.seed}, and a held-out value would measure memory; "
                "choose another problem, or another seed"
            )
        if options.only or options.pool is None:
            return options.only
        if not self._is_listed:
            return tuple(self._drawn(index) for index in range(options.pool))
        order = keyed_order(len(self._listed_train), self.seed, "pool")
        return tuple(self._listed_train[place] for place in order[: options.pool])

    def _drawn(self, index: int) -> Terms:
        """Training problem number `index` of a space that is not listed."""
        draws = (self._draw("train", index, attempt) for attempt in count())
        return next(terms for terms in draws if self.options.same(terms) not in self._heldout_keys)

    def heldout_prompts(self) -> Sequence[Prompt]:
        return [self._prompt(terms) for terms in self._heldout]

    @property
    def _is_listed(self) -> bool:
        return self.options.space <= LISTED_MAX

    @cached_property
    def _heldout(self) -> tuple[Terms, ...]:
        """The first `heldout` problems of an order fixed by the seed, no two of which are the same problem."""
        chosen: dict[Terms, Terms] = {}
        for terms in self._heldout_candidates():
            if len(chosen) == self.options.heldout:
                break
            chosen.setdefault(self.options.same(terms), terms)
        return tuple(chosen.values())

    def _heldout_candidates(self) -> Iterator[Terms]:
        if self._is_listed:
            return (self._terms(number) for number in keyed_order(self.options.space, self.seed, "split"))
        return (self._draw("heldout", number) for number in count())

    @cached_property
    def _heldout_keys(self) -> frozenset[Terms]:
        return frozenset(self.options.same(terms) for terms in self._heldout)

    @cached_property
    def _listed_train(self) -> tuple[Terms, ...]:
        every = (self._terms(number) for number in range(self.options.space))
        return tuple(terms for terms in every if self.options.same(terms) not in self._heldout_keys)

    def _draw(self, *key: int | str) -> Terms:
        width = self.options.high - self.options.low + 1
        return tuple(self.options.low + keyed_hash(self.seed, *key, place) % width for place in range(self.options.terms))

    def _terms(self, number: int) -> Terms:
        """Problem `number` of the space: its digits in base `high - low + 1`."""
        width = self.options.high - self.options.low + 1
        places = reversed(range(self.options.terms))
        return tuple(self.options.low + number // width**place % width for place in places)

    def _prompt(self, terms: Terms) -> Prompt:
        gold = self.options.answer(terms)
        id = f"sums/{_SIGN[self.options.operation].join(map(str, terms))}"
        columns: dict[str, object] = {"answer": gold, "terms": terms}
        if self.options.written:
            away = keyed_hash(self.seed, "rejected", *terms)
            wrong = gold + (1 + away % 9) * (1 if away // 9 % 2 else -1)
            columns |= {"completion": str(gold), "chosen": str(gold), "rejected": str(wrong)}
        return asked(id, self.options.question(terms), as_chat=self.options.as_chat, gold=gold, columns=columns)
