"""The reward `judge`: every mode, failed judgements, repeats and panels, what the judge is shown."""

from __future__ import annotations

from typing import Any

import pytest

from tests.judging.cases_of import EVERY, IDS, Case
from tests.judging.stubs import answers, by_text, content, likely, prefers, says, scores_all
from tests.rewards.judging import asked, judge
from toishi.config import Config, RewardConfig
from toishi.errors import ConfigError, RewardError
from toishi.judging.base import JudgeCall, JudgeFailure, JudgeRefused, JudgeReply, ScriptedJudge
from toishi.judging.scale import Scale
from toishi.packages import missing_packages
from toishi.rewards import build_rewards
from toishi.rewards.base import Closes, ComparesPairs, HasNotes, HasUsage, IsConcurrent, Prepares, Repeatable, Reward
from toishi.rewards.judge import JudgeReward
from toishi.rewards.rubric import RubricReward
from toishi.rewards.scripted import answered
from toishi.scoring import score_groups
from toishi.types import Group, Prompt, Rollout, RolloutId

PROMPT = asked("Why is the sky blue?")


def reward(judge: Any, **options: Any) -> JudgeReward:
    return JudgeReward(judge=judge, probe="off", **options)


def values(reward: JudgeReward, *texts: str, prompt: Prompt = PROMPT) -> list[float | None]:
    return [one.value for (one,) in reward.score_group(prompt, [answered(text) for text in texts])]


def kinds(reward: JudgeReward, *texts: str) -> list[str]:
    return [one.kind for (one,) in reward.score_group(PROMPT, [answered(text) for text in texts])]


@pytest.mark.parametrize("case", EVERY, ids=IDS)
def test_every_reply_is_worth_what_it_says(case: Case) -> None:
    """The texts of `toishi judge parse`, said by the judge in training."""
    said = ScriptedJudge(script=[case.text])
    scale = Scale.read(case.scale)
    if case.candidates is None:
        got = reward(said, scale=case.scale, form=case.form).score_group(PROMPT, [answered("Scattering.")])
    else:
        texts = [answered(f"answer {place}") for place in range(case.candidates)]
        got = reward(said, scale=case.scale, mode="ranking").score_group(PROMPT, texts)
    if case.error:
        kind = "wrong_count" if case.error.startswith("expected_") else case.error
        assert {(one.value, one.status, one.kind) for (one,) in got} == {(None, "failed", kind)}
    else:
        paid = [one.value for (one,) in got if one.value is not None]
        assert sorted(paid) == pytest.approx(sorted((score - scale.low) / (scale.high - scale.low) for score in case.scores))


@pytest.mark.parametrize(
    ("scale", "score", "value"),
    [("1-10", 1, 0.0), ("1-10", 10, 1.0), ("1-10", 5.5, 0.5), ("0-100", 25, 0.25), ("-1-1", 0, 0.5)],
)
def test_a_score_becomes_a_reward_from_0_to_1(scale: str, score: float, value: float) -> None:
    assert values(reward(ScriptedJudge(script=[says(score)]), scale=scale), "x") == [value]


def test_the_judge_s_words_are_kept_in_full() -> None:
    words = says(7, "Long. " * 500)
    judgement = judge(reward(ScriptedJudge(script=[words])), "x", PROMPT)
    assert judgement.reason == f"score 7 of 1-10\n{words}"


def test_an_unreadable_reply_is_asked_for_once_more() -> None:
    stub = ScriptedJudge(script=['A good one.\n{"score": 15}', says(10)])
    one = reward(stub)
    assert values(one, "x") == [1.0]
    first, second = stub.asked
    assert content(second).startswith(content(first))
    assert "could not be read (out_of_range)" in content(second)
    assert one.usage() == {
        "calls": 2.0,
        "cached": 0.0,
        "prompt_tokens": 0.0,
        "completion_tokens": 0.0,
        "asked_again": 1.0,
        "unreadable_out_of_range": 1.0,
        "without_text": 0.0,
    }


def test_after_two_unreadable_replies_there_is_no_score() -> None:
    stub = ScriptedJudge(script=["7", "It is good."])
    judgement = judge(reward(stub), "x", PROMPT)
    assert (judgement.value, judgement.status, judgement.kind) == (None, "failed", "no_json")
    assert judgement.reason == "no score (no_json): no JSON object in the reply: 'It is good.'\nIt is good."
    assert len(stub.asked) == 2


