"""Scoring: sums by hand, abstained and failed parts, the contract with custom rewards, the dry run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from toishi.errors import ConfigError, RewardError
from toishi.rewards import FunctionReward, Judgement, Reward, ScriptedReward
from toishi.rewards.number import NumberReward
from toishi.rewards.scripted import answered
from toishi.scoring import dry_run, score_groups, scoring_summary
from toishi.types import Completion, Group, Prompt, Rollout, RolloutId

FAILED = Judgement(value=None, status="failed", reason="broke")
ABSTAINED = Judgement(value=None, status="abstained")


def group_of(*texts: str, place: int = 0, gold: Any = None) -> Group:
    prompt = Prompt(id=f"row {place}", text="?", gold=gold)
    rollouts = (
        Rollout(id=RolloutId(0, place, member), prompt=prompt, completion=answered(text)) for member, text in enumerate(texts)
    )
    return Group(prompt=prompt, rollouts=tuple(rollouts))


def scripted(name: str, *values: Any) -> Reward:
    return ScriptedReward(name=name, values=values)


@dataclass(frozen=True)
class Custom:
    """A reward of somebody else's that may break the contract."""

    answer: Any
    name: str = "custom"
    columns: tuple[str, ...] = ()

    def score_group(self, prompt: Prompt, completions: Sequence[Completion]) -> list[tuple[Judgement, ...]]:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer  # type: ignore[no-any-return]


def test_the_reward_is_the_weighted_sum_and_its_parts_are_kept() -> None:
    rewards = [scripted("right", 1.0, 0.0), scripted("form", 0.5, -2.0)]
    (group,) = score_groups([group_of("a", "b")], rewards, [1.0, 0.2])
    assert group.rewards == pytest.approx((1.1, -0.4), abs=1e-12)
    first = group.rollouts[0]
    assert [(score.reward, score.value, score.weight, score.contribution) for score in first.scores] == [
        ("right", 1.0, 1.0, 1.0),
        ("form", 0.5, 0.2, 0.1),
    ]
    assert (first.status, first.failure) == ("completed", "")


def test_an_abstained_part_is_left_out_of_the_sum() -> None:
    rewards = [scripted("a", 1.0, None, None), scripted("b", 2.0, 2.0, None)]
    (group,) = score_groups([group_of("x", "y", "z")], rewards, [1.0, 0.5])
    assert group.rewards == (2.0, 1.0, None)
    assert [rollout.status for rollout in group.rollouts] == ["completed"] * 3
    assert [score.status for score in group.rollouts[2].scores] == ["abstained", "abstained"]


def test_a_failed_part_fails_the_rollout_and_never_its_siblings() -> None:
    rewards = [scripted("a", 1.0), scripted("b", 2.0, FAILED)]
    (group,) = score_groups([group_of("x", "y")], rewards, [1.0, 1.0])
    assert group.rewards == (3.0, None)
    broken = group.rollouts[1]
    assert (broken.status, broken.failure) == ("failed", "reward b: broke")
    assert [score.value for score in broken.scores] == [1.0, None]


def test_a_failure_beside_an_abstention_is_a_failure() -> None:
    (group,) = score_groups([group_of("x")], [scripted("a", ABSTAINED), scripted("b", FAILED)], [1.0, 1.0])
    assert group.rollouts[0].status == "failed"


def test_scores_of_token_spans_add_up_and_keep_their_place() -> None:
    """A reward of intermediate steps: each word earns its own score, and the whole earns one more."""

    def by_word(prompt: Prompt, completion: Completion) -> tuple[Judgement, ...]:
        words = [
            Judgement(value=float(word == "good"), span=(place, place + 1))
            for place, word in enumerate(completion.text.split())
        ]
        return (*words, Judgement(value=0.25, reason="the whole", readable=True))

    (group,) = score_groups([group_of("good bad good")], [ScriptedReward(name="words", values=by_word)], [2.0])
    (rollout,) = group.rollouts
    assert rollout.reward == 4.5  # 2 * (1 + 0 + 1 + 0.25)
    assert [(score.span, score.value) for score in rollout.scores] == [
        ((0, 1), 1.0),
        ((1, 2), 0.0),
        ((2, 3), 1.0),
        (None, 0.25),
    ]
    assert rollout.scores[-1].readable is True
    assert scoring_summary([group])["rewards/words/mean"] == 2.25


