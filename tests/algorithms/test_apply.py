"""Advantages from scores: masks, maps, penalties, KL in the reward, credit, filters, steps. Hand numbers throughout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.algorithms.toy import EOS, advantages_of, changed, completion, group, rollout, with_scores
from toishi.algorithms.apply import assign_advantages, counted
from toishi.algorithms.rows import algorithm
from toishi.algorithms.shaping import soft_overlong_penalty
from toishi.errors import ConfigError, NumericsError, RewardError
from toishi.types import Group, GroupBaseline, Rollout, Score

CENTRED = changed("dr_grpo")


def of(rollouts: Sequence[Rollout]) -> Group:
    return Group(prompt=rollouts[0].prompt, rollouts=tuple(rollouts))


def step(start: int, end: int, value: float | None, **more: Any) -> Score:
    return Score(reward="step", value=value, span=(start, end), **more)


class TestEffectiveMask:
    def test_unscored_and_failed_members_are_outside_and_get_zero(self) -> None:
        members = list(group([1.0, None, 0.0, 0.5]).rollouts)
        members[3] = replace(members[3], status="failed", failure="engine: out of memory")
        (done,) = assign_advantages([of(members)], CENTRED, max_new_tokens=8)
        assert [member.advantage for member in done.rollouts] == [0.5, 0.0, -0.5, 0.0]
        assert done.baseline == GroupBaseline(mean=0.5, std=pytest.approx(math.sqrt(0.5)), count=2)  # type: ignore[arg-type]
        assert [member.id.member for member in counted([done], CENTRED)] == [0, 2]

    def test_a_group_without_any_score(self) -> None:
        (done,) = assign_advantages([group([None, None])], CENTRED, max_new_tokens=8)
        assert done.baseline == GroupBaseline(mean=None, std=None, count=0)
        assert [member.advantage for member in done.rollouts] == [0.0, 0.0]

    def test_masked_truncation_leaves_baseline_advantage_and_denominators(self) -> None:
        members = [rollout(0, (1, EOS), 1.0), rollout(1, (1, EOS), 0.0), rollout(2, (1, 1), 0.0, truncated=True)]
        row = changed("dr_grpo", truncation="mask")
        (done,) = assign_advantages([of(members)], row, max_new_tokens=2)
        assert [member.advantage for member in done.rollouts] == [0.5, -0.5, 0.0]
        assert len(counted([done], row)) == 2
        kept = advantages_of([of(members)], CENTRED)[0]
        assert kept == pytest.approx([2 / 3, -1 / 3, -1 / 3])

    def test_truncation_by_status_counts_as_truncation(self) -> None:
        members = [rollout(0, (1,), 1.0), rollout(1, (1,), 0.0), replace(rollout(2, (1,), 0.0), status="truncated")]
        assert advantages_of([of(members)], changed("dr_grpo", truncation="mask"))[0] == [0.5, -0.5, 0.0]

    def test_groups_of_different_sizes(self) -> None:
        groups = [group([1.0, 0.0]), group([1.0, 0.0, 0.0, 0.0], index=1), group([3.0], index=2)]
        assert advantages_of(groups, CENTRED) == [[0.5, -0.5], [0.75, -0.25, -0.25, -0.25], [0.0]]

    def test_no_groups(self) -> None:
        assert assign_advantages([], CENTRED, max_new_tokens=8) == ()

    @pytest.mark.parametrize("reward", [math.nan, math.inf])
    def test_a_reward_that_is_not_finite_stops(self, reward: float) -> None:
        with pytest.raises(NumericsError, match=r"rollout 0/0/1: reward (nan|inf) is not a finite number"):
            assign_advantages([group([1.0, reward])], CENTRED, max_new_tokens=8)


class TestRewards:
    def test_plus_minus_map(self) -> None:
        row = changed("reinforce", reward_map="plus_minus")
        assert advantages_of([group([1.0, 0.0, 0.75])], row) == [[1.0, -1.0, 0.5]]

    @pytest.mark.parametrize(
        ("length", "penalty"), [(0, 0.0), (16384, 0.0), (16385, -1 / 4096), (18432, -0.5), (20480, -1.0), (30000, -1.0)]
    )
    def test_soft_overlong_penalty_at_the_papers_lengths(self, length: int, penalty: float) -> None:
        assert soft_overlong_penalty(length, limit=20480, ramp=4096) == pytest.approx(penalty, abs=1e-15)

    def test_soft_penalty_lowers_the_reward_of_long_answers(self) -> None:
        row = changed("reinforce", truncation="soft_penalty", soft_penalty_tokens=4)
        answers = [(1,) * 4, (1,) * 6, (1,) * 8]
        assert advantages_of([group([1.0, 1.0, 1.0], answers)], row, limit=8) == [[1.0, 0.5, 0.0]]

    def test_a_ramp_longer_than_the_limit_is_refused(self) -> None:
        row = changed("reinforce", truncation="soft_penalty", soft_penalty_tokens=9)
        with pytest.raises(ConfigError, match=r"soft_penalty_tokens=9 must be between 1 and sampling\.max_new_tokens=8"):
            assign_advantages([group([1.0])], row, max_new_tokens=8)

    def test_maxrl_refuses_a_negative_reward(self) -> None:
        with pytest.raises(RewardError, match=r"rollout 0/0/1: reward -0\.5 is negative"):
            assign_advantages([group([1.0, -0.5])], algorithm("maxrl"), max_new_tokens=8)

    def test_maxrl(self) -> None:
        assert advantages_of([group([1.0, 0.0, 0.0, 0.0]), group([0.0, 0.0], index=1)], algorithm("maxrl")) == [
            [3.0, -1.0, -1.0, -1.0],
            [0.0, 0.0],
        ]


def with_kl(member: Rollout, gaps: Sequence[float]) -> Rollout:
    """sampled - reference log-prob of each token."""
    sampled = tuple(-1.0 for _ in gaps)
    ref = tuple(-1.0 - gap for gap in gaps)
    return replace(member, completion=completion(member.completion.token_ids, sampled=sampled), ref_logprobs=ref)


class TestKlInReward:
    MEMBERS = (
        with_kl(rollout(0, (1, 2), 1.0), (0.5, 1.5)),
        with_kl(rollout(1, (1,), 0.0), (-1.0,)),
    )

    def test_sequence_credit_pays_the_sum(self) -> None:
        row = changed("reinforce", kl="k1_in_reward", kl_coef=0.1)
        assert advantages_of([of(self.MEMBERS)], row)[0] == pytest.approx([0.8, 0.1], abs=1e-12)

    def test_reward_to_go_pays_token_by_token(self) -> None:
        row = changed("reinforce", kl="k1_in_reward", kl_coef=0.1, credit="reward_to_go")
        first, second = advantages_of([of(self.MEMBERS)], row)[0]
        assert first == pytest.approx((0.8, 0.85), abs=1e-12)
        assert second == pytest.approx((0.1,), abs=1e-12)

    def test_tokens_without_loss_pay_nothing(self) -> None:
        member = self.MEMBERS[0]
        masked = replace(member, completion=replace(member.completion, loss_mask=(0, 1)))
        row = changed("reinforce", kl="k1_in_reward", kl_coef=0.1)
        assert advantages_of([of([masked])], row)[0] == pytest.approx([0.85], abs=1e-12)

    def test_without_a_coefficient_no_reference_is_needed(self) -> None:
        assert advantages_of([group([1.0])], changed("reinforce", kl="k1_in_reward")) == [[1.0]]

    def test_missing_reference_log_probs(self) -> None:
        with pytest.raises(ValueError, match="rollout 0/0/0: kl 'k1_in_reward' needs ref_logprobs"):
            advantages_of([group([1.0])], changed("reinforce", kl="k1_in_reward", kl_coef=0.1))

    def test_reinforce_pp_whitens_over_all_tokens_of_the_batch(self) -> None:
        """Returns .8, .85 of the first answer's tokens and .1 of the second's."""
        row = changed("reinforce_pp", kl_coef=0.1, std_epsilon=0.0)
        returns = (0.8, 0.85, 0.1)
        mean = sum(returns) / 3
        std = math.sqrt(sum((value - mean) ** 2 for value in returns) / 2)
        first, second = advantages_of([of(self.MEMBERS)], row)[0]
        assert first == pytest.approx(((0.8 - mean) / std, (0.85 - mean) / std), abs=1e-12)
        assert second == pytest.approx(((0.1 - mean) / std,), abs=1e-12)


class TestRewardToGo:
    @pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo", "reinforce", "maxrl"])
    def test_with_one_final_reward_it_is_the_sequence_credit(self, name: str) -> None:
        groups = [group([1.0, 0.0, 0.5, None], [(1, 2), (1,), (0, 0, 0), (2,)])]
        whole = advantages_of(groups, algorithm(name))[0]
        tokens = advantages_of(groups, changed(name, credit="reward_to_go"))[0]
        for number, per_token, length in zip(whole, tokens, (2, 1, 3, 1), strict=True):
            assert per_token == pytest.approx((number,) * length, abs=1e-12)

    def test_batch_statistics_over_rollouts_count_every_answer_once(self) -> None:
        row = changed("reinforce_pp", statistics_over="rollouts", std_epsilon=0.0)
        first, second = advantages_of([group([1.0, 0.0], [(1, 1, 1), (1,)])], row)[0]
        assert first == pytest.approx((math.sqrt(0.5),) * 3, abs=1e-12)
        assert second == pytest.approx((-math.sqrt(0.5),), abs=1e-12)

    def test_token_statistics_with_sequence_credit_weigh_by_length(self) -> None:
        row = changed("reinforce_pp", credit="sequence", std_epsilon=0.0)
        assert advantages_of([group([1.0, 0.0], [(1, 1, 1), (1,)])], row)[0] == pytest.approx((0.5, -1.5), abs=1e-12)

    def test_group_baseline_with_token_statistics_of_the_batch(self) -> None:
        """REINFORCE++-baseline: centre in the group, scale by the spread of all tokens (1 1 1 0: sample std .5)."""
        row = changed("reinforce_pp", baseline="group_mean", std_epsilon=0.0)
        first, second = advantages_of([group([1.0, 0.0], [(1, 1, 1), (1,)])], row)[0]
        assert first == pytest.approx((1.0,) * 3, abs=1e-12)
        assert second == pytest.approx((-1.0,), abs=1e-12)

    def test_step_rewards_count_from_where_their_step_ends(self) -> None:
        member = with_scores(rollout(0, (1, 2, 3), 1.5), step(0, 1, 0.5), Score(reward="end", value=1.0))
        row = changed("reinforce", credit="reward_to_go")
        assert advantages_of([of([member])], row)[0][0] == pytest.approx((1.5, 1.0, 1.0), abs=1e-12)

    def test_an_answer_without_tokens_still_counts_in_the_baseline(self) -> None:
        row = changed("dr_grpo", credit="reward_to_go")
        assert advantages_of([group([1.0, 0.0], [(), (1,)])], row)[0] == [(), (-0.5,)]


class TestStepRewards:
    """DeepSeekMath's process supervision: normalise all step rewards of the group, sum those at or after a token."""

    def members(self) -> list[Rollout]:
        first = with_scores(rollout(0, (1, 1, 1, 1), 1.0), step(0, 2, 1.0), step(2, 4, 0.0))
        second = with_scores(rollout(1, (1, 1), 0.0), step(0, 2, 0.5))
        return [first, second]

    def test_group_mean(self) -> None:
        first, second = advantages_of([of(self.members())], CENTRED)[0]
        assert first == pytest.approx((0.0, 0.0, -0.5, -0.5), abs=1e-12)
        assert second == pytest.approx((0.0, 0.0), abs=1e-12)

    def test_group_std(self) -> None:
        row = changed("grpo", std_epsilon=0.0)
        first, _ = advantages_of([of(self.members())], row)[0]
        assert first == pytest.approx((0.0, 0.0, -1.0, -1.0), abs=1e-12)  # sample std of 1, 0, .5 is .5

    def test_leave_one_out_leaves_all_of_the_answers_steps_out(self) -> None:
        first, second = advantages_of([of(self.members())], changed("rloo"))[0]
        assert first == pytest.approx((0.0, 0.0, -0.5, -0.5), abs=1e-12)
        assert second == pytest.approx((0.0, 0.0), abs=1e-12)

    def test_an_outcome_beside_the_steps_adds_its_own_advantage(self) -> None:
        members = self.members()
        members[0] = with_scores(members[0], *members[0].scores, Score(reward="end", value=1.0, weight=2.0))
        members[1] = with_scores(members[1], *members[1].scores, Score(reward="end", value=0.0))
        first, second = advantages_of([of(members)], CENTRED)[0]
        assert first == pytest.approx((1.0, 1.0, 0.5, 0.5), abs=1e-12)
        assert second == pytest.approx((-1.0, -1.0), abs=1e-12)

    def test_a_step_that_was_not_judged_is_outside(self) -> None:
        members = self.members()
        members[1] = with_scores(members[1], *members[1].scores, step(0, 1, None, status="failed"))
        assert advantages_of([of(members)], CENTRED)[0][1] == pytest.approx((0.0, 0.0), abs=1e-12)

    def test_a_group_without_steps_beside_one_with_steps(self) -> None:
        found = advantages_of([of(self.members()), group([1.0, 0.0], index=1)], CENTRED)
        assert found[1] == [0.5, -0.5]

    def test_steps_are_mapped_like_rewards(self) -> None:
        row = changed("reinforce", reward_map="plus_minus")
        first, _ = advantages_of([of(self.members())], row)[0]
        assert first == pytest.approx((0.0, 0.0, -1.0, -1.0), abs=1e-12)

    @pytest.mark.parametrize("span", [(0, 3), (-1, 1), (1, 1)])
    def test_a_span_outside_the_completion_is_refused(self, span: tuple[int, int]) -> None:
        member = with_scores(rollout(0, (1, 1), 1.0), step(*span, 1.0))
        with pytest.raises(RewardError, match="reward 'step', rollout 0/0/0: token span"):
            advantages_of([of([member])], CENTRED)

    def test_baseline_numbers_are_those_of_whole_answers(self) -> None:
        (done,) = assign_advantages([of(self.members())], CENTRED, max_new_tokens=8)
        assert done.baseline is not None
        assert (done.baseline.mean, done.baseline.count) == (0.75, 2)


