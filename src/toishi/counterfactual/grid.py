"""All questions that a page answers of one group, asked beforehand: each answer with a row of scores, and left out.

Decisions:
1. Every case is what `answering.answer` says of it; nothing is interpolated between two scores.
2. The recorded score is a case too: the real step itself, which needs no forecast.
3. A reward that declares no range gets that of the scores seen in the step, or 0 to 1 where all of them lie inside.
4. A page must stay small, so a large group gets fewer scores for each answer, and then fewer answers.
"""

from __future__ import annotations

import math
from dataclasses import replace

from toishi.counterfactual.advantages import group_of
from toishi.counterfactual.answering import answer, verdict
from toishi.counterfactual.change import Change, change_of
from toishi.counterfactual.model import AnswerChange, WhatIf
from toishi.counterfactual.ranges import Range
from toishi.counterfactual.recorded import RecordedStep, read_step
from toishi.errors import ConfigError, RecordError
from toishi.explanation.chain.model_whatif import AskedAnswer, Case, LeftOut, Slider, WhatIfs
from toishi.record import Run

MOST_SCORES, LEAST_SCORES = 11, 5
MOST_CASES, MOST_LINES = 400, 5500
"""Limits of a page: questions (about 10 ms each), and answers over all questions (about 100 bytes each)."""
_NICE = (1.0, 2.0, 2.5, 5.0, 10.0, 20.0)
_SAME = 1e-9


def whatifs_of(run: Run, step: int, group: int, *, first: int | None = None, update: int = 0) -> WhatIfs:
    """The questions about `group` and their answers; of a group without scores there are none.

    first   the answer that has its questions even where not all can have them
    update  which optimizer update is asked about
    """
    try:
        recorded = read_step(run, step, group)
    except (RecordError, ConfigError) as error:
        return WhatIfs(impossible=str(error))
    return _Asking(recorded, group, update).all(first)


