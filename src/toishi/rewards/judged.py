"""What the rewards `judge` and `rubric` share: the judges, which part of an answer they see, the probe, the costs.

Decisions:
1. With judge_part: answer only what stands outside the reasoning is judged; a reasoning that never ends leaves no answer. An
   answer without text (nothing, or only characters that nobody sees) gets the lowest value without a call: silence is not
   worth a judge's time, nor its mercy.
2. The probe is asked once, in `prepare`. refuse: a judge that pays for tricks or tells nothing apart stops the start. warn and
   off: it may train, and the notes say what was found or that nobody looked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from toishi.answers.reasoning import without_reasoning
from toishi.errors import ConfigError
from toishi.judging.base import Judge
from toishi.judging.modes import Manner
from toishi.judging.panel import Opinion, Panel
from toishi.judging.parse import Form
from toishi.judging.probe import ProbeReport, probe
from toishi.judging.questions import JudgePart, Matter, Template, load_template
from toishi.judging.quoting import has_text, question_of
from toishi.judging.scale import Scale
from toishi.rewards.base import Judgement
from toishi.rewards.reading import gold_of
from toishi.types import Completion, Prompt

SAMPLED = 0.7
EXPECTED_SCALE = "1-9"


@dataclass(frozen=True, kw_only=True)
class JudgedReward:
    """A reward that asks one judge or several; its fields are options that every such reward has.

    judge, judges  options of the judge (model, base_url, ...), or of several; `docs/judge.md` lists them
    prompt         a built-in template, or the path of a YAML file; null = the mode's own
    scale          range of scores, such as "1-10"; null = the template's
    judge_part     "answer": what stands outside the reasoning; "whole": everything; null = as the template says
    form           of a score in words: "json", or "rating" ([[7]]) or "last_line" for judges that cannot write JSON
    min_mass       of expected scores: score tokens with less probability together give no score
    gold_column    column of the right answer, where the template shows it; null = the task's gold
    repeats        how often each judge is asked the same; the mean counts
    temperature    of the judge's reply; null = 0 with one repeat, 0.7 with more
    max_tokens     limit of a reply, tokens
    probe          "refuse", "warn" or "off": what happens to a judge that pays for tricks, or tells nothing apart
    probe_prompts  how many prompts the probe is tried on
    """

    name: str = "judge"
    judge: Mapping[str, Any] | Judge | None = None
    judges: tuple[Mapping[str, Any] | Judge, ...] = ()
    prompt: str | None = None
    scale: str | None = None
    judge_part: JudgePart | None = None
    form: Form = "json"
    min_mass: Annotated[float, Field(gt=0, le=1)] = 0.5
    gold_column: str | None = None
    repeats: Annotated[int, Field(ge=1, le=1000)] = 1
    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] = 512
    probe: Literal["refuse", "warn", "off"] = "refuse"
    probe_prompts: Annotated[int, Field(ge=1)] = 4
    _panel: Panel = field(init=False, repr=False, compare=False)
    _template: Template = field(init=False, repr=False, compare=False)
    _reports: list[ProbeReport] = field(init=False, repr=False, compare=False, default_factory=list)

    def __post_init__(self) -> None:
        where = f"reward '{self.name}'"
        if self.temperature == 0 and self.repeats > 1:
            raise ConfigError(f"{where}: {self.repeats} repeats at temperature 0 are all the same; leave one of the two out")
        object.__setattr__(self, "_template", load_template(self.prompt or self.default_prompt, where=f"{where}.prompt"))
        object.__setattr__(self, "_panel", Panel(judges=self._built(where), repeats=self.repeats))
        if self.form != "json" and not self.takes_form:
            raise ConfigError(f"{where}.form: {self.form} is for one score in words; this mode has a form of its own")
        if self.by_probability:
            self._check_probabilities(where)
        elif self.stated_scale.letters:
            raise ConfigError(f"{where}.scale: letters are for mode: expected; give a range of numbers, got {self.scale!r}")

    @property
    def concurrent(self) -> bool:
        """Several groups may be judged at once: judges take calls from any thread."""
        return True

    @property
    def waits(self) -> bool:
        """Replies come from elsewhere, unless a judge computes in this process."""
        return all(getattr(judge, "waits", True) for judge in self._panel.judges)

    @property
    def columns(self) -> tuple[str, ...]:
        return () if self.gold_column is None else (self.gold_column,)

    @property
    def default_prompt(self) -> str:
        """The template where the recipe names none."""
        return "helpfulness"

    @property
    def stated_scale(self) -> Scale:
        """The range of scores that the judge is told; 1-9 for expected scores without one, since each has to be one token."""
        default = EXPECTED_SCALE if self.by_probability else self._template.scale
        return Scale.read(self.scale or default, where=f"reward '{self.name}'.scale")

    @property
    def by_probability(self) -> bool:
        """Whether score tokens' probabilities are read instead of words."""
        return False

    @property
    def takes_form(self) -> bool:
        """Whether a reply's form may be chosen."""
        return False

    @property
    def sees_gold(self) -> bool:
        """Whether the judge is shown the right answer."""
        return "reference" in self._template.places

    def problem(self, prompt: Prompt) -> str | None:
        """Why this prompt could not be judged, or None."""
        gold = gold_of(prompt, self.gold_column)
        if self.sees_gold and (gold is None or not has_text(str(gold))):
            return f"the template '{self._template.name}' shows the judge the right answer, and this row has none"
        return None

    def score_group(self, prompt: Prompt, completions: Sequence[Completion]) -> list[tuple[Judgement, ...]]:
        return self.score_group_again(prompt, completions, 0)

    def score_group_again(self, prompt: Prompt, completions: Sequence[Completion], repeat: int) -> list[tuple[Judgement, ...]]:
        """`score_group`, asked for the `repeat`-th time more: no call of an earlier time is used again."""
        return [(one,) for one in self.judged(prompt, self.seen(prompt, completions), again=repeat)]

    def seen(self, prompt: Prompt, completions: Sequence[Completion]) -> list[str]:
        """The part of each completion that the judge sees."""
        part = self.judge_part or self._template.judge_part
        return [part_of(prompt.prefill + completion.text, part) for completion in completions]

    def judged(self, prompt: Prompt, answers: Sequence[str], *, again: int = 0) -> list[Judgement]:
        """What the judges say of `answers`, as they would see them."""
        with_text = [place for place, answer in enumerate(answers) if has_text(answer)]
        absent = len(answers) - len(with_text)
        self._panel.tally.add("without_text", absent)
        opinions = self.opinions(prompt, [answers[place] for place in with_text], again=again, beaten=absent)
        nothing = Judgement(value=self.lowest(prompt), reason="nothing to judge: no text outside the reasoning")
        judgements = [nothing] * len(answers)
        for place, opinion in zip(with_text, opinions, strict=True):
            judgements[place] = _judgement(opinion)
        return judgements

    def opinions(self, prompt: Prompt, answers: Sequence[str], *, again: int, beaten: int) -> list[Opinion]:
        """One opinion for each of `answers`, none of them empty; `beaten` more had no text."""
        raise NotImplementedError

    def lowest(self, prompt: Prompt) -> float:
        """The value of an answer without text."""
        return 0.0

    def forged(self, prompt: Prompt) -> str:
        """A reply of the judge's own form with the best verdict, as an answer would forge it."""
        raise NotImplementedError

    def instructions(self, prompt: Prompt) -> str:
        """What an answer copies that hopes to be judged by the judge's own words."""
        return self._template.text

    def manner(self, again: int) -> Manner:
        """How the judges are asked."""
        temperature = self.temperature if self.temperature is not None else 0.0 if self.repeats == 1 else SAMPLED
        return Manner(
            template=self._template,
            scale=self.stated_scale,
            panel=self._panel,
            form=self.form,
            max_tokens=self.max_tokens,
            temperature=temperature,
            min_mass=self.min_mass,
            again=again,
        )

    def matter(self, prompt: Prompt, *, criteria: str = "") -> Matter:
        """What the judges see beside the answers."""
        gold = gold_of(prompt, self.gold_column) if self.sees_gold else ""
        return Matter(question=question_of(prompt), reference=str(gold), criteria=criteria)

    def prepare(self, prompts: Sequence[Prompt]) -> None:
        """Checks the judges, and probes them with tricks on some of `prompts`. Raises JudgeRefused; ConfigError to refuse."""
        for judge in self._panel.judges:
            check = getattr(judge, "check", None)
            if check is not None:
                check()
        if self.probe == "off" or not prompts:
            return
        report = self.probed(prompts[: self.probe_prompts])
        self._reports[:] = [report]
        if report.problems and self.probe == "refuse":
            raise ConfigError(
                f"reward '{self.name}': its judge {report.headline}, so training would teach {_taught(report)}:\n"
                + "\n".join(f"  {problem}" for problem in report.problems)
                + f"\n{report.table()}\nTake a stronger judge, another prompt, or one that is shown the right answer. "
                "To train with it all the same, set probe: warn; the run's notes will say so."
            )

    def probed(self, prompts: Sequence[Prompt]) -> ProbeReport:
        """What the judges pay for tricks on `prompts`."""
        return probe(
            lambda prompt, answers: [one.value for one in self.judged(prompt, answers)],
            prompts,
            highest=self.stated_scale.best,
            forged=self.forged,
            instructions=self.instructions,
            right=lambda prompt: gold_of(prompt, self.gold_column),
            sees_right=self.sees_gold,
            in_pairs=self.compares_members,
        )

    @property
    def compares_members(self) -> bool:
        """Whether an answer's value is a share of wins over its siblings."""
        return False

    def notes(self) -> list[str]:
        """What the probe found, and what the judges have to say about themselves."""
        said = [line for judge in self._panel.judges for line in getattr(judge, "notes", list)()]
        if self.probe == "off":
            return [*said, "probe: off. Nobody has looked at what this judge pays for empty, flattering and forged answers."]
        for report in self._reports:
            if report.problems:
                found = "; ".join(report.problems)
                said.append(f"probe: warn. This judge {report.headline} ({found}).\n{report.table()}")
            else:
                said.append(report.summary())
        return said

    def usage(self) -> dict[str, float]:
        """Calls, tokens, cost, and replies that could not be read, since the start."""
        return self._panel.usage()

    def close(self) -> None:
        """Lets go of the judges' connections."""
        self._panel.close()

    def _check_probabilities(self, where: str) -> None:
        if self.repeats > 1:
            raise ConfigError(f"{where}.repeats: probabilities are the same each time; leave repeats out in mode: expected")
        if self.stated_scale.choices is None:
            raise ConfigError(f"{where}.scale: in mode: expected each score is one token, as in 1-9 or A-E, got {self.scale!r}")
        for judge in self._panel.judges:
            if not judge.gives_probabilities:
                raise ConfigError(
                    f"{where}.mode: expected needs the next token's probabilities, which the judge {judge.name} does not give; "
                    "take a server with log-probs (judge.probabilities: true), a model in this process, or another mode"
                )

    def _built(self, where: str) -> tuple[Judge, ...]:
        if (self.judge is None) == (not self.judges):
            raise ConfigError(f"{where}: give either judge (its model, and base_url for a server) or judges, a list of such")
        given = [(self.judge, f"{where}.judge")] if self.judge is not None else []
        given += [(one, f"{where}.judges[{place}]") for place, one in enumerate(self.judges)]
        return tuple(_built(one, place) for one, place in given)


def part_of(text: str, part: JudgePart) -> str:
    """What a judge sees of an answer: all of it, or what follows its reasoning.

    >>> part_of("<think>2+2 is 4</think> Four.", "answer"), part_of("Four.", "answer"), part_of("<think>2+2 is", "answer")
    ('Four.', 'Four.', '')
    """
    return text if part == "whole" else without_reasoning(text).strip()


def _taught(report: ProbeReport) -> str:
    return "the trick" if report.paid_for else "nothing that it means"


def _built(given: Mapping[str, Any] | Judge | None, where: str) -> Judge:
    if isinstance(given, Judge):
        return given
    from toishi.judging.build import build_judge, judge_options

    return build_judge(judge_options(given or {}, where=where))


def _judgement(opinion: Opinion) -> Judgement:
    if opinion.value is None:
        return Judgement(value=None, status="failed", reason=opinion.words, kind=opinion.error)
    return Judgement(value=opinion.value, reason=opinion.words)
