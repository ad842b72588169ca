"""Verdicts, what is undecided, and work that would hang."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from toishi.answers import verifying
from toishi.answers.reading import read_gold
from toishi.answers.verifying import Rules, Verdict, check_gold, verify, verify_group
from toishi.errors import DataError, MissingExtraError
from toishi.isolation.limits import NotStarted

FIVE = read_gold("5")
QUICK = Rules(limit_s=0.5)

# Sums and roots that sympy works on for minutes, behind what the reading refuses as too large.
SLOW = r"\boxed{\sum_{n=1}^{10^{12}} \frac{1}{n^2+n\sqrt{n}}}"
POISON = [
    r"\boxed{9^{9^{9^9}}}",
    r"\boxed{(10^7)!}",
    "\\boxed{" + "{" * 50_000 + "5" + "}" * 50_001,
    "\\boxed{" + "x+" * 1_000_000 + "1}",
    "\\boxed{" + "1," * 3_000 + "1}",
    SLOW,
]


def in_a_thread(work: Callable[[], Any]) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join(300)
    return found[0]


@pytest.mark.parametrize("run", [lambda work: work(), in_a_thread], ids=["main", "worker"])
def test_poison_is_undecided_in_time_and_hurts_nobody(run: Callable[[Callable[[], Any]], Any]) -> None:
    verifying._remembered.clear()
    started = time.perf_counter()
    verdicts = run(lambda: verify_group(FIVE, [*POISON, r"\boxed{\sqrt{25}}", r"\boxed{\pi}"], QUICK))
    assert [verdict.verdict for verdict in verdicts] == ["undecided"] * len(POISON) + ["right", "wrong"]
    assert time.perf_counter() - started < 120  # a busy machine takes its time to start a child; without limits it is hours
    assert "too large to compare" in verdicts[0].reason
    assert "longer than 0.5 s" in verdicts[-3].reason


def test_a_text_of_two_megabytes_is_judged_by_its_box() -> None:
    started = time.process_time()
    assert verify(FIVE, "word " * 400_000 + r"\boxed{5}").verdict == "right"
    assert verify(FIVE, "\\boxed{" + "{" * 50_000).verdict == "no_answer"
    assert verify(read_gold("No"), "\\boxed{" + "no " * 600_000 + "}").verdict == "undecided"
    assert time.process_time() - started < 3


def test_what_the_verdict_says() -> None:
    assert verify(FIVE, "") == Verdict(verdict="no_answer", gold_read="5", reason="no answer found")
    assert verify(FIVE, r"\boxed{6}") == Verdict(
        verdict="wrong", gold_read="5", extracted="6", answer_read="6", reason="6 is not 5"
    )
    unread = verify(FIVE, r"\boxed{banana split}")
    assert (unread.verdict, unread.answer_read) == ("wrong", None)
    assert unread.reason.startswith("cannot be read")
    assert verify(FIVE, "I like bananas a lot").verdict == "no_answer"
    long = verify(read_gold("x"), r"\boxed{" + "y + " * 300 + "1}")
    assert len(long.extracted or "") == 400


def test_quick_answers_need_no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("a child was asked")

    monkeypatch.setattr(verifying, "call_each", refuse)
    for gold, answer in [
        ("12500", r"12\,500"),
        ("x+2", "2+x"),
        (r"\{a, b\}", r"\{b, a\}"),
        ("No", "yes"),
        ("C", "B"),
        ("[1,2)", "(1,2)"),
    ]:
        assert verify(read_gold(gold), rf"\boxed{{{answer}}}").verdict in ("right", "wrong")


def test_a_comparison_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    verifying._remembered.clear()
    asked: list[str] = []

    def answer(function: str, jobs: Any, **rest: Any) -> list[Any]:
        asked.extend(job["answer"] for job in jobs)
        return [{"verdict": "right", "reason": ""} for _ in jobs]

    monkeypatch.setattr(verifying, "call_each", answer)
    gold = read_gold("(x-1)(x+1)")
    completions = [r"\boxed{x^2-1}", r"so \boxed{x^2-1}", r"\boxed{x^2-2}"]
    assert [verdict.verdict for verdict in verify_group(gold, completions)] == ["right"] * 3
    verify_group(gold, completions)
    assert asked == ["x^2-1", "x^2-2"]
    verifying._remembered.clear()


def test_no_child_and_no_package_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    verifying._remembered.clear()

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise NotStarted("no child could be started")

    monkeypatch.setattr(verifying, "call_each", fail)
    verdict = verify(read_gold("(x-1)(x+1)"), r"\boxed{x^2-1}")
    assert (verdict.verdict, verdict.reason) == ("undecided", "no child could be started")
    monkeypatch.setitem(sys.modules, "math_verify", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"toishi\[math\]"):
        verify(read_gold("(x-1)(x+1)"), r"\boxed{x^2-1}")


def test_a_gold_beyond_the_grammar_is_checked_by_math_verify() -> None:
    assert check_gold(read_gold(r"\int_0^1 x\,dx")) is None
    assert "cannot be read" in (check_gold(read_gold(r"\sum_{n=1}^{5} n \sum")) or "")
    with pytest.raises(DataError, match="cannot be read"):
        read_gold(r"\sum_{n=1}^{5} \operatorname{foo} n 77")
