"""`judge`: a language model scores the answers, each alone, by score tokens, in pairs, or the whole group together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from toishi.errors import ConfigError, RewardError
from toishi.judging.forms import forged_reply
from toishi.judging.modes import judge_alone, judge_by_probability, judge_together
from toishi.judging.pairs import Met, meet, pairs_of, win_rates
from toishi.judging.panel import Opinion
from toishi.judging.quoting import has_text
from toishi.rewards.base import Comparison
from toishi.rewards.judged import JudgedReward
from toishi.types import Completion, Prompt


@dataclass(frozen=True, kw_only=True)
class JudgeReward(JudgedReward):
    """What a judge gives, from 0 (the lowest score) to 1 (the highest): (score - low) / (high - low), or a win rate.

    mode           "absolute": each answer alone; "expected": each alone, the mean over the score tokens' probabilities;
                   "pairwise": the share of siblings that it wins against; "ranking": all in one call, a score for each
    anchor_column  pairwise: compare with this column's answer instead of the siblings
    max_calls      pairwise: at most this many calls for one group

    A judge that fails or cannot be read gives no score (status "failed"), never 0. Further options: `JudgedReward`.

    >>> from toishi.judging import ScriptedJudge
    >>> from toishi.rewards.scripted import answered
    >>> judge = ScriptedJudge(script=['{"reason": "Right.", "score": 10}', '{"reason": "No.", "score": 5.5}', "Well...", "Hm."])
    >>> reward = JudgeReward(judge=judge, probe="off")
    >>> judged = reward.score_group(Prompt(id="a", text="2 + 2?"), [answered("4"), answered("5"), answered("four")])
    >>> [(judgement.value, judgement.status, judgement.kind) for (judgement,) in judged]
    [(1.0, 'ok', ''), (0.5, 'ok', ''), (None, 'failed', 'no_json')]
    """

    mode: Literal["absolute", "expected", "pairwise", "ranking"] = "absolute"
    anchor_column: str | None = None
    max_calls: Annotated[int, Field(ge=2)] = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        where = f"reward '{self.name}'"
        if "criteria" in self._template.places:
            raise ConfigError(f"{where}.prompt: '{self._template.name}' has a place for criteria; the reward `rubric` fills it")
        if self.anchor_column is not None and self.mode != "pairwise":
            raise ConfigError(f"{where}.anchor_column: an anchor is compared with in mode: pairwise, the mode is {self.mode}")

    @property
    def columns(self) -> tuple[str, ...]:
        return (*super().columns, *([] if self.anchor_column is None else [self.anchor_column]))

    @property
    def by_probability(self) -> bool:
        """Whether score tokens' probabilities are read instead of words."""
        return self.mode == "expected"

    @property
    def takes_form(self) -> bool:
        """Whether a reply's form may be chosen."""
        return self.mode == "absolute"

    @property
    def compares_members(self) -> bool:
        """Whether an answer's value is a share of wins over its siblings."""
        return self.mode == "pairwise" and self.anchor_column is None

    def problem(self, prompt: Prompt) -> str | None:
        """Why this prompt could not be judged, or None."""
        if self.anchor_column is not None and not has_text(str(prompt.columns.get(self.anchor_column) or "")):
            return f"the column '{self.anchor_column}', which answers are compared with, is empty"
        return super().problem(prompt)

    def opinions(self, prompt: Prompt, answers: Sequence[str], *, again: int, beaten: int) -> list[Opinion]:
        """One opinion for each of `answers`."""
        if not answers:
            return []
        if self.mode == "pairwise":
            met = self._meet(prompt, answers, again)
            if self.anchor_column is not None:
                return win_rates(met, len(answers) + 1, names=["an answer"] * len(answers) + ["the anchor"])[: len(answers)]
            return win_rates(met, len(answers), beaten=beaten)
        ways = {"absolute": judge_alone, "expected": judge_by_probability, "ranking": judge_together}
        return ways[self.mode](self.manner(again), self.matter(prompt), answers)

    def comparisons(self, prompt: Prompt, completions: Sequence[Completion], repeat: int) -> list[Comparison]:
        """What was said of each pair in each order, by each judge each time; empty in other modes than pairwise.

        Completions without text are not shown to the judge. An anchor has the place len(completions).
        """
        if self.mode != "pairwise":
            return []
        answers = self.seen(prompt, completions)
        places = [place for place, answer in enumerate(answers) if has_text(answer)] + [len(answers)]
        met = self._meet(prompt, [answer for answer in answers if has_text(answer)], repeat)
        return [
            Comparison(first=places[one.first], second=places[one.second], preferred=heard.value)
            for one in met
            for replies in one.heard
            for heard in replies
        ]

    def forged(self, prompt: Prompt) -> str:
        """A reply of the judge's own form with the best verdict, as an answer would forge it."""
        return forged_reply(self.stated_scale)

    def notes(self) -> list[str]:
        """What a group costs, what the probe found, and what the judges have to say about themselves."""
        return [self._cost(), *super().notes()]

    def _meet(self, prompt: Prompt, answers: Sequence[str], again: int) -> list[Met]:
        max_pairs = self.max_calls // (2 * self.repeats * len(self._panel.judges))
        manner = self.manner(again)
        if self.anchor_column is None:
            return meet(manner, self.matter(prompt), answers, pairs_of(len(answers), max_pairs))
        if len(answers) > max_pairs:
            raise RewardError(
                f"reward '{self.name}': max_calls={self.max_calls} is too few to compare {len(answers)} answers with the "
                "anchor in both orders; raise it, or lower the group size or the repeats"
            )
        pairs = [(place, len(answers)) for place in range(len(answers))]
        return meet(manner, self.matter(prompt), [*answers, str(prompt.columns[self.anchor_column])], pairs)

    def _cost(self) -> str:
        each = self.repeats * len(self._panel.judges)
        asked = f", {self.repeats} times" if self.repeats > 1 else ""
        asked += f", by {len(self._panel.judges)} judges" if len(self._panel.judges) > 1 else ""
        if self.mode == "ranking":
            return f"Calls: {each} for a group (all answers together{asked})."
        if self.mode != "pairwise":
            return f"Calls: {each} for each answer{asked}."
        if self.anchor_column is not None:
            return (
                f"Calls: {2 * each} for each answer (with the anchor in both orders{asked}), at most {self.max_calls} a group."
            )
        return (
            f"Calls: {each} x G x (G-1) for a group of G (every pair in both orders{asked}). Where that is more than "
            f"max_calls={self.max_calls}, answers meet only their next neighbours."
        )
