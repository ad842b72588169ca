"""The worked step: two softmax rows over (good, ok, bad, eos), four answers to one prompt, judged 8, 6, 3, 3."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from toishi.algorithms.apply import Objective, assign_advantages, counted, token_objective
from toishi.algorithms.rows import Algorithm, algorithm
from toishi.ops.divergence import divergence
from toishi.ops.logprobs import logprobs_and_entropy
from toishi.types import Completion, Group, Prompt, Rollout, RolloutId, Score

EOS = 3
ANSWERS = ((0, EOS), (1, EOS), (2, EOS), (EOS,))
REWARDS = (0.8, 0.6, 0.3, 0.3)
FIRST, SECOND = (0.4, 0.3, 0.2, 0.1), (0.1, 0.1, 0.2, 0.6)
LIMIT = 2
PROMPT = Prompt(id="x", text="?")


def logits() -> Tensor:
    """[2, 4] float64, the logs of the two rows."""
    return torch.tensor([FIRST, SECOND], dtype=torch.float64).log().requires_grad_()


def completion(tokens: Sequence[int], *, sampled: Sequence[float] | None = None, truncated: bool = False) -> Completion:
    return Completion(
        token_ids=tuple(tokens),
        loss_mask=(1,) * len(tokens),
        sampled_logprobs=tuple(sampled) if sampled is not None else (0.0,) * len(tokens),
        entropies=(0.0,) * len(tokens),
        text="",
        finish_reason="length" if truncated else "stop",
    )


def rollout(member: int, tokens: Sequence[int], reward: float | None, *, group: int = 0, truncated: bool = False) -> Rollout:
    return Rollout(
        id=RolloutId(0, group, member),
        prompt=PROMPT,
        completion=completion(tokens, truncated=truncated),
        reward=reward,
        status="truncated" if truncated else "completed",
    )


def group(rewards: Sequence[float | None], answers: Sequence[Sequence[int]] | None = None, *, index: int = 0) -> Group:
    """A group with these rewards; answers of one token each unless given."""
    answers = [(EOS,)] * len(rewards) if answers is None else answers
    members = zip(answers, rewards, strict=True)
    return Group(
        prompt=PROMPT,
        rollouts=tuple(rollout(member, tokens, reward, group=index) for member, (tokens, reward) in enumerate(members)),
    )


def with_scores(source: Rollout, *scores: Score) -> Rollout:
    return replace(source, scores=scores)


def advantages_of(groups: Sequence[Group], row: Algorithm, limit: int = 64) -> list[list[float | tuple[float, ...] | None]]:
    return [[member.advantage for member in done.rollouts] for done in assign_advantages(groups, row, max_new_tokens=limit)]


def changed(name: str, **choices: object) -> Algorithm:
    return Algorithm.model_validate(algorithm(name).model_dump() | choices)


@dataclass(frozen=True)
class Tokens:
    """A packed micro-batch of the toy: which row of logits predicts each token."""

    position_N: Tensor
    target_N: Tensor
    sequence_N: Tensor
    lengths_B: Tensor
    advantages_N: Tensor


def pack(rollouts: Sequence[Rollout]) -> Tokens:
    lengths = [member.completion.num_tokens for member in rollouts]
    return Tokens(
        position_N=torch.tensor([place for length in lengths for place in range(length)]),
        target_N=torch.tensor([token for member in rollouts for token in member.completion.token_ids]),
        sequence_N=torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths)),
        lengths_B=torch.tensor(lengths),
        advantages_N=torch.tensor([a for member in rollouts for a in member.advantage_per_token], dtype=torch.float64),
    )


def evaluate(logits_PV: Tensor, tokens: Tokens) -> tuple[Tensor, Tensor]:
    return logprobs_and_entropy(logits_PV[tokens.position_N], tokens.target_N, 1.0)


def loss_of(
    row: Algorithm,
    logits_PV: Tensor,
    rollouts: Sequence[Rollout],
    *,
    old: Tensor | None = None,
    ref: Tensor | None = None,
    sampled: Tensor | None = None,
    num_tokens: int | None = None,
    num_sequences: int | None = None,
    limit: int = LIMIT,
) -> Objective:
    """The objective of these rollouts; `old`, `ref` and `sampled` are logits of other policies (default: this one)."""
    tokens = pack(rollouts)
    logprobs_N, entropy_N = evaluate(logits_PV, tokens)
    apart_N = None
    if row.divergence_coef and ref is not None:  # the other policy is the teacher
        student_NV, teacher_NV = (torch.log_softmax(one[tokens.position_N], -1) for one in (logits_PV, ref.detach()))
        apart_N = divergence(student_NV, teacher_NV, row.divergence_beta)
    old_N = logprobs_N.detach() if old is None else evaluate(old.detach(), tokens)[0]
    return token_objective(
        row,
        logprobs_N=logprobs_N,
        entropy_N=entropy_N,
        old_logprobs_N=old_N,
        advantages_N=tokens.advantages_N,
        sequence_N=tokens.sequence_N,
        lengths_B=tokens.lengths_B,
        num_tokens=len(tokens.target_N) if num_tokens is None else num_tokens,
        num_sequences=len(rollouts) if num_sequences is None else num_sequences,
        max_length=limit,
        ref_logprobs_N=None if ref is None else evaluate(ref.detach(), tokens)[0],
        sampled_logprobs_N=None if sampled is None else evaluate(sampled.detach(), tokens)[0],
        divergence_N=apart_N,
    )


def worked_rollouts(row: Algorithm) -> tuple[Rollout, ...]:
    return counted(assign_advantages([group(REWARDS, ANSWERS)], row, max_new_tokens=LIMIT), row)


def gradient(objective: Objective, logits_PV: Tensor) -> Tensor:
    (grad,) = torch.autograd.grad(objective.loss, logits_PV)
    return grad


def informed(groups: Iterable[Group]) -> list[Group]:
    """The groups with log-probs under a reference model, which preference losses need: another number for each token."""
    return [replace(one, rollouts=tuple(map(_informed, one.rollouts))) for one in groups]


def _informed(rollout: Rollout) -> Rollout:
    return replace(rollout, ref_logprobs=tuple(-0.3 - 0.2 * token for token in rollout.completion.token_ids))
