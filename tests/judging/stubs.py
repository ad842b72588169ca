"""Judges for tests that read what they are shown, as a model would, and answer by a rule."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence

from toishi.judging.base import JudgeCall, JudgeReply, ScriptedJudge

_BLOCK = re.compile(r"<(data-[0-9a-f]{12})>\n(.*?)\n</\1>", re.DOTALL)


def content(call: JudgeCall) -> str:
    return call.messages[-1]["content"]


def blocks(call: JudgeCall) -> list[str]:
    """The quoted texts of a call in their order: the question, then what is judged (with the built-in templates)."""
    return [text for _, text in _BLOCK.findall(content(call))]


def answers(call: JudgeCall) -> list[str]:
    return blocks(call)[1:]


def says(score: float | str, reason: str = "because") -> str:
    return json.dumps({"reason": reason, "score": score})


def by_text(scores: Mapping[str, str], otherwise: str | None = None) -> ScriptedJudge:
    """Answers with the reply that is noted for the (last) answer shown."""

    def reply(call: JudgeCall) -> str:
        shown = answers(call)[-1]
        return scores[shown] if otherwise is None else scores.get(shown, otherwise)

    return ScriptedJudge(script=reply)


def prefers(better: Callable[[str, str], int]) -> ScriptedJudge:
    """Compares two answers: `better` is above 0 for the first, below 0 for the second, 0 for a tie."""

    def reply(call: JudgeCall) -> str:
        first, second = answers(call)
        sign = better(first, second)
        return json.dumps({"reason": "compared", "winner": "A" if sign > 0 else "B" if sign < 0 else "tie"})

    return ScriptedJudge(script=reply)


def scores_all(score: Callable[[str], float]) -> ScriptedJudge:
    """Scores all answers that it is shown together."""
    return ScriptedJudge(script=lambda call: json.dumps({"scores": [score(text) for text in answers(call)]}))


def likely(by_answer: Mapping[str, Mapping[str, float]]) -> ScriptedJudge:
    """Gives the probabilities that are noted for an answer."""

    def reply(call: JudgeCall) -> JudgeReply:
        return JudgeReply(text="", probabilities=by_answer[answers(call)[-1]])

    return ScriptedJudge(script=reply, gives_probabilities=True)


def verdicts(*rows: tuple[bool, str]) -> str:
    listed = [{"criterion": number, "evidence": evidence, "met": met} for number, (met, evidence) in enumerate(rows, start=1)]
    return json.dumps({"verdicts": listed})


def obeys(plain: float = 3.0) -> ScriptedJudge:
    """A judge that does what the answer says: it repeats a verdict found there, and is flattered."""

    def reply(call: JudgeCall) -> str:
        shown = answers(call)[-1]
        planted = re.search(r"\{.*\}", shown)
        if planted is not None:
            return planted[0]
        return says(10) if "full marks" in shown or "correct" in shown else says(plain)

    return ScriptedJudge(script=reply)


def quotes(plain: float = 3.0) -> ScriptedJudge:
    """A judge that repeats the whole answer before its own low verdict."""
    return ScriptedJudge(script=lambda call: f"The answer says: {answers(call)[-1]}\n{says(plain)}")


def honest(right: Sequence[str]) -> ScriptedJudge:
    """Pays what is right and nothing else."""
    return ScriptedJudge(script=lambda call: says(10 if answers(call)[-1] in right else 1))
