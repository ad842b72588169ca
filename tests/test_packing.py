"""Packing: hand-written rows, and equality with one unpacked sequence at a time."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import settings as budget
from hypothesis import strategies as st

from tests.making import completion, group, tiny_policy
from toishi.ops.logprobs import logprobs_and_entropy
from toishi.packing import pack, pack_row
from toishi.types import Prompt, Rollout, RolloutId

FAMILIES = ("llama", "qwen2", "qwen3", "gemma", "gpt2")


def test_layout_shows_each_answer_the_prompt_and_itself() -> None:
    row = pack_row(group(0, [7, 8], [[1, 2, 3], [4, 5]], [0.0, 0.0]).rollouts)
    # fed: 7 8 | 1 2 | 4
    assert row.input_ids_L.tolist() == [7, 8, 1, 2, 4]
    assert row.position_ids_L.tolist() == [0, 1, 2, 3, 2]
    assert row.layout is not None
    assert row.layout.allowed_LL().int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0],
        [1, 1, 0, 0, 1],
    ]
    assert row.keep_N.tolist() == [1, 2, 3, 1, 4]
    assert row.targets_N.tolist() == [1, 2, 3, 4, 5]
    assert row.lengths_B.tolist() == [3, 2]


def test_a_row_that_is_fed_whole_keeps_the_tokens_with_loss_themselves() -> None:
    answers = [completion([1, 2, 3], loss_mask=[0, 0, 1]), completion([4], loss_mask=[1])]
    prompt = Prompt(id="p", text="?", token_ids=(7, 8))
    rollouts = [Rollout(id=RolloutId(1, 0, member), prompt=prompt, completion=one) for member, one in enumerate(answers)]
    row = pack_row(rollouts, whole=True)
    assert row.input_ids_L.tolist() == [7, 8, 1, 2, 3, 4]
    assert row.position_ids_L.tolist() == [0, 1, 2, 3, 4, 2]
    assert row.keep_N.tolist() == [4, 5]
    assert row.targets_N.tolist() == [3, 4]
    assert [len(one.input_ids_L) for one in pack(rollouts, shared_prompt=True, token_budget=5, whole=True)] == [5, 3]


def test_tokens_without_loss_are_fed_but_not_kept() -> None:
    prompt = Prompt(id="p", text="?", token_ids=(7, 8))
    rollout = Rollout(id=RolloutId(1, 0, 0), prompt=prompt, completion=completion([1, 2, 3], loss_mask=[1, 0, 1]))
    row = pack_row([rollout])
    assert row.input_ids_L.tolist() == [7, 8, 1, 2]
    assert row.layout is None
    assert row.keep_N.tolist() == [1, 3]
    assert row.targets_N.tolist() == [1, 3]
    assert row.lengths_B.tolist() == [2]
    assert row.stream([[0.1, 0.2, 0.3]], torch.float64).tolist() == [0.1, 0.3]


def test_pack_splits_by_budget_and_never_mixes_prompts() -> None:
    first = group(0, [1] * 4, [[9] * 3] * 4, [0.0] * 4).rollouts  # each answer feeds 2 tokens beyond the prompt
    second = group(1, [2] * 4, [[9] * 3] * 1, [0.0]).rollouts
    rows = pack([*first, *second], shared_prompt=True, token_budget=8)
    assert [len(row.rollouts) for row in rows] == [2, 2, 1]
    assert [len(row.input_ids_L) for row in rows] == [8, 8, 6]
    alone = pack([*first, *second], shared_prompt=False, token_budget=8)
    assert [len(row.rollouts) for row in alone] == [1] * 5
    assert pack([], shared_prompt=True, token_budget=8) == []


def test_a_row_of_two_prompts_shows_neither_the_other() -> None:
    row = pack_row([*group(0, [7, 8], [[1, 2], [3]], [0.0, 0.0]).rollouts, *group(1, [9], [[4, 5]], [0.0]).rollouts])
    # fed: 7 8 | 1 |  || 9 | 4
    assert row.input_ids_L.tolist() == [7, 8, 1, 9, 4]
    assert row.position_ids_L.tolist() == [0, 1, 2, 0, 1]
    assert row.layout is not None
    assert row.layout.allowed_LL().int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [0, 0, 0, 1, 0],
        [0, 0, 0, 1, 1],
    ]
    assert row.keep_N.tolist() == [1, 2, 1, 3, 4]
    assert row.targets_N.tolist() == [1, 2, 3, 4, 5]
    assert row.sequence_N.tolist() == [0, 0, 1, 2, 2]


def test_groups_are_mixed_whole_and_in_order() -> None:
    groups = [group(n, [n] * 4, [[9] * 3] * 3, [0.0] * 3).rollouts for n in range(3)]  # 10 fed tokens each
    rollouts = [rollout for siblings in groups for rollout in siblings]

    def split(token_budget: int) -> list[list[tuple[int, int]]]:
        rows = pack(rollouts, shared_prompt=True, mix_groups=True, token_budget=token_budget)
        assert [r.id for row in rows for r in row.rollouts] == [r.id for r in rollouts]
        assert all(len(row.input_ids_L) <= token_budget for row in rows)
        return [[(r.id.group, r.id.member) for r in row.rollouts] for row in rows]

    assert [len(row) for row in split(30)] == [9]
    assert [len(row) for row in split(29)] == [6, 3]
    assert [len(row) for row in split(19)] == [3, 3, 3]
    # A group that does not fit is split; what is left of it takes no group with it that does not fit either.
    assert [len(row) for row in split(8)] == [2, 1, 2, 1, 2, 1]


def test_an_answer_longer_than_the_budget_still_has_its_row() -> None:
    rows = pack(group(0, [1, 2], [[3] * 20, [3]], [0.0, 0.0]).rollouts, shared_prompt=True, token_budget=5)
    assert [len(row.rollouts) for row in rows] == [1, 1]


@pytest.mark.parametrize("family", FAMILIES)
@budget(max_examples=8, deadline=None)
@given(data=st.data())
def test_packed_logprobs_equal_one_sequence_at_a_time(family: str, data: st.DataObject) -> None:
    """Random prompts and answers (length 1 included): the shared-prompt row and the unmodified model agree to 1e-10."""
    token = st.integers(5, 120)
    prompt_ids = data.draw(st.lists(token, min_size=1, max_size=8))
    answers = data.draw(st.lists(st.lists(token, min_size=1, max_size=7), min_size=1, max_size=4))
    policy = tiny_policy(family)
    row = pack_row(group(0, prompt_ids, answers, [0.0] * len(answers)).rollouts)
    with torch.no_grad():
        logits_NV = policy.logits(row.input_ids_L, row.position_ids_L, row.keep_N, row.layout)
        packed_N, entropy_N = logprobs_and_entropy(logits_NV, row.targets_N, 0.7)
        plain, plain_entropy = [], []
        for answer in answers:
            logits_LV = policy.module(torch.tensor([prompt_ids + answer])).logits[0, len(prompt_ids) - 1 : -1] / 0.7
            logprobs_LV = torch.log_softmax(logits_LV, dim=-1)
            plain += logprobs_LV[range(len(answer)), answer].tolist()
            plain_entropy += (-(logprobs_LV.exp() * logprobs_LV).sum(-1)).tolist()
    torch.testing.assert_close(packed_N, torch.tensor(plain, dtype=torch.float64), rtol=0, atol=1e-10)
    torch.testing.assert_close(entropy_N, torch.tensor(plain_entropy, dtype=torch.float64), rtol=0, atol=1e-10)
