"""Every prompt rendered before the first step: what a row can do wrong is found before a weight changes.

Decisions:
1. A finite task is rendered whole, up to a stated number of rows; of an endless task the first few hundred are, and the report
   says so. The held-out prompts always are.
2. All that is wrong comes in one report. A fault that every prompt has is the model's or the recipe's, and is raised as it is.
3. Past the last learned position a model cannot go: an error. Rotary positions go on, into lengths that the model was not
   trained for: a note. Special tokens in a prompt's text: a note that counts them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from toishi.config import Config, SamplingConfig
from toishi.errors import DataError, ModelError, ToishiError
from toishi.policy.capabilities import PositionLimit, position_limit
from toishi.policy.chat import Renderer, too_long
from toishi.tasks.base import Task
from toishi.types import Prompt

MAX_ROWS = 20_000
ENDLESS_ROWS = 300
LISTED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedPrompts:
    """What was looked at, and what was found.

    looked_at  which prompts, in words
    longest    tokens of the longest prompt that could be rendered; None when none could
    error      None, or what forbids to start
    notes      what a person should know before starting
    """

    looked_at: str
    longest: int | None
    error: ToishiError | None
    notes: tuple[str, ...] = ()

    def require(self) -> RenderedPrompts:
        """Itself. Raises the error if there is one."""
        if self.error is not None:
            raise self.error
        return self


class Control(NamedTuple):
    """A special token of the tokenizer in a row's text."""

    row: str
    token: str


def render_all(config: Config, task: Task, renderer: Renderer, module: Any) -> RenderedPrompts:
    """Renders held-out and training prompts, and collects what is wrong with them: a template that refuses a row, a row without
    a token, two beginning-of-text tokens, too many tokens for the recipe or for the model's positions."""
    heldout = task.heldout_prompts()[: config.evaluation.prompts]
    count = ENDLESS_ROWS if task.num_train is None else min(MAX_ROWS, task.num_train)
    limit = position_limit(module)
    faults: list[ToishiError] = []
    longest, beyond = 0, 0
    controls: list[Control] = []
    for prompt in chain(heldout, (task.train_prompt(index) for index in range(count))):
        try:
            tokens = len(renderer.render(prompt).token_ids)
        except ToishiError as error:
            faults.append(error)
            continue
        texts = [prompt.text or ""] if prompt.messages is None else [turn["content"] for turn in prompt.messages]
        controls += [Control(prompt.id, token) for token in renderer.control_tokens(texts)[:1]]
        longest = max(longest, tokens)
        fault = _length_fault(prompt, tokens, config.sampling, limit)
        faults.extend([fault] if fault is not None else [])
        beyond += fault is None and limit is not None and tokens + config.sampling.max_new_tokens > limit.tokens
    looked_at = _looked_at(task, count, len(heldout))
    notes = _beyond_note(beyond, config.sampling, limit) if limit is not None and not limit.is_hard and beyond else ()
    notes += control_note(controls, count + len(heldout), "prompts")
    return RenderedPrompts(
        looked_at=looked_at, longest=longest or None, error=_error(faults, count + len(heldout), looked_at), notes=notes
    )


def control_note(found: Sequence[Control], total: int, noun: str) -> tuple[str, ...]:
    """What a person should know of special tokens inside texts, if there are any.

    >>> control_note([], 5, "prompts")
    ()
    >>> print(control_note([Control("x.jsonl:2", "<|im_end|>")], 5, "prompts")[0].partition(":")[0])
    1 of 5 prompts hold special tokens of the tokenizer in their text (first
    """
    if not found:
        return ()
    first = found[0]
    return (
        f"{len(found)} of {total} {noun} hold special tokens of the tokenizer in their text (first: row {first.row}, "
        f"{first.token!r}). The model reads them as control tokens, not as text. Take them out, write them otherwise, or give "
        "whole conversations as turns (messages) instead of text that a template has written",
    )


def refuse_long(prompts: Sequence[Prompt], limit: int) -> None:
    """Raises DataError that lists the prompts (rendered) with more than `limit` tokens."""
    found = too_long(prompts, limit)
    if found:
        listed = ", ".join(f"{name} ({count} tokens)" for name, count in found[:LISTED])
        raise DataError(
            f"{len(found)} prompts are longer than sampling.max_prompt_tokens={limit}: {listed}. "
            "They are not cut. Raise the limit or remove these rows"
        )


def _length_fault(prompt: Prompt, tokens: int, sampling: SamplingConfig, limit: PositionLimit | None) -> DataError | None:
    needed = tokens + sampling.max_new_tokens
    if tokens > sampling.max_prompt_tokens:
        return DataError(
            f"row {prompt.id} has {tokens} tokens, more than sampling.max_prompt_tokens={sampling.max_prompt_tokens}. "
            "Prompts are never cut: raise the limit or remove the row"
        )
    if limit is not None and limit.is_hard and needed > limit.tokens:
        return DataError(
            f"row {prompt.id} has {tokens} tokens; with sampling.max_new_tokens={sampling.max_new_tokens} that is {needed}, "
            f"and the model has {limit.tokens} positions. Lower sampling.max_new_tokens or remove the row"
        )
    return None


def _beyond_note(beyond: int, sampling: SamplingConfig, limit: PositionLimit) -> tuple[str, ...]:
    return (
        f"{beyond} prompts with sampling.max_new_tokens={sampling.max_new_tokens} are longer than the {limit.tokens} positions "
        "that the model was made for (max_position_embeddings): its answers may be poor there",
    )


def _error(faults: Sequence[ToishiError], total: int, looked_at: str) -> ToishiError | None:
    if not faults:
        return None
    if len(faults) == 1 or (len(faults) == total and isinstance(faults[0], ModelError)):
        return faults[0]
    more = [f"  ... and {len(faults) - LISTED} more"] if len(faults) > LISTED else []
    lines = [f"  {fault}" for fault in faults[:LISTED]]
    return DataError("\n".join([f"{len(faults)} prompts cannot be used (looked at: {looked_at}):", *lines, *more]))


def _looked_at(task: Task, count: int, heldout: int) -> str:
    if task.num_train is None:
        training = f"the first {count:,} training prompts of an endless task"
    elif count < task.num_train:
        training = f"the first {count:,} of {task.num_train:,} training prompts"
    else:
        training = f"all {count:,} training prompts"
    return training + (f", {heldout:,} held-out prompts" if heldout else "")
