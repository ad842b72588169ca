"""The reward `steps`: equations by hand, and token ranges with real tokenizers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import toishi
from tests.rewards.judging import asked
from tests.tiny import END, save_tiny, tiny_model, tiny_tokenizer
from toishi.errors import ConfigError, RewardError
from toishi.policy.chat import Renderer
from toishi.rewards import Judgement
from toishi.rewards.arithmetic import equations, numbers_in
from toishi.rewards.scripted import answered
from toishi.rewards.steps import StepsReward
from toishi.rewards.tokens import Decode, NotItsText, token_spans, with_decode
from toishi.tasks import ScriptedTask
from toishi.types import Completion, FinishReason, Prompt


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("3 + 4 = 7", [("3+4=7", True)]),
        ("3 + 4 = 8", [("3+4=8", False)]),
        ("So 3+4=7, and 7*2=14.", [("3+4=7", True), ("7*2=14", True)]),
        ("x = 5 + 7 = 12", [("5+7=12", True)]),
        ("3 + 4 = 7 + 1 = 8", [("3+4=7+1=8", False)]),
        ("5 + 7 = 12 = 10 + 2", [("5+7=12=10+2", True)]),
        ("(2+3)*4 = 20", [("(2+3)*4=20", True)]),
        ("2 + 3 * 4 = 20", [("2+3*4=20", False)]),
        ("-3 + 5 = 2", [("-3+5=2", True)]),
        ("3 − 5 = −2", [("3-5=-2", True)]),
        ("3 × 4 = 12", [("3*4=12", True)]),
        ("3 x 4 = 12", [("3*4=12", True)]),
        ("12 ÷ 4 = 3", [("12/4=3", True)]),
        ("$3 \\times 4 = 12$", [("3*4=12", True)]),
        ("0.1 + 0.2 = 0.3", [("0.1+0.2=0.3", True)]),
        ("1/3 + 1/6 = 1/2", [("1/3+1/6=1/2", True)]),
        ("1,000 + 1 = 1,001", [("1000+1=1001", True)]),
        ("1. 3 + 4 = 7", [("3+4=7", True)]),
        ("- 3 + 4 = 7", [("3+4=7", True)]),
        ("3 + 4 = 7 apples", [("3+4=7", True)]),
        ("10/0 = 3", [("10/0=3", False)]),
        ("10 / 3 = 3.33", [("10/3=3.33", False)]),
        ("007 + 1 = 8", [("007+1=8", True)]),
        ("5 = 5", []),
        ("7", []),
        ("", []),
        (" \n ", []),
        ("2x + 3 = 7", []),
        ("a - 3 + 5 = 2", []),
        ("x^2 + 3 = 7", []),
        ("2^3 + 1 = 9", []),
        ("2**3 = 8", []),
        ("7//2 = 3", []),
        ("3 + 4 = 7x", []),
        ("3 + 4 = 7 - x", []),
        ("3 + 4 = 7^1", []),
        ("3 km + 4 km = 7 km", []),
        ("50% + 1 = 51", []),
        ("3 + 4 == 7", []),
        ("3 + 4 ≈ 7", []),
        ("2(3 + 4) = 14", []),
        ("(3 + 4 = 7", []),
        ("３ + ４ = ７", []),
        ("nan + 1 = nan", []),
        ("1e309 + 1 = 1e309", []),
        ("9" * 60 + " + 1 = 2", []),
        ("三 + 四 = 七", []),
    ],
)
def test_equations(text: str, read: list[tuple[str, bool]]) -> None:
    assert [(equation.text, equation.holds()) for equation in equations(text)] == read


def test_rounding_is_half_a_unit_of_the_last_decimal() -> None:
    held = {
        text: equations(text)[0].holds(rounded=True)
        for text in ("10/3 = 3.33", "10/3 = 3.34", "10/4 = 3", "1/8 = 0.12", "1/8 = 0.13", "1/8 = 0.1", "10/3=3.333+0=3.33")
    }
    assert held == {
        "10/3 = 3.33": True,
        "10/3 = 3.34": False,
        "10/4 = 3": True,  # 2.5 is half a unit away from 3
        "1/8 = 0.12": True,
        "1/8 = 0.13": True,
        "1/8 = 0.1": True,
        "10/3=3.333+0=3.33": False,
    }


def test_numbers_in_a_text() -> None:
    assert numbers_in("10 - 2.50, and 1,000 (not x2)") == {Fraction(10), Fraction(5, 2), Fraction(1000), Fraction(2)}
    assert numbers_in("9" * 60) == set()


@pytest.mark.parametrize(
    "text", ["1+" * 100_000 + "1=2", "=" * 200_000, "(" * 200_000 + "=1", "1 " * 200_000 + "=2", "1=1+" * 20_000]
)
def test_huge_texts_take_little_time(text: str) -> None:
    started = time.process_time()
    equations(text)
    assert time.process_time() - started < 5


def judged(reward: StepsReward, text: str, prompt: Prompt | None = None, finish: FinishReason = "stop") -> list[Judgement]:
    (parts,) = reward.score_group(prompt or asked("What is 3 * 4 + 5?"), [answered(text, finish)])
    return list(parts)


def said(parts: Sequence[Judgement]) -> list[tuple[float | None, str]]:
    return [(part.value, part.reason) for part in parts]


def test_each_line_is_a_step() -> None:
    parts = judged(StepsReward(wrong=-1), "First 3 * 4 = 12.\n\nThen words.\n12 + 5 = 18")
    assert said(parts) == [
        (1.0, "step 1: 3*4=12 holds"),
        (None, "step 2: nothing to check"),
        (-1.0, "step 3: 12+5=18 does not hold"),
    ]
    assert [part.status for part in parts] == ["ok", "abstained", "ok"]


@pytest.mark.parametrize("text", ["", " \n ", "Seventeen.", "17", "17 = 17", "\\boxed{17}", "ответ 17"])
def test_an_answer_without_a_checkable_step_is_worth_nothing(text: str) -> None:
    (part,) = judged(StepsReward(), text)
    assert (part.value, part.status, part.span, part.readable) == (0.0, "ok", None, False)


def test_saying_it_again_earns_nothing() -> None:
    parts = judged(StepsReward(), "3 * 4 = 12\n3*4 = 12\n12 + 5 = 17")
    assert [part.value for part in parts] == [1.0, None, 1.0]
    assert parts[1].reason == "step 2: said before"
    echo = judged(StepsReward(), "3 * 4 = 12", asked("Given 3*4 = 12, what is 12 + 5?"))
    assert (echo[0].value, len(echo)) == (0.0, 1)


def test_known_numbers_close_the_door_to_made_up_sums() -> None:
    known = StepsReward(known=True)
    assert [part.value for part in judged(known, "3 * 4 = 12\n12 + 5 = 17")] == [1.0, 1.0]
    assert said(judged(known, "1 + 1 = 2\n3 * 4 = 12")) == [
        (0.0, "step 1: 1 comes from nowhere"),
        (1.0, "step 2: 3*4=12 holds"),
    ]
    assert [part.value for part in judged(known, "3*4 = 12, so 12+5 = 17")] == [1.0]


def test_later_steps_and_a_step_cut_off_abstain() -> None:
    parts = judged(StepsReward(max_steps=2), "1 + 1 = 2\n1 + 2 = 3\n1 + 3 = 4\n1 + 4 = 5")
    assert [part.value for part in parts] == [1.0, 1.0, None]
    assert parts[2].reason == "step 3: beyond max_steps=2, as are all after it"
    assert len(judged(StepsReward(), "1 + 1 = 2\n" * 100_000)) == 33
    cut = judged(StepsReward(), "3 * 4 = 12\n12 + 5 = 1", finish="length")
    assert said(cut)[1] == (None, "step 2: cut off at the token limit")
    ended = judged(StepsReward(), "3 * 4 = 12\n12 + 5 = 17\n", finish="length")
    assert [part.value for part in ended] == [1.0, 1.0]
    closed = judged(StepsReward(split="tags"), "<step>3 * 4 = 12</step>", finish="length")
    assert [part.value for part in closed] == [1.0]
    whole = judged(StepsReward(), "3 * 4 = 12\n12 + 5 = 1", finish="stop")
    assert whole[1].value == 0.0


def test_steps_in_tags_and_by_a_pattern() -> None:
    text = "hm 9 + 9 = 9 <step>3 * 4 = 12</step><step> </step> <step>12 + 5 = 17</step> 1 + 1 = 3"
    assert [part.value for part in judged(StepsReward(split="tags"), text)] == [1.0, 1.0]
    left_open = judged(StepsReward(split="tags", tag="s"), "<s>3 * 4 = 12</s><s>12 + 5 = 1", finish="length")
    assert [part.value for part in left_open] == [1.0, None]
    by_pattern = StepsReward(split=r"Step \d+: ([^.]*)\.")
    assert said(judged(by_pattern, "Step 1: 3 * 4 = 12. Step 2: 12 + 5 = 18. 1 + 1 = 3")) == [
        (1.0, "step 1: 3*4=12 holds"),
        (0.0, "step 2: 12+5=18 does not hold"),
    ]


def test_a_function_checks_the_steps() -> None:
    seen: list[Any] = []

    def check(step: str, before: list[str], columns: dict[str, Any]) -> bool | float | None:
        seen.append((step, before, columns))
        return {"yes": True, "no": False, "half": 0.5}.get(step)

    reward = StepsReward(check=check, right=2.0, wrong=-2.0)
    parts = judged(reward, "yes\nno\nhalf\nwhat\nyes", asked(columns={"unit": "km"}))
    assert [(part.value, part.status) for part in parts] == [
        (2.0, "ok"), (-2.0, "ok"), (0.5, "ok"), (None, "abstained"), (None, "abstained")
    ]  # fmt: skip
    assert seen[1] == ("no", ["yes"], {"unit": "km"})


def test_a_function_by_name_and_one_that_breaks(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "import time\ndef ok(step, before, columns):\n    return True\ndef slow(step, before, columns):\n    time.sleep(5)\n"
    )
    assert [part.value for part in judged(StepsReward(check=f"{path}:ok"), "a\nb")] == [1.0, 1.0]
    (late,) = judged(StepsReward(check=f"{path}:slow", timeout_s=0.1), "a\nb")
    assert (late.value, late.status, late.kind, late.reason) == (None, "failed", "timed_out", "the check timed out after 0.1 s")

    def breaks(step: str, before: list[str], columns: dict[str, Any]) -> bool:
        raise ValueError("no")

    def nonsense(step: str, before: list[str], columns: dict[str, Any]) -> float:
        return float("nan")

    (broken,) = judged(StepsReward(check=breaks), "a")
    assert (broken.value, broken.status, broken.reason) == (None, "failed", "ValueError: no")
    with pytest.raises(RewardError, match=r"the check returned nan for step 1; expected True, False"):
        judged(StepsReward(check=nonsense), "a")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "("}, r"reward 'steps'\.split: '\(' is not a regular expression"),
        ({"check": "nowhere.py:f"}, r"reward 'steps'\.function: nowhere\.py could not be loaded"),
        ({"check": len, "known": True}, "known and rounded belong to check: arithmetic"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        StepsReward(**options)


def of_ids(ids: Sequence[int], text: str, finish: FinishReason = "stop") -> Completion:
    zeros = (0.0,) * len(ids)
    return Completion(
        token_ids=tuple(ids),
        loss_mask=(1,) * len(ids),
        sampled_logprobs=zeros,
        entropies=zeros,
        text=text,
        finish_reason=finish,
    )


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    return Renderer(tiny_tokenizer(), tiny_model("llama"))


def test_spans_with_a_real_tokenizer_cover_exactly_the_step_s_text(renderer: Renderer) -> None:
    text = "The sum:\n3 * 4 = 12\nhello there, 12 + 5 = 18"
    tokenizer = tiny_tokenizer()
    ids = [*tokenizer(text)["input_ids"], tokenizer.convert_tokens_to_ids(END)]
    reward = StepsReward().with_decode(renderer.decode)
    (parts,) = reward.score_group(asked("What is 3 * 4 + 5?"), [of_ids(ids, renderer.decode(ids))])
    assert [part.value for part in parts] == [None, 1.0, 0.0]
    spans = [part.span for part in parts if part.span is not None]
    assert [tokenizer.decode(ids[start:end]) for start, end in spans] == text.split("\n")
    assert spans[-1][1] == len(ids) - 1  # the stop token belongs to no step
    unbound = judged(StepsReward(), text)
    assert [part.value for part in unbound] == [part.value for part in parts]
    assert {part.span for part in unbound} == {None}


def bytes_tokenizer() -> PreTrainedTokenizerFast:
    """Every byte is a token, so most characters are several."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={sign: number for number, sign in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer, core.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=core)


