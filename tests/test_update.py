"""The update against a plain, padded, batch-wise computation, and everything that must not change it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.making import group, settings, tiny_policy, two_groups
from tests.tiny import tiny_model
from toishi.algorithms.apply import assign_advantages
from toishi.algorithms.rows import ROWS, Algorithm, algorithm
from toishi.config import OptimizerConfig
from toishi.engines.base import Sampling
from toishi.errors import NumericsError
from toishi.gap import measure_gap
from toishi.policy.optimizer import learning_rate, make_optimizer
from toishi.policy.policy import Policy
from toishi.policy.teacher import LocalTeacher
from toishi.types import Group
from toishi.update import UpdateSettings, reference_logprobs, update_policy, with_reference

NAMES = sorted(ROWS)


def run_update(groups: Sequence[Group], chosen: UpdateSettings, policy: Policy) -> None:
    if chosen.algorithm.needs_teacher:
        dtype = policy.compute_dtype
        teacher = tiny_model(policy.module.config.model_type, seed=7, dtype=dtype)
        policy.teacher = LocalTeacher.of(Policy(teacher.requires_grad_(False), compute_dtype=dtype), policy)
    if chosen.algorithm.needs_policy_before:
        policy.keep_reference()
        groups = with_reference(policy, groups, chosen)
    assigned = assign_advantages(groups, chosen.algorithm, max_new_tokens=chosen.max_new_tokens)
    update_policy(policy, make_optimizer(policy, chosen.optimizer), assigned, chosen, step=1)


def gradient(
    groups: Sequence[Group], chosen: UpdateSettings, *, dtype: torch.dtype = torch.float64, family: str = "gpt2"
) -> Tensor:
    """The gradient (after clipping) that the step's last update left in the masters, flat.

    GPT-2 computes in float64 throughout; Llama's norms and rotations are fp32 whatever the weights are.
    """
    policy = tiny_policy(family, dtype)
    run_update(groups, chosen, policy)
    return torch.cat([(torch.zeros_like(m) if m.grad is None else m.grad).flatten() for m in policy.masters.values()])


def distance(left: Tensor, right: Tensor) -> float:
    return float((left - right).norm() / right.norm())


@pytest.mark.parametrize(("family", "bound"), [("gpt2", 1e-10), ("llama", 1e-6)])
def test_gradient_equals_a_padded_batch_of_whole_sequences(family: str, bound: float) -> None:
    """DAPO's loss written out the usual way: pad, full logits, mask, divide by the tokens of the batch."""
    groups = two_groups()
    policy = tiny_policy(family)
    rewards = torch.tensor([[1.0, 0.0, 0.5, 0.0]], dtype=torch.float64), torch.tensor([[0.0, 1.0, 0.3]], dtype=torch.float64)
    advantages = torch.cat([((r - r.mean()) / (r.std() + 1e-4))[0] for r in rewards])
    sequences = [(r.prompt.token_ids, r.completion.token_ids) for g in groups for r in g.rollouts]
    width = max(len(p) + len(c) for p, c in sequences)
    ids = torch.tensor([[*p, *c] + [0] * (width - len(p) - len(c)) for p, c in sequences])
    attention = torch.tensor([[1] * (len(p) + len(c)) + [0] * (width - len(p) - len(c)) for p, c in sequences])
    has_loss = torch.tensor([[len(p) <= at < len(p) + len(c) for at in range(width)] for p, c in sequences])[:, 1:]
    logits = policy.module(input_ids=ids, attention_mask=attention).logits[:, :-1] / 0.7
    logprobs = torch.log_softmax(logits, -1).gather(2, ids[:, 1:, None])[..., 0]
    loss = -(advantages[:, None] * logprobs * has_loss).sum() / has_loss.sum()
    loss.backward()  # type: ignore[no-untyped-call]
    wanted = torch.cat([weight.grad.flatten() for weight in policy.module.parameters() if weight.grad is not None])
    row = algorithm("dapo")
    found = gradient(groups, settings(row, lr=1.0), family=family)
    assert distance(found, wanted) < bound


