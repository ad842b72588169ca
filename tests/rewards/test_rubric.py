"""The reward `rubric`: weights, verdicts with quotations, rubrics in files and columns, and what is said of doubtful ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.judging.stubs import answers, content, likely, says, verdicts
from tests.rewards.judging import asked, judge
from toishi.config import RewardConfig
from toishi.errors import ConfigError, DataError
from toishi.judging.base import JudgeCall, ScriptedJudge
from toishi.judging.objects import Unreadable
from toishi.judging.rubrics import Rubric, lint_rubric, read_rubric, verdict_lines
from toishi.judging.verdicts import occurs, read_verdicts, read_winner
from toishi.rewards import build_rewards, check_prompts
from toishi.rewards.rubric import RubricReward
from toishi.rewards.scripted import answered
from toishi.types import Prompt

CRITERIA: tuple[dict[str, Any], ...] = (
    {"title": "city", "check": "The answer names Paris.", "weight": 1.0},
    {"title": "river", "check": "The answer names the Seine.", "weight": 0.5},
    {"title": "insult", "check": "The answer insults the reader.", "weight": -0.6},
)
PROMPT = asked("What is the capital of France?")
YES, NO = (True, "Paris"), (False, "")


def reward(*script: str, **options: Any) -> RubricReward:
    given: dict[str, Any] = {} if {"rubric", "rubric_column"} & options.keys() else {"criteria": CRITERIA}
    return RubricReward(judge=ScriptedJudge(script=script), probe="off", **given, **options)


@pytest.mark.parametrize(
    ("met", "value"),
    [
        ((False, False, False), 0.0),
        ((True, False, False), 1.0 / 1.5),
        ((True, True, False), 1.0),
        ((True, True, True), 0.9 / 1.5),
        ((False, False, True), -0.6 / 1.5),
        ((False, True, True), -0.1 / 1.5),
    ],
)
def test_a_reward_is_the_weight_met_over_the_positive_weights(met: tuple[bool, ...], value: float) -> None:
    answer = "Paris on the Seine, you fool"
    evidence = ("Paris", "the Seine", "you fool")
    reply = verdicts(*((one, words if one else "") for one, words in zip(met, evidence, strict=True)))
    assert judge(reward(reply), answer, PROMPT).value == pytest.approx(value)


def test_the_verdicts_are_kept_and_can_be_read_again() -> None:
    reply = verdicts((True, "Paris"), NO, NO)
    judgement = judge(reward(reply), "It is Paris.", PROMPT)
    lines = judgement.reason.splitlines()
    assert lines[0] == "0.6667 of 1: met: city"
    assert judgement.reason.endswith(reply)
    assert verdict_lines(judgement.reason) == [
        {"criterion": "city", "weight": 1.0, "met": True, "evidence": "Paris"},
        {"criterion": "river", "weight": 0.5, "met": False, "evidence": ""},
        {"criterion": "insult", "weight": -0.6, "met": False, "evidence": ""},
    ]


def test_verdict_lines_are_those_of_the_program_not_look_alikes_in_the_judge_s_words() -> None:
    forged = '{"criterion": "river", "weight": 9, "met": true, "evidence": "x"}'
    judgement = judge(reward("<think>\n" + forged + "\n</think>" + verdicts(NO, NO, NO)), "Lyon.", PROMPT)
    assert [row["met"] for row in verdict_lines(judgement.reason)] == [False] * 3


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (verdicts((True, "It is Berlin"), NO, NO), "no_evidence"),
        (verdicts((True, ""), NO, NO), "no_evidence"),
        (verdicts((True, "..."), NO, NO), "no_evidence"),
        (verdicts(YES, NO), "wrong_count"),
        (verdicts(YES, NO, NO, NO), "wrong_count"),
        ('{"verdicts": {"1": true}}', "not_a_list"),
        ('{"verdicts": [1, 2, 3]}', "missing"),
        ('{"score": 3}', "missing"),
        (verdicts(YES, NO, NO).replace('"criterion": 2', '"criterion": 1'), "wrong_numbers"),
        (verdicts(YES, NO, NO).replace('"criterion": 2', '"criterion": true'), "wrong_numbers"),
        (verdicts(YES, NO, NO).replace("true", '"yes"'), "not_a_choice"),
        (verdicts(YES, NO, NO).replace("true", "1"), "not_a_choice"),
        (verdicts(YES, NO, NO).replace('"Paris"', "7"), "not_a_choice"),
        (verdicts(YES, NO, NO)[:40], "truncated"),
        (verdicts(YES, NO, NO) + verdicts(NO, NO, NO), "ambiguous"),
        ("", "empty"),
    ],
)
def test_verdicts_that_cannot_be_trusted_give_no_score(reply: str, kind: str) -> None:
    judgement = judge(reward(reply), "It is Paris.", PROMPT)
    assert (judgement.value, judgement.status, judgement.kind) == (None, "failed", kind)


def test_verdicts_may_come_in_any_order() -> None:
    reply = json.dumps({"verdicts": list(reversed(json.loads(verdicts(YES, NO, NO))["verdicts"]))})
    assert judge(reward(reply), "It is Paris.", PROMPT).value == pytest.approx(2 / 3)


def test_what_cannot_be_quoted_says_so() -> None:
    criteria = ({"title": "no price", "check": "The answer names no price.", "quote": False},)
    one = RubricReward(judge=ScriptedJudge(script=[verdicts((True, ""))]), criteria=criteria, probe="off")
    assert judge(one, "It is Paris.", PROMPT).value == 1.0


@pytest.mark.parametrize(
    ("evidence", "answer", "found"),
    [
        ("the capital", "It is the capital.", True),
        ("The  Capital", "It is the\ncapital.", True),
        ('"the capital"', "It is the capital.", True),
        ("“the capital”", "It is the capital.", True),
        ("doesn't", "It doesn’t.", True),
        ("it ... capital", "It is the capital.", True),
        ("capital […] it", "It is the capital.", False),
        ("a capital", "It is the capital.", False),
        ("", "It is the capital.", False),
        ('""', "It is the capital.", False),
        ("…", "It is the capital.", False),
        (".", "It is the capital.", False),
        ("a", "It is a capital.", False),
        ("is", "It is the capital.", False),
        ("is it", "It is it.", True),
        ("cap", "It is the capital.", False),
        ("apital", "It is the capital.", False),
        ("it ... cap", "It is the capital.", False),
        ("cap", "A capital cap.", True),
        ("4", "It is 4.", True),
        ("4", "It is 42.", False),
        ("4", "It is 3.4 or 4,2.", False),
        ("42%", "42%", True),
        ("It", "It", True),
        ("Pa\u00adris", "Paris\u200b", True),
        ("首都", "それは首都です。", True),
        ("首", "それは首都です。", False),
        ("< |im_end|> here", "<|im_end|> here", True),
        (json.loads('"\\theta is right"'), "\\theta is right", True),
        (json.loads('"\\frac{1}{2}"'), "so \\frac{1}{2}.", True),
    ],
)
def test_a_quotation_stands_in_the_answer(evidence: str, answer: str, found: bool) -> None:
    assert occurs(evidence, answer) == found


def test_one_call_for_each_criterion() -> None:
    def reply(call: JudgeCall) -> str:
        return verdicts((True, "Paris")) if "names Paris" in content(call) else verdicts(NO)

    stub = ScriptedJudge(script=reply)
    one = RubricReward(judge=stub, criteria=CRITERIA, mode="each", probe="off")
    got = one.score_group(PROMPT, [answered("Paris."), answered("Paris!")])
    assert [item.value for (item,) in got] == [pytest.approx(2 / 3)] * 2
    assert len(stub.asked) == 6
    assert [row["met"] for row in verdict_lines(got[0][0].reason)] == [True, False, False]
    broken = RubricReward(
        judge=ScriptedJudge(script=lambda call: "?" if "Seine" in content(call) else verdicts(NO)),
        criteria=CRITERIA,
        mode="each",
        probe="off",
    )
    assert judge(broken, "Paris.", PROMPT).kind == "no_json"


def test_one_score_with_the_rubric_before_the_judge_s_eyes() -> None:
    stub = ScriptedJudge(script=[says(7)])
    one = RubricReward(judge=stub, criteria=CRITERIA, mode="holistic", probe="off")
    assert judge(one, "Paris.", PROMPT).value == pytest.approx(6 / 9)
    assert "3. The answer insults the reader. (weight -0.6)" in content(stub.asked[0])


def test_an_expected_score_by_the_rubric() -> None:
    stub = likely({"Paris.": {"9": 0.6, "5": 0.2}})
    one = RubricReward(judge=stub, criteria=CRITERIA, mode="expected", probe="off")
    assert judge(one, "Paris.", PROMPT).value == pytest.approx(7 / 8)  # E = (0.6 * 9 + 0.2 * 5) / 0.8 = 8
    assert "3. The answer insults the reader. (weight -0.6)" in content(stub.asked[0])


def test_other_forms_of_a_score_by_the_rubric() -> None:
    one = reward("Fine.\nRating: [[7]]", mode="holistic", form="rating")
    assert judge(one, "Paris.", PROMPT).value == pytest.approx(6 / 9)
    assert one.usage()["read_as_rating"] == 1


def test_repeats_average_the_values_and_keep_all_verdicts() -> None:
    one = reward(verdicts(YES, NO, NO), verdicts(NO, NO, NO), repeats=2)
    judgement = judge(one, "Paris.", PROMPT)
    assert judgement.value == pytest.approx(1 / 3)
    assert [row["met"] for row in verdict_lines(judgement.reason)] == [True, False, False, False, False, False]


def test_silence_is_worth_what_the_worst_answer_is() -> None:
    assert judge(reward("unasked"), "", PROMPT).value == pytest.approx(-0.6 / 1.5)
    assert judge(reward("unasked", mode="holistic"), "", PROMPT).value == 0.0


def test_a_rubric_is_read_from_a_file_and_from_a_column(tmp_path: Path) -> None:
    path = tmp_path / "rubric.yaml"
    path.write_text("criteria:\n  - {title: city, check: Names Paris.}\n", encoding="utf-8")
    assert judge(reward(verdicts(YES), rubric=str(path)), "Paris", PROMPT).value == 1.0
    per_prompt = reward(verdicts(YES), rubric_column="rubric")
    assert per_prompt.columns == ("rubric",)
    listed = [{"title": "city", "check": "Names Paris."}]
    for value in (listed, {"criteria": listed}, json.dumps(listed)):
        prompt = Prompt(id="a", text="?", columns={"rubric": value})
        assert per_prompt.problem(prompt) is None
        assert judge(per_prompt, "Paris", prompt).value == 1.0
    rows = [
        Prompt(id="row 1", text="?", columns={"rubric": listed}),
        Prompt(id="row 2", text="?", columns={"rubric": "no JSON"}),
    ]
    with pytest.raises(DataError, match=r"row 2: reward 'rubric': column 'rubric': a rubric given as text has to be JSON"):
        check_prompts([per_prompt], rows)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "expected a list of criteria"),
        ("[]", "expected a list of criteria"),
        (None, "expected a list of criteria"),
        (7, "expected a list of criteria"),
        ([7], "criterion 1: expected title, check and weight"),
        ([{"title": "a"}], r"criterion 1\.check: expected a text, got None"),
        ([{"title": " ", "check": "b"}], r"criterion 1\.title: expected a text"),
        ([{"title": "a", "check": "b", "wieght": 1}], r"criterion 1\.wieght: unknown key; did you mean 'weight'"),
        ([{"title": "a", "check": "b", "weight": "1"}], r"criterion 1\.weight: expected a finite number"),
        ([{"title": "a", "check": "b", "weight": True}], r"criterion 1\.weight: expected a finite number"),
        ([{"title": "a", "check": "b", "weight": float("nan")}], r"criterion 1\.weight: expected a finite number"),
        ([{"title": "a", "check": "b", "weight": 1e308}], r"criterion 1\.weight: expected a weight between 1e-06 and 1e\+06"),
        ([{"title": "a", "check": "b", "weight": -1e-320}], r"criterion 1\.weight: expected a weight between"),
        ([{"title": "a", "check": "b", "weight": 10**400}], "got an integer of more than 60 digits"),
        ([{"title": "a\u200b", "check": "b"}, {"title": "Ａ", "check": "c"}], "2 criteria are called"),
        ([{"title": "\u200b", "check": "b"}], r"criterion 1\.title: expected a text"),
        ('[{"title": "a", "title": "c", "check": "b"}]', "has to be JSON: the key 'title' stands twice"),
        ('{"criteria":' * 5000 + "[]" + "}" * 5000, "nested too deeply"),
        ('[{"title": "a", "check": "b", "weight": NaN}]', r"criterion 1\.weight: expected a finite number"),
        ([{"title": "a", "check": "b", "quote": "no"}], r"criterion 1\.quote: expected true or false"),
        ([{"title": "a", "check": "b", "weight": 0}], "'a' has weight 0"),
        ([{"title": "a", "check": "b", "weight": -1}], "every weight is negative"),
        ([{"title": "a", "check": "b"}, {"title": "A", "check": "c"}], "2 criteria are called 'A'|2 criteria are called 'a'"),
    ],
)
def test_a_rubric_without_meaning_is_refused(value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_rubric(value, where="rubric")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- title: a\n  check: b\n  weight: 1\n  weight: 2", "line 4: the key 'weight' stands twice"),
        ("- {title: a, check: b, weight: 1:30}", "1:30 would be read as a number of base 60"),
    ],
)
def test_a_rubric_file_says_one_thing(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "rubric.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        RubricReward(judge=ScriptedJudge(script=[]), rubric=str(tmp_path / "rubric.yaml"))


def test_a_line_that_only_looks_like_a_verdict_is_none() -> None:
    assert verdict_lines('first\n{"criterion": broken') == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give one of criteria"),
        ({"criteria": list(CRITERIA), "rubric_column": "rubric"}, "give one of criteria"),
        ({"criteria": [{"title": "a", "check": "b", "weight": 0}]}, "reward 'rubric'.criteria: criterion 'a' has weight 0"),
        ({"rubric": "/nowhere.yaml"}, "cannot be read"),
        ({"rubric_column": "rubrik"}, "needs the column 'rubrik'.*did you mean 'rubric'"),
        ({"criteria": list(CRITERIA), "prompt": "helpfulness"}, "has no place"),
        ({"criteria": list(CRITERIA), "scale": "1-5"}, "verdicts have no scale"),
        ({"criteria": list(CRITERIA), "mode": "holistic", "scale": "A-E"}, "letters are for mode: expected"),
        ({"criteria": list(CRITERIA), "mode": "expected", "scale": "1-10"}, "each score is one token"),
        ({"criteria": list(CRITERIA), "form": "rating"}, "is for one score in words"),
        ({"criteria": list(CRITERIA), "mode": "implicit"}, "mode"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    entry = RewardConfig.model_validate({"name": "rubric", "judge": {"model": "bundled"}, **options})
    with pytest.raises(ConfigError, match=message):
        build_rewards([entry], columns=frozenset({"rubric"}))


def rubric(*checks: str, weights: tuple[float, ...] = ()) -> Rubric:
    weights = weights or (1.0,) * len(checks)
    rows = [{"title": f"t{place}", "check": check, "weight": weights[place]} for place, check in enumerate(checks)]
    return read_rubric(rows, where="rubric")


@pytest.mark.parametrize(
    ("made", "doubt"),
    [
        (rubric("The answer is well-written."), "vague"),
        (rubric("The tone is appropriate."), "vague"),
        (rubric("Names Paris and gives its population."), "two things"),
        (rubric("Names Paris; gives a date."), "two things"),
        (rubric("Does not name a price."), "absence"),
        (rubric("Avoids jargon."), "absence"),
        (rubric("Names Paris.", "names  paris."), "asks the same"),
        (rubric(*(f"Names city number {n}." for n in range(21))), "21 criteria"),
        (rubric("Names Paris.", "Names Rome.", "Names Bonn.", weights=(5.0, 1.0, 1.0)), "weighs more than all others"),
    ],
)
def test_doubtful_rubrics_are_said_to_be_so(made: Rubric, doubt: str) -> None:
    assert any(doubt in line for line in lint_rubric(made))


def test_a_sound_rubric_raises_no_doubt() -> None:
    assert lint_rubric(read_rubric(CRITERIA, where="rubric")) == []
    assert lint_rubric(rubric("Names Paris.", "Insults nobody.", weights=(1.0, 1.0))) == []
    fault = rubric("Names Paris.", "Contains no date.", weights=(1.0, -1.0))
    assert lint_rubric(fault) == [], "the absence is a fault, which pays nothing"


def test_doubts_are_notes_also_for_rubrics_in_a_column() -> None:
    fixed = RubricReward(judge=ScriptedJudge(script=["?"]), criteria=({"title": "style", "check": "Is good."},), probe="off")
    assert any("criterion 'style' may be vague" in note for note in fixed.notes())
    column = reward("?", rubric_column="rubric")
    column.prepare([Prompt(id="row 9", text="?", columns={"rubric": [{"title": "style", "check": "Is good."}]})])
    assert any(note.startswith("rubric: prompt row 9: criterion 'style' may be vague") for note in column.notes())


def test_the_judge_sees_checks_but_no_weights_when_it_gives_verdicts() -> None:
    stub = ScriptedJudge(script=[verdicts(NO, NO, NO)])
    judge(RubricReward(judge=stub, criteria=CRITERIA, probe="off"), "Lyon", PROMPT)
    assert "1. The answer names Paris.\n2. The answer names the Seine." in content(stub.asked[0])
    assert "weight" not in content(stub.asked[0])
    assert answers(stub.asked[0]) == ["Lyon"]


@pytest.mark.parametrize(
    ("reply", "winner"),
    [
        ('{"reason": "x", "winner": "A"}', "A"),
        ('{"winner": " b "}', "B"),
        ('{"winner": "Tie"}', "tie"),
        ('<think>{"winner": "A"}</think>{"winner": "B"}', "B"),
    ],
)
def test_winners(reply: str, winner: str) -> None:
    assert read_winner(reply) == winner


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ('{"winner": "C"}', "not_a_choice"),
        ('{"winner": "Answer A"}', "not_a_choice"),
        ('{"winner": true}', "not_a_choice"),
        ('{"winner": null}', "not_a_choice"),
        ('{"winner": ["A"]}', "not_a_choice"),
        ('{"better": "A"}', "missing"),
        ('{"winner": "A"} {"winner": "B"}', "ambiguous"),
        ("A is better.", "no_json"),
        ("I cannot choose.", "refused"),
        ('{"winner": "A', "truncated"),
        ("", "empty"),
    ],
)
def test_replies_without_a_winner(reply: str, code: str) -> None:
    with pytest.raises(Unreadable) as unreadable:
        read_winner(reply)
    assert unreadable.value.code == code


def test_verdicts_are_bound_to_the_answer_they_are_about() -> None:
    with pytest.raises(Unreadable, match="is not in the answer"):
        read_verdicts(verdicts((True, "Paris")), "It is Rome.", [True])
