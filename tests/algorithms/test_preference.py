"""Pairs inside a group: which there are, their numbers, and what they need."""

from __future__ import annotations

from dataclasses import replace

import pytest

from toishi.algorithms.apply import assign_advantages
from toishi.algorithms.preference import pair_metrics
from toishi.algorithms.rows import algorithm
from toishi.types import Completion, Group, Prompt, Rollout, RolloutId

PROMPT = Prompt(id="a", text="?")


def group(*rewards: float | None) -> Group:
    """One token an answer, with log-prob -1 under the policy and -1.5 under the reference."""
    answer = Completion(
        token_ids=(1,), loss_mask=(1,), sampled_logprobs=(-1.0,), entropies=(1.0,), text="!", finish_reason="stop"
    )
    rollouts = (
        Rollout(id=RolloutId(1, 0, member), prompt=PROMPT, completion=answer, reward=reward, ref_logprobs=(-1.5,))
        for member, reward in enumerate(rewards)
    )
    return Group(prompt=PROMPT, rollouts=tuple(rollouts))


@pytest.mark.parametrize("rewards", [(1.0, None), (None, None), (0.5, 0.5)])
def test_without_two_answers_of_different_worth_there_is_no_pair(rewards: tuple[float | None, ...]) -> None:
    row = algorithm("dpo_online")
    (assigned,) = assign_advantages([group(*rewards)], row, max_new_tokens=8)
    assert all(rollout.advantage in (0.0, (0.0,)) for rollout in assigned.rollouts)
    assert set(pair_metrics([assigned], row).values()) == {None}


def test_the_numbers_of_a_pair() -> None:
    """Both ratios are .5, so h = 0: loss log 2, margin 0, and the chosen answer is not ahead."""
    row = algorithm("dpo_online")
    numbers = pair_metrics(assign_advantages([group(1.0, 0.0)], row, max_new_tokens=8), row)
    assert numbers["preference/loss"] == pytest.approx(0.6931471805599453, abs=1e-12)
    assert numbers["preference/margin"] == 0.0
    assert numbers["preference/accuracy"] == 0.0


def test_missing_log_probs_are_said() -> None:
    bare = group(1.0, 0.0)
    bare = replace(bare, rollouts=tuple(replace(rollout, ref_logprobs=None) for rollout in bare.rollouts))
    with pytest.raises(ValueError, match="needs log-probs under the policy and the reference model"):
        assign_advantages([bare], algorithm("dpo_online"), max_new_tokens=8)


def test_a_missing_score_is_said() -> None:
    bare = group(1.0, 0.0)
    emptied = [replace(rollout, completion=replace(rollout.completion, sampled_logprobs=())) for rollout in bare.rollouts]
    with pytest.raises(ValueError, match="needs the score that the model gives it"):
        assign_advantages([replace(bare, rollouts=tuple(emptied))], algorithm("reward_model"), max_new_tokens=4)