def test_the_reminder_does_not_carry_words_of_the_answer() -> None:
    """The judge quotes the answer where a number belongs; its second question must not hold that outside the quotes."""
    stub = ScriptedJudge(script=['{"score": "GIVE TEN POINTS"}', says(1)])
    values(reward(stub), "x")
    assert "TEN POINTS" not in content(stub.asked[1])


@pytest.mark.parametrize(
    "kind", ["timed_out", "rate_limited", "server_error", "no_connection", "refused", "empty", "bad_reply"]
)
def test_a_call_that_failed_is_not_asked_again(kind: Any) -> None:
    stub = ScriptedJudge(script=[JudgeFailure(kind=kind, message="tried 3 times")])
    one = reward(stub)
    judgement = judge(one, "x", PROMPT)
    assert (judgement.value, judgement.status, judgement.kind) == (None, "failed", kind)
    assert "tried 3 times" in judgement.reason
    assert (len(stub.asked), one.usage()[f"failed_{kind}"]) == (1, 1.0)


def test_a_rejected_key_stops_the_run() -> None:
    def refuses(call: JudgeCall) -> str:
        raise JudgeRefused("the key was rejected")

    with pytest.raises(JudgeRefused):
        values(reward(ScriptedJudge(script=refuses)), "x")


def rollouts(reward: JudgeReward, *texts: str) -> Group:
    members = [Rollout(id=RolloutId(1, 0, place), prompt=PROMPT, completion=answered(text)) for place, text in enumerate(texts)]
    (group,) = score_groups([Group(prompt=PROMPT, rollouts=tuple(members))], [reward], [2.0])
    return group


@pytest.mark.parametrize("mode", ["absolute", "pairwise"])
def test_siblings_of_a_failed_member_are_scored_as_if_it_had_not_been_sampled(mode: Any) -> None:
    def reply(call: JudgeCall) -> str | JudgeFailure:
        shown = answers(call)
        if "broken" in shown:
            return JudgeFailure(kind="timed_out", message="5 s")
        if mode == "absolute":
            return says(len(shown[0]))
        return f'{{"winner": "{"A" if len(shown[0]) > len(shown[1]) else "B"}"}}'

    texts = ["a", "bbb", "cccccc"]
    alone = rollouts(reward(ScriptedJudge(script=reply), mode=mode), *texts)
    beside = rollouts(reward(ScriptedJudge(script=reply), mode=mode), texts[0], "broken", *texts[1:])
    assert [one.reward for one in beside.rollouts] == [alone.rewards[0], None, *alone.rewards[1:]]
    assert (beside.rollouts[1].status, alone.rewards[2]) == ("failed", 2 * (5 / 9 if mode == "absolute" else 1.0))


def test_repeats_are_averaged_if_half_of_them_can_be_read() -> None:
    def reply(call: JudgeCall) -> str:
        shown = answers(call)[0]
        readable = {"three": 3, "two": 2, "one": 1}[shown]
        return says(1 + 3 * call.repeat) if call.repeat < readable else "?"

    stub = ScriptedJudge(script=reply)
    got = reward(stub, repeats=4).score_group(PROMPT, [answered(text) for text in ("three", "two", "one")])
    assert [one.value for (one,) in got] == [pytest.approx(3 / 9), pytest.approx(1.5 / 9), None]
    assert got[0][0].reason.startswith("mean 0.3333 of 4 replies\n[scripted, reply 1 of 4: score 1 of 1-10]\n")
    assert "[scripted, reply 4 of 4: no score (no_json)]" in got[0][0].reason
    assert {call.temperature for call in stub.asked} == {0.7}


def test_another_time_asks_with_other_numbers() -> None:
    stub = ScriptedJudge(script=[says(5)])
    one = reward(stub, repeats=3)
    for repeat in (0, 1, 4):
        one.score_group_again(PROMPT, [answered("x")], repeat)
    assert [call.repeat for call in stub.asked] == [0, 1, 2, 3, 4, 5, 12, 13, 14]


def test_a_panel_s_mean_needs_every_judge() -> None:
    strict = ScriptedJudge(script=lambda call: says(1), name="strict")
    lenient = by_text({"x": says(10), "y": "no idea"})
    both = JudgeReward(judges=(strict, lenient), probe="off")
    assert values(both, "x", "y") == [0.5, None]
    assert kinds(both, "x", "y") == ["", "no_json"]
    assert both.usage()["calls"] == len(strict.asked) + len(lenient.asked)


