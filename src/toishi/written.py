"""Answers that stand in the data become groups as if they had been sampled: no sampler, no judge, the same record.

Decisions:
1. A written answer has no log-probs as sampled: they stay unknown (null on record), and no sampler gap is made up.
2. What it is worth is a score like any other, so that the chain from score to token weight needs no special case.
3. Nothing is cut. An answer above sampling.max_new_tokens forbids the start, or its row is passed over and counted.
4. Rows are looked at before the first step, as many as prompts are.
5. A reward model reads prompt and answer to the end and says one number there, so the only token with loss is the last one. Its
   prompt is what prompt and answers begin with: templates that write an answer otherwise than they ask for it do no harm.
6. Two equal answers are no pair: gradient 0 at a loss of log 2. Such rows are passed over and counted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, takewhile
from numbers import Real
from typing import Any

from toishi.algorithms.rows import Algorithm
from toishi.algorithms.shaping import MARGIN
from toishi.config import AnswersConfig, Config
from toishi.errors import DataError, ModelError, ToishiError, nearest
from toishi.policy.chat import Renderer
from toishi.rendering import ENDLESS_ROWS, LISTED, MAX_ROWS, Control, control_note
from toishi.tasks.base import Task
from toishi.types import Completion, Group, Message, Prompt, Rollout, RolloutId, Score

Answer = str | Sequence[Message]
SCORE = "written"
ONLY_POSITIVE = ("score_function", "dynamic")
"""Surrogates that would push an answer of negative worth down without end."""


@dataclass(frozen=True, slots=True)
class Said:
    """A written answer with what it is worth and why; `margin`: by how much it is to win its pair."""

    answer: Answer
    worth: float
    why: str
    margin: float | None = None


def one_answer(prompt: Prompt, columns: AnswersConfig, row: Algorithm) -> list[Said]:
    """The answer of a row with one."""
    answer = _answer(prompt, columns.column, "answers.column")
    if columns.value is None:
        return [Said(answer, 1.0, "a written answer")]
    worth = _number(prompt, columns.value, "answers.value")
    if worth < 0 and row.surrogate in ONLY_POSITIVE:
        raise DataError(
            f"row {prompt.id}: its answer is worth {worth:g}, and surrogate '{row.surrogate}' has no place for what is not to "
            "be said: it would push it down without end. Use algorithm 'unlikelihood', or pairs and 'dpo', or remove the row"
        )
    return [Said(answer, worth, f"a written answer, worth {worth:g} by column '{columns.value}'")]


def chosen_and_rejected(prompt: Prompt, columns: AnswersConfig, row: Algorithm) -> list[Said]:
    """Both answers of a pair."""
    chosen, rejected = _answer(prompt, columns.chosen, "answers.chosen"), _answer(prompt, columns.rejected, "answers.rejected")
    margin = None if columns.margin is None else _number(prompt, columns.margin, "answers.margin")
    return [
        Said(chosen, 1.0, "the chosen answer of the pair", margin),
        Said(rejected, 0.0, "the rejected answer of the pair"),
    ]


def spoken(prompt: Prompt, answers: Sequence[Answer], renderer: Renderer) -> tuple[Prompt, list[Completion]]:
    """Answers as the model would have said them."""
    return prompt, [renderer.written(prompt, answer) for answer in answers]


def read_whole(prompt: Prompt, answers: Sequence[Answer], renderer: Renderer) -> tuple[Prompt, list[Completion]]:
    """Answers as a reward model reads them, behind the beginning that all share; the loss is on the last token of each."""
    wholes = [renderer.whole(prompt, answer) for answer in answers]
    alike = takewhile(lambda tokens: len(set(tokens)) == 1, zip(prompt.token_ids, *wholes, strict=False))
    shared = min(sum(1 for _ in alike), min(map(len, wholes)) - 1)
    if shared < 1:
        raise ModelError(f"row {prompt.id}: its prompt and its answers, as the chat template writes them, begin differently")
    completions = [
        Completion(
            token_ids=whole[shared:], loss_mask=(*[0] * (len(whole) - shared - 1), 1), sampled_logprobs=(), entropies=(),
            text=answer if isinstance(answer, str) else answer[-1]["content"], finish_reason="stop",
        )
        for whole, answer in zip(wholes, answers, strict=True)
    ]  # fmt: skip
    return replace(prompt, token_ids=prompt.token_ids[:shared]), completions


COMPLETED: Mapping[str, Callable[[Prompt, Sequence[Answer], Renderer], tuple[Prompt, list[Completion]]]] = {
    "tokens": spoken,
    "score": read_whole,
}
"""What a model predicts -> how answers become tokens with loss."""
WRITTEN: Mapping[str, Callable[[Prompt, AnswersConfig, Algorithm], list[Said]]] = {
    "written": one_answer,
    "written_pairs": chosen_and_rejected,
    "mixed": one_answer,
}


def written_group(prompt: Prompt, config: Config, renderer: Renderer, *, step: int, number: int) -> Group:
    """The group of a rendered prompt, as scored. Raises DataError or ModelError for a row that cannot be used."""
    row = config.algorithm
    found = WRITTEN[row.source](prompt, config.answers, row)
    prompt, completions = COMPLETED[row.predicts](prompt, [said.answer for said in found], renderer)
    rollouts = [
        Rollout(
            id=RolloutId(step=step, group=number, member=member),
            prompt=prompt,
            completion=replace(completion, policy_version=max(0, step - 1)),
            scores=_scores(said, config.answers),
            reward=said.worth,
        )
        for member, (said, completion) in enumerate(zip(found, completions, strict=True))
    ]
    return Group(prompt=prompt, rollouts=tuple(rollouts))


def _scores(said: Said, columns: AnswersConfig) -> tuple[Score, ...]:
    worth = Score(reward=SCORE, value=said.worth, reason=said.why)
    if said.margin is None:
        return (worth,)
    why = f"is to win by {said.margin:g}, by column '{columns.margin}'"
    return worth, Score(reward=MARGIN, value=said.margin, weight=0.0, reason=why)


def longest(group: Group) -> int:
    """Tokens of the group's longest answer."""
    return max(rollout.completion.num_tokens for rollout in group.rollouts)


