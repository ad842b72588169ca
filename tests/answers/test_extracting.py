"""Where the answer of a completion stands."""

from __future__ import annotations

import time
from typing import Any

import pytest

from toishi.answers.extracting import Extracted, extract


@pytest.mark.parametrize(
    ("text", "answer", "place"),
    [
        (r"\boxed{5}", "5", "box"),
        (r"\fbox{5} is it", "5", "box"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}", "box"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}", "box"),
        (r"\boxed {5}", "5", "box"),
        (r"\boxed5", "5", "box"),
        (r"\boxed\pi", r"\pi", "box"),
        (r"\boxed{4}, no, \boxed{5}", "5", "box"),
        (r"\boxed{x = \boxed{5}}", "5", "box"),
        (r"<think>\boxed{4}</think> \boxed{5} and more", "5", "box"),
        (r"\boxed{4}</think> \boxed{5}", "5", "box"),
        (r"\boxed{5} <think>but perhaps \boxed{6}", "5", "box"),
        (r"\boxed{5} <answer>6</answer>", "5", "box"),
        (r"<answer> so \boxed{5} </answer>", "5", "box"),
        ("<answer>5</answer>", "5", "tag"),
        ("<answer>\n5\n</answer> done", "5", "tag"),
        ("<answer>4</answer><answer>5</answer>", "5", "tag"),
        ("<answer>4 <answer>5</answer>", "5", "tag"),
        ("<think>a <answer>4</answer></think><answer>5</answer>", "5", "tag"),
        ("steps\n#### 5", "5", "hashes"),
        ("#### 4\n#### 5 \n", "5", "hashes"),
        ("The answer is 5.", "5", "sentence"),
        ("The final answer is: **5**", "5", "sentence"),
        ("**Answer:** 5", "5", "sentence"),
        ("Answer:\n5", "5", "sentence"),
        ("The answer to the question is $x=5$, since 5 is odd.", "$x=5$", "sentence"),
        ("The answer is 4. No: the answer is 5", "5", "sentence"),
        ("The answer is (C), not (B).", "(C)", "sentence"),
        ("The answer is 5 because 2+3=5.", "5", "sentence"),
        ("The answer is 1,250.75. Good.", "1,250.75", "sentence"),
        ("So that\n**5**", "5", "bold"),
        ("It is **5**.", "5", "bold"),
        ("  5 ", "5", "whole"),
    ],
)
def test_the_answer_is_found(text: str, answer: str, place: str) -> None:
    assert extract(text) == Extracted(answer, place)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n ",
        r"\boxed{}",
        r"\boxed{5} and \boxed{}",
        r"\boxed{5",
        r"\boxed{4} \boxed{5",
        r"\boxed",
        "<think>I say \\boxed{5}",
        "<think>5</think>",
        "<answer></answer>",
        "I do not know.\nSorry.",
        "one line\nand another with 5",
        "5" * 1001,
    ],
)
def test_there_is_no_answer(text: str) -> None:
    assert extract(text) is None


def test_a_prefilled_tag_opens_the_reasoning() -> None:
    assert extract(r"\boxed{5}", prefill="<think>\n") is None
    assert extract(r"\boxed{4}</think>\boxed{5}", prefill="<think>\n") == Extracted("5", "box")


@pytest.mark.parametrize(
    ("where", "text", "answer"),
    [
        ("box", "The answer is 5.", None),
        ("box", r"\boxed{5}", "5"),
        ("marked", "so we get $5$\nas was to be shown", None),
        ("anywhere", "so we get $5$\nas was to be shown", "5"),
        ("anywhere", "first 3\nthen 1,250 apples", "1,250"),
        ("anywhere", "nothing\nhere", None),
    ],
)
def test_where_an_answer_may_stand_is_an_option(where: Any, text: str, answer: str | None) -> None:
    found = extract(text, where=where)
    assert (None if found is None else found.text) == answer


@pytest.mark.parametrize(
    "text",
    [
        "\\boxed{" + "{" * 50_000,
        "\\boxed{" * 50_000,
        "{" * 2_000_000,
        "<think>" * 100_000,
        "<answer>" * 100_000,
        "The answer is " * 100_000,
        "answer to " * 100_000,
        "**" * 500_000,
        "$" * 1_000_000,
        "#### " * 200_000,
        "\n" * 1_000_000,
        "x\n" + "**a**" + " " * 19_000 + "x",
        "x\nThe answer" + " " * 19_000 + "x",
        "x\nThe answer is" + " " * 19_000 + "x",
        "####" + " " * 19_000 + "\nx",
    ],
    ids=lambda text: str(text)[:12],
)
def test_long_texts_take_no_time(text: str) -> None:
    started = time.process_time()
    extract(text, where="anywhere")
    assert time.process_time() - started < 1
