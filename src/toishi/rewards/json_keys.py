"""`json_keys`: the answer is a JSON object with exactly the asked-for keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from toishi.rewards.base import Judgement
from toishi.rewards.json_text import NotJson, read_json
from toishi.types import Completion, Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonKeysReward:
    """1 if the answer is one JSON object with exactly `keys`, each a non-empty text; else 0.

    A code fence around the object is allowed; other text beside it, a key given twice and NaN are not.
    require_stop  an answer cut off at the token limit is never right

    Traps: any text counts as a value. Types and allowed values are what `json_schema` checks.

    >>> from toishi.rewards.scripted import answered
    >>> prompt = Prompt(id="a", text="A dog, as JSON with the keys name and color")
    >>> texts = ['{"name": "Rex", "color": "brown"}', '{"name": "Rex"}', "Sure! {}"]
    >>> judged = JsonKeysReward(keys=("name", "color")).score_group(prompt, [answered(text) for text in texts])
    >>> [judgement.reason for (judgement,) in judged]
    ['the asked-for keys', "keys ['name'], asked for ['color', 'name']", 'not JSON']
    """

    keys: Annotated[tuple[str, ...], Field(min_length=1)]
    name: str = "json_keys"
    require_stop: bool = True

    @property
    def columns(self) -> tuple[str, ...]:
        return ()

    def score_group(self, prompt: Prompt, completions: Sequence[Completion]) -> list[tuple[Judgement, ...]]:
        return [(self._judge(completion),) for completion in completions]

    def _judge(self, completion: Completion) -> Judgement:
        if self.require_stop and completion.is_truncated:
            return Judgement(value=0.0, reason="cut off at the token limit", readable=False)
        try:
            found = read_json(completion.text)
        except NotJson as error:
            return Judgement(value=0.0, reason=str(error), readable=False)
        wrong = self._wrong(found)
        return Judgement(value=float(wrong is None), reason=wrong or "the asked-for keys", readable=True)

    def _wrong(self, found: Any) -> str | None:
        if not isinstance(found, dict):
            return f"JSON, but a {type(found).__name__} and not an object"
        if set(found) != set(self.keys):
            return f"keys {sorted(found)}, asked for {sorted(self.keys)}"
        empty = [key for key in self.keys if not isinstance(found[key], str) or not found[key].strip()]
        return f"the value of '{empty[0]}' is not a non-empty text" if empty else None
