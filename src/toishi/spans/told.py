"""What a tracer of inferences is told of an answer, and what it has to be able to do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from toishi.engines.base import Request, Sampling
from toishi.types import Completion, Message, Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One answer of a model.

    model     as the person named it
    messages  what was asked: the chat, or () for plain text, which is then in `text`
    input_tokens, output_tokens  of the rendered prompt; of the answer, with the token that ended it
    temperature  0.0 where the most likely token was taken each time
    key       what alone decides the answer's random numbers, such as (seed, stream, step, group, member)
    started_ns, ended_ns  Unix time; answers of a batch are decoded together, so theirs overlap
    """

    model: str
    prompt_id: str
    messages: tuple[Message, ...]
    text: str
    answer: str
    finish_reason: str
    input_tokens: int
    output_tokens: int
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    max_tokens: int
    stop: tuple[str, ...]
    key: tuple[int, ...]
    started_ns: int
    ended_ns: int

    @property
    def operation(self) -> str:
        """The name in OpenTelemetry's conventions for generative models: "chat" or "text_completion"."""
        return "chat" if self.messages else "text_completion"

    def attributes(self, *, with_content: bool = False) -> dict[str, Any]:
        """The span's attributes by OpenTelemetry's conventions for generative models, `toishi.*` beside them.

        with_content  also what was asked and answered, which the conventions leave out unless someone wants it
        """
        found: dict[str, Any] = {
            "gen_ai.operation.name": self.operation,
            "gen_ai.provider.name": "toishi",
            "gen_ai.request.model": self.model,
            "gen_ai.response.model": self.model,
            "gen_ai.request.temperature": self.temperature,
            "gen_ai.request.top_p": self.top_p,
            "gen_ai.request.max_tokens": self.max_tokens,
            "gen_ai.request.seed": self.key[0],
            "gen_ai.response.finish_reasons": (self.finish_reason,),
            "gen_ai.usage.input_tokens": self.input_tokens,
            "gen_ai.usage.output_tokens": self.output_tokens,
            "gen_ai.output.type": "text",
            "toishi.prompt.id": self.prompt_id,
            "toishi.request.key": self.key,
        }
        optional = {"gen_ai.request.top_k": self.top_k, "gen_ai.request.stop_sequences": self.stop, "toishi.min_p": self.min_p}
        found |= {name: value for name, value in optional.items() if value}
        return found | self._content() if with_content else found

    def _content(self) -> dict[str, str]:
        asked = self.messages or ({"role": "user", "content": self.text},)
        given = [_part("assistant", self.answer) | {"finish_reason": self.finish_reason}]
        return {
            "gen_ai.input.messages": json.dumps([_part(turn["role"], turn["content"]) for turn in asked], ensure_ascii=False),
            "gen_ai.output.messages": json.dumps(given, ensure_ascii=False),
        }


def _part(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": content}]}


class SpanTracer(Protocol):
    """Shows inferences elsewhere. Whatever it raises ends the telling, never an inference."""

    def start(self, name: str, facts: Mapping[str, str]) -> None:
        """Begins something that holds many answers, such as "compare"."""
        ...

    def send(self, told: Told) -> None:
        """One answer; answers come in the order in which they ended."""
        ...

    def close(self, error: str | None) -> None:
        """Everything was sent. `error`: what ended it early. Raises where not everything arrived."""
        ...


def told_of(
    model: str, prompt: Prompt, request: Request, sampling: Sampling, completion: Completion, *, started_ns: int, ended_ns: int
) -> Told:
    """An answer as it is told.

    >>> from toishi.rewards.scripted import answered
    >>> prompt, request = Prompt(id="a", text="2 + 2 ="), Request(prompt_ids=(7, 8, 9), key=(3, 0))
    >>> sampling = Sampling(max_new_tokens=8, greedy=True)
    >>> told = told_of("tiny", prompt, request, sampling, answered("4"), started_ns=1, ended_ns=2)
    >>> told.operation, told.input_tokens, told.output_tokens, told.temperature, told.attributes()["gen_ai.request.seed"]
    ('text_completion', 3, 2, 0.0, 3)
    """
    return Told(
        model=model,
        prompt_id=prompt.id,
        messages=prompt.messages or (),
        text=prompt.text or "",
        answer=completion.text,
        finish_reason=completion.finish_reason,
        input_tokens=len(request.prompt_ids),
        output_tokens=completion.num_tokens,
        temperature=0.0 if sampling.greedy else sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        max_tokens=sampling.max_new_tokens,
        stop=sampling.stop,
        key=request.key,
        started_ns=started_ns,
        ended_ns=ended_ns,
    )
