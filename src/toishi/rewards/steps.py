"""`steps`: each intermediate step is checked, and its tokens get the credit.

Decisions:
1. A step gives one judgement with the step's token range. How it becomes an advantage is the algorithm's: normalised among all
   steps of the group, and given to every token up to the step's end.
2. Before a model is loaded (the dry run) there are no tokens to point at: the same judgements then have no range, so the sum is
   the same.
3. What cannot be checked abstains: words, an equation with letters, a step cut off by the token limit. An answer in which no
   step could be checked gets 0 as a whole.
4. A step that was said before, by the question or by the answer, abstains as well: repeating what is right earns nothing.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from numbers import Real
from typing import Annotated, Any

from pydantic import Field

from toishi.errors import ConfigError, RewardError, ToishiError
from toishi.rewards.arithmetic import Equation, equations, numbers_in
from toishi.rewards.base import Judgement
from toishi.rewards.calling import TimedOut, call_sync, load_function
from toishi.rewards.patterns import PatternTooSlow, compiled, matches
from toishi.rewards.tokens import Decode, NotItsText, token_spans
from toishi.types import Completion, Prompt

Finite = Annotated[float, Field(allow_inf_nan=False)]
_NOTHING = Judgement(value=0.0, reason="no step that could be checked", readable=False)


@dataclass(frozen=True, slots=True)
class _Step:
    text: str
    place: tuple[int, int]
    is_cut: bool


@dataclass(frozen=True, kw_only=True)
class StepsReward:
    r"""`right` for each step that holds and `wrong` for each that does not, given to the step's tokens.

    split     "lines"; "tags": what stands in <step>...</step>; or a regular expression, each of whose matches is a step
    tag       the name of the tags
    check     "arithmetic": the step's equations, such as 3 * 4 = 12, hold exactly; or a function, as "path/to/file.py:name" or
              the callable, that is given (step, before, columns): the step's text, the texts of those before it, the row's
              columns. It returns True, False, a number (the value) or None (abstains)
    right, wrong  what a step that holds, and one that does not, is worth
    known     arithmetic: the numbers that a step computes with must stand in the question or in a step before it
    rounded   arithmetic: a result may be rounded to the decimals it is written with
    max_steps   how many steps are checked; the next one abstains, and those after it are not listed
    timeout_s   seconds that the function may take for one answer; null = no limit

    Traps: a right step need not lead anywhere, so weigh it below a reward for the answer, and set known: true to close the door
    to 1 + 1 = 2. Steps that are written out pay more than steps that are skipped.

    >>> from toishi.rewards.scripted import answered
    >>> prompt = Prompt(id="a", text="What is 3 * 4 + 5?")
    >>> (judged,) = StepsReward().score_group(prompt, [answered("3 * 4 = 12\nThen:\n12 + 5 = 18")])
    >>> [(judgement.value, judgement.reason) for judgement in judged]
    [(1.0, 'step 1: 3*4=12 holds'), (None, 'step 2: nothing to check'), (0.0, 'step 3: 12+5=18 does not hold')]
    """

    name: str = "steps"
    split: str = "lines"
    tag: Annotated[str, Field(pattern=r"^[A-Za-z][\w-]*$")] = "step"
    check: str | Callable[..., Any] = "arithmetic"
    right: Finite = 1.0
    wrong: Finite = 0.0
    known: bool = False
    rounded: bool = False
    max_steps: Annotated[int, Field(ge=1)] = 32
    timeout_s: Annotated[float, Field(gt=0)] | None = 60.0

    _pattern: Any = field(init=False, repr=False, compare=False)
    _function: Callable[..., Any] | None = field(init=False, repr=False, compare=False)
    _decode: Decode | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        where = f"reward '{self.name}'"
        tag = re.escape(self.tag)
        patterns = {"lines": r"[^\n]+", "tags": rf"<{tag}>(.*?)(?:</{tag}>|\z)"}
        object.__setattr__(self, "_pattern", compiled(patterns.get(self.split, self.split), where=f"{where}.split"))
        function = self.check if callable(self.check) else None
        if isinstance(self.check, str) and self.check != "arithmetic":
            function = load_function(self.check, where=where)
        if function is not None and (self.known or self.rounded):
            raise ConfigError(f"{where}: known and rounded belong to check: arithmetic, got check={self.check!r}")
        object.__setattr__(self, "_function", function)

    def with_decode(self, decode: Decode) -> StepsReward:
        """The same reward, whose judgements say which tokens they are about."""
        bound = copy.copy(self)
        object.__setattr__(bound, "_decode", decode)
        return bound

    @property
    def columns(self) -> tuple[str, ...]:
        return ()

    def score_group(self, prompt: Prompt, completions: Sequence[Completion]) -> list[tuple[Judgement, ...]]:
        return [self._judge(prompt, completion) for completion in completions]

    def _judge(self, prompt: Prompt, completion: Completion) -> tuple[Judgement, ...]:
        try:
            steps = self._steps(completion)
            judged = self._arithmetic(prompt, steps) if self._function is None else self._asked(prompt, steps)
            if all(judgement.value is None for judgement in judged):
                return (_NOTHING,)
            return tuple(self._placed(judged, steps, completion))
        except PatternTooSlow as error:
            return (Judgement(value=None, status="failed", reason=str(error), kind="timed_out"),)
        except TimedOut as error:
            return (Judgement(value=None, status="failed", reason=f"the check {error}", kind="timed_out"),)
        except ToishiError:
            raise
        except NotItsText as error:
            return (Judgement(value=None, status="failed", reason=str(error), kind="no_tokens"),)
        except Exception as error:  # the user's function
            return (Judgement(value=None, status="failed", reason=f"{type(error).__name__}: {error}", kind="raised"),)

    def _steps(self, completion: Completion) -> list[_Step]:
        text = completion.text
        group = 1 if self._pattern.groups else 0
        steps = []
        for match in matches(self._pattern, text):
            start, stop = match.span(group)
            inner = text[start:stop]
            start, stop = start + len(inner) - len(inner.lstrip()), stop - len(inner) + len(inner.rstrip())
            if start < stop:
                is_cut = completion.is_truncated and match.end() == len(text) and not match[0].endswith(f"</{self.tag}>")
                steps.append(_Step(text[start:stop], (start, stop), is_cut))
            if len(steps) > self.max_steps:
                break
        return steps

    def _arithmetic(self, prompt: Prompt, steps: Sequence[_Step]) -> list[Judgement]:
        said = {equation.text for equation in equations(prompt.shown)}
        numbers = numbers_in(prompt.shown)
        judged = []
        for number, step in enumerate(steps, 1):
            found = equations(step.text)
            judged.append(self._judged_equations(number, step, found, said, numbers))
            said |= {equation.text for equation in found}
            numbers |= _results(found)
        return judged

    def _judged_equations(
        self, number: int, step: _Step, found: Sequence[Equation], said: set[str], numbers: set[Fraction]
    ) -> Judgement:
        left_out = self._left_out(number, step) or _abstained(not found, number, "nothing to check")
        left_out = left_out or _abstained(all(equation.text in said for equation in found), number, "said before")
        if left_out is not None:
            return left_out
        for equation in found:
            if not equation.holds(rounded=self.rounded):
                return Judgement(value=self.wrong, reason=f"step {number}: {equation.text[:80]} does not hold")
            strange = [operand for operand in equation.operands if operand not in numbers]
            if self.known and strange:
                return Judgement(value=self.wrong, reason=f"step {number}: {strange[0]} comes from nowhere")
            numbers = numbers | _results([equation])
        return Judgement(value=self.right, reason=f"step {number}: {'; '.join(each.text for each in found)[:80]} holds")

    def _asked(self, prompt: Prompt, steps: Sequence[_Step]) -> list[Judgement]:
        def ask() -> list[Judgement]:
            texts = [step.text for step in steps]
            return [self._ask(number, step, texts[: number - 1], prompt) for number, step in enumerate(steps, 1)]

        return list(call_sync(ask, self.timeout_s))

    def _ask(self, number: int, step: _Step, before: list[str], prompt: Prompt) -> Judgement:
        assert self._function is not None
        left_out = self._left_out(number, step) or _abstained(step.text in before, number, "said before")
        if left_out is not None:
            return left_out
        said = self._function(step=step.text, before=before, columns=dict(prompt.columns))
        if said is None:
            return Judgement(value=None, status="abstained", reason=f"step {number}: the check abstains")
        if isinstance(said, bool):
            reason = f"step {number} {'holds' if said else 'does not hold'}"
            return Judgement(value=self.right if said else self.wrong, reason=reason)
        if not isinstance(said, Real) or not math.isfinite(said):
            raise RewardError(
                f"reward '{self.name}', prompt {prompt.id}: the check returned {said!r:.80} for step {number}; expected True, "
                "False, a finite number or None"
            )
        return Judgement(value=float(said), reason=f"step {number}: the check says {float(said):g}")

    def _left_out(self, number: int, step: _Step) -> Judgement | None:
        over = _abstained(number > self.max_steps, number, f"beyond max_steps={self.max_steps}, as are all after it")
        return over or _abstained(step.is_cut, number, "cut off at the token limit")

    def _placed(self, judged: Sequence[Judgement], steps: Sequence[_Step], completion: Completion) -> Sequence[Judgement]:
        if self._decode is None:
            return judged
        spans = token_spans(completion, self._decode, [step.place for step in steps])
        return [replace(judgement, span=span) for judgement, span in zip(judged, spans, strict=True)]


def _results(found: Sequence[Equation]) -> set[Fraction]:
    return {abs(side) for equation in found for side in equation.sides if side is not None}


def _abstained(yes: bool, number: int, why: str) -> Judgement | None:
    return Judgement(value=None, status="abstained", reason=f"step {number}: {why}") if yes else None