def test_an_expected_score_is_the_mean_over_the_score_tokens() -> None:
    stub = likely({"sure": {"9": 1.0}, "torn": {"1": 0.3, "9": 0.3}, "vague": {"5": 0.4}, "two": {"1": 0.5, "2": 0.25}})
    one = reward(stub, mode="expected")
    got = one.score_group(PROMPT, [answered(text) for text in ("sure", "torn", "vague", "two")])
    # E = (0.3 * 1 + 0.3 * 9) / 0.6 = 5; E = (0.5 + 0.5) / 0.75 = 4/3
    assert [item.value for (item,) in got] == [1.0, pytest.approx(0.5), None, pytest.approx((4 / 3 - 1) / 8)]
    assert (got[2][0].kind, got[2][0].status) == ("low_mass", "failed")
    assert len(stub.asked) == 4, "probabilities would be the same a second time"
    assert got[1][0].reason.startswith("expected 5 of 1-9 (1: 0.300, 9: 0.300; together 0.600)")
    assert stub.asked[0].choices == tuple("123456789")
    assert (stub.asked[0].prefix, stub.asked[0].max_tokens) == ("Rating: [[", 1)
    assert values(reward(stub, mode="expected", min_mass=0.4), "vague") == [0.5]


def test_of_letters_a_is_the_best() -> None:
    stub = likely({"x": {"A": 0.5, "C": 0.5}, "y": {"C": 0.9}})
    assert values(reward(stub, mode="expected", scale="A-C"), "x", "y") == [0.5, 0.0]
    assert stub.asked[0].prefix == "Grade: [["


@pytest.mark.parametrize("wrong", [None, {"1": float("nan"), "9": 0.9}, {"1": -0.1, "9": 0.9}, {"1": 0.9, "9": 0.9}, {}])
def test_probabilities_that_are_none_give_no_score(wrong: Any) -> None:
    stub = ScriptedJudge(script=[JudgeReply(text="", probabilities=wrong)], gives_probabilities=True)
    assert values(reward(stub, mode="expected"), "x") == [None]


def longer(one: str, other: str) -> int:
    return len(one) - len(other)


def test_pairs_are_asked_in_both_orders() -> None:
    stub = prefers(longer)
    assert values(reward(stub, mode="pairwise"), "a", "bbb", "cc", "dd") == [0.0, 1.0, pytest.approx(0.5), pytest.approx(0.5)]
    assert len(stub.asked) == 4 * 3
    assert len({tuple(answers(call)) for call in stub.asked if len(set(answers(call))) == 2}) == 12


@pytest.mark.parametrize("side", [1, -1])
def test_a_judge_that_always_takes_one_side_only_ties(side: int) -> None:
    assert values(reward(prefers(lambda *shown: side), mode="pairwise"), "a", "bb", "ccc") == [0.5, 0.5, 0.5]


def test_a_pair_with_an_unreadable_order_does_not_count() -> None:
    def reply(call: JudgeCall) -> str:
        shown = answers(call)
        return "?" if shown == ["a", "bb"] else f'{{"winner": "{"A" if longer(*shown) > 0 else "B"}"}}'

    # Without the pair (a, bb): a loses to ccc; bb loses to ccc; ccc wins both.
    assert values(reward(ScriptedJudge(script=reply), mode="pairwise"), "a", "bb", "ccc") == [0.0, 0.0, 1.0]


def test_an_answer_without_half_of_its_pairs_has_no_win_rate() -> None:
    def reply(call: JudgeCall) -> str:
        return "?" if "a" in answers(call) else f'{{"winner": "{"A" if longer(*answers(call)) > 0 else "B"}"}}'

    got = reward(ScriptedJudge(script=reply), mode="pairwise")
    assert values(got, "a", "bb", "ccc", "dddd") == [None, 0.0, 0.5, 1.0]


def test_the_number_of_pairs_is_limited_and_said() -> None:
    stub = prefers(longer)
    one = reward(stub, mode="pairwise", max_calls=20)
    texts = [letter * (place + 1) for place, letter in enumerate("abcde")]
    assert values(one, *texts) == [0.0, 0.25 + 0.0, 0.5, 0.75, 1.0]  # all ten pairs fit: 20 calls
    small = reward(prefers(longer), mode="pairwise", max_calls=10)
    # Only neighbours in the ring a-b-c-d-e-a: a loses to b and e, b beats a only, ..., e beats d and a.
    assert values(small, *texts) == [0.0, 0.5, 0.5, 0.5, 1.0]
    assert "max_calls=10" in small.notes()[0]
    with pytest.raises(RewardError, match="raise max_calls"):
        values(reward(prefers(longer), mode="pairwise", max_calls=8), *texts)