def sentencepiece_like_tokenizer() -> PreTrainedTokenizerFast:
    """A word and the space before it are a token; the space at the very front is not shown."""
    pieces = ["<unk>", *dict.fromkeys("▁" + word for word in ["3", "+", "4", "=", "7", "then", "so"]), "\n"]
    core = Tokenizer(models.WordLevel({piece: number for number, piece in enumerate(pieces)}, unk_token="<unk>"))
    core.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>")


def test_spans_where_characters_are_several_tokens() -> None:
    tokenizer = bytes_tokenizer()
    text = "première étape 😀\n二つ: 3 × 4 = 12"
    ids = tokenizer(text)["input_ids"]
    assert len(ids) > len(text)
    places = [(0, text.index("\n")), (text.index("\n") + 1, len(text)), (text.index("😀"), text.index("😀") + 1)]
    spans = token_spans(of_ids(ids, text), tokenizer.decode, places)
    assert [tokenizer.decode(ids[start:end]) for start, end in spans] == [text[start:end] for start, end in places]
    assert spans[2][1] - spans[2][0] == 4  # four bytes


def test_spans_where_the_first_space_is_not_shown() -> None:
    tokenizer = sentencepiece_like_tokenizer()
    ids = tokenizer.convert_tokens_to_ids(["▁so", "▁3", "▁+", "▁4", "▁=", "▁7", "\n", "▁then", "▁7"])
    text = str(tokenizer.decode(ids))
    assert text == "so 3 + 4 = 7\n then 7"
    spans = token_spans(of_ids(ids, text), tokenizer.decode, [(0, 12), (14, 20), (3, 12)])
    assert spans == [(0, 6), (7, 9), (1, 6)]


