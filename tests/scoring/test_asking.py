"""All rewards at once: order, threads, retries, progress, errors and Ctrl-C."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from tests.test_scoring import group_of, scripted
from toishi.algorithms.terms import Term
from toishi.errors import RewardError
from toishi.rewards.base import Judgement
from toishi.scoring import score_groups
from toishi.types import Completion, Prompt

Said = list[tuple[Judgement, ...]]


@dataclass(frozen=True, kw_only=True)
class Calling:
    """Values from a function of the prompt and the texts."""

    name: str
    call: Callable[[str, list[str]], list[float | None]]
    concurrent: bool = False
    columns: tuple[str, ...] = ()

    def score_group(self, prompt: Prompt, completions: Sequence[Completion]) -> Said:
        values = self.call(prompt.id, [completion.text for completion in completions])
        return [
            (Judgement(value=value) if value is not None else Judgement(value=None, status="failed", kind="timed_out"),)
            for value in values
        ]


def lengths(prompt: str, texts: list[str]) -> list[float | None]:
    return [float(len(text)) for text in texts]


GROUPS = [group_of("x" * (place + 1), "y" * (2 * place + 1), place=place) for place in range(6)]
EXPECTED = [tuple(float(len(text)) * 3 for text in ("x" * (place + 1), "y" * (2 * place + 1))) for place in range(6)]


def test_rewards_are_asked_at_the_same_time() -> None:
    """Both wait for each other in every group: in turn, neither would get on."""
    meeting = threading.Barrier(2, timeout=10)

    def meet(prompt: str, texts: list[str]) -> list[float | None]:
        meeting.wait()
        return lengths(prompt, texts)

    rewards = [Calling(name="a", call=meet), Calling(name="b", call=meet)]
    assert [group.rewards for group in score_groups(GROUPS, rewards, [1.0, 2.0])] == EXPECTED


def test_a_reward_that_is_not_concurrent_is_never_asked_twice_at_once() -> None:
    busy, most = [0], [0]

    def count(prompt: str, texts: list[str]) -> list[float | None]:
        busy[0] += 1
        most[0] = max(most[0], busy[0])
        time.sleep(0.002)
        busy[0] -= 1
        return lengths(prompt, texts)

    score_groups(GROUPS, [Calling(name="a", call=count), Calling(name="b", call=lengths)], [1.0, 1.0])
    assert most == [1]


def test_answers_keep_their_places_whatever_the_order_of_arrival() -> None:
    def late(prompt: str, texts: list[str]) -> list[float | None]:
        time.sleep(0.002 * (5 - int(prompt.split()[1])))
        return lengths(prompt, texts)

    rewards = [Calling(name="a", call=late, concurrent=True), Calling(name="b", call=lengths, concurrent=True)]
    assert [group.rewards for group in score_groups(GROUPS, rewards, [1.0, 2.0])] == EXPECTED


def test_one_reward_is_asked_in_the_calling_thread() -> None:
    seen: list[threading.Thread] = []

    def note(prompt: str, texts: list[str]) -> list[float | None]:
        seen.append(threading.current_thread())
        return lengths(prompt, texts)

    score_groups(GROUPS, [Calling(name="a", call=note)], [1.0])
    assert seen == [threading.current_thread()] * 6


@pytest.mark.parametrize("names", [("a",), ("a", "b")])
def test_progress_is_told_in_answers(names: tuple[str, ...]) -> None:
    told: list[tuple[str, int, int, threading.Thread]] = []
    score_groups(
        GROUPS, [Calling(name=name, call=lengths) for name in names], [1.0] * len(names),
        on_progress=lambda name, done, total: told.append((name, done, total, threading.current_thread())),
    )  # fmt: skip
    for name in names:
        mine = [(done, total) for reward, done, total, _ in told if reward == name]
        assert len(mine) == 6
        assert mine[-1] == (12, 12)
        assert all(total == 12 for _, total in mine)
    assert {thread for *_, thread in told} == {threading.current_thread()}


@dataclass
class Flaky:
    """Fails on "bad" the first `times` times that it sees it."""

    times: int
    asked: list[list[str]] = field(default_factory=list)

    def __call__(self, prompt: str, texts: list[str]) -> list[float | None]:
        self.asked.append(texts)
        return [None if text == "bad" and len(self.asked) <= self.times else 1.0 for text in texts]


@pytest.mark.parametrize(
    ("times", "retries", "asked", "rewards"),
    [
        (1, 0, [["good", "bad", "good"]], (1.0, None, 1.0)),
        (1, 1, [["good", "bad", "good"], ["bad"]], (1.0, 1.0, 1.0)),
        (2, 3, [["good", "bad", "good"], ["bad"], ["bad"]], (1.0, 1.0, 1.0)),
        (9, 2, [["good", "bad", "good"], ["bad"], ["bad"]], (1.0, None, 1.0)),
    ],
)
def test_a_retry_asks_again_about_what_failed_and_only_that(
    times: int, retries: int, asked: list[list[str]], rewards: tuple[float | None, ...]
) -> None:
    flaky = Flaky(times)
    groups = [group_of("good", "bad", "good")]
    (group,) = score_groups(groups, [Calling(name="a", call=flaky)], [Term(name="a", retries=retries)])
    assert (flaky.asked, group.rewards) == (asked, rewards)


def test_an_exception_is_tried_again_too() -> None:
    calls = []

    def breaks_once(prompt: str, texts: list[str]) -> list[float | None]:
        calls.append(prompt)
        if len(calls) == 1:
            raise ConnectionError("refused")
        return lengths(prompt, texts)

    (group,) = score_groups([group_of("x", "yy")], [Calling(name="a", call=breaks_once)], [Term(name="a", retries=1)])
    assert group.rewards == (1.0, 2.0)


def test_failures_keep_their_kind() -> None:
    def breaks(prompt: str, texts: list[str]) -> list[float | None]:
        raise ConnectionError("refused")

    rewards = [Calling(name="a", call=breaks), Calling(name="b", call=Flaky(9))]
    (group,) = score_groups([group_of("bad")], rewards, [1.0, 1.0])
    assert [(score.status, score.kind) for score in group.rollouts[0].scores] == [("failed", "raised"), ("failed", "timed_out")]


def test_a_broken_contract_of_one_reward_stops_the_others() -> None:
    begun = []

    def slow(prompt: str, texts: list[str]) -> list[float | None]:
        begun.append(prompt)
        time.sleep(0.05)
        return lengths(prompt, texts)

    rewards = [Calling(name="a", call=slow), scripted("b", float("nan"))]
    with pytest.raises(RewardError, match="reward 'b', prompt row 0, completion 0: the value nan"):
        score_groups(GROUPS, rewards, [1.0, 1.0])
    time.sleep(0.15)
    assert len(begun) < 6


def test_an_interrupt_does_not_wait_for_a_reward_that_hangs() -> None:
    """Ctrl-C arrives in the thread that waits; the hanging call ends on its own, and no further group is begun."""
    release, hung = threading.Event(), []

    def hangs(prompt: str, texts: list[str]) -> list[float | None]:
        hung.append(prompt)
        release.wait(10)
        return lengths(prompt, texts)

    def interrupt(name: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        score_groups(
            GROUPS, [Calling(name="a", call=hangs), Calling(name="b", call=lengths)], [1.0, 1.0], on_progress=interrupt
        )
    assert time.monotonic() - started < 5
    release.set()
    time.sleep(0.05)
    assert len(hung) <= 1


def test_a_second_ctrl_c_ends_the_waiting() -> None:
    """The real signal, while every reward hangs."""
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals arrive in the main thread")
    release = threading.Event()

    def hangs(prompt: str, texts: list[str]) -> list[float | None]:
        release.wait(10)
        return lengths(prompt, texts)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    started = time.monotonic()
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            score_groups(GROUPS, [Calling(name="a", call=hangs), Calling(name="b", call=hangs)], [1.0, 1.0])
        assert time.monotonic() - started < 5
    finally:
        signal.signal(signal.SIGINT, before)
        timer.join()
        release.set()


class Wordless(Exception):
    """Its own text raises."""

    def __str__(self) -> str:
        raise ValueError("no words")


def test_an_exception_without_words_is_a_failure_too() -> None:
    def breaks(prompt: str, texts: list[str]) -> list[float | None]:
        raise Wordless

    (group,) = score_groups([group_of("x")], [Calling(name="a", call=breaks)], [1.0])
    assert group.rollouts[0].status == "failed"
    assert "Wordless" in group.rollouts[0].failure
