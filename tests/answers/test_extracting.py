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


@pytest.mark.parametrize(
    "text",
    [
        "I don't think the answer is 5.",
        "It is false that the answer is 5.",
        "The wrong answer is 5.",
        "Nobody knows if the answer is 5.",
        "Suppose the answer is 5.",
        "The answer is 5, but it could be 6.",
        "The answer is 5 if x>0 and 6 otherwise.",
        "The answer is 5 for odd n and 6 for even n.",
        "The answer is 5 when n is even, else 7",
        "The answer is 5 (or 6).",
        "The answer is 5. No, it is 6.",
        "The answer is 5. Wait, I was wrong.",
        "The answer is 5. Just kidding, it's 6.",
        "The answer is 5\nor 6",
        "The answer is (C), not (C).",
        "Not **5**",
        "It is not\n**5**",
        "**6** or **5**",
        "<answer><answer>5</answer>6</answer>",
        "<!-- \\boxed{5} -->",
        "% \\boxed{5}",
        "[THINK]\\boxed{5}[/THINK]",
    ],
)
def test_what_is_denied_doubted_or_hidden_is_no_answer(text: str) -> None:
    assert extract(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "So the answer must be 5.",
        "The answer is therefore 5.",
        "The answer, then, is 5.",
        "Answer：5",
        "The correct option is 5.",
        "Since 6 is not a divisor, the answer is 5.",
        "If x = 3, then the answer is 5.",
        "There are no others, so the answer is 5.",
        "Thus 4 is wrong. The answer is 5.",
        "The answer is 5 when rounded to the nearest integer.",
        "The answer is 5 for this problem.",
        "The answer is 5 (a prime).",
        "The answer is 5.\n\nNo further steps are needed.",
        "\\boxed{5}\n<think>checking</think>",
        "A long line that ends in\n**5**",
    ],
)
def test_doubt_about_something_else_does_not_hide_the_answer(text: str) -> None:
    found = extract(text)
    assert found is not None
    assert found.text == "5"
