"""The seam between toishi and whatever model judges: calls in, replies or failures out, in order.

Decisions:
1. A judge only answers calls. What is asked (prompts) and how a reply is read (parse) are other modules: they are the same for
   a server, a model in this process and a script.
2. A call that failed is a `JudgeFailure` in its place, never an exception, so that its neighbours keep their replies. Only what
   no repeat can mend (a rejected key, an unknown model) is raised: `JudgeRefused` stops the run at once.
3. Retries of the transport (429, 500, time-out) belong to the judge; one more try after an unreadable reply belongs to the
   caller, who alone knows what is readable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from toishi.errors import RewardError
from toishi.types import FinishReason, Message

FailureKind = Literal["timed_out", "rate_limited", "server_error", "no_connection", "refused", "empty", "bad_reply"]


class JudgeRefused(RewardError):
    """The judge can never answer as it is configured: key rejected, no such model. The run stops at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeCall:
    """One question to a judge.

    messages     the chat to send
    prefix       text that the judge's own turn begins with (for example 'Rating: [['); "" = none
    choices      score tokens whose probabilities are wanted right after `prefix`, such as ("1", ..., "9"); () = words
    repeat       0, 1, 2, ... for repeated asking of the same question: part of the cache key and of the sampling seed
    max_tokens   limit of the reply, tokens
    temperature  0 = greedy
    json_schema  a JSON schema that the reply has to follow, sent where the server can enforce it; None = free text
    """

    messages: tuple[Message, ...]
    prefix: str = ""
    choices: tuple[str, ...] = ()
    repeat: int = 0
    max_tokens: int = 512
    temperature: float = 0.0
    json_schema: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What calls cost. `cost` is in the currency of the stated prices, None where no price is known."""

    calls: int = 0
    cached: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeReply:
    """What the judge said.

    text           its words, `prefix` not included; "" when only probabilities were asked for
    probabilities  probability of each of the call's `choices` as the next token, summed over its spellings (not normalised:
                   what is missing to 1 went to other tokens); None where the judge cannot give any
    """

    text: str
    finish_reason: FinishReason = "stop"
    probabilities: Mapping[str, float] | None = None
    cached: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeFailure:
    """Why there is no reply. `message` is for a person: what was tried, what came back."""

    kind: FailureKind
    message: str


@runtime_checkable
class Judge(Protocol):
    """Answers calls.

    name                unique, for records: model and where it runs
    gives_probabilities whether calls with `choices` are answered with probabilities

    A judge that computes in this process says `waits = False`: it is then not asked while the policy samples.
    """

    @property
    def name(self) -> str: ...

    @property
    def gives_probabilities(self) -> bool: ...

    def ask(self, calls: Sequence[JudgeCall]) -> list[JudgeReply | JudgeFailure]:
        """One reply or failure for each call, in order; callable from any thread. Raises JudgeRefused."""
        ...

    def usage(self) -> Usage:
        """Totals since the judge was made."""
        ...


@dataclass
class ScriptedJudge:
    """A judge for tests and examples: `script` in turn (a text, a reply, a failure), or a function of the call.

    >>> judge = ScriptedJudge(script=['{"reason": "good", "score": 7}', JudgeFailure(kind="timed_out", message="5 s")])
    >>> call = JudgeCall(messages=({"role": "user", "content": "?"},))
    >>> [type(answer).__name__ for answer in judge.ask([call, call, call])]
    ['JudgeReply', 'JudgeFailure', 'JudgeReply']
    """

    script: Sequence[str | JudgeReply | JudgeFailure] | Callable[[JudgeCall], str | JudgeReply | JudgeFailure]
    name: str = "scripted"
    gives_probabilities: bool = False
    asked: list[JudgeCall] = field(default_factory=list)

    def ask(self, calls: Sequence[JudgeCall]) -> list[JudgeReply | JudgeFailure]:
        answers: list[JudgeReply | JudgeFailure] = []
        for call in calls:
            said = self.script(call) if callable(self.script) else self.script[len(self.asked) % len(self.script)]
            self.asked.append(call)
            answers.append(JudgeReply(text=said) if isinstance(said, str) else said)
        return answers

    def usage(self) -> Usage:
        return Usage(calls=len(self.asked))
