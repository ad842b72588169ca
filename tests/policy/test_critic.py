"""The critic: values from the hidden states of a pass, weights of its own, and what it refuses."""

from __future__ import annotations

import copy

import pytest
import torch

from tests.making import completion, tiny_critic, tiny_policy
from tests.tiny import tiny_model
from toishi.config import LoraConfig, ModelConfig, OptimizerConfig
from toishi.errors import ConfigError
from toishi.packing import pack_row
from toishi.passes import predict
from toishi.policy.adapters import with_adapters
from toishi.policy.critic import Critic, without_output_layer
from toishi.policy.head import HeadChoice
from toishi.policy.policy import Policy
from toishi.types import Prompt, Rollout, RolloutId


def answers(*ids: tuple[int, ...]) -> list[Rollout]:
    prompt = Prompt(id="p", text="?", token_ids=(5, 6, 7))
    return [Rollout(id=RolloutId(1, 0, member), prompt=prompt, completion=completion(one)) for member, one in enumerate(ids)]


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma"])
def test_values_are_the_head_on_the_hidden_state_that_predicts_the_token(family: str) -> None:
    """By the model's own list of hidden states, one sequence at a time."""
    policy = tiny_policy(family)
    critic = tiny_critic(policy)
    given = answers((9, 10, 4), (11, 4))
    row = pack_row(given)
    found = critic.values(predict(policy, row))
    wanted = []
    for one in given:
        ids = torch.tensor([[*one.prompt.token_ids, *one.completion.token_ids]])
        hidden = policy.module(input_ids=ids, output_hidden_states=True).hidden_states[-1][0]
        wanted.append(hidden[2 : 2 + one.completion.num_tokens].double() @ critic.weight_D + critic.bias)
    torch.testing.assert_close(found, torch.cat(wanted), atol=1e-6, rtol=1e-6)


def test_the_plain_way_gives_the_same_values() -> None:
    policy = tiny_policy("gpt2")
    critic, row = tiny_critic(policy), pack_row(answers((9, 10, 4)))
    fast = critic.values(predict(policy, row))
    policy.head = HeadChoice(fast=None, why="for comparison", base=policy.head.base)
    torch.testing.assert_close(critic.values(predict(policy, row)), fast, atol=1e-12, rtol=1e-12)


def test_starts_at_0_in_the_masters_precision() -> None:
    policy = Policy(tiny_model("llama"), compute_dtype=torch.bfloat16)
    critic = Critic(policy, OptimizerConfig(), owns_trunk=False)
    values = critic.values(predict(policy, pack_row(answers((9, 4)))))
    assert values.dtype == torch.float32
    assert values.tolist() == [0.0, 0.0]
    assert set(critic.masters) == {"head.weight", "head.bias"}


@pytest.mark.parametrize("separate", [False, True])
def test_a_state_comes_back_bit_for_bit(separate: bool) -> None:
    policy = tiny_policy("llama", torch.float32)
    critic = tiny_critic(policy, separate=separate)
    row = pack_row(answers((9, 10, 4)))

    def step() -> None:
        critic.zero_grad()
        critic.values(predict(critic.trunk, row)).square().sum().backward()  # type: ignore[no-untyped-call]
        critic.step()

    step()
    kept = copy.deepcopy(critic.state())
    step()
    after = copy.deepcopy(critic.state())
    critic.load(kept)
    assert all(torch.equal(critic.masters[name], weight) for name, weight in kept["masters"].items())
    step()
    assert all(torch.equal(critic.masters[name], weight) for name, weight in after["masters"].items())
    assert any(not torch.equal(kept["masters"][name], weight) for name, weight in after["masters"].items())


def test_a_trunk_of_its_own_moves_alone() -> None:
    policy = tiny_policy("llama")
    critic = tiny_critic(policy, separate=True)
    before = {name: master.detach().clone() for name, master in policy.masters.items()}
    critic.values(predict(critic.trunk, pack_row(answers((9, 10, 4))))).sum().backward()  # type: ignore[no-untyped-call]
    moving = {name for name, master in critic.masters.items() if master.grad is not None}
    critic.step()
    assert any(name.startswith("trunk.") for name in moving)
    assert all(torch.equal(before[name], master) for name, master in policy.masters.items())


def test_only_adapters_are_the_critics_own_where_adapters_are_trained() -> None:
    module = with_adapters(tiny_model("llama"), ModelConfig(lora=LoraConfig(rank=2)), seed=0)
    critic = Critic(Policy(module, compute_dtype=torch.float32), OptimizerConfig(), owns_trunk=True)
    assert all("lora" in name for name in critic.masters if not name.startswith("head."))


def test_an_untied_output_layer_is_not_trained_in_a_critic() -> None:
    untied = without_output_layer(tiny_model("llama", tie_word_embeddings=False))
    assert not untied.get_output_embeddings().weight.requires_grad
    tied = without_output_layer(tiny_model("gemma", tie_word_embeddings=True))
    assert tied.get_output_embeddings().weight.requires_grad


def test_a_model_without_hidden_states_is_refused() -> None:
    policy = tiny_policy("llama")
    policy.head = HeadChoice(fast=None, why="for comparison")
    with pytest.raises(ConfigError, match="has no model below its head"):
        Critic(policy, OptimizerConfig(), owns_trunk=False)
