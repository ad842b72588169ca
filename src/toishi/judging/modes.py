"""Scores for the answers of a group: each alone, by the probabilities of score tokens, or all together.

Decisions:
1. An expected score is E[s] = sum s p(s) / sum p(s) over the score tokens. Where they have less than `min_mass` of the
   probability the judge was about to say something else, and there is no score (`low_mass`).
2. Answers judged together are shown in an order drawn from their own texts and the repeat's number, so that no member of a
   group has a favoured place. Each gets a score; the count must match, or the whole group has none. Identical texts get the
   mean of what their places got: a difference between them is the judge's, and would be paid as the answers'.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from toishi.judging.base import JudgeReply
from toishi.judging.forms import ReplyForm, probability_form, score_form, scores_form
from toishi.judging.objects import Unreadable
from toishi.judging.panel import Opinion, Panel, Question, mapped, opinion_of
from toishi.judging.parse import Form, read_reply
from toishi.judging.questions import Matter, Template, ask_about
from toishi.judging.quoting import tag_of
from toishi.judging.scale import Scale

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How a judge is asked: what, on which scale, in which form, by whom.

    again  0 for the first time a group is judged, k for the k-th time more
    """

    template: Template
    scale: Scale
    panel: Panel
    form: Form = "json"
    max_tokens: int = 512
    temperature: float = 0.0
    min_mass: float = 0.5
    again: int = 0

    def ask_for(
        self, matter: Matter, answers: Sequence[str], form: ReplyForm, read: Callable[[JudgeReply], T]
    ) -> Callable[[int], Question[T]]:
        """The question about `answers` in this order, for whichever repeat."""

        def make(repeat: int) -> Question[T]:
            call = ask_about(
                self.template,
                matter,
                answers,
                form,
                repeat=repeat,
                max_tokens=self.max_tokens,
                temperature=self.temperature,
            )
            return Question(call=call, read=read, once=bool(form.choices))

        return make


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The expected score, and the probabilities that it was taken from."""

    score: float
    mass: float
    probabilities: Mapping[str, float]


def judge_alone(manner: Manner, matter: Matter, answers: Sequence[str]) -> list[Opinion]:
    """Each answer scored by itself: one call for each (times repeats, times judges)."""
    form, scale = score_form(manner.scale, manner.form), manner.scale

    def read(reply: JudgeReply) -> float:
        reading = read_reply(reply.text, scale, form=manner.form, finish_reason=reply.finish_reason)
        if reading.score is None:
            raise Unreadable(reading.error, reading.why)
        if manner.form != "json":
            manner.panel.tally.add(f"read_as_{manner.form}")
        return reading.score

    heard = manner.panel.ask([manner.ask_for(matter, [answer], form, read) for answer in answers], again=manner.again)
    return [opinion_of(one, scale.to_reward, lambda score: f"score {score:g} of {scale}") for one in heard]


def judge_by_probability(manner: Manner, matter: Matter, answers: Sequence[str]) -> list[Opinion]:
    """Each answer scored by itself from the probabilities of the score tokens: one token is asked for and no words."""
    form, scale = probability_form(manner.scale), manner.scale

    def said(value: Expected) -> str:
        likely = sorted(value.probabilities.items(), key=lambda item: -item[1])
        listed = ", ".join(f"{choice}: {p:.3f}" for choice, p in likely if p >= 0.0005)
        return f"expected {value.score:.4g} of {scale} ({listed}; together {value.mass:.3f})"

    def read(reply: JudgeReply) -> Expected:
        return expected_score(reply.probabilities, scale, manner.min_mass)

    heard = manner.panel.ask([manner.ask_for(matter, [answer], form, read) for answer in answers], again=manner.again)
    return [opinion_of(one, lambda value: scale.to_reward(value.score), said) for one in heard]


def expected_score(probabilities: Mapping[str, float] | None, scale: Scale, min_mass: float) -> Expected:
    """E[s] = sum s p(s) / sum p(s) over the scale's choices. Raises Unreadable.

    >>> expected_score({"1": 0.2, "2": 0.2, "3": 0.4}, Scale.read("1-3"), 0.5).score
    2.25
    """
    choices = scale.choices or {}
    if probabilities is None:
        raise Unreadable("no_probabilities", "the judge gave no probabilities of its next token")
    of_choices = {choice: probabilities.get(choice, 0.0) for choice in choices}
    mass = math.fsum(of_choices.values())
    if not math.isfinite(mass) or min(of_choices.values()) < 0 or mass > 1.001:
        raise Unreadable("not_finite", f"the probabilities of the score tokens are none: {of_choices}")
    if mass < min_mass or mass == 0:
        raise Unreadable("low_mass", f"the score tokens have probability {mass:.3f} together, below {min_mass:g}")
    score = math.fsum(choices[choice] * p for choice, p in of_choices.items()) / mass
    return Expected(score=score, mass=mass, probabilities=of_choices)


def judge_together(manner: Manner, matter: Matter, answers: Sequence[str]) -> list[Opinion]:
    """All answers in one call, a score for each: one call a group (times repeats, times judges)."""
    count, scale = len(answers), manner.scale
    form = scores_form(scale, count)

    def make(repeat: int) -> Question[tuple[tuple[float, int], ...]]:
        order = shuffled(answers, repeat)

        def read(reply: JudgeReply) -> tuple[tuple[float, int], ...]:
            reading = read_reply(reply.text, scale, candidates=count, finish_reason=reply.finish_reason)
            if reading.error:
                raise Unreadable(reading.error, reading.why)
            of_member = dict(zip(order, reading.scores, strict=True))
            alike = [[of_member[other] for other in order if answers[other] == answers[member]] for member in range(count)]
            return tuple((statistics.fmean(scores), order.index(member) + 1) for member, scores in enumerate(alike))

        return manner.ask_for(matter, [answers[member] for member in order], form, read)(repeat)

    (heard,) = manner.panel.ask([make], again=manner.again)

    def of_member(member: int) -> Opinion:
        of_it = [[mapped(one, lambda shown: shown[member]) for one in replies] for replies in heard]
        return opinion_of(
            of_it,
            lambda shown: scale.to_reward(shown[0]),
            lambda shown: f"score {shown[0]:g} of {scale} as answer {shown[1]} of {count}",
        )

    return [of_member(member) for member in range(count)]


def shuffled(answers: Sequence[str], repeat: int) -> list[int]:
    """The members in the order in which they are shown: a function of the answers and the repeat's number.

    >>> sorted(shuffled(["a", "b", "c"], 0)), shuffled(["a", "b", "c"], 0) == shuffled(["a", "b", "c"], 0)
    ([0, 1, 2], True)
    """
    order = list(range(len(answers)))
    random.Random(f"{tag_of(answers)} {repeat}").shuffle(order)
    return order
