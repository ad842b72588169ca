"""Tasks whose prompts are all known at the start: what files, hub data sets and topic lists become."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toishi.errors import DataError
from toishi.tasks.order import epoch_position, keyed_order, text_key
from toishi.types import Message, Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTask:
    """A finite list of training prompts, reshuffled every epoch, and a list of held-out ones.

    Raises DataError when there is nothing to train on, and when a held-out prompt's text is in training too.

    >>> prompts = tuple(Prompt(id=str(n), text=f"number {n}") for n in range(3))
    >>> task = ListedTask(name="mine", columns=frozenset(), train=prompts[:2], heldout=prompts[2:], seed=0)
    >>> sorted(task.train_prompt(index).id for index in (2, 3)), task.num_train
    (['0', '1'], 2)
    """

    name: str
    columns: frozenset[str]
    train: tuple[Prompt, ...]
    heldout: tuple[Prompt, ...] = ()
    gold_column: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.train:
            raise DataError(f"task '{self.name}' has no training prompt; add rows, or hold out fewer (task.heldout)")
        held = {text_key(prompt): prompt.id for prompt in self.heldout}
        twice = [(prompt.id, held[text_key(prompt)]) for prompt in self.train if text_key(prompt) in held]
        if twice:
            pairs = ", ".join(f"{train} = {heldout}" for train, heldout in twice[:10])
            raise DataError(
                f"task '{self.name}': {len(twice)} training prompts have the same text as a held-out prompt "
                f"(training = held-out: {pairs}{', ...' if len(twice) > 10 else ''}); a held-out value would then measure "
                "memory. Remove them from one of the two"
            )

    @property
    def num_train(self) -> int:
        return len(self.train)

    def train_prompt(self, index: int) -> Prompt:
        return self.train[epoch_position(index, len(self.train), self.seed)]

    def heldout_prompts(self) -> Sequence[Prompt]:
        return self.heldout


def split_heldout(
    prompts: Sequence[Prompt], heldout: int, *, seed: int, where: str
) -> tuple[tuple[Prompt, ...], tuple[Prompt, ...]]:
    """(training, held-out): `heldout` prompts set aside by an order that `seed` decides; the rest keep their order.

    Only prompts whose text occurs once are set aside, so that no row has to be dropped for being a copy of a held-out one.
    Raises DataError when that leaves too few.

    >>> train, held = split_heldout([Prompt(id=str(n), text=str(n % 3)) for n in range(4)], 1, seed=0, where="task")
    >>> len(train), held[0].id in ("1", "2")
    (3, True)
    """
    keys = [text_key(prompt) for prompt in prompts]
    copies: dict[str, int] = {}
    for key in keys:
        copies[key] = copies.get(key, 0) + 1
    single = [position for position in keyed_order(len(prompts), seed, "split") if copies[keys[position]] == 1]
    if heldout > len(single) or (heldout and heldout >= len(prompts)):
        most = min(len(single), len(prompts) - 1)
        raise DataError(
            f"{where}.heldout: {heldout} prompts to hold out of {len(prompts)} rows ({len(single)} with a text of their own); "
            f"set {where}.heldout to at most {most}, or add rows"
        )
    aside = single[:heldout]
    chosen = set(aside)
    train = tuple(prompt for position, prompt in enumerate(prompts) if position not in chosen)
    return train, tuple(prompts[position] for position in aside)


def user_message(text: str) -> tuple[Message, ...]:
    """The chat that asks `text`."""
    return ({"role": "user", "content": text},)


def asked(id: str, text: str, *, as_chat: bool, **rest: object) -> Prompt:
    """A prompt that asks `text`, as a chat with one user turn or as plain text."""
    return Prompt(id=id, messages=user_message(text), **rest) if as_chat else Prompt(id=id, text=text, **rest)  # type: ignore[arg-type]
