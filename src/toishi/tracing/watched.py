"""The answers whose log-probs are measured before and after a step: the step's own, and some that were not sampled.

Decisions:
1. An answer to a prompt of the step stands in that prompt's group with a member number beyond the sampled ones, so it is packed
   behind the same prompt and costs little.
2. The greedy answers are drawn under the weights before the step, by the engine that drew the sampled ones.
3. The right answer as text, followed by the stop token, is what SFT would be shown. Golds that are no plain value have no text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from toishi.engines.base import Request, Sampling
from toishi.record.trace import TextKind, TracedText
from toishi.types import Completion, Group, Prompt, Rollout, RolloutId

if TYPE_CHECKING:
    from toishi.session import Learner

_BEYOND = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """An answer and why it is watched."""

    kind: TextKind
    rollout: Rollout
    inside: bool

    def traced(self, learner: Learner, before: Sequence[float], after: Sequence[float]) -> TracedText:
        """The answer with its measured log-probs."""
        completion, id_ = self.rollout.completion, self.rollout.id
        return TracedText(
            kind=self.kind,
            group=id_.group if self.inside else None,
            member=id_.member if self.kind == "rollout" else None,
            prompt_id=self.rollout.prompt.id,
            text=completion.text,
            token_ids=completion.token_ids,
            token_texts=tuple(learner.renderer.pieces(completion.token_ids)),
            loss_mask=completion.loss_mask,
            before=tuple(before),
            after=tuple(after),
        )


def sampled(groups: Sequence[Group]) -> list[Watched]:
    """The step's own answers."""
    return [Watched(kind="rollout", rollout=rollout, inside=True) for group in groups for rollout in group.rollouts]


def unsampled(learner: Learner, groups: Sequence[Group], sampling: Sampling, other: Prompt | None) -> list[Watched]:
    """For each prompt its greedy answer (under the weights of the moment) and its right one; one answer to `other`."""
    prompts = [group.prompt for group in groups]
    asked = prompts if other is None else [*prompts, other]
    requests = [Request(prompt_ids=prompt.token_ids, key=(0,)) for prompt in asked]
    answers = learner.engine.generate(requests, replace(sampling, greedy=True))
    found = [
        Watched(kind="greedy" if at < len(prompts) else "other_prompt", rollout=rollout, inside=at < len(prompts))
        for at, rollout in enumerate(_beyond(groups, asked, answers, 0))
    ]
    golds = [reference_answer(learner, prompt) for prompt in prompts]
    references = zip(_beyond(groups, prompts, golds, 1), golds, strict=True)
    return found + [Watched(kind="reference", rollout=rollout, inside=True) for rollout, gold in references if gold is not None]


def reference_answer(learner: Learner, prompt: Prompt) -> Completion | None:
    """The right answer as tokens, ended as the model ends its answers; None where there is none or it is no plain value."""
    if prompt.gold is None or isinstance(prompt.gold, bool) or not isinstance(prompt.gold, str | int | float):
        return None
    token_ids = learner.renderer.answer_ids(str(prompt.gold))
    count = len(token_ids)
    return Completion(
        token_ids=token_ids, loss_mask=(1,) * count, sampled_logprobs=(0.0,) * count, entropies=(0.0,) * count,
        text=str(prompt.gold), finish_reason="stop",
    )  # fmt: skip


def other_prompt(run: Mapping[str, Any], groups: Sequence[Group]) -> Prompt | None:
    """A prompt that is not in the step: the run's first held-out one, else its first training prompt; None when it is in it."""
    described = run.get("heldout_prompt") or run.get("prompt") or {}
    token_ids = tuple(described.get("token_ids") or ())
    if not token_ids or any(group.prompt.token_ids == token_ids for group in groups):
        return None
    return Prompt(id=str(described["prompt_id"]), text=str(described["text"]), token_ids=token_ids)


def _beyond(
    groups: Sequence[Group], prompts: Sequence[Prompt], completions: Sequence[Completion | None], number: int
) -> list[Rollout]:
    """Rollouts that no step sampled, numbered beyond those of the step; a missing completion becomes an empty one."""
    step = groups[0].rollouts[0].id.step
    names = [group.rollouts[0].id.group for group in groups]
    names.append(max(names) + 1)
    empty = Completion(token_ids=(), loss_mask=(), sampled_logprobs=(), entropies=(), text="", finish_reason="stop")
    return [
        Rollout(id=RolloutId(step, names[at], _BEYOND + number), prompt=prompt, completion=completion or empty)
        for at, (prompt, completion) in enumerate(zip(prompts, completions, strict=True))
    ]
