"""The seam between toishi and whatever judges an answer.

A reward sees one group: the prompt and its sampled siblings together, so that rankings and pairwise judges need no
special path. It returns, for each completion, one or more `Judgement`s. It never computes advantages.

Beside `score_group` a reward may have any of these, each found by its name:

    problem(prompt)   why a data row could not be scored, before the start (`toishi.rewards.ChecksPrompts`)
    notes()           lines to show before the start (`HasNotes`)
    prepare(prompts)  called once before the first step, with real prompts (`Prepares`)
    usage()           counts and costs to log beside the step's metrics (`HasUsage`)
    close()           called once when the run ends (`Closes`)
    weight_bytes()    what a model that it keeps in this process takes (`HoldsWeights`)
    score_group_again(prompt, completions, repeat)  the same question asked once more (`Repeatable`)
    comparisons(prompt, completions, repeat)  what it said of each pair in each order (`ComparesPairs`)
    with_decode(decode)  the same reward, knowing how tokens become text (`toishi.rewards.tokens.ReadsTokens`)
    concurrent        True: `score_group` may be called for several groups at once, from threads (`IsConcurrent`)
    waits             True: `score_group` waits for others (a server, another process) and hardly computes itself (`Waits`)

Different rewards are asked at the same time, each from a thread of its own; without `concurrent`, one reward is asked about one
group after the other, in order. One that `waits` is asked about a group as soon as its last answer has ended, while others are
still being sampled; the numbers are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from toishi.types import Completion, Prompt, ScoreStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What a reward says of one completion; `scoring` adds name and weight to make it a `Score`.

    value   a finite number, or None with status "abstained" or "failed"
    span    token range of the completion that it is about; None = the whole completion
    readable  whether an answer in the asked-for form could be read; None where the reward does not look for one
    kind    one short word that puts failures (and abstentions) of a kind together, in snake_case: "timed_out", "unreadable",
            "refused"; counted as rewards/<name>/failed/<kind>. Empty: no kind is told apart
    reason  may be as long as a judge's paragraph: the record keeps all of it, screens shorten it
    """

    value: float | None
    reason: str = ""
    status: ScoreStatus = "ok"
    span: tuple[int, int] | None = None
    readable: bool | None = None
    kind: str = ""


@runtime_checkable
class Reward(Protocol):
    """Scores the completions of one prompt.

    name      unique in a run; metrics are called rewards/<name>/mean
    columns   data columns it must have; missing ones are found before the model loads
    """

    @property
    def name(self) -> str: ...

    @property
    def columns(self) -> tuple[str, ...]: ...

    def score_group(self, prompt: Prompt, completions: Sequence[Completion]) -> list[tuple[Judgement, ...]]:
        """One non-empty tuple of judgements for each completion, in order."""
        ...


@runtime_checkable
class HasNotes(Protocol):
    """A reward with something to say before the start: which limits hold here, what a probe of the judge found."""

    def notes(self) -> list[str]:
        """Lines for a person, asked for after `prepare`. Each is a whole sentence without the reward's name."""
        ...


@runtime_checkable
class Prepares(Protocol):
    """A reward that has to try something out before the first step, such as a judge on manipulated answers."""

    def prepare(self, prompts: Sequence[Prompt]) -> None:
        """Called once per process, before the model is loaded, with some real prompts. ConfigError refuses the start."""
        ...


@runtime_checkable
class HasUsage(Protocol):
    """A reward that counts what it used: calls, tokens, cost, unreadable replies."""

    def usage(self) -> Mapping[str, float]:
        """Totals since the process started, only ever growing, by short snake_case names; asked for after every step.

        What was added during a step is logged as rewards/<name>/<key>.
        """
        ...


@runtime_checkable
class Closes(Protocol):
    """A reward that holds processes or connections."""

    def close(self) -> None:
        """Let go of them. Called once when the run ends, also after an error or Ctrl-C; must not raise."""
        ...


@runtime_checkable
class HoldsWeights(Protocol):
    """A reward that keeps a model in this process."""

    def weight_bytes(self) -> int:
        """Bytes of its weights, for the memory plan; asked after `prepare`."""
        ...


@runtime_checkable
class IsConcurrent(Protocol):
    """A reward that says whether `score_group` may be called for several groups at once."""

    @property
    def concurrent(self) -> bool: ...


@runtime_checkable
class Waits(Protocol):
    """A reward that says whether it may be asked from a thread while the model samples.

    Python that computes in this process should not: it takes the interpreter from the sampler.
    """

    @property
    def waits(self) -> bool: ...


@runtime_checkable
class Repeatable(Protocol):
    """A reward whose word may differ when it is asked again, such as a judge that samples its reply."""

    def score_group_again(self, prompt: Prompt, completions: Sequence[Completion], repeat: int) -> list[tuple[Judgement, ...]]:
        """As `score_group`, asked for the `repeat`-th time more (1, 2, ...).

        Repeat 0 is what `score_group` says. Different repeats share no call and no cached reply: a reward that averages m
        calls numbers those of repeat k from k * m on. The same repeat asked twice may come from a cache.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What a judge said of two answers shown in one order.

    first, second  their places among the completions, in the order in which the judge saw them
    preferred      which of the two shown it preferred; None when its reply could not be read
    """

    first: int
    second: int
    preferred: Literal["first", "second", "tie"] | None


@runtime_checkable
class ComparesPairs(Protocol):
    """A reward that shows a judge two answers at a time, so that the order in which it sees them can be measured."""

    def comparisons(self, prompt: Prompt, completions: Sequence[Completion], repeat: int) -> list[Comparison]:
        """The raw verdicts from which `score_group` (repeat 0) or `score_group_again` (1, 2, ...) makes its scores."""
        ...