def passed_over(group: Group, config: Config) -> str | None:
    """Why a row teaches nothing, as a key of `PASSED_OVER`; None for one that is used."""
    if longest(group) > config.sampling.max_new_tokens:
        return "too_long"
    ids = {rollout.completion.token_ids for rollout in group.rollouts}
    return "same" if len(ids) < len(group.rollouts) else None


def look_at_rows(config: Config, task: Task, renderer: Renderer) -> tuple[str, ...]:
    """Makes the group of every row (of an endless task the first few hundred), and of held-out ones where these are compared by
    their answers too. Returns what a person should know.

    Raises one DataError that lists the rows which cannot be used; a fault of every row is raised as it is.
    """
    if config.algorithm.source not in WRITTEN:
        return ()
    trained = ENDLESS_ROWS if task.num_train is None else min(MAX_ROWS, task.num_train)
    heldout = task.heldout_prompts()[: config.evaluation.prompts] if config.algorithm.predicts == "score" else ()
    count = trained + len(heldout)
    faults: list[ToishiError] = []
    passed: Counter[str] = Counter()
    controls: list[Control] = []
    widened = 0
    for index, prompt in enumerate(chain((task.train_prompt(index) for index in range(trained)), heldout)):
        try:
            group = written_group(renderer.render(prompt), config, renderer, step=0, number=index)
        except ToishiError as error:
            faults.append(error)
            continue
        why = passed_over(group, config)
        if why == "too_long" and config.answers.too_long == "refuse":
            faults.append(_too_long(group, config.sampling.max_new_tokens))
        if why is not None and index < trained:
            passed[why] += 1
        said = [one.answer for one in WRITTEN[config.algorithm.source](prompt, config.answers, config.algorithm)]
        controls += [
            Control(prompt.id, token) for answer in said for token in renderer.control_tokens(renderer.words_of(answer))
        ][:1]
        widened += any(_is_whole_float(prompt.columns[name]) for name in _columns_of(config))
    if faults:
        raise _error(faults, count)
    if passed.total() == trained:
        raise DataError(f"no row is left: {'; '.join(_why(why, passed[why], trained, config) for why in passed)}")
    notes = tuple(_why(why, passed[why], trained, config) for why in PASSED_OVER if passed[why])
    return notes + control_note(controls, count, "rows with written answers") + _widened_note(widened, count)