class _Asking:
    """One group of a recorded step, under questions."""

    def __init__(self, step: RecordedStep, group: int, update: int) -> None:
        self.step, self.group, self.update = step, group, update
        rollouts = group_of(step.groups, group).rollouts
        self.members = [rollout.id.member for rollout in rollouts]
        self.rewards = tuple(dict.fromkeys(score.reward for rollout in rollouts for score in rollout.scores))

    def all(self, first: int | None) -> WhatIfs:
        """Every slider, and every answer left out."""
        if not self.rewards:
            return WhatIfs(update=self.update, num_updates=self.step.num_updates)
        members, count = self._chosen(first)
        now = self._ask(Change())
        sliders = tuple(self._slider(member, reward, count, now) for member in members for reward in self.rewards)
        left_out = tuple(self._left_out(member) for member in members)
        asked = [case for slider in sliders for case in slider.cases if case.option]
        asked += [one.case for one in left_out if one.case is not None]
        reasons = {case.refused for case in asked}
        return WhatIfs(
            before=_real(now, self.rewards[0]).answers,
            sliders=sliders,
            left_out=left_out,
            rewards=self.rewards,
            refused=reasons.pop() if len(reasons) == 1 else "",
            update=self.update,
            num_updates=self.step.num_updates,
            passed_over=tuple(member for member in self.members if member not in members),
        )

    def _ask(self, change: Change) -> WhatIf:
        return answer(self.step, self.group, change, update=self.update)

    def _chosen(self, first: int | None) -> tuple[list[int], int]:
        """Answers that get questions, and how many scores each gets."""
        num_members, num_rewards = len(self.members), len(self.rewards)
        cases = min(MOST_CASES, MOST_LINES // num_members)
        count = min(MOST_SCORES, max(LEAST_SCORES, (cases // num_members - 1) // num_rewards))
        kept = max(1, cases // (num_rewards * count + 1))
        return sorted(sorted(self.members, key=lambda member: member != first)[:kept]), count

    def _slider(self, member: int, reward: str, count: int, now: WhatIf) -> Slider:
        real = _real(now, reward)
        recorded = next(each.score for each in real.answers if each.member == member)
        real = replace(real, score=recorded)
        low, high, declared = self._range(reward)
        cases, why_not = [real], ""
        try:
            for score in scores_between(low, high, count):
                if recorded is None or abs(score - recorded) > _SAME * max(1.0, abs(score)):
                    cases.append(self._scored(member, reward, score))
        except ConfigError as error:
            cases, why_not = [real], str(error)
        cases.sort(key=lambda case: -math.inf if case.score is None else case.score)
        return Slider(
            member=member,
            reward=reward,
            recorded=recorded,
            low=low,
            high=high,
            declared=declared,
            cases=tuple(cases),
            why_not=why_not,
        )

    def _scored(self, member: int, reward: str, score: float) -> Case:
        name = f"{reward}:" if len(self.rewards) > 1 else ""
        found = self._ask(change_of({(reward, member): score}))
        return _case(found, reward, score=score, option=f"--score {name}{member}={score:.12g}")

    def _left_out(self, member: int) -> LeftOut:
        try:
            found = self._ask(change_of(drop=[member]))
        except ConfigError as error:
            return LeftOut(member=member, case=None, why_not=str(error))
        return LeftOut(member=member, case=_case(found, self.rewards[0], score=None, option=f"--drop {member}"))

    def _range(self, reward: str) -> tuple[float, float, bool]:
        """Lowest and highest score that is asked about, and whether the reward declares them."""
        stated = self.step.ranges.get(reward, Range())
        if stated.low is not None and stated.high is not None:
            return stated.low, stated.high, True
        seen = [
            score.value
            for rollout in self.step.report.rollouts
            for score in rollout.scores
            if score.reward == reward and score.value is not None
        ]
        low, high = min(seen, default=0.0), max(seen, default=1.0)
        if low >= 0.0 and high <= 1.0:
            return 0.0, 1.0, False
        return (low, high, False) if low < high else (low - 1.0, high + 1.0, False)


def scores_between(low: float, high: float, most: int) -> list[float]:
    """From the lowest to the highest score in even steps that a person would choose, at most `most` of them.

    >>> scores_between(1.0, 10.0, 11), scores_between(0.0, 1.0, 5)
    ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0], [0.0, 0.25, 0.5, 0.75, 1.0])
    >>> scores_between(-3.7, 8.2, 6)
    [-3.7, 0.0, 5.0, 8.2]
    """
    unit = 10.0 ** math.floor(math.log10((high - low) / most))
    for step in (unit * nice for nice in _NICE):
        first, last = math.floor(low / step + _SAME) + 1, math.ceil(high / step - _SAME) - 1
        if last - first + 3 <= most:
            break
    digits = max(0, 2 - math.floor(math.log10(step)))
    return [low, *(round(place * step, digits) for place in range(first, last + 1)), high]


def _real(now: WhatIf, reward: str) -> Case:
    """The real step as a case: what was measured stands where others have a forecast."""
    found = _case(now, reward, score=None, option="")
    answers = []
    for each, one in zip(found.answers, now.answers, strict=True):
        measured, width = one.moved.measured, None if one.moved.measured is None else 0.0
        answers.append(replace(each, forecast=measured, half_width=width, verdict=verdict(measured, width)))
    return replace(found, refused="", answers=tuple(answers))


def _case(found: WhatIf, reward: str, *, score: float | None, option: str) -> Case:
    return Case(
        score=score,
        option=option,
        refused=found.refused,
        trust=found.trust,
        tied=found.tied,
        skipped=found.skipped,
        clip_factor=found.clip_factor,
        answers=tuple(_answer(each, reward) for each in found.answers),
    )


def _answer(each: AnswerChange, reward: str) -> AskedAnswer:
    scores = {score.reward: score.after for score in each.scores}
    advantage = each.advantage_after
    return AskedAnswer(
        member=each.member,
        score=scores.get(reward),
        reward=each.reward_after,
        advantage=sum(advantage) / max(1, len(advantage)) if isinstance(advantage, tuple) else advantage,
        left_out=each.left_out,
        forecast=each.moved.forecast,
        half_width=each.moved.half_width,
        verdict=each.moved.verdict,
    )
