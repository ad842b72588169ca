"""`rubric`: a judge checks an answer against weighted criteria, one by one with quotations, or scores it by all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from toishi.errors import ConfigError
from toishi.judging.base import JudgeReply
from toishi.judging.forms import forged_reply, forged_verdicts, verdicts_form
from toishi.judging.modes import Manner, judge_alone, judge_by_probability
from toishi.judging.panel import Heard, Opinion, Question, opinion_of
from toishi.judging.questions import Matter
from toishi.judging.rubrics import Rubric, lint_rubric, load_rubric, read_rubric
from toishi.judging.verdicts import Verdict, read_verdicts
from toishi.rewards.judged import JudgedReward
from toishi.types import Prompt

Verdicts = tuple[Verdict, ...]
MAX_LINT_LINES = 8


@dataclass(frozen=True, kw_only=True)
class RubricReward(JudgedReward):
    """What an answer is worth by criteria: the weights of those that are met over the sum of the positive weights.

    criteria       the rubric in the recipe: a list of {title, check, weight, quote}
    rubric         the rubric in a YAML file: {criteria: [...]}
    rubric_column  the rubric of each prompt, in a column of the data
    mode           "explicit": a verdict on every criterion in one call an answer; "each": one call a criterion; "holistic": one
                   score with the rubric before the judge's eyes; "expected": the same from the score tokens' probabilities

    A criterion that is met is shown by words of the answer, or the verdict does not count as read. The reason holds one line
    for each criterion; `toishi.judging.rubrics.verdict_lines` reads them. Further options: `JudgedReward`.

    >>> from toishi.judging import ScriptedJudge
    >>> from toishi.rewards.scripted import answered
    >>> judge = ScriptedJudge(script=['{"verdicts": [{"criterion": 1, "evidence": "Paris", "met": true}]}'])
    >>> criteria = ({"title": "city", "check": "The answer names Paris."},)
    >>> reward = RubricReward(judge=judge, criteria=criteria, probe="off")
    >>> ((judgement,),) = reward.score_group(Prompt(id="a", text="Capital of France?"), [answered("It is Paris.")])
    >>> print(judgement.reason.splitlines()[0])
    1 of 1: met: city
    """

    name: str = "rubric"
    criteria: tuple[Mapping[str, Any], ...] = ()
    rubric: str | None = None
    rubric_column: str | None = None
    mode: Literal["explicit", "each", "holistic", "expected"] = "explicit"
    _fixed: Rubric | None = field(init=False, repr=False, compare=False, default=None)
    _doubts: list[str] = field(init=False, repr=False, compare=False, default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        where = f"reward '{self.name}'"
        if sum([bool(self.criteria), self.rubric is not None, self.rubric_column is not None]) != 1:
            raise ConfigError(
                f"{where}: give one of criteria (a list), rubric (a YAML file) and rubric_column (one for each prompt)"
            )
        if self.criteria:
            object.__setattr__(self, "_fixed", read_rubric(self.criteria, where=f"{where}.criteria"))
        elif self.rubric is not None:
            object.__setattr__(self, "_fixed", load_rubric(self.rubric, where=f"{where}.rubric"))
        if self._fixed is not None:
            self._doubts.extend(lint_rubric(self._fixed))
        if "criteria" not in self._template.places:
            raise ConfigError(
                f"{where}.prompt: '{self._template.name}' has no place {{{{criteria}}}}, so the judge would not see them"
            )
        if not self.gives_score and self.scale is not None:
            raise ConfigError(f"{where}.scale: verdicts have no scale; leave it out, or give mode: holistic")

    @property
    def columns(self) -> tuple[str, ...]:
        return (*super().columns, *([] if self.rubric_column is None else [self.rubric_column]))

    @property
    def default_prompt(self) -> str:
        """The template where the recipe names none."""
        return "rubric" if self.gives_score else "criteria"

    @property
    def gives_score(self) -> bool:
        """Whether the judge gives one score by the whole rubric, and no verdicts."""
        return self.mode in ("holistic", "expected")

    @property
    def by_probability(self) -> bool:
        """Whether score tokens' probabilities are read instead of words."""
        return self.mode == "expected"

    @property
    def takes_form(self) -> bool:
        """Whether a reply's form may be chosen."""
        return self.mode == "holistic"

    def rubric_of(self, prompt: Prompt) -> Rubric:
        """The rubric of this prompt. Raises ConfigError when its column holds none."""
        if self._fixed is not None:
            return self._fixed
        assert self.rubric_column is not None
        return read_rubric(prompt.columns.get(self.rubric_column), where=f"column '{self.rubric_column}'")

    def problem(self, prompt: Prompt) -> str | None:
        """Why this prompt could not be judged, or None."""
        try:
            self.rubric_of(prompt)
        except ConfigError as error:
            return str(error)
        return super().problem(prompt)

    def opinions(self, prompt: Prompt, answers: Sequence[str], *, again: int, beaten: int) -> list[Opinion]:
        """One opinion for each of `answers`."""
        rubric, manner = self.rubric_of(prompt), self.manner(again)
        if self.gives_score:
            score = judge_by_probability if self.by_probability else judge_alone
            return score(manner, self.matter(prompt, criteria=rubric.listed(weights=True)), answers)
        parts = [rubric] if self.mode == "explicit" else [Rubric((one,)) for one in rubric.criteria]
        makers = [
            _checking(manner, self.matter(prompt, criteria=part.listed()), answer, part) for answer in answers for part in parts
        ]
        heard = self._panel.ask(makers, again=again)
        of_answers = [heard[start : start + len(parts)] for start in range(0, len(heard), len(parts))]
        return [_opinion(rubric, of_answer) for of_answer in of_answers]

    def lowest(self, prompt: Prompt) -> float:
        """The value of an answer without text: it has no merit, and is not to gain by having no fault either."""
        return 0.0 if self.gives_score else self.rubric_of(prompt).lowest

    def forged(self, prompt: Prompt) -> str:
        """A reply of the judge's own form with the best verdict, as an answer would forge it."""
        if self.gives_score:
            return forged_reply(self.stated_scale)
        return forged_verdicts([one.weight > 0 for one in self.rubric_of(prompt).criteria])

    def instructions(self, prompt: Prompt) -> str:
        """What an answer copies that hopes to be judged by the rubric's own words."""
        return self.rubric_of(prompt).listed()

    def prepare(self, prompts: Sequence[Prompt]) -> None:
        """Looks at the rubrics of `prompts`, checks the judges and probes them. Raises JudgeRefused; ConfigError to refuse."""
        if self._fixed is None:
            found = (f"prompt {prompt.id}: {line}" for prompt in prompts for line in lint_rubric(self.rubric_of(prompt)))
            self._doubts[:] = list(dict.fromkeys(found))
        super().prepare(prompts)

    def notes(self) -> list[str]:
        """What a group costs, what is doubtful about the rubric, and what was found about the judges."""
        calls = self.repeats * len(self._panel.judges)
        cost = (
            f"Calls: {calls} for each criterion of each answer." if self.mode == "each" else f"Calls: {calls} for each answer."
        )
        more = len(self._doubts) - MAX_LINT_LINES
        rest = [f"rubric: {more} more doubts of this kind."] if more > 0 else []
        return [cost, *(f"rubric: {line}." for line in self._doubts[:MAX_LINT_LINES]), *rest, *super().notes()]


