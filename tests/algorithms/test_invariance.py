"""What must not change the gradient of a step, for every row: float64, 1e-10.

A step is random groups of different sizes with answers of different lengths; the policy is a table of logits by position.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.algorithms.toy import changed, group, informed, loss_of
from toishi.algorithms.apply import assign_advantages, counted
from toishi.algorithms.rows import ROWS, Algorithm, algorithm
from toishi.types import Group, Rollout

EXACT = 1e-10
MAX_LENGTH = 4
LEVELS = (0.0, 0.1, 0.5, 0.7, 1.0)
NAMES = sorted(ROWS)
CENTRED = [name for name in NAMES if ROWS[name].baseline != "none" and ROWS[name].scale != "group_mean"]
WITH_KL = [
    changed("grpo", kl=kl, kl_coef=0.1, entropy_coef=0.05, reduction=reduction)
    for kl in ("k2", "k3", "ratio_k3")
    for reduction in ("token_mean", "sequence_mean_token_mean", "sequence_sum", "constant_length")
]


def policy(seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(MAX_LENGTH, 4, generator=generator, dtype=torch.float64).requires_grad_()


@st.composite
def steps(draw: st.DrawFn) -> list[Group]:
    """Two or three groups of two to four answers, of one to four tokens."""
    token = st.integers(0, 3)
    answer = st.lists(token, min_size=1, max_size=MAX_LENGTH).map(tuple)
    groups = []
    for index in range(draw(st.integers(2, 3))):
        answers = draw(st.lists(answer, min_size=2, max_size=4))
        rewards = draw(st.lists(st.sampled_from(LEVELS), min_size=len(answers), max_size=len(answers)))
        groups.append(group(rewards, answers, index=index))
    return informed(groups)


def step_gradient(row: Algorithm, groups: Sequence[Group], split: Sequence[int] = ()) -> Tensor:
    """Summed gradient of the micro-batches that end at the positions of `split`; zeros when nothing counts."""
    members = counted(assign_advantages(groups, row, max_new_tokens=MAX_LENGTH), row)
    theta = policy(0)
    total = torch.zeros_like(theta)
    for part in parts(members, split):
        objective = loss_of(
            row,
            theta,
            part,
            old=policy(0).detach() + 0.2 * policy(1).detach(),
            ref=policy(2),
            sampled=policy(0).detach() + 0.3 * policy(3).detach(),
            num_tokens=sum(member.completion.num_tokens for member in members),
            num_sequences=len(members),
            limit=MAX_LENGTH,
        )
        total += torch.autograd.grad(objective.loss, theta)[0]
    return total.detach()


def parts(members: Sequence[Rollout], split: Sequence[int]) -> list[Sequence[Rollout]]:
    bounds = [0, *sorted({place for place in split if 0 < place < len(members)}), len(members)]
    return [members[start:end] for start, end in itertools.pairwise(bounds) if end > start]


def assert_same(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=EXACT, rtol=EXACT)


@pytest.mark.parametrize("row", [*ROWS.values(), *WITH_KL], ids=lambda row: f"{row.name}-{row.kl}-{row.reduction}")
@given(step=steps(), split=st.lists(st.integers(1, 11), max_size=4))
@settings(max_examples=15, deadline=None)
def test_micro_batch_split(row: Algorithm, step: list[Group], split: list[int]) -> None:
    whole = step_gradient(row, step)
    assert_same(step_gradient(row, step, split), whole)
    assert_same(step_gradient(row, step, range(1, 12)), whole)


def untied(step: Sequence[Group]) -> list[Group]:
    """A preference loss takes the first of several best and of several worst answers: here there is one of each."""
    return [
        replace(g, rollouts=tuple(replace(m, reward=m.reward + 0.01 * m.id.member) for m in g.rollouts if m.reward is not None))
        for g in step
    ]


@pytest.mark.parametrize("name", NAMES)
@given(step=steps(), seed=st.integers(0, 999))
@settings(max_examples=15, deadline=None)
def test_order_of_siblings_and_of_groups(name: str, step: list[Group], seed: int) -> None:
    shuffle = random.Random(seed)
    step = untied(step) if ROWS[name].credit == "preference" else step
    groups = [Group(prompt=g.prompt, rollouts=tuple(shuffle.sample(g.rollouts, len(g.rollouts)))) for g in step]
    shuffle.shuffle(groups)
    assert_same(step_gradient(algorithm(name), groups), step_gradient(algorithm(name), step))


@pytest.mark.parametrize("name", CENTRED)
@given(step=steps(), shift=st.sampled_from([-3.0, 0.25, 10.0]))
@settings(max_examples=15, deadline=None)
def test_reward_shift_under_a_centred_baseline(name: str, step: list[Group], shift: float) -> None:
    shifted = [
        group([r + shift for r in g.rewards if r is not None], [m.completion.token_ids for m in g.rollouts], index=index)
        for index, g in enumerate(step)
    ]
    assert_same(step_gradient(algorithm(name), shifted), step_gradient(algorithm(name), step))


def test_rows_without_a_centred_baseline_are_known() -> None:
    assert set(NAMES) - set(CENTRED) == {
        *("reinforce", "maxrl", "raft", "raft_pp", "reinforce_rej", "entropy_only"),
        *("sft", "dft", "unlikelihood", "dpo", "ipo", "dpo_online", "reward_model", "gkd", "opd", "opd_sampled"),
    }


@pytest.mark.parametrize("name", [*CENTRED, "maxrl"])
@pytest.mark.parametrize("reward", [0.0, 0.1, 0.7, 1.0])
def test_constant_reward_has_exactly_no_gradient(name: str, reward: float) -> None:
    groups = [group([reward] * 3, [(0, 1), (2,), (3, 3, 1)], index=index) for index in range(2)]
    row = algorithm(name)
    done = assign_advantages(groups, row, max_new_tokens=MAX_LENGTH)
    assert all(value == 0.0 for g in done for member in g.rollouts for value in member.advantage_per_token)
    assert step_gradient(row, groups).abs().max().item() == 0.0


@pytest.mark.parametrize("name", [name for name in NAMES if ROWS[name].baseline != "batch_mean"])
@given(step=steps())
@settings(max_examples=10, deadline=None)
def test_a_larger_group_beside_it_changes_no_advantage(name: str, step: list[Group]) -> None:
    """The padding of the reward table is irrelevant to rows that look at one group only."""
    row = algorithm(name)
    alone = assign_advantages(step, row, max_new_tokens=MAX_LENGTH)
    beside = assign_advantages([*step, *informed([group([1.0, 0.0] * 4, index=9)])], row, max_new_tokens=MAX_LENGTH)
    assert [g.rollouts for g in beside[:-1]] == [g.rollouts for g in alone]


class TestSpecialCases:
    @given(step=steps())
    @settings(max_examples=15, deadline=None)
    def test_grpo_is_dapo_with_equal_bounds_another_reduction_and_no_filter(self, step: list[Group]) -> None:
        dapo = changed("dapo", clip_high=0.2, reduction="sequence_mean_token_mean", filter="none")
        assert_same(step_gradient(dapo, step), step_gradient(algorithm("grpo"), step))

    @given(step=steps())
    @settings(max_examples=15, deadline=None)
    def test_dr_grpo_advantages_are_rloo_times_g_minus_one_over_g(self, step: list[Group]) -> None:
        plain = assign_advantages(step, algorithm("dr_grpo"), max_new_tokens=MAX_LENGTH)
        rloo = assign_advantages(step, algorithm("rloo"), max_new_tokens=MAX_LENGTH)
        for one, other in zip(plain, rloo, strict=True):
            size = len(one.rollouts)
            expected = [(size - 1) / size * member.advantage_per_token[0] for member in other.rollouts]
            assert [member.advantage_per_token[0] for member in one.rollouts] == pytest.approx(expected, abs=1e-12)

    @pytest.mark.parametrize("name", ["grpo", "dapo", "dr_grpo", "gspo", "cispo", "rloo", "maxrl"])
    def test_on_policy_every_surrogate_is_the_score_function(self, name: str) -> None:
        """With ratio 1 nothing is clipped: the gradient is that of plain REINFORCE with the same advantages.

        A ratio of the whole sequence has the gradient of the whole sequence: RLOO is REINFORCE by sums, not by means.
        """
        row = algorithm(name)
        plain = changed(name, surrogate="score_function", reduction="sequence_sum" if name == "rloo" else row.reduction)
        theta, groups = policy(0), [group([1.0, 0.0, 0.5], [(0, 1), (2,), (3, 3, 1)])]
        members = counted(assign_advantages(groups, row, max_new_tokens=MAX_LENGTH), row)
        found = torch.autograd.grad(loss_of(row, theta, members).loss, theta)[0]
        assert_same(found, torch.autograd.grad(loss_of(plain, theta, members).loss, theta)[0])