@pytest.mark.parametrize("name", NAMES)
def test_siblings_batch_order_and_micro_batches_do_not_change_the_gradient(name: str) -> None:
    first, second = two_groups()
    if ROWS[name].credit == "preference":  # of two worst answers the first is taken: here there is one
        first = replace(first, rollouts=(*first.rollouts[:3], replace(first.rollouts[3], reward=0.25)))
    chosen = settings(name, lr=1.0)
    wanted = gradient([first, second], chosen)
    assert wanted.norm() > 0
    shuffled = replace(first, rollouts=tuple(first.rollouts[i] for i in (2, 0, 3, 1)))
    assert distance(gradient([shuffled, second], chosen), wanted) < 1e-10
    assert distance(gradient([second, first], chosen), wanted) < 1e-10
    for budget in (1, 9):  # one answer a pass; uneven passes
        split = settings(name, lr=1.0, micro_batch_tokens=budget)
        assert distance(gradient([first, second], split), wanted) < 1e-10
    plain = settings(name, lr=1.0, shared_prompt=False)
    assert distance(gradient([first, second], plain), wanted) < 1e-10


@pytest.mark.parametrize("name", NAMES)
def test_micro_batches_do_not_change_the_gradient_in_fp32(name: str) -> None:
    wanted = gradient(two_groups(), settings(name, lr=1.0), dtype=torch.float32)
    split = gradient(two_groups(), settings(name, lr=1.0, micro_batch_tokens=1), dtype=torch.float32)
    exact = gradient(two_groups(), settings(name, lr=1.0))
    assert distance(split, wanted) < 1e-5
    assert distance(wanted.double(), exact) < 1e-4


CENTRED = [name for name in NAMES if ROWS[name].baseline in ("group_mean", "leave_one_out", "batch_mean") and name != "maxrl"]


@pytest.mark.parametrize("name", CENTRED)
def test_a_reward_shift_does_not_change_the_gradient(name: str) -> None:
    def shifted(g: Group) -> Group:
        return replace(g, rollouts=tuple(replace(r, reward=(r.reward or 0.0) + 3.0) for r in g.rollouts))

    chosen = settings(name, lr=1.0)
    wanted = gradient(two_groups(), chosen)
    assert distance(gradient([shifted(g) for g in two_groups()], chosen), wanted) < 1e-10


@pytest.mark.parametrize("name", CENTRED)
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_constant_reward_leaves_the_weights_bit_identical(name: str, optimizer: str) -> None:
    policy = tiny_policy(dtype=torch.float32)
    before = {key: master.detach().clone() for key, master in policy.masters.items()}
    constant = [replace(g, rollouts=tuple(replace(r, reward=0.7) for r in g.rollouts)) for g in two_groups()]
    chosen = replace(settings(name), optimizer=OptimizerConfig(name=optimizer, lr=0.1))  # type: ignore[arg-type]
    run_update(constant, chosen, policy)
    assert all(torch.equal(before[key], master) for key, master in policy.masters.items())


def test_a_failed_answer_is_as_if_never_sampled() -> None:
    whole = group(0, [5, 6], [[7, 4], [8, 4], [9, 9, 9, 4]], [1.0, 0.0, None])
    without = group(0, [5, 6], [[7, 4], [8, 4]], [1.0, 0.0])
    for name in ("grpo", "dapo", "dr_grpo", "rloo"):
        chosen = settings(name, lr=1.0)
        assert distance(gradient([whole], chosen), gradient([without], chosen)) < 1e-12


