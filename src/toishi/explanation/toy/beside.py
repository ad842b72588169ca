"""What stands beside the walk: SFT on the target, KL estimators, other rows, the identity with SFT, value model, judge."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from toishi.algorithms.rows import Algorithm
from toishi.explanation.toy.model import MAX_WORDS, World, evaluate, group_of, initial_logits, packed
from toishi.explanation.toy.updating import Evaluated, evaluated, one_step, rows, scored
from toishi.explanation.toy.walk import Beside, Identity, JudgeDistribution, KlRow, Rows, Sft, ValueModel
from toishi.ops.gae import gae
from toishi.ops.scores import expected_score
from toishi.types import Rollout

KL_SHOWN = ("k3", "ratio_k3")
GAMMA, LAM = 1.0, 0.95
JUDGE_POINTS, JUDGE_PROBABILITIES = (6.0, 7.0, 8.0, 9.0), (0.05, 0.25, 0.55, 0.10)
AGREES = 1e-10


def supervised(world: World, optimizer: str, lr: float | None) -> Sft:
    """One step on the mean negative log-likelihood of the target."""
    start_PV, tokens = initial_logits(world), packed([world.target])
    theta_PV = start_PV.clone().requires_grad_()
    logprobs_N, _ = evaluate(theta_PV, tokens)
    nll = -logprobs_N.mean()
    (autograd_PV,) = torch.autograd.grad(nll, theta_PV)
    gradient_PV = nll_gradient(start_PV, world.target)
    step = one_step(world, optimizer, lr, gradient_PV)
    return Sft(
        answer=world.spelled(world.target),
        logprobs=tuple(logprobs_N.tolist()),
        nll=nll.item(),
        gradient=rows(gradient_PV),
        autograd=rows(autograd_PV),
        max_difference=(gradient_PV - autograd_PV).abs().max().item(),
        step=step,
        nll_after=-evaluate(start_PV + tensor_of(step.change), tokens)[0].mean().item(),
    )


def nll_gradient(logits_PV: Tensor, answer: Sequence[int]) -> Tensor:
    """d mean NLL / d logits by the closed form: (p - 1[word written]) / length at each position that was written.

    >>> nll_gradient(torch.zeros(2, 2), (1,)).tolist()
    [[0.5, -0.5], [0.0, 0.0]]
    """
    gradient_PV = torch.zeros_like(logits_PV)
    for position, word in enumerate(answer):
        gradient_PV[position] = logits_PV[position].softmax(-1) / len(answer)
        gradient_PV[position, word] -= 1 / len(answer)
    return gradient_PV


def kl_rows(world: World, row: Algorithm, rollouts: Sequence[Rollout], moved_PV: Tensor, beta: float) -> tuple[KlRow, ...]:
    """The second update with each KL estimator in the loss; advantages stay as they are."""
    found = []
    for name in KL_SHOWN:
        with_kl = Algorithm.model_validate(row.model_dump() | {"kl": name, "kl_coef": beta})
        numbers = evaluated(world, with_kl, rollouts, moved_PV)
        per_token = tuple(token.kl for token in numbers.tokens)
        found.append(
            KlRow(
                kl=name,
                coef=beta,
                loss=numbers.loss,
                gradient=rows(numbers.gradient_PV),
                autograd=rows(numbers.autograd_PV),
                max_difference=numbers.max_difference,
                per_token=per_token,
                token_mean=sum(per_token) / max(1, len(per_token)),
            )
        )
    return tuple(found)


def beside(world: World, name: str, row: Algorithm, moved_PV: Tensor) -> Beside:
    """First update of another row on the same answers, and its second one from the logits `moved_PV`."""
    group, rollouts = scored(world, row)
    first = evaluated(world, row, rollouts, initial_logits(world))
    second = evaluated(world, row, scored(world, row, moved_PV)[1], moved_PV)
    return Beside(
        name=name,
        choices=row.model_dump(),
        advantages=tuple(sum(r.advantage_per_token) / r.completion.num_tokens for r in group.rollouts),
        loss=first.loss,
        gradient=rows(first.gradient_PV),
        adam_change=one_step(world, "adam", None, first.gradient_PV).change,
        second_ratios=tuple(token.ratio for token in second.tokens),
        second_clips=tuple(token.clip for token in second.tokens),
        second_clip_fraction=second.clip_fraction,
        second_loss=second.loss,
        second_gradient=rows(second.gradient_PV),
        max_difference=max(first.max_difference, second.max_difference),
    )


def identity(world: World, rollouts: Sequence[Rollout], first: Evaluated) -> Identity:
    """The first update written as a signed sum of SFT gradients, one for each answer."""
    start_PV = initial_logits(world)
    factors = [0.0 for _ in world.answers]
    for token in first.tokens:
        factors[token.answer - 1] += token.push
    parts = [nll_gradient(start_PV, answer) for answer in world.answers]
    total_PV = torch.stack([factor * part for factor, part in zip(factors, parts, strict=True)]).sum(0)
    difference = (total_PV - first.gradient_PV).abs().max().item()
    return Identity(
        factors=tuple(factors),
        sft_gradients=tuple(rows(part) for part in parts),
        total=rows(total_PV),
        max_difference=difference,
        holds=bool(rollouts) and difference < AGREES,
    )


def value_model(world: World) -> ValueModel | None:
    """GAE on the first answer of two words whose score is known; None without one."""
    for rollout in group_of(world).rollouts:
        if rollout.reward is not None and rollout.completion.num_tokens == MAX_WORDS:
            return _gae(rollout.id.member + 1, rollout.reward, rollout.values or ())
    return None


def _gae(number: int, reward: float, values: tuple[float, ...]) -> ValueModel:
    rewards_T = torch.tensor([0.0, reward], dtype=torch.float64)
    values_T = torch.tensor(values, dtype=torch.float64)
    found = gae(rewards_T, values_T, gamma=GAMMA, lam=LAM)
    ends = [tuple(gae(rewards_T, values_T, gamma=GAMMA, lam=lam).advantages_T.tolist()) for lam in (0.0, 1.0)]
    return ValueModel(
        answer=number,
        values=values,
        gamma=GAMMA,
        lam=LAM,
        reward=reward,
        delta=tuple(found.delta_T.tolist()),
        advantages=tuple(found.advantages_T.tolist()),
        returns=tuple(found.returns_T.tolist()),
        advantages_lam_0=ends[0],
        advantages_lam_1=ends[1],
    )


def judge_distribution() -> JudgeDistribution:
    """A judge that spreads its probability over several scores."""
    found = expected_score(JUDGE_POINTS, JUDGE_PROBABILITIES)
    return JudgeDistribution(
        points=JUDGE_POINTS,
        probabilities=JUDGE_PROBABILITIES,
        mass=found.mass,
        most_likely=found.most_likely,
        expected=found.mean,
        std=found.std,
    )


def tensor_of(table: Rows) -> Tensor:
    """`Rows` as a table, [2, V] float64."""
    return torch.tensor([table.first, table.second], dtype=torch.float64)