def test_a_truncated_rollout_stays_truncated_unless_it_fails() -> None:
    base = group_of("x", "y")
    cut = Group(prompt=base.prompt, rollouts=tuple(_with_status(rollout, "truncated") for rollout in base.rollouts))
    (group,) = score_groups([cut], [scripted("a", 1.0, FAILED)], [1.0])
    assert [rollout.status for rollout in group.rollouts] == ["truncated", "failed"]


def _with_status(rollout: Rollout, status: Any, failure: str = "") -> Rollout:
    return Rollout(id=rollout.id, prompt=rollout.prompt, completion=rollout.completion, status=status, failure=failure)


def test_rollouts_that_failed_before_are_not_shown_to_rewards() -> None:
    base = group_of("x", "y", "z")
    middle = _with_status(base.rollouts[1], "failed", "engine: out of memory")
    seen: list[str] = []

    def note(prompt: Prompt, completion: Completion) -> float:
        seen.append(completion.text)
        return 1.0

    broken = Group(prompt=base.prompt, rollouts=(base.rollouts[0], middle, base.rollouts[2]))
    (group,) = score_groups([broken], [ScriptedReward(values=note)], [1.0])
    assert (seen, group.rewards, group.rollouts[1]) == (["x", "z"], (1.0, None, 1.0), middle)
    lost = Group(prompt=base.prompt, rollouts=(middle,))
    assert score_groups([lost], [ScriptedReward(values=note)], [1.0]) == (lost,)


def test_an_exception_of_a_custom_reward_fails_its_group_only() -> None:
    def breaks(prompt: Prompt, completion: Completion) -> float:
        if prompt.id == "row 1":
            raise KeyError("no such test")
        return 1.0

    groups = score_groups([group_of("x", "y"), group_of("z", place=1)], [ScriptedReward(name="a", values=breaks)], [1.0])
    assert [group.rewards for group in groups] == [(1.0, 1.0), (None,)]
    assert groups[1].rollouts[0].failure == "reward a: KeyError: 'no such test'"


@pytest.mark.parametrize("error", [RewardError("mine"), ConfigError("mine")])
def test_errors_of_ours_are_not_swallowed(error: Exception) -> None:
    with pytest.raises(type(error), match="mine"):
        score_groups([group_of("x")], [Custom(error)], [1.0])


OK = Judgement(value=1.0)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ([(OK,)], "expected a list with one tuple of judgements for each of 2 completions, got 1 entries"),
        ([(OK,), (OK,), (OK,)], "got 3 entries"),
        (((OK,), (OK,)), "got tuple"),
        (1.0, "got float"),
        (None, "got NoneType"),
        ([(OK,), OK], r"completion 1: expected a non-empty tuple of Judgement, got Judgement\("),
        ([(OK,), ()], r"completion 1: expected a non-empty tuple of Judgement, got \(\)"),
        ([(1.0,), (OK,)], r"completion 0: expected a non-empty tuple of Judgement, got \(1\.0,\)"),
        ([(OK,), (Judgement(value=float("nan")),)], "completion 1: the value nan is not a finite number"),
        ([(OK, Judgement(value=float("inf"))), (OK,)], "completion 0: the value inf is not a finite number"),
        ([(Judgement(value="1"),), (OK,)], "completion 0: the value '1' is not a finite number"),  # type: ignore[arg-type]
        ([(Judgement(value=None),), (OK,)], "completion 0: status 'ok' with value None"),
        ([(Judgement(value=0.0, status="failed"),), (OK,)], r"completion 0: status 'failed' with value 0\.0"),
        ([(Judgement(value=0.0, status="abstained"),), (OK,)], r"completion 0: status 'abstained' with value 0\.0"),
        (
            [(Judgement(value=1.0, span=(0, 3)),), (OK,)],
            r"completion 0: the span \(0, 3\) is not inside the completion's 2 tokens",
        ),
        ([(Judgement(value=1.0, span=(1, 1)),), (OK,)], r"completion 0: the span \(1, 1\) is not inside"),
        ([(Judgement(value=1.0, span=(-1, 1)),), (OK,)], r"completion 0: the span \(-1, 1\) is not inside"),
    ],
)
def test_a_custom_reward_that_breaks_the_contract(answer: Any, message: str) -> None:
    with pytest.raises(RewardError, match=rf"^reward 'custom', prompt row 0.*{message}"):
        score_groups([group_of("x", "y")], [Custom(answer)], [1.0])


