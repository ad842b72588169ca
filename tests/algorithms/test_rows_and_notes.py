"""Rows refuse contradictions; every row has a note, and the notes use only symbols that exist."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from tests.algorithms.toy import changed
from toishi.algorithms.note import SYMBOLS
from toishi.algorithms.notes import NOTES, describe
from toishi.algorithms.rows import ROWS, algorithm
from toishi.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "choices", "message"),
    [
        ("grpo", {"kl_coef": 0.1}, "kl_coef=0.1 has no effect while kl is 'none'"),
        ("grpo", {"truncation": "soft_penalty"}, "needs soft_penalty_tokens"),
        ("grpo", {"soft_penalty_tokens": 4}, "soft_penalty_tokens=4 has no effect"),
        ("maxrl", {"baseline": "leave_one_out"}, "baseline must be 'group_mean'"),
        ("maxrl", {"reward_map": "plus_minus"}, "needs rewards >= 0"),
        ("maxrl", {"truncation": "soft_penalty", "soft_penalty_tokens": 4}, "needs rewards >= 0"),
        ("maxrl", {"kl": "k1_in_reward", "kl_coef": 0.1}, "needs rewards >= 0"),
        ("grpo", {"baseline": "none"}, "scale 'group_std' with baseline 'none'"),
        ("reinforce_pp", {"baseline": "none"}, "scale 'batch_std' with baseline 'none'"),
        ("raft", {"baseline": "group_mean"}, "filter 'keep_best' gives the best answers advantage 1"),
        ("ppo", {"credit": "reward_to_go"}, "baseline 'critic' and credit 'gae' need each other"),
        ("grpo", {"credit": "gae"}, "baseline 'critic' and credit 'gae' need each other"),
        ("ppo", {"scale": "batch_std"}, "set scale to 'none', and whiten to true"),
        ("a2c", {"policy_term": False}, "for sampled answers that teach the policy"),
        ("a2c", {"source": "written"}, "for sampled answers that teach the policy"),
        ("grpo", {"gamma": 0.9}, "are about a critic's values, and baseline 'group_mean' has none"),
        ("grpo", {"truncation": "bootstrap"}, "are about a critic's values"),
        ("reward_model", {"source": "sampled"}, "predicts 'score' learns from pairs"),
        ("reward_model", {"kl": "k3", "kl_coef": 0.1}, "has no distribution over tokens"),
        ("dpo", {"centring": 0.1}, "centring=0.1 holds scores near 0, and predicts 'tokens' has none"),
        ("grpo", {"std_ddof": True}, "Input should be 0 or 1"),
        ("grpo", {"clip": 0.2}, "Extra inputs are not permitted"),
    ],
)
def test_contradictions_are_refused(name: str, choices: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        changed(name, **choices)


def test_unknown_row() -> None:
    with pytest.raises(ConfigError, match="unknown algorithm 'dappo'; did you mean 'dapo'"):
        algorithm("dappo")
    with pytest.raises(ConfigError, match="unknown algorithm 'dappo'; did you mean 'dapo'"):
        describe("dappo")


def test_rows_that_need_a_group() -> None:
    alone = {name for name, row in ROWS.items() if not row.needs_group}
    assert alone == {
        *("reinforce", "reinforce_pp", "raft", "raft_pp", "entropy_only", "sft", "dft", "unlikelihood", "a2c", "ppo"),
        *("gkd", "opd", "opd_sampled"),
    }


def test_rows_that_move_without_an_advantage() -> None:
    assert {name for name, row in ROWS.items() if row.moves_without_advantage} == {"entropy_only", "gkd", "opd"}
    assert changed("grpo", kl="k3", kl_coef=0.1).moves_without_advantage
    assert not changed("grpo", kl="k1_in_reward", kl_coef=0.1).moves_without_advantage
    assert {name for name, row in ROWS.items() if row.needs_reference} == {"dpo", "ipo", "dpo_online", "opd_sampled"}
    assert {name for name, row in ROWS.items() if row.needs_step_0} == {"dpo", "ipo", "dpo_online"}
    assert {name for name, row in ROWS.items() if row.needs_teacher} == {"gkd", "opd", "opd_sampled"}


def test_sequence_ratios_are_reduced_by_the_mean_of_their_tokens() -> None:
    for row in ROWS.values():
        assert row.ratio_level == "token" or row.reduction == "sequence_mean_token_mean"


def test_every_row_has_a_note_and_every_note_a_row() -> None:
    assert set(NOTES) == set(ROWS)


@pytest.mark.parametrize("name", sorted(NOTES))
def test_notes_are_complete(name: str) -> None:
    note = describe(name)
    assert note.name == name
    assert all((note.title, note.meaning, note.equation, note.symbols, note.traps))
    assert "arXiv" in note.paper or name == "reinforce"
    for symbol, meaning in note.symbols:
        assert meaning
        assert SYMBOLS.get(symbol, meaning) == meaning
