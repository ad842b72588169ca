"""A task for tests and examples: the prompts you give, in the order you give them."""

from __future__ import annotations

from collections.abc import Sequence

from toishi.types import Prompt


class ScriptedTask:
    """Training prompt number `index` is `prompts[index % len(prompts)]`; nothing is shuffled.

    Strings become plain-text prompts.

    >>> task = ScriptedTask(["one", "two"], heldout=["three"])
    >>> [task.train_prompt(index).text for index in range(3)], task.heldout_prompts()[0].text
    (['one', 'two', 'one'], 'three')
    """

    def __init__(
        self,
        prompts: Sequence[Prompt | str],
        heldout: Sequence[Prompt | str] = (),
        *,
        name: str = "scripted",
        gold_column: str | None = None,
    ) -> None:
        self.name = name
        self.gold_column = gold_column
        self._train = tuple(_prompt(f"train-{position}", prompt) for position, prompt in enumerate(prompts))
        self._heldout = tuple(_prompt(f"heldout-{position}", prompt) for position, prompt in enumerate(heldout))
        self.columns = frozenset(name for prompt in self._train for name in prompt.columns)
        self.num_train: int | None = len(self._train)

    def train_prompt(self, index: int) -> Prompt:
        return self._train[index % len(self._train)]

    def heldout_prompts(self) -> Sequence[Prompt]:
        return self._heldout


def _prompt(id: str, prompt: Prompt | str) -> Prompt:
    return Prompt(id=id, text=prompt) if isinstance(prompt, str) else prompt