def test_numpy_and_whole_numbers_become_floats() -> None:
    answer = [(Judgement(value=np.float32(0.5)),), (Judgement(value=True),)]  # type: ignore[arg-type]
    (group,) = score_groups([group_of("x", "y")], [Custom(answer)], [1.0])
    assert group.rewards == (0.5, 1.0)
    assert all(type(rollout.scores[0].value) is float for rollout in group.rollouts)


def test_one_weight_per_reward() -> None:
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        score_groups([group_of("x")], [scripted("a", 1.0)], [1.0, 2.0])


def test_async_rewards_see_several_groups_at_once() -> None:
    waiting = threading.Barrier(4, timeout=10)

    async def meets(completions: list[str]) -> list[float]:
        await asyncio.get_running_loop().run_in_executor(None, waiting.wait)
        return [float(len(text)) for text in completions]

    groups = [group_of("x" * place, place=place) for place in range(1, 5)]
    scored = score_groups(groups, [FunctionReward.from_callable(meets, timeout_s=10)], [1.0])
    assert [group.rewards for group in scored] == [(1.0,), (2.0,), (3.0,), (4.0,)]


def test_no_groups() -> None:
    assert score_groups([], [scripted("a", 1.0)], [1.0]) == ()
    assert scoring_summary([]) == {}


def test_the_summary_by_hand() -> None:
    rewards = [scripted("a", 1.0, 0.0, None, FAILED), scripted("b", 2.0, None, None, None)]
    groups = score_groups([group_of("w", "x", "y", "z")], rewards, [1.0, 1.0])
    found = scoring_summary(groups)
    expected = {
        "rewards/a/mean": 0.5,
        "rewards/a/std": pytest.approx(0.5**0.5),  # sqrt(((1 - .5)^2 + (0 - .5)^2) / (2 - 1))
        "rewards/a/failed": 1,
        "rewards/a/abstained": 1,
        "rewards/b/mean": 2.0,
        "rewards/b/std": None,
        "rewards/b/failed": 0,
        "rewards/b/abstained": 3,
    }
    assert {key: found[key] for key in expected} == expected
    nothing = score_groups([group_of("w")], [scripted("a", None)], [1.0])
    assert scoring_summary(nothing)["rewards/a/mean"] is None


GOLDS = [Prompt(id="a", text="5 + 7?", gold=12), Prompt(id="b", text="1 + 1?", gold=2)]


def test_a_sound_reward_passes_the_dry_run() -> None:
    tried = dry_run([NumberReward()], [1.0], GOLDS)
    assert [(row.prompt.id, row.answer, row.text, row.reward) for row in tried.rows] == [
        ("a", "nothing", "", 0.0),
        ("a", "the gold", "12", 1.0),
        ("a", "another gold", "2", 0.0),
        ("a", "no idea", "I don't know.", 0.0),
        ("b", "nothing", "", 0.0),
        ("b", "the gold", "2", 1.0),
        ("b", "another gold", "12", 0.0),
        ("b", "no idea", "I don't know.", 0.0),
    ]
    assert (tried.errors, tried.warnings) == ((), ())
    assert tried.rows[1].scores[0].reason == "read 12, gold 12"