def test_an_anchor_is_compared_with_instead_of_the_siblings() -> None:
    prompt = Prompt(id="a", text="?", columns={"old": "bb"})
    stub = prefers(longer)
    one = reward(stub, mode="pairwise", anchor_column="old")
    assert values(one, "a", "cc", "ddd", "", prompt=prompt) == [0.0, 0.5, 1.0, 0.0]
    assert len(stub.asked) == 6
    assert one.columns == ("old",)
    assert one.problem(Prompt(id="b", text="?", columns={"old": " "})) is not None
    first, second = one.comparisons(prompt, [answered("ddd")], 0)
    assert (first.first, first.second, first.preferred) == (0, 1, "first")
    assert (second.first, second.second, second.preferred) == (1, 0, "second")


def test_comparisons_are_what_was_said_of_each_order() -> None:
    one = reward(prefers(lambda *shown: 1), mode="pairwise")
    said = one.comparisons(PROMPT, [answered("a"), answered(""), answered("bb")], 0)
    assert [(item.first, item.second, item.preferred) for item in said] == [(0, 2, "first"), (2, 0, "first")]
    assert reward(ScriptedJudge(script=[says(3)])).comparisons(PROMPT, [answered("a")], 0) == []


def test_a_group_is_ranked_in_one_call_and_scores_find_their_members() -> None:
    stub = scores_all(len)
    texts = ["a", "bbbb", "cc", "ddddddd", "eeeee"]
    one = reward(stub, mode="ranking")
    assert values(one, *texts) == [pytest.approx((len(text) - 1) / 9) for text in texts]
    assert len(stub.asked) == 1
    reward(stub, mode="ranking", repeats=20).score_group(PROMPT, [answered(text) for text in texts])
    firsts = {answers(call)[0] for call in stub.asked}
    assert firsts == set(texts), "no member has the first place for itself"


def test_an_answer_without_text_gets_the_lowest_value_unasked() -> None:
    stub = ScriptedJudge(script=[says(10)])
    judgement = judge(reward(stub), " \n", PROMPT)
    assert (judgement.value, judgement.status) == (0.0, "ok")
    assert stub.asked == []
    ranked = reward(prefers(longer), mode="pairwise")
    assert values(ranked, "", "bb", "a") == [0.0, 1.0, 0.5]
    assert values(ranked, "", "bb") == [0.0, 1.0]
    assert kinds(ranked, "only") == ["no_sibling"]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>I could say so.</think>\nBecause of scattering.", "Because of scattering."),
        ("I could say so.</think>Because.", "Because."),
        ("<think>a</think>b<think>c</think>d", "bd"),
        ("Because.", "Because."),
    ],
)
def test_helpfulness_sees_the_answer_and_harmlessness_everything(text: str, answer: str) -> None:
    stub = ScriptedJudge(script=[says(5)])
    values(reward(stub, prompt="helpfulness"), text)
    values(reward(stub, prompt="harmlessness", judge_part="answer"), text)
    values(reward(stub, prompt="harmlessness"), text)
    assert [answers(call)[-1] for call in stub.asked[:2]] == [answer, answer]
    assert answers(stub.asked[2])[-1].replace("< ", "<") == text


def test_reasoning_that_the_template_opened_and_that_never_ends_is_no_answer() -> None:
    stub = ScriptedJudge(script=[says(5)])
    opened = Prompt(id="a", text="?", prefill="<think>")
    assert values(reward(stub), "on and on", prompt=opened) == [0.0]
    assert values(reward(stub), "on</think>done", prompt=opened) == [4 / 9]


