"""A critic in an update, against a plain padded computation, and what must and must not move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.algorithms.toy import changed
from tests.making import settings, tiny_critic, tiny_policy, two_groups
from tests.tiny import tiny_model
from toishi.algorithms.apply import assign_advantages
from toishi.algorithms.rows import Algorithm
from toishi.config import CriticConfig, CriticOptimizerConfig, OptimizerConfig
from toishi.errors import NumericsError
from toishi.passes import values_of, with_values
from toishi.policy.critic import Critic
from toishi.policy.optimizer import make_optimizer
from toishi.policy.policy import Policy
from toishi.policy.teacher import LocalTeacher
from toishi.types import Group, Rollout, Update
from toishi.update import UpdateSettings, update_policy

LAMBDA, COEF, BOUND = 0.9, 0.3, 0.05
PLAIN = changed("ppo", gae_lambda=LAMBDA, whiten=False, value_coef=COEF, value_clip=None, entropy_coef=0.01)
ONCE = changed("ppo", gae_lambda=1.0, whiten=False, value_clip=None, value_coef=0.5)


def chosen_for(row: Algorithm, **options: Any) -> UpdateSettings:
    critic = CriticConfig(optimizer=CriticOptimizerConfig(name="sgd", lr=0.1, max_grad_norm=None))
    return replace(settings(row, lr=0.1, **options), critic=critic)


def updated(
    policy: Policy, critic: Critic, chosen: UpdateSettings, groups: Sequence[Group] | None = None, step: int = 1
) -> tuple[tuple[Group, ...], tuple[Update, ...]]:
    valued = with_values(critic, groups or two_groups(), chosen)
    assigned = assign_advantages(valued, chosen.algorithm, max_new_tokens=8)
    optimizer = make_optimizer(policy, chosen.optimizer)
    return assigned, update_policy(policy, optimizer, assigned, chosen, step=step, critic=critic)


def padded(module: torch.nn.Module, rollouts: Sequence[Rollout]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Log-probs, entropies, last hidden states and the loss mask [B, T] of whole sequences, padded on the right."""
    whole = [(one.prompt.token_ids, one.completion.token_ids) for one in rollouts]
    width = max(len(p) + len(c) for p, c in whole)
    ids = torch.tensor([[*p, *c] + [0] * (width - len(p) - len(c)) for p, c in whole])
    attention = torch.tensor([[1] * (len(p) + len(c)) + [0] * (width - len(p) - len(c)) for p, c in whole])
    mask = torch.tensor([[len(p) <= at < len(p) + len(c) for at in range(width)] for p, c in whole])[:, 1:]
    output = module(input_ids=ids, attention_mask=attention, output_hidden_states=True)
    logp = torch.log_softmax(output.logits[:, :-1] / 0.7, -1)
    entropy = -(logp.exp() * logp).sum(-1)
    return logp.gather(2, ids[:, 1:, None])[..., 0], entropy, output.hidden_states[-1][:, :-1], mask


def by_recursion(values: Sequence[float], reward: float) -> list[float]:
    advantages, following = [], 0.0
    for place in reversed(range(len(values))):
        last = place == len(values) - 1
        surprise = (reward if last else values[place + 1]) - values[place]
        following = surprise + LAMBDA * following
        advantages.append(following)
    return advantages[::-1]


def teacher_of(policy: Policy) -> LocalTeacher:
    wise = tiny_model(policy.module.config.model_type, seed=9, dtype=policy.compute_dtype).requires_grad_(False)
    return LocalTeacher.of(Policy(wise, compute_dtype=policy.compute_dtype), policy)


def flat(weights: dict[str, Tensor]) -> Tensor:
    return torch.cat([(torch.zeros_like(w) if w.grad is None else w.grad).flatten() for w in weights.values()])


def distance(left: Tensor, right: Tensor) -> float:
    return float((left - right).norm() / right.norm())


@pytest.mark.parametrize("budget", [2048, 1])
@pytest.mark.parametrize("separate", [False, True])
def test_gradients_equal_those_of_a_padded_batch(separate: bool, budget: int) -> None:
    """-mean(A logp) + c_v · mean((V - R)²)/2 - c_e · mean(H), written out the usual way in float64."""
    policy, other = tiny_policy("gpt2"), tiny_policy("gpt2")
    critic, twin = tiny_critic(policy, separate=separate), tiny_critic(other, separate=separate)
    rollouts = [one for group in two_groups() for one in group.rollouts]
    logp, entropy, hidden, mask = padded(other.module, rollouts)
    if separate:
        hidden = padded(twin.trunk.module, rollouts)[2]
    values = hidden @ twin.weight_D + twin.bias
    advantages = torch.zeros_like(logp)
    for number, one in enumerate(rollouts):
        advantages[number][mask[number]] = torch.tensor(
            by_recursion(values[number][mask[number]].tolist(), one.reward or 0.0), dtype=torch.float64
        )
    returns = advantages + values.detach()
    count = mask.sum()
    loss = -(advantages * logp * mask).sum() / count - 0.01 * (entropy * mask).sum() / count
    loss = loss + COEF * (0.5 * (values - returns) ** 2 * mask).sum() / count
    loss.backward()  # type: ignore[no-untyped-call]
    assigned, (update,) = updated(policy, critic, chosen_for(PLAIN, micro_batch_tokens=budget))
    assert distance(flat(policy.masters), flat(other.masters)) < 1e-10
    assert distance(flat(critic.masters), flat(twin.masters)) < 1e-10
    found = [number for group in assigned for one in group.rollouts for number in one.returns or ()]
    assert found == pytest.approx(returns[mask].tolist(), abs=1e-10)
    assert update.scalars["update/value_loss"] == pytest.approx(
        float((0.5 * (values - returns).detach() ** 2 * mask).sum() / count), abs=1e-12
    )


