"""The seam between toishi and whatever samples tokens.

An engine takes requests and gives one completion each, *with* the log-probs under which it sampled. Batching,
caches and concurrency hide inside the engine: batch in, batch out, synchronous.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from toishi.types import Completion


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One completion to sample. `key` alone (never the batch) determines its random numbers, for example
    (seed, step, group, member)."""

    prompt_ids: tuple[int, ...]
    key: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How to draw. `greedy` takes the most likely token; log-probs are then reported at `temperature` all the same."""

    max_new_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    greedy: bool = False
    stop: tuple[str, ...] = ()

    @property
    def truncates(self) -> bool:
        """Some tokens cannot be drawn: answers come from another distribution than the model's."""
        return self.top_p < 1 or self.top_k > 0 or self.min_p > 0


class Engine(Protocol):
    """Samples completions.

    `name` names the engine in records; `generate` returns completions in the order of the requests.
    """

    name: str

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]: ...


Finished = Callable[[int, Completion], None]
"""(place of the request in the call, its completion)"""


@runtime_checkable
class TellsFinished(Protocol):
    """An engine that says when an answer has ended, so that it can be judged while others go on. Optional."""

    def generate_telling(self, requests: Sequence[Request], sampling: Sampling, on_finished: Finished) -> list[Completion]:
        """As `generate`; `on_finished` is called once for each request, in the calling thread, in any order.

        What it raises ends the call. An engine with more requests than places lets the answers of one prompt end together.
        """
        ...