def test_a_text_cut_by_a_stop_string_and_one_that_is_not_its_tokens() -> None:
    tokenizer = bytes_tokenizer()
    ids = tokenizer("3+4=7\nEND")["input_ids"]
    reward = StepsReward().with_decode(tokenizer.decode)
    ((part,),) = reward.score_group(asked(), [of_ids(ids, "3+4=7\n")])
    assert (part.value, part.span) == (1.0, (0, 5))
    ((strange,),) = reward.score_group(asked(), [of_ids(ids, " 3+4=7")])
    assert (strange.value, strange.status, strange.kind) == (None, "failed", "no_tokens")
    with pytest.raises(NotItsText):
        token_spans(of_ids(ids, "4"), tokenizer.decode, [(0, 1)])


def test_bytes_that_are_no_text_at_the_end() -> None:
    tokenizer = bytes_tokenizer()
    ids = tokenizer("3+4=7 é")["input_ids"][:-1]
    text = str(tokenizer.decode(ids))
    assert text.endswith("\ufffd")
    assert token_spans(of_ids(ids, text), tokenizer.decode, [(0, 5), (0, len(text))]) == [(0, 5), (0, len(ids))]


def test_a_run_gives_its_tokenizer_to_the_rewards_that_ask_for_it(tmp_path: Path) -> None:
    seen: list[bool] = []

    class Reading:
        name = "reading"
        columns: tuple[str, ...] = ()

        def __init__(self, decode: Decode | None = None) -> None:
            self.decode = decode

        def with_decode(self, decode: Decode) -> Reading:
            return Reading(decode)

        def score_group(self, prompt: Prompt, completions: Sequence[Completion]) -> list[tuple[Judgement, ...]]:
            if self.decode is not None:
                seen.extend(self.decode(completion.token_ids) == completion.text for completion in completions)
            spans = [None if self.decode is None else (0, 1) for _ in completions]
            return [(Judgement(value=float(number), span=span),) for number, span in enumerate(spans)]

    assert with_decode([StepsReward()], str)[0] is not None
    recipe = {
        "model": {"name": str(save_tiny(tmp_path / "model")), "dtype": "float32"},
        "sampling": {"max_new_tokens": 4},
        "train": {"steps": 1, "prompts_per_step": 1, "group_size": 3},
        "evaluation": {"prompts": 0},
    }
    task = ScriptedTask(["one", "two"], heldout=["three"])
    run = toishi.train(recipe, task=task, rewards=Reading(), folder=tmp_path / "run", quiet=True)
    assert (len(seen), all(seen), run.folder.exists()) == (3, True, True)


def test_a_copy_that_knows_the_tokens_is_otherwise_the_same() -> None:
    reward = StepsReward(right=2.0)
    bound = reward.with_decode(str)
    assert (bound == reward, bound.right, reward == replace(reward)) == (True, 2.0, True)
