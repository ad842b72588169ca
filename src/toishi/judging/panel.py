"""Asking one judge or several, several times, and making one opinion of what they said.

Decisions:
1. A reply that cannot be read is asked for once more, with a line that says what was wrong with it. Then there is no score.
   Probabilities are not asked for again: they would be the same. Nor is a call that failed on its way: the judge tried that.
2. Repeats of one judge are alike, so the mean of those that could be read stands for all, if they are at least half.
   Different judges are not alike (one is stricter): if one of them has no score, the answer has none, since a mean over
   fewer judges would not compare with that of the siblings.
3. Repeat r of a group that is asked for the k-th time more has the number k * repeats + r: no two share a cached reply.
"""

from __future__ import annotations

import math
import statistics
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from toishi.judging.base import Judge, JudgeCall, JudgeFailure, JudgeReply
from toishi.judging.objects import Unreadable

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard(Generic[T]):
    """What one judge said to one call.

    value  what was read, None when nothing could be
    words  the reply in full (the last one, where it was asked twice); for a failed call the message
    error  a code for counting, "" when there is a value: timed_out, unreadable codes of `parse`, ...
    why    the same in words
    """

    judge: str
    value: T | None
    words: str
    error: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(Generic[T]):
    """A call and how its reply is read; `read` raises Unreadable. `once`: what cannot be read is not asked for again."""

    call: JudgeCall
    read: Callable[[JudgeReply], T]
    once: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """What a panel makes of one answer: a value between the ends of the scale's rewards, or why there is none."""

    value: float | None
    words: str
    error: str = ""