class TestFilters:
    def run(self, name: str, rewards: Sequence[float | None], **choices: Any) -> tuple[Group, list[Any]]:
        (done,) = assign_advantages([group(rewards)], changed(name, **choices), max_new_tokens=8)
        assert done.baseline is not None
        return done, [member.advantage for member in done.rollouts]

    def test_drop_tied(self) -> None:
        done, values = self.run("dapo", [1.0, 1.0, 1.0])
        assert done.baseline is not None
        assert (done.baseline.kept, done.baseline.why) == (False, "tied: all 3 answers that count got reward 1")
        assert values == [0.0, 0.0, 0.0]
        assert counted([done], algorithm("dapo")) == ()

    def test_drop_tied_sees_the_judged_reward_not_the_length_penalty(self) -> None:
        row = changed("dapo", truncation="soft_penalty", soft_penalty_tokens=2)
        (done,) = assign_advantages([group([1.0, 1.0], [(1,), (1,) * 8])], row, max_new_tokens=8)
        assert done.baseline is not None
        assert not done.baseline.kept

    def test_drop_tied_without_two_that_count(self) -> None:
        done, _ = self.run("dapo", [1.0, None, None])
        assert done.baseline is not None
        assert done.baseline.why == "fewer than two answers count (1 of 3)"

    def test_drop_tied_keeps_mixed_groups(self) -> None:
        done, values = self.run("reinforce_rej", [1.0, 0.0])
        assert done.baseline is not None
        assert done.baseline.kept
        assert values == [1.0, -1.0]

    @pytest.mark.parametrize(("rewards", "kept"), [([0.0, 0.0], False), ([0.0, 0.5], True), ([None, -1.0], False)])
    def test_drop_all_wrong(self, rewards: list[float | None], kept: bool) -> None:
        done, values = self.run("reinforce", rewards, filter="drop_all_wrong")
        assert done.baseline is not None
        assert done.baseline.kept is kept
        assert done.baseline.why == ("" if kept else "no answer has a reward above 0")
        assert values == ([0.0, 0.5] if kept else [0.0, 0.0])

    @pytest.mark.parametrize("name", ["raft", "raft_pp"])
    def test_keep_best(self, name: str) -> None:
        done, values = self.run(name, [1.0, 0.5, None, 1.0])
        assert values == [1.0, 0.0, 0.0, 1.0]
        assert [member.id.member for member in counted([done], algorithm(name))] == [0, 3]

    @pytest.mark.parametrize("rewards", [[0.0, 0.0], [-1.0, -2.0], [None, None]])
    def test_keep_best_keeps_nothing_of_an_all_wrong_group(self, rewards: list[float | None]) -> None:
        done, values = self.run("raft", rewards)
        assert done.baseline is not None
        assert (done.baseline.kept, values) == (False, [0.0, 0.0])

    def test_keep_positive(self) -> None:
        _, values = self.run("dr_grpo", [1.0, 0.0], filter="keep_positive")
        assert values == [0.5, 0.0]
        _, tokens = self.run("dr_grpo", [1.0, 0.0], filter="keep_positive", credit="reward_to_go")
        assert tokens == [(0.5,), (0.0,)]


def test_counted_before_advantages_are_assigned() -> None:
    assert len(counted([group([1.0, None])], CENTRED)) == 1