def test_token_weights_are_the_derivative_that_was_backpropagated() -> None:
    """On-policy GRPO by hand: weight = -advantage / (sequences * length), ratio exactly 1, nothing held."""
    policy = tiny_policy()
    chosen = settings("grpo")
    groups = assign_advantages(two_groups(), chosen.algorithm, max_new_tokens=8)
    (update,) = update_policy(policy, make_optimizer(policy, chosen.optimizer), groups, chosen, step=1)
    by_id = {r.id: r for g in groups for r in g.rollouts}
    assert len(update.streams) == 7
    for stream in update.streams:
        rollout = by_id[stream.rollout]
        assert isinstance(rollout.advantage, float)
        wanted = -rollout.advantage / (7 * rollout.completion.num_tokens)
        assert stream.token_weight == pytest.approx([wanted] * rollout.completion.num_tokens, abs=1e-12)
        assert set(stream.ratio) == {1.0}
        assert set(stream.clip) == {0}
    assert update.scalars["update/loss"] == pytest.approx(0.0, abs=1e-12)
    assert update.scalars["update/grad_norm"] > 0


def test_answers_without_contribution_count_in_the_denominator_but_are_not_computed() -> None:
    mixed = group(0, [5, 6], [[7, 4], [8, 4]], [1.0, 0.0])
    tied = group(1, [5, 9], [[7, 4], [8, 8, 4]], [1.0, 1.0])
    policy = tiny_policy()
    chosen = settings("grpo")
    groups = assign_advantages([mixed, tied], chosen.algorithm, max_new_tokens=8)
    (update,) = update_policy(policy, make_optimizer(policy, chosen.optimizer), groups, chosen, step=1)
    computed = {str(stream.rollout): stream.computed for stream in update.streams}
    assert computed == {"1/0/0": True, "1/0/1": True, "1/1/0": False, "1/1/1": False}
    assert update.scalars["update/rollouts"] == 4
    assert update.scalars["update/tokens"] == 9


def test_several_updates_use_the_old_logprobs_and_clip() -> None:
    """Two inner epochs with a large step: ratios leave 1 in the second, and their logs are the measured change."""
    policy = tiny_policy()
    chosen = settings("grpo", lr=3.0, inner_epochs=2)
    groups = assign_advantages(two_groups(), chosen.algorithm, max_new_tokens=8)
    first, second = update_policy(policy, make_optimizer(policy, chosen.optimizer), groups, chosen, step=1)
    assert {ratio for stream in first.streams for ratio in stream.ratio} == {1.0}
    for before, after in zip(first.streams, second.streams, strict=True):
        assert after.old_logprob == pytest.approx(before.logprob, abs=1e-12)
        changes = [new - old for new, old in zip(after.logprob, after.old_logprob, strict=True)]
        assert [float(torch.tensor(ratio).log()) for ratio in after.ratio] == pytest.approx(changes, abs=1e-6)
    codes = {code for stream in second.streams for code in stream.clip}
    assert codes & {1, 2}
    for stream in second.streams:
        for code, weight in zip(stream.clip, stream.token_weight, strict=True):
            assert code == 0 or weight == 0.0


def test_minibatches_cover_every_group_once_per_epoch() -> None:
    groups = [group(n, [5, 6], [[7 + n, 4], [8 + n, 4]], [1.0, 0.0]) for n in range(5)]
    chosen = settings("grpo", inner_epochs=2, minibatches=2)
    assigned = assign_advantages(groups, chosen.algorithm, max_new_tokens=8)
    policy = tiny_policy()
    updates = update_policy(policy, make_optimizer(policy, chosen.optimizer), assigned, chosen, step=1)
    seen = [sorted({stream.rollout.group for stream in update.streams}) for update in updates]
    assert len(seen) == 4
    for first, second in itertools.batched(seen, 2) if hasattr(itertools, "batched") else [seen[:2], seen[2:]]:
        assert sorted(first + second) == [0, 1, 2, 3, 4]
    assert seen[:2] != seen[2:]