def _checking(manner: Manner, matter: Matter, answer: str, rubric: Rubric) -> Callable[[int], Question[Verdicts]]:
    """The question whether `answer` meets the criteria of `rubric`."""
    needs_evidence = [one.quote for one in rubric.criteria]

    def read(reply: JudgeReply) -> Verdicts:
        return read_verdicts(reply.text, answer, needs_evidence, reply.finish_reason)

    return manner.ask_for(matter, [answer], verdicts_form(len(rubric.criteria)), read)


def _opinion(rubric: Rubric, of_parts: Sequence[Sequence[Sequence[Heard[Verdicts]]]]) -> Opinion:
    """One opinion of the verdicts on the parts of a rubric, indexed [part][judge][repeat]."""
    heard = [[_joined(parts) for parts in zip(*of_judge, strict=True)] for of_judge in zip(*of_parts, strict=True)]

    def said(verdicts: Verdicts) -> str:
        met = [one.title for one, verdict in zip(rubric.criteria, verdicts, strict=True) if verdict.met]
        return f"{rubric.reward(verdicts):.4g} of 1: met: {', '.join(met) or 'nothing'}"

    opinion = opinion_of(heard, rubric.reward, said)
    read = [rubric.lines(one.value) for replies in heard for one in replies if one.value is not None]
    head, _, words = opinion.words.partition("\n")
    return Opinion(value=opinion.value, words="\n".join([head, *read, "the judge's words:", words]), error=opinion.error)


def _joined(parts: Sequence[Heard[Verdicts]]) -> Heard[Verdicts]:
    """The verdicts on all parts as one; a part that could not be read leaves none."""
    words = "\n".join(part.words for part in parts)
    verdicts: list[Verdict] = []
    for part in parts:
        if part.value is None:
            return Heard(judge=part.judge, value=None, words=words, error=part.error, why=part.why)
        verdicts.extend(part.value)
    return Heard(judge=parts[0].judge, value=tuple(verdicts), words=words)