@dataclass
class Tally:
    """Counts of what went wrong; safe to share between threads."""

    _counts: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, key: str, count: int = 1) -> None:
        with self._lock:
            self._counts[key] += count

    def counts(self) -> dict[str, int]:
        with self._lock:
            return dict(self._counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Judges that are all asked the same, each `repeats` times.

    >>> from toishi.judging.base import ScriptedJudge
    >>> from toishi.judging.objects import last_object
    >>> panel = Panel(judges=(ScriptedJudge(script=["I think 4", '{"score": 4}']),))
    >>> call = JudgeCall(messages=({"role": "user", "content": "?"},))
    >>> (((heard,),),) = panel.ask([lambda repeat: Question(call=call, read=lambda reply: last_object(reply.text, "score"))])
    >>> heard.value, panel.usage()["asked_again"], panel.usage()["unreadable_no_json"]
    ({'score': 4}, 1.0, 1.0)
    """

    judges: tuple[Judge, ...]
    repeats: int = 1
    tally: Tally = field(default_factory=Tally)

    def ask(self, makers: Sequence[Callable[[int], Question[T]]], *, again: int = 0) -> list[list[list[Heard[T]]]]:
        """Every question (made for a repeat's number) to every judge, `repeats` times: indexed [question][judge][repeat].

        again  0 for the first time, k for the k-th time more
        """
        numbers = range(again * self.repeats, (again + 1) * self.repeats)
        questions = [maker(number) for maker in makers for number in numbers]
        if not questions:
            return []
        if len(self.judges) == 1:
            by_judge = [self._ask_one(self.judges[0], questions)]
        else:
            with ThreadPoolExecutor(len(self.judges)) as pool:
                by_judge = list(pool.map(lambda judge: self._ask_one(judge, questions), self.judges))
        starts = range(0, len(questions), self.repeats)
        return [[heard[start : start + self.repeats] for heard in by_judge] for start in starts]

    def usage(self) -> dict[str, float]:
        """Totals of all judges, and how many replies could not be read, by kind; `cost` where every judge knows its own."""
        used = [judge.usage() for judge in self.judges]
        totals: dict[str, float] = {
            "calls": sum(one.calls for one in used),
            "cached": sum(one.cached for one in used),
            "prompt_tokens": sum(one.prompt_tokens for one in used),
            "completion_tokens": sum(one.completion_tokens for one in used),
        }
        costs = [one.cost for one in used if one.cost is not None]
        if used and len(costs) == len(used):
            totals["cost"] = math.fsum(costs)
        return totals | {key: float(count) for key, count in sorted(self.tally.counts().items())}

    def close(self) -> None:
        """Closes the judges that can be closed."""
        for judge in self.judges:
            close = getattr(judge, "close", None)
            if close is not None:
                close()

    def _ask_one(self, judge: Judge, questions: Sequence[Question[T]]) -> list[Heard[T]]:
        replies = judge.ask([question.call for question in questions])
        heard = [self._hear(judge, question, reply) for question, reply in zip(questions, replies, strict=True)]
        came = [isinstance(reply, JudgeReply) for reply in replies]
        unread = [place for place, one in enumerate(heard) if one.error and came[place] and not questions[place].once]
        if unread:
            self.tally.add("asked_again", len(unread))
            second = [replace(questions[place], call=_reminded(questions[place].call, heard[place])) for place in unread]
            for place, question, reply in zip(unread, second, judge.ask([one.call for one in second]), strict=True):
                heard[place] = self._hear(judge, question, reply)
        for one in heard:
            if one.error:
                self.tally.add("no_score")
        return heard

    def _hear(self, judge: Judge, question: Question[T], reply: JudgeReply | JudgeFailure) -> Heard[T]:
        if isinstance(reply, JudgeFailure):
            self.tally.add(f"failed_{reply.kind}")
            return Heard(judge=judge.name, value=None, words=reply.message, error=reply.kind, why=reply.message)
        try:
            return Heard(judge=judge.name, value=question.read(reply), words=reply.text)
        except Unreadable as error:
            self.tally.add(f"unreadable_{_counted(error.code)}")
            return Heard(judge=judge.name, value=None, words=reply.text, error=error.code, why=error.why)


def opinion_of(heard: Sequence[Sequence[Heard[T]]], number: Callable[[T], float], said: Callable[[T], str]) -> Opinion:
    """One opinion of all replies about one answer, indexed [judge][repeat]: the mean over judges of the means over repeats.

    number  the value of what was read; said  the same in words
    """
    words = _words(heard, said)
    means = []
    for replies in heard:
        values = [number(one.value) for one in replies if one.value is not None]
        if 2 * len(values) < len(replies) or not values:
            error = _commonest(replies)
            first = next(one for one in replies if one.error == error)
            return Opinion(value=None, words=f"no score ({error}): {first.why}\n{words}", error=_counted(error))
        means.append(statistics.fmean(values))
    value = statistics.fmean(means)
    count = sum(map(len, heard))
    head = said_once(heard, said) if count == 1 else f"mean {value:.4g} of {count} replies"
    return Opinion(value=value, words=f"{head}\n{words}".strip())


def said_once(heard: Sequence[Sequence[Heard[T]]], said: Callable[[T], str]) -> str:
    """What the first reply that could be read says."""
    return next((said(one.value) for replies in heard for one in replies if one.value is not None), "")


def mapped(heard: Heard[T], change: Callable[[T], U]) -> Heard[U]:
    """`heard` with another value made of its own.

    >>> mapped(Heard(judge="j", value=(1, 2), words="w"), sum).value
    3
    """
    value = None if heard.value is None else change(heard.value)
    return Heard(judge=heard.judge, value=value, words=heard.words, error=heard.error, why=heard.why)


def _words(heard: Sequence[Sequence[Heard[T]]], said: Callable[[T], str]) -> str:
    """All replies in full, each under a line with who said it where there are several."""
    if sum(map(len, heard)) == 1:
        return heard[0][0].words
    lines = []
    for replies in heard:
        for place, one in enumerate(replies, start=1):
            read = f"no score ({one.error})" if one.value is None else said(one.value)
            lines.append(f"[{one.judge}, reply {place} of {len(replies)}: {read}]\n{one.words}")
    return "\n".join(lines)


def _commonest(replies: Sequence[Heard[T]]) -> str:
    return Counter(one.error for one in replies if one.error).most_common(1)[0][0]


def _counted(code: str) -> str:
    """The code under which a kind is counted: expected_8_got_7 and its like are one kind."""
    return "wrong_count" if code.startswith("expected_") else code


def _reminded(call: JudgeCall, heard: Heard[T]) -> JudgeCall:
    """`call` with a line about the reply that could not be read; as another text it is another question to a cache.

    The line holds the code alone: `why` quotes the judge, who may quote the answer, whose words have to stay in their quotes.
    """
    *before, last = call.messages
    reminder = f"\n\nA first reply to this could not be read ({heard.error}). Reply again, exactly in the form asked for."
    return replace(call, messages=(*before, {**last, "content": last["content"] + reminder}))