def test_the_dry_run_sees_that_everything_is_paid_the_same() -> None:
    tried = dry_run([scripted("a", 1.0)], [0.5], GOLDS)
    assert tried.warnings[0].startswith("all 8 made-up answers get the same reward 0.5")
    assert (
        tried.warnings[1]
        == "prompt a: the answer '' (nothing) is paid 0.5, and the gold '12' 0.5: the right answer should be paid more"
    )
    assert len(tried.warnings) == 5


def test_the_dry_run_sees_that_wrong_answers_are_paid() -> None:
    digits = FunctionReward.from_callable(
        lambda completions, **columns: [text.isdigit() for text in completions], name="digits"
    )
    tried = dry_run([digits], [1.0], GOLDS)
    assert [warning.split(":")[1] for warning in tried.warnings] == [
        " the answer '2' (another gold) is paid 1, and the gold '12' 1",
        " the answer '12' (another gold) is paid 1, and the gold '2' 1",
    ]


def test_the_dry_run_sees_that_nothing_is_scored() -> None:
    tried = dry_run([scripted("a", None)], [1.0], GOLDS[:1])
    assert [row.answer for row in tried.rows] == ["nothing", "the gold", "no idea"]
    assert tried.warnings == ("no made-up answer got a reward: every reward abstained or failed",)


def test_the_dry_run_names_a_reward_that_fails_once() -> None:
    def raises(completions: list[str], **columns: Any) -> list[float]:
        raise ValueError("no tests here")

    tried = dry_run([FunctionReward.from_callable(raises), scripted("a", 1.0)], [1.0, 1.0], GOLDS)
    (error,) = tried.errors
    assert error.startswith("reward 'raises' failed on prompt a: ValueError: no tests here")


def test_the_dry_run_without_golds() -> None:
    tried = dry_run(
        [ScriptedReward(values=lambda prompt, completion: -float(len(completion.text)))], [1.0], [Prompt(id="a", text="Hi")]
    )
    assert [(row.answer, row.reward) for row in tried.rows] == [("nothing", 0.0), ("no idea", -13.0)]
    assert tried.warnings == ()


def test_the_dry_run_stops_at_a_broken_contract() -> None:
    with pytest.raises(RewardError, match="returned a float"):
        dry_run([FunctionReward.from_callable(lambda completions: 1.0, name="mine")], [1.0], GOLDS)


class Unsteady:
    """A judge: it may say something else when it is asked again. `failing` of its first answers get no score."""

    name = "judge"
    columns = ()

    def __init__(self, failing: int) -> None:
        self.left = failing

    def score_group(self, prompt: Prompt, completions: Sequence[Completion]) -> list[tuple[Judgement, ...]]:
        return [(self._judged(),) for _ in completions]

    def score_group_again(self, prompt: Prompt, completions: Sequence[Completion], repeat: int) -> list[tuple[Judgement, ...]]:
        return self.score_group(prompt, completions)

    def _judged(self) -> Judgement:
        self.left -= 1
        failed = Judgement(value=None, status="failed", reason="no JSON in the reply", kind="no_json")
        return failed if self.left >= 0 else Judgement(value=0.5)


def test_one_unreadable_reply_of_a_judge_is_a_warning() -> None:
    tried = dry_run([Unsteady(failing=1)], [1.0], GOLDS)
    assert tried.errors == ()
    assert "no JSON in the reply" in tried.warnings[0]


def test_a_judge_that_never_answers_forbids_the_start() -> None:
    (error,) = dry_run([Unsteady(failing=100)], [1.0], GOLDS).errors
    assert "no JSON in the reply" in error