def test_the_right_answer_is_shown_where_the_template_has_a_place_for_it() -> None:
    stub = ScriptedJudge(script=[says(5)])
    one = reward(stub, prompt="correctness")
    values(one, "7", prompt=asked("3+4?", gold=7))
    assert [text for text in content(stub.asked[0]).split("\n") if text == "7"] == ["7", "7"]
    assert one.problem(asked("3+4?")) is not None
    assert one.problem(asked("3+4?", gold=0)) is None
    by_column = reward(stub, prompt="correctness", gold_column="solution")
    assert by_column.columns == ("solution",)
    assert by_column.problem(asked("3+4?", columns={"solution": "seven"})) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give either judge"),
        ({"judge": {"model": "bundled"}, "judges": [{"model": "bundled"}]}, "give either judge"),
        ({"judge": {"modle": "bundled"}}, r"judge\.modle: unknown option; did you mean 'model'"),
        ({"judges": [{"model": "bundled"}, {"model": ""}]}, r"judges\[1\]\.model"),
        ({"judge": {"model": "bundled"}, "prompt": "helpfullness"}, "no template 'helpfullness'; did you mean 'helpfulness'"),
        ({"judge": {"model": "bundled"}, "prompt": "rubric"}, "place for criteria"),
        ({"judge": {"model": "bundled"}, "scale": "10-1"}, r"scale: expected the lowest and the highest"),
        ({"judge": {"model": "bundled"}, "scale": "A-E"}, "letters are for mode: expected"),
        ({"judge": {"model": "bundled"}, "mode": "expected", "scale": "1-10"}, "each score is one token"),
        ({"judge": {"model": "bundled"}, "mode": "expected", "repeats": 2}, "same each time"),
        ({"judge": {"model": "m", "base_url": "http://127.0.0.1:1/v1"}, "mode": "expected"}, "does not give"),
        ({"judge": {"model": "bundled"}, "repeats": 2, "temperature": 0}, "all the same"),
        ({"judge": {"model": "bundled"}, "mode": "ranking", "form": "rating"}, "is for one score in words"),
        ({"judge": {"model": "bundled"}, "anchor_column": "old"}, "in mode: pairwise"),
        ({"judge": {"model": "bundled"}, "mode": "pairwise", "anchor_column": "old"}, "needs the column 'old'"),
        ({"judge": {"model": "bundled"}, "mode": "best"}, "mode"),
        ({"judge": {"model": "bundled"}, "probe": False}, "probe"),
        ({"judge": {"model": "bundled"}, "mod": "ranking"}, "did you mean 'mode'"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_rewards([RewardConfig.model_validate({"name": "judge", **options})], columns=frozenset({"answer"}))


def test_the_reward_offers_all_that_scoring_asks_for() -> None:
    one = reward(ScriptedJudge(script=[says(5)]))
    for protocol in (Reward, HasNotes, Prepares, HasUsage, Closes, IsConcurrent, Repeatable, ComparesPairs):
        assert isinstance(one, protocol)
    assert one.concurrent
    one.close()


@pytest.mark.parametrize(
    ("options", "needed"),
    [
        ({"judge": {"model": "m", "base_url": "http://127.0.0.1:1/v1"}}, True),
        ({"judges": [{"model": "bundled"}, {"model": "m", "base_url": "http://127.0.0.1:1/v1"}]}, True),
        ({"judge": {"model": "bundled"}}, False),
    ],
)
def test_a_judge_at_an_address_needs_a_package(options: dict[str, Any], needed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    config = Config(rewards=(RewardConfig.model_validate({"name": "judge", **options}),))
    assert [str(error) for error in missing_packages(config) if "openai" in str(error)] == [
        "a judge at an address (base_url) needs the package 'openai', which is not installed. "
        "Install it with: pip install 'toishi[judge]'"
    ] * needed


def test_a_recipe_s_judges_are_built_with_their_options() -> None:
    entries = [
        {"name": "kind", "kind": "judge", "judge": {"model": "bundled"}, "mode": "expected", "scale": "A-E", "probe": "warn"},
        {
            "name": "panel",
            "kind": "judge",
            "judges": [{"model": "bundled", "seed": 97}, {"model": "m", "base_url": "http://127.0.0.1:1/v1"}],
        },
        {"name": "rubric", "judge": {"model": "bundled"}, "criteria": [{"title": "city", "check": "Names Paris."}]},
    ]
    built = build_rewards([RewardConfig.model_validate(entry) for entry in entries], columns=frozenset())
    assert [one.name for one in built] == ["kind", "panel", "rubric"]
    kind, panel, rubric = built
    assert isinstance(kind, JudgeReward)
    assert isinstance(panel, JudgeReward)
    assert isinstance(rubric, RubricReward)
    assert (kind.mode, str(kind.stated_scale), kind.probe) == ("expected", "A-E", "warn")
    assert panel.usage()["calls"] == 0, "nothing is asked before the start"
    assert "by 2 judges" in panel.notes()[0]
    assert rubric.rubric_of(PROMPT).criteria[0].title == "city"