@pytest.mark.parametrize("separate", [False, True])
def test_what_a_teacher_says_is_added(separate: bool) -> None:
    """.2 · mean KL(policy ‖ teacher), written out in float64, on top of the gradient without a teacher."""
    gradients, own = [], []
    for coef in (0.0, 0.2):
        policy = tiny_policy("gpt2")
        policy.teacher = teacher_of(policy)
        critic = tiny_critic(policy, separate=separate)
        updated(policy, critic, chosen_for(changed("a2c", divergence_coef=coef, divergence_beta=1.0)))
        gradients.append(flat(policy.masters))
        own.append(flat(critic.masters))
    plain, wise = tiny_policy("gpt2"), tiny_model("gpt2", seed=9, dtype=torch.float64)
    apart = []
    for one in (one for group in two_groups() for one in group.rollouts):
        ids, first = torch.tensor([[*one.prompt.token_ids, *one.completion.token_ids]]), len(one.prompt.token_ids) - 1
        own_logs, other_logs = (torch.log_softmax(m(ids).logits[0, first:-1] / 0.7, -1) for m in (plain.module, wise))
        apart.append((own_logs.exp() * (own_logs - other_logs.detach())).sum(-1))
    (0.2 * torch.cat(apart).mean()).backward()  # type: ignore[no-untyped-call]
    assert distance(gradients[1] - gradients[0], flat(plain.masters)) < 1e-9
    assert torch.equal(own[0], own[1])


@pytest.mark.parametrize("separate", [False, True])
def test_a2c_is_ppo_with_one_update_and_no_clip(separate: bool) -> None:
    gradients = []
    for row in (changed("a2c"), ONCE):
        policy = tiny_policy("gpt2")
        critic = tiny_critic(policy, separate=separate)
        updated(policy, critic, chosen_for(row))
        gradients.append(torch.cat([flat(policy.masters), flat(critic.masters)]))
    assert gradients[0].norm() > 0
    assert distance(gradients[1], gradients[0]) < 1e-12


@pytest.mark.parametrize("separate", [False, True])
def test_later_updates_see_new_values_beside_the_old_ones(separate: bool) -> None:
    once, twice = tiny_policy("gpt2"), tiny_policy("gpt2")
    critics = tiny_critic(once, separate=separate), tiny_critic(twice, separate=separate)
    assigned, (single,) = updated(once, critics[0], chosen_for(PLAIN))
    _, (first, second) = updated(twice, critics[1], chosen_for(PLAIN, inner_epochs=2))
    moved = values_of(critics[0], [one for group in assigned for one in group.rollouts], chosen_for(PLAIN))
    for before, after, alone in zip(first.streams, second.streams, single.streams, strict=True):
        assert before.value == alone.value
        assert after.value == pytest.approx(moved[after.rollout].values or (), abs=1e-12)
        assert after.value != before.value
        target = next(one.returns for group in assigned for one in group.rollouts if one.id == after.rollout)
        slopes = [COEF * (value - wanted) / 20 for value, wanted in zip(after.value, target or (), strict=True)]
        assert after.value_weight == pytest.approx(slopes, abs=1e-12), "returns are those from before the step"


def test_a_value_that_came_near_enough_is_held() -> None:
    policy = tiny_policy("gpt2")
    critic = tiny_critic(policy, separate=True)
    row = changed("ppo", whiten=False, value_coef=COEF, value_clip=BOUND)
    assigned, (_, second) = updated(policy, critic, chosen_for(row, inner_epochs=2))
    known = {one.id: one for group in assigned for one in group.rollouts}
    held = 0
    for stream in second.streams:
        old, target = known[stream.rollout].values or (), known[stream.rollout].returns or ()
        for value, before, wanted, slope in zip(stream.value, old, target, stream.value_weight, strict=True):
            nearer = abs(value - before) > BOUND and abs(before + (BOUND if value > before else -BOUND) - wanted) > abs(
                value - wanted
            )
            held += nearer
            assert slope == pytest.approx(0.0 if nearer else COEF * (value - wanted) / 20, abs=1e-12)
    assert held > 0
    assert second.scalars["update/value_clip_share"] == pytest.approx(held / 20)