PASSED_OVER: Mapping[str, str] = {
    "too_long": "their answers are longer than sampling.max_new_tokens={limit}; raise it to use them",
    "same": "chosen and rejected are the same answer, which teaches nothing; look at answers.chosen and answers.rejected",
}
"""Reason -> in words."""


def _why(reason: str, passed: int, trained: int, config: Config) -> str:
    words = PASSED_OVER[reason].format(limit=config.sampling.max_new_tokens)
    return f"{passed} of {trained} rows are passed over: {words}"


def _columns_of(config: Config) -> tuple[str, ...]:
    columns = config.answers
    return (columns.chosen, columns.rejected) if config.algorithm.source == "written_pairs" else (columns.column,)


def _is_whole_float(value: Any) -> bool:
    return isinstance(value, float) and value.is_integer()


def _widened_note(rows: int, count: int) -> tuple[str, ...]:
    text = (
        f"{rows} of {count} rows have whole numbers with a decimal point as answers, which are trained as such ('1.0'). A "
        "table's column of whole numbers with gaps turns into those: write the answers as text if '1' is meant"
    )
    return (text,) if rows else ()


def _too_long(group: Group, limit: int) -> DataError:
    return DataError(
        f"row {group.prompt.id} has an answer of {longest(group)} tokens, more than sampling.max_new_tokens={limit}. Answers "
        "are never cut: raise the limit, remove the row, or set answers.too_long to leave_out"
    )


def _error(faults: Sequence[ToishiError], count: int) -> ToishiError:
    if len(faults) == 1 or (len(faults) == count and isinstance(faults[0], ModelError)):
        return faults[0]
    more = [f"  ... and {len(faults) - LISTED} more"] if len(faults) > LISTED else []
    lines = [f"  {fault}" for fault in faults[:LISTED]]
    return DataError("\n".join([f"{len(faults)} of {count} rows with written answers cannot be used:", *lines, *more]))


def _answer(prompt: Prompt, column: str, option: str) -> Answer:
    found = _column(prompt, column, option)
    if isinstance(found, str):
        return found
    if isinstance(found, float) and not math.isfinite(found):
        raise DataError(
            f"row {prompt.id}: its '{column}' is {found}, which is how tables hold a missing number; expected text, a number, "
            f"or chat turns. Fill it or remove the row ({option})"
        )
    if isinstance(found, int | float) and not isinstance(found, bool):
        return str(found)
    turns = isinstance(found, list | tuple) and found and all(_is_turn(turn) for turn in found)
    if not turns or found[-1]["role"] != "assistant":
        raise DataError(
            f"row {prompt.id}: its '{column}' is {found!r:.60}; expected text, a number, or chat turns that end with the "
            f"assistant's ({option})"
        )
    if prompt.messages is None:
        raise DataError(f"row {prompt.id}: its '{column}' is a chat and its prompt is text; give both in one form")
    return [{"role": turn["role"], "content": turn["content"]} for turn in found]


def _is_turn(turn: Any) -> bool:
    return isinstance(turn, Mapping) and isinstance(turn.get("role"), str) and isinstance(turn.get("content"), str)


def _number(prompt: Prompt, column: str, option: str) -> float:
    found = _column(prompt, column, option)
    if isinstance(found, bool) or not isinstance(found, Real) or not math.isfinite(found):
        raise DataError(f"row {prompt.id}: its '{column}' is {found!r:.40}, expected a number ({option})")
    return float(found)


def _column(prompt: Prompt, column: str, option: str) -> Any:
    if column not in prompt.columns:
        raise DataError(f"row {prompt.id} has no '{column}' ({option}); {nearest(column, map(str, prompt.columns))}")
    if prompt.columns[column] is None:
        raise DataError(f"row {prompt.id}: its '{column}' is missing (null). Fill it or remove the row ({option})")
    return prompt.columns[column]
