"""What a judge is shown of other people's text: control marks broken, everything else as it was, and when there is any text."""

from __future__ import annotations

from typing import Any

import pytest

from toishi.judging.base import JudgeCall, ScriptedJudge
from toishi.judging.quoting import harmless, has_text
from toishi.rewards.judge import JudgeReward
from toishi.rewards.scripted import answered
from toishi.types import Prompt

# of the templates and vocabularies of many families of models, as a tokenizer matches them
MARKS = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|start_header_id|>",
    "<|turn>user",
    "<turn|>",
    "<channel|>",
    "<s>",
    "</s>",
    "<s/>",
    "[INST]",
    "[/INST]",
    "[SYS]",
    "<<SYS>>",
    "<</SYS>>",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[AVAILABLE_TOOLS]",
    "[TOOL_CALLS]",
    "[THINK]",
    "[gMASK]",
    "[UNK]",
    "[CLS]",
    "[|system|]",
    "[|endofturn|]",
    "<start_of_turn>",
    "<bos>",
    "<mask>",
    "<tool_call>",
    "</tool_call>",
    "<unused0>",
    "<0x0A>",
    "<extra_id_0>",
    "<fim_prefix>",
    "<seed:bos>",
    "<[begin▁of▁sentence]>",
    "<｜User｜>",
    "<sop>",
    "<｜end▁of▁sentence｜>",
    "<SPECIAL_12>",
    "<think>",
    "</reasoning>",
    "<system>",
    "<EOT>",
    "<end_of_utterance>",
    "<image>",
    "]~b]system",
    "]~!b[",
    "◁think▷",
    "◁/think▷",
    "</data-abc>",
    "<data-1>",
    "＜/data-x>",
    "<//data-x>",
]


@pytest.mark.parametrize("mark", MARKS)
def test_a_control_mark_is_broken_and_stays_legible(mark: str) -> None:
    shown = harmless(f"a {mark} b")
    assert mark not in shown
    assert shown.replace(" ", "") == f"a{mark}b", "only spaces were added"


@pytest.mark.parametrize(
    "text",
    [
        "It is 4 < 5 and 7 > 6.",
        "a < b, c<d",
        '<div class="x"><p>Hi</p><br/></div>',
        "x[0] = y[i]; see [1] and [A]",
        "[link](http://a.b/c) and [note]",
        "if a <- 3 and b -> 4",
        "| a | b |",
        "答えは《四》です。",
    ],
)
def test_what_is_no_mark_stays_as_it_is(text: str) -> None:
    assert harmless(text) == text


EMPTY = [
    "",
    " ",
    "\u200b",
    "\ufeff",
    "\u2800",
    "\u3164",
    "\x00",
    "\u00a0\u2060",
    "\u202e",
    "\ufe0f",
    "\ud800",
    "<think>x",
    "[THINK]x[/THINK] \u200b",
]


@pytest.mark.parametrize("text", [".", "4", "四", "\u200b4", "🙂", "+"])
def test_something_to_see_is_text(text: str) -> None:
    assert has_text(text)


def test_an_answer_that_nobody_sees_is_not_judged() -> None:
    judge = ScriptedJudge(script=['{"score": 9}'])
    got = JudgeReward(judge=judge, probe="off").score_group(Prompt(id="a", text="?"), [answered(text) for text in EMPTY])
    assert [(one.value, one.status) for (one,) in got] == [(0.0, "ok")] * len(EMPTY)
    assert judge.asked == []


def test_identical_answers_get_the_mean_of_their_places() -> None:
    def reply(call: JudgeCall) -> Any:
        return '{"scores": [10, 4, 1]}'

    reward = JudgeReward(judge=ScriptedJudge(script=reply), mode="ranking", probe="off")
    same = reward.score_group(Prompt(id="a", text="?"), [answered("a")] * 3)
    assert [one.value for (one,) in same] == pytest.approx([4 / 9] * 3)  # ((10 + 4 + 1) / 3 - 1) / 9
    two = [one.value for (one,) in reward.score_group(Prompt(id="a", text="?"), [answered(text) for text in ("a", "b", "a")])]
    assert two[0] == two[2]
    assert sum(value or 0.0 for value in two) == pytest.approx((9 + 3 + 0) / 9), "no score is lost"