@pytest.mark.parametrize("separate", [False, True])
def test_while_the_critic_learns_alone_the_policy_keeps_every_bit(separate: bool) -> None:
    policy = tiny_policy("llama", torch.float32)
    critic = tiny_critic(policy, separate=separate)
    before = {name: master.detach().clone() for name, master in policy.masters.items()}
    own = {name: master.detach().clone() for name, master in critic.masters.items()}
    chosen = chosen_for(changed("ppo", kl="k3", kl_coef=0.1, entropy_coef=0.1, divergence_coef=0.1))
    policy.keep_reference()
    policy.teacher = teacher_of(policy)
    chosen = replace(chosen, critic=chosen.critic.model_copy(update={"warmup_steps": 2}))
    _, (update,) = updated(policy, critic, chosen, step=2)
    assert all(torch.equal(before[name], master) for name, master in policy.masters.items())
    assert any(not torch.equal(own[name], master) for name, master in critic.masters.items())
    assert update.scalars["update/skipped"] == 1.0
    assert not any(weight for stream in update.streams for weight in (*stream.token_weight, *stream.divergence))
    assert all(stream.logprob for stream in update.streams)


def without_advantage(rollout: Rollout) -> Rollout:
    count = rollout.completion.num_tokens
    return replace(rollout, advantage=(0.0,) * count, returns=(1.0,) * count)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_without_an_advantage_a_separate_critic_learns_and_the_policy_is_not_stepped(optimizer: str) -> None:
    policy = tiny_policy("llama", torch.float32)
    critic = tiny_critic(policy, separate=True)
    chosen = replace(chosen_for(changed("a2c")), optimizer=OptimizerConfig(name=optimizer, lr=0.1, weight_decay=0.1))  # type: ignore[arg-type]
    valued = with_values(critic, two_groups(), chosen)
    groups = [replace(group, rollouts=tuple(map(without_advantage, group.rollouts))) for group in valued]
    before = {name: master.detach().clone() for name, master in policy.masters.items()}
    head = critic.weight_D.detach().clone()
    (update,) = update_policy(policy, make_optimizer(policy, chosen.optimizer), groups, chosen, step=1, critic=critic)
    assert update.scalars["update/skipped"] == 1.0
    assert all(torch.equal(before[name], master) for name, master in policy.masters.items())
    assert not torch.equal(head, critic.weight_D)


@pytest.mark.parametrize("separate", [False, True])
def test_a_gradient_that_is_not_finite_changes_neither(separate: bool) -> None:
    policy = tiny_policy("llama", torch.float32)
    critic = tiny_critic(policy, separate=separate)
    chosen = chosen_for(changed("a2c"))
    valued = with_values(critic, two_groups(), chosen)
    assigned = assign_advantages(valued, chosen.algorithm, max_new_tokens=8)
    broken = replace(assigned[0].rollouts[1], returns=(float("inf"),) * 2)
    groups = [replace(assigned[0], rollouts=(assigned[0].rollouts[0], broken, *assigned[0].rollouts[2:])), assigned[1]]
    before = [master.detach().clone() for master in (*policy.masters.values(), *critic.masters.values())]
    with pytest.raises(NumericsError, match="the value loss is inf in the rows of rollouts"):
        update_policy(policy, make_optimizer(policy, chosen.optimizer), groups, chosen, step=1, critic=critic)
    after = [*policy.masters.values(), *critic.masters.values()]
    assert all(torch.equal(old, new) for old, new in zip(before, after, strict=True))


def test_the_value_after_a_cut_answer_is_that_of_its_whole_text() -> None:
    policy = tiny_policy("gpt2")
    critic = tiny_critic(policy)
    first, second = two_groups()
    cut = replace(first.rollouts[0], completion=replace(first.rollouts[0].completion, finish_reason="length"))
    first = replace(first, rollouts=(cut, *first.rollouts[1:]))
    chosen = chosen_for(changed("a2c", truncation="bootstrap"))
    valued = with_values(critic, (first, second), chosen)
    whole = torch.tensor([[*cut.prompt.token_ids, *cut.completion.token_ids]])
    hidden = policy.module(input_ids=whole, output_hidden_states=True).hidden_states[-1][0]
    wanted = (hidden @ critic.weight_D + critic.bias).tolist()
    found = valued[0].rollouts[0]
    assert found.value_after == pytest.approx(wanted[-1], abs=1e-12)
    assert found.values == pytest.approx(wanted[3:6], abs=1e-12)
    assert [one.value_after for one in (*valued[0].rollouts[1:], *valued[1].rollouts)] == [None] * 6
    plain = with_values(critic, (first, second), chosen_for(changed("a2c")))
    assert plain[0].rollouts[0].value_after is None


@pytest.mark.parametrize("separate", [False, True])
def test_a_critic_learns_what_stays_the_same(separate: bool) -> None:
    policy = tiny_policy("gpt2")
    critic = tiny_critic(policy, separate=separate)
    chosen = chosen_for(changed("a2c", value_coef=1.0))
    optimizer = CriticOptimizerConfig(name="sgd", lr=0.01)  # hidden states of 32 numbers of size 1: 0.1 would overshoot
    chosen = replace(chosen, critic=CriticConfig(optimizer=optimizer, warmup_steps=40))
    losses = [updated(policy, critic, chosen, step=step)[1][0].scalars["update/value_loss"] for step in range(1, 41)]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.7 * losses[0]
