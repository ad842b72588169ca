"""Preference pairs: margins, orders and lengths by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.collecting.making import answer, asked, header
from toishi.collecting.pairing import Pair, PairPlan, balanced, candidates, lengths, pair_up
from toishi.collecting.verdicts import Candidate, judged
from toishi.errors import ConfigError, RecordError
from toishi.judging.base import JudgeCall, ScriptedJudge
from toishi.rewards.judge import JudgeReward
from toishi.rewards.scripted import ScriptedReward


def test_best_meets_worst_and_the_second_best_the_second_worst() -> None:
    one = asked(0, [answer("c", 0.5), answer("a", 1.0), answer("d", 0.0), answer("b", 0.75), answer("x", None)])
    found, dropped = candidates([one, asked(1, [answer("a", 1.0)])], PairPlan(per_prompt=2))
    assert [(pair.first, pair.second) for pair in found] == [(1, 2), (3, 0)]
    assert dropped == {"too_few": 1}


def test_by_reward_the_difference_decides() -> None:
    rows = [
        asked(0, [answer("right", 1.0), answer("wrong", 0.0)]),
        asked(1, [answer("same", 1.0), answer("other", 1.0)]),
        asked(2, [answer("same words", 1.0), answer("same words", 0.0)]),
        asked(3, [answer("cut off", 1.0, cut=True), answer("wrong", 0.0)]),
    ]
    report, pairs = pair_up(header(4), rows, PairPlan(), by="reward")
    (pair,) = pairs
    assert (pair["prompt"], pair["chosen"], pair["rejected"], pair["margin"]) == (
        "question number 0 of the set", "right", "wrong", 1.0,
    )  # fmt: skip
    assert (pair["source"]["chosen_member"], pair["source"]["rejected_member"], pair["source"]["by"]) == (0, 1, "reward")
    assert report.dropped == {"same_text": 1, "cut": 1, "close": 1}
    assert report.first_shown is None
    assert not pair_up(header(4), rows, PairPlan(min_margin=1.0), by="reward")[1]


def test_a_right_and_a_wrong_program_may_differ_by_an_indentation() -> None:
    right, wrong = "if x:\n    a()\nb()", "if x:\n    a()\n    b()"
    _, (pair,) = pair_up(header(1), [asked(0, [answer(wrong, 0.0), answer(right, 1.0)])], PairPlan(balance=False), by="reward")
    assert (pair["chosen"], pair["rejected"]) == (right, wrong)


def judge_of(prefers: str, calls: list[str] | None = None) -> JudgeReward:
    """Prefers the answer with this word; "A" stands for a judge that always takes the answer shown first."""

    def said(call: JudgeCall) -> str:
        content = call.messages[0]["content"]
        shown = content[content.index("Answer A:") :]
        if calls is not None:
            calls.append(shown)
        first, second = shown.split("Answer B:")[:2]
        winner = "A" if prefers == "A" or prefers in first else "B" if prefers in second else "tie"
        return f'{{"reason": "so", "winner": "{winner}"}}'

    return JudgeReward(judge=ScriptedJudge(script=said), mode="pairwise", probe="off")


ONE = asked(0, [answer("good answer", 1.0), answer("bad answer", 1.0)])


def decided(judge: JudgeReward, one, tmp_path: Path, **plan: float):  # type: ignore[no-untyped-def]
    settings = PairPlan(min_margin=0.5, **plan)  # type: ignore[arg-type]
    found, _ = candidates([one], settings)
    verdicts = judged(judge, found, tmp_path / "v.jsonl", calls=4)
    return pair_up(header(1), [one], settings, by="judge", verdicts=verdicts)


def test_a_judge_is_shown_both_orders_equally_often(tmp_path: Path) -> None:
    calls: list[str] = []
    report, (pair,) = decided(judge_of("bad", calls), ONE, tmp_path)
    assert len(calls) == 4
    assert sum(shown.index("good answer") < shown.index("bad answer") for shown in calls) == 2
    assert (pair["chosen"], pair["rejected"], pair["margin"], pair["calls"]) == ("bad answer", "good answer", 1.0, [1.0] * 4)
    assert report.first_shown == 0.5


def test_a_judge_of_places_decides_nothing(tmp_path: Path) -> None:
    report, pairs = decided(judge_of("A"), ONE, tmp_path)
    assert not pairs
    assert report.dropped == {"close": 1}
    assert report.first_shown == 1.0


def test_a_judge_against_the_reward_makes_no_pair(tmp_path: Path) -> None:
    one = asked(0, [answer("good answer", 1.0), answer("bad answer", 0.0)])
    report, pairs = decided(judge_of("bad"), one, tmp_path)
    assert not pairs
    assert report.dropped == {"judge_against_reward": 1}


def test_an_unreadable_judge_gives_no_pair(tmp_path: Path) -> None:
    judge = JudgeReward(judge=ScriptedJudge(script=["I like both"]), mode="pairwise", probe="off")
    assert decided(judge, ONE, tmp_path)[0].dropped == {"unread": 1}


def test_verdicts_are_paid_for_once(tmp_path: Path) -> None:
    path, calls = tmp_path / "v.jsonl", list[str]()
    rows = [asked(number, [answer("good answer", 1.0), answer("bad answer", 1.0)]) for number in range(3)]
    found, _ = candidates(rows, PairPlan())
    whole = judged(judge_of("good"), found, path, calls=4)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1][:20])  # a kill during the second line
    again = judged(judge_of("good", calls), found, path, calls=4, go_on=True)
    assert again == whole
    assert len(calls) == 8
    assert path.read_bytes() == b"".join(lines)
    path.write_bytes(path.read_bytes().replace(b"1.0", b"0.5", 1))
    with pytest.raises(RecordError, match="seal"):
        judged(judge_of("good"), found, path, calls=4, go_on=True)


def test_who_cannot_judge_pairs_is_refused_before_anything(tmp_path: Path) -> None:
    found, _ = candidates([ONE], PairPlan())
    absolute = JudgeReward(judge=ScriptedJudge(script=["x"]), probe="off")
    for judge, calls, match in (
        (ScriptedReward(values=(1.0,)), 4, "mode: pairwise"),
        (absolute, 4, "mode: pairwise"),
        (judge_of("good"), 3, "even"),
    ):
        with pytest.raises(ConfigError, match=match):
            judged(judge, found, tmp_path / "v.jsonl", calls=calls)
    assert not (tmp_path / "v.jsonl").exists()


def of_lengths(tokens: Sequence[tuple[int, int]]) -> list[Pair]:
    pairs = []
    for number, (chosen, rejected) in enumerate(tokens):
        one = asked(number, [answer("a", 1.0, chosen), answer("b", 0.0, rejected)])
        pairs.append(Pair(candidate=Candidate(asked=one, first=0, second=1), chosen=0, rejected=1, margin=1.0))
    return pairs


def test_lengths_are_balanced_by_the_fewest_that_are_longest() -> None:
    pairs = of_lengths([(30, 10), (20, 10), (10, 20), (10, 10)])
    assert [pair.candidate.asked.number for pair in balanced(pairs)] == [1, 2, 3]
    found = lengths(balanced(pairs))
    assert found is not None
    assert (found.chosen, found.rejected, found.longer) == (40 / 3, 40 / 3, 1 / 3)
    shorter = of_lengths([(10, 30), (10, 20), (20, 10)])
    assert [pair.candidate.asked.number for pair in balanced(shorter)] == [1, 2]


def test_balanced_pairs_stay_as_they_are() -> None:
    pairs = of_lengths([(100, 98), (50, 50)])
    assert balanced(pairs) == pairs
    assert balanced([]) == []
