"""The chain of real steps: every link there, every check passed, and its numbers those that follow from the written scores."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from tests.explanation.chain.runs import MEAN, PROMPTS, make
from toishi.algorithms.rows import ROWS
from toishi.errors import ConfigError, RecordError
from toishi.explanation.chain.build import explain_chain
from toishi.explanation.chain.model import LINKS, Chain
from toishi.explanation.chain.story import page
from toishi.explanation.chain.voice import known_languages
from toishi.explanation.page.render_html import html_page
from toishi.record import Run
from toishi.record.trace import Trace
from toishi.record.trace_files import read_trace

SPREAD = math.sqrt(sum((2 * score + 0.25 - MEAN) ** 2 for score in (0.75, 0.5, 0.25)) / 2)


@pytest.fixture(scope="module")
def chain(run: Run) -> Chain:
    return explain_chain(run, 1, group=0, member=3)


def test_all_links_are_there_and_pass(chain: Chain) -> None:
    assert [check.name for check in chain.checks] == list(LINKS)
    assert chain.broken is None
    assert chain.missing == ()
    assert all(check.ok and check.compared and check.how for check in chain.checks)


def test_scores_and_rewards_are_the_written_ones(chain: Chain) -> None:
    judged = [next(score for score in member.scores if score.reward == "judge") for member in chain.scores.members]
    assert [score.value for score in judged] == [0.75, 0.5, None, 0.25]
    assert judged[2].status == "failed"
    assert judged[2].reason == "no answer within 30 s"
    assert [score.contribution for score in judged] == [1.5, 1.0, None, 0.5]
    assert [member.recorded for member in chain.reward.members] == [1.75, 1.25, None, 0.75]
    terms = chain.reward.members[0].terms
    assert [(term.reward, term.weight, term.value, term.use) for term in terms] == [
        ("judge", 2.0, 0.75, "counted"),
        ("style", 0.5, 0.5, "counted"),
    ]


def test_the_failed_answer_is_left_out_with_its_reason(chain: Chain) -> None:
    link = chain.baseline
    assert [link.mean, link.std] == pytest.approx([MEAN, SPREAD])
    assert (link.count, link.size) == (3, 4)
    assert [member.counts for member in link.members] == [True, True, False, True]
    assert "no answer within 30 s" in link.members[2].left_out
    assert chain.advantage.members[2].recorded == 0.0


def test_advantages_by_hand(chain: Chain) -> None:
    expected = [(reward - MEAN) / (SPREAD + 1e-4) for reward in (1.75, 1.25, 0.75)]
    found = [member.recorded for member in chain.advantage.members if member.member != 2]
    assert found == pytest.approx(expected)
    last = chain.advantage.members[3]
    assert [last.subtracted, last.divisor] == pytest.approx([MEAN, SPREAD])
    assert last.worked == "member 3: (0.75 - 1.25) / (0.5 + 0.0001) = -0.9998"


def test_token_weights_have_their_factors(chain: Chain) -> None:
    assert chain.weights is not None
    assert (chain.weights.update, chain.weights.num_updates, chain.weights.num_sequences) == (0, 2, 7)
    assert not chain.weights.members[2].computed
    member = chain.weights.members[3]
    trained = [token for token in member.tokens if token.has_loss]
    for token in trained:
        assert token.ratio == 1.0
        assert token.share == pytest.approx(1 / (7 * len(trained)))
        assert token.weight == pytest.approx(0.9998 * token.share, rel=1e-4)
        assert abs(token.kl_part) < 1e-7  # the policy is still its own reference, up to rounding
        assert token.autograd == pytest.approx(token.weight, rel=1e-6)


def test_the_second_update_clips_and_pays_kl(run: Run) -> None:
    second = explain_chain(run, 1, group=0, member=0, update=1)
    assert second.broken is None
    assert second.weights is not None
    tokens = [token for member in second.weights.members for token in member.tokens if token.has_loss]
    assert any(token.clip for token in tokens)
    assert all(token.policy_part == 0.0 for token in tokens if token.clip)
    assert any(token.kl_part != 0.0 for token in tokens)
    assert second.change is not None
    assert second.change.update == 1


def test_a_tied_group_is_said_to_teach_nothing(run: Run, untraced: Run) -> None:
    tied = explain_chain(untraced, 1, group=1)
    assert tied.headlines[0].startswith("All 4 scored answers got the same reward: nothing to compare")
    with_kl = explain_chain(run, 1, group=1)
    assert with_kl.broken is None
    assert with_kl.baseline.tied
    assert with_kl.sft is None
    assert "on prompt 0" in with_kl.missing[0]


def test_an_untraced_step_says_how_to_trace_it(untraced: Run) -> None:
    found = explain_chain(untraced, 1, group=0)
    assert [check.name for check in found.checks] == list(LINKS[:6])
    assert (found.change, found.effect, found.sft) == (None, None, None)
    assert f"toishi replay {untraced.folder} --step 1 --trace --group 0" in found.missing[0]


def test_the_largest_pushes_are_chosen(run: Run) -> None:
    found = explain_chain(run, 1)
    assert (found.group, found.chosen) == (0, True)
    sums = {
        stream.rollout.member: sum(map(abs, stream.token_weight))
        for stream in run.step(1).updates[0].streams
        if stream.rollout.group == 0
    }
    assert sums[found.member or 0] == max(sums.values())


def test_effects_are_the_traces(run: Run, chain: Chain) -> None:
    assert chain.effect is not None
    trace = read_trace(run.folder, 1)
    kinds = [answer.kind for answer in chain.effect.answers]
    assert kinds == ["rollout"] * 4 + ["greedy", "other_prompt"]
    for answer in chain.effect.answers[:4]:
        text = trace.text(0, answer.member or 0)
        assert text is not None
        assert answer.change == pytest.approx(sum(text.after) - sum(text.before), abs=1e-9)
        assert answer.times == pytest.approx(math.exp(answer.change))
    assert chain.effect.answers[2].agreed is None


def test_truncated_answers_are_named(run: Run) -> None:
    cut = [rollout.id.member for rollout in run.step(1).groups[0].rollouts if rollout.completion.is_truncated]
    assert cut, "the tiny model never stops by itself"
    text = html_page(page(explain_chain(run, 1, group=0)))
    assert f"and scored as far as they went: {', '.join(f'#{member}' for member in cut)}" in text


def test_json_is_the_dataclasses(chain: Chain) -> None:
    adapter = TypeAdapter(Chain)
    text = adapter.dump_json(chain)
    assert adapter.validate_json(text) == chain
    assert json.loads(text)["weights"]["members"][3]["tokens"][0]["share"] > 0


ODD: dict[str, dict[str, Any]] = {
    "token mean, k2": {"algorithm": {"name": "dapo", "kl": "k2", "kl_coef": 0.2}},
    "ratio k3": {"algorithm": {"name": "grpo", "kl": "ratio_k3", "kl_coef": 0.2}},
    "entropy, correction": {"algorithm": {"name": "grpo", "entropy_coef": 0.1, "off_policy": "truncated_importance"}},
    "kl in the reward": {"algorithm": {"name": "reinforce_pp", "kl_coef": 0.1}},
    "cut answers masked": {"algorithm": {"name": "grpo", "truncation": "mask"}},
    "minibatches": {"train.minibatches": 2, "train.inner_epochs": 1},
    "adapters": {"model.lora": {"rank": 2, "alpha": 4.0}},
    "sgd in bfloat16": {"model.dtype": "bfloat16", "optimizer": {"name": "sgd", "lr": 1e-4}},
}
SAMPLED = {
    name: {"algorithm": {"name": name}} for name, row in ROWS.items() if row.source == "sampled" and not row.needs_teacher
}
"""Rows of written answers have runs of their own in tests/test_written.py, those with a teacher in test_distillation.py."""
CASES = SAMPLED | {"dpo_online": {"algorithm": {"name": "dpo_online"}, "train.inner_epochs": 1}} | ODD


@pytest.mark.parametrize("name", CASES)
def test_every_row_passes_and_can_be_told(name: str, tiny: Path, tmp_path: Path) -> None:
    run = make(tiny, tmp_path / "run", **({"train.inner_epochs": 2} | CASES[name]))
    updates = len(run.step(1).updates)
    for group in range(2):
        for update in (None, *range(updates)):
            found = explain_chain(run, 1, group=group, update=update)
            assert found.broken is None, next(check for check in found.checks if not check.ok)
            assert found.headlines
        for language in known_languages():
            assert "{" not in " ".join(section.headline for section in page(found, language).sections)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"group": 7}, "has no group 7; it has groups 0 to 1"),
        ({"group": 0, "member": 9}, "has no member 9; it has 0 to 3"),
        ({"group": 0, "update": 5}, "has no update 5; it has updates 0 to 1"),
        ({"member": 1}, "member 1 of which group"),
    ],
)
def test_what_is_not_there_is_refused(asked: dict[str, Any], message: str, run: Run) -> None:
    with pytest.raises(ConfigError, match=message):
        explain_chain(run, 1, **asked)


def test_a_step_that_is_not_there(run: Run) -> None:
    with pytest.raises(RecordError, match="step 9 is not on record"):
        explain_chain(run, 9, group=0)


def test_the_prompt_is_shown(chain: Chain) -> None:
    assert chain.prompt == PROMPTS[0]


def test_what_two_passes_differ_by_is_measured(chain: Chain, run: Run) -> None:
    assert chain.effect is not None
    trace, update = read_trace(run.folder, 1), run.step(1).updates[0]
    apart = [
        abs(one - other)
        for stream in update.streams
        if stream.rollout.group == 0 and stream.computed
        for one, other in zip(text_before(trace, stream.rollout.member), stream.old_logprob, strict=True)
    ]
    assert chain.effect.dtype == "float32"
    assert max(apart) <= chain.effect.noise < 1e-3


def text_before(trace: Trace, member: int) -> tuple[float, ...]:
    text = trace.text(0, member)
    assert text is not None
    return text.before