@pytest.mark.parametrize("kl", ["k2", "k3", "ratio_k3"])
def test_reference_is_the_model_of_step_zero(kl: str) -> None:
    policy = tiny_policy()
    policy.keep_reference()
    row = Algorithm.model_validate(algorithm("grpo").model_dump() | {"kl": kl, "kl_coef": 0.1})
    chosen = settings(row, lr=0.5)
    groups = two_groups()
    rollouts = [r for g in groups for r in g.rollouts]
    start = reference_logprobs(policy, rollouts, chosen)
    assigned = assign_advantages(
        [replace(g, rollouts=tuple(replace(r, ref_logprobs=start[r.id]) for r in g.rollouts)) for g in groups],
        row,
        max_new_tokens=8,
    )
    (update,) = update_policy(policy, make_optimizer(policy, chosen.optimizer), assigned, chosen, step=1)
    assert all(kl == pytest.approx(0.0, abs=1e-12) for stream in update.streams for kl in stream.kl_policy_ref)
    assert reference_logprobs(policy, rollouts, chosen) == start
    moved = measure_gap(policy, assigned, chosen, Sampling(max_new_tokens=8, temperature=0.7))
    assert moved is not None
    assert moved[0] > 0


def test_bf16_gradients_are_summed_in_fp32_masters() -> None:
    """Many micro-batches in bf16: the sum is kept in fp32, so splitting costs no more than rounding of single gradients."""
    exact = gradient(two_groups(), settings("grpo", lr=1.0))
    one = gradient(two_groups(), settings("grpo", lr=1.0), dtype=torch.bfloat16)
    many = gradient(two_groups(), settings("grpo", lr=1.0, micro_batch_tokens=1), dtype=torch.bfloat16)
    policy = tiny_policy(dtype=torch.bfloat16)
    assert all(master.dtype == torch.float32 for master in policy.masters.values())
    assert distance(one.double(), exact) < 0.05
    assert distance(many.double(), exact) < 0.05


def test_the_next_sample_comes_from_the_updated_weights() -> None:
    """In bf16 the step is made on the masters; the weights that sample and differentiate must follow."""
    policy = tiny_policy(dtype=torch.bfloat16)
    before = {name: weight.detach().clone() for name, weight in policy.module.named_parameters()}
    run_update(two_groups(), settings("grpo", lr=1.0), policy)
    weights = dict(policy.module.named_parameters())
    assert any(not torch.equal(before[name], weights[name]) for name in policy.masters)
    for name, master in policy.masters.items():
        assert torch.equal(weights[name], master.to(torch.bfloat16))


def test_clipping_scales_the_whole_gradient() -> None:
    free = gradient(two_groups(), settings("grpo", lr=1.0))
    limit = float(free.norm()) / 4
    chosen = replace(settings("grpo", lr=1.0), optimizer=OptimizerConfig(name="sgd", lr=1.0, max_grad_norm=limit))
    assert distance(gradient(two_groups(), chosen), free / 4) < 1e-10


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_not_a_number_stops_before_a_weight_changes(dtype: torch.dtype) -> None:
    policy = tiny_policy(dtype=dtype)
    chosen = settings("grpo")
    groups = assign_advantages(two_groups(), chosen.algorithm, max_new_tokens=8)
    with torch.no_grad():
        policy.module.get_input_embeddings().weight[22] = float("nan")
    before = {key: master.detach().clone() for key, master in policy.masters.items()}
    with pytest.raises(NumericsError, match="1/1/0"):
        update_policy(policy, make_optimizer(policy, chosen.optimizer), groups, chosen, step=1)
    assert all(
        torch.equal(
            before[key],
            master,
        )
        or before[key].isnan().any()
        for key, master in policy.masters.items()
    )


def test_learning_rate_schedules() -> None:
    cosine = OptimizerConfig(lr=1.0, decay="cosine")
    assert [round(learning_rate(cosine, step, 4), 6) for step in (1, 2, 3, 4)] == [1.0, 0.853553, 0.5, 0.146447]
    constant = OptimizerConfig(lr=0.5)
    assert [learning_rate(constant, step, 4) for step in (1, 4)] == [0.5, 0.5]
    warm = OptimizerConfig(lr=1.0, warmup_steps=4)
    assert [learning_rate(warm, step, 4) for step in (1, 4)] == [0.25, 1.0]
