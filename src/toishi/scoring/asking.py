"""Every reward is asked about every group, all rewards at the same time.

Decisions:
1. Each reward has threads of its own: one, so that it is asked about one group after the other, or with `concurrent = True` as
   many as there are groups, up to 16. Answers are kept by place, so the order in which they arrive changes nothing.
2. A single reward that is not concurrent is asked in the calling thread: nothing could run beside it.
3. What breaks the contract (wrong count, NaN, a value that is no number) is a `RewardError`, raised before a weight changes;
   what goes wrong while judging (an exception, a time-out) is data with status "failed". An error stops all rewards: no further
   group is begun.
4. Ctrl-C does the same. The threads are daemons: a call that is under way cannot be interrupted, and is not waited for.
5. A retry asks again about the answers that failed, and only about them: what was said of their siblings stays.
"""

from __future__ import annotations

import math
import queue
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real

from toishi.errors import RewardError, ToishiError
from toishi.rewards.base import Judgement, Reward
from toishi.types import Completion, Prompt

MAX_CONCURRENT_GROUPS = 16
Judged = list[tuple[Judgement, ...]]
Asked = Sequence[tuple[Prompt, list[Completion]]]
Progress = Callable[[str, int, int], None]
"""(reward's name, answers judged so far, answers in all), called in the thread that asked for the scores."""


def ask_all(
    rewards: Sequence[Reward], asked: Asked, retries: Sequence[int], on_progress: Progress | None
) -> list[list[Judged]]:
    """What each reward says of each group's completions.

    Raises RewardError when a reward breaks its contract, and any ToishiError that a reward raises itself.
    """
    lanes = [_Lane(reward, asked, tries) for reward, tries in zip(rewards, retries, strict=True)]
    done: queue.Queue[_Done] = queue.Queue()
    stop = threading.Event()
    if len(lanes) == 1 and lanes[0].workers == 1:
        lanes[0].work(stop, lambda report: _tell(report, lanes, on_progress))
        return [lanes[0].judged]
    threads = [
        threading.Thread(target=lane.work, args=(stop, done.put), daemon=True, name=f"toishi-score-{lane.reward.name}")
        for lane in lanes
        for _ in range(lane.workers)
    ]
    try:
        for thread in threads:
            thread.start()
        for _ in range(len(lanes) * len(asked)):
            _tell(done.get(), lanes, on_progress)
    finally:
        stop.set()
    return [lane.judged for lane in lanes]


@dataclass(frozen=True, slots=True)
class _Done:
    """A group that was judged, or the error that came instead."""

    reward: str
    error: BaseException | None = None


def _tell(report: _Done, lanes: Sequence[_Lane], on_progress: Progress | None) -> None:
    if report.error is not None:
        raise report.error
    if on_progress is not None:
        lane = next(lane for lane in lanes if lane.reward.name == report.reward)
        on_progress(report.reward, lane.num_judged, lane.num_answers)


class _Lane:
    """One reward's work: its groups, and what it said of them so far."""

    def __init__(self, reward: Reward, asked: Asked, retries: int) -> None:
        self.reward, self._asked, self._retries = reward, asked, retries
        self.judged: list[Judged] = [[] for _ in asked]
        self.num_answers = sum(len(completions) for _, completions in asked)
        self.num_judged = 0
        self.workers = min(len(asked), MAX_CONCURRENT_GROUPS) if getattr(reward, "concurrent", False) else min(len(asked), 1)
        self._next = 0
        self._lock = threading.Lock()

    def work(self, stop: threading.Event, report: Callable[[_Done], None]) -> None:
        """Judges groups until none is left, or it is told to stop. Reports each group, and an error in place of a group."""
        while not stop.is_set():
            with self._lock:
                place, self._next = self._next, self._next + 1
            if place >= len(self._asked):
                return
            prompt, completions = self._asked[place]
            try:
                judged = _ask_patiently(self.reward, prompt, completions, self._retries)
            except BaseException as error:
                report(_Done(self.reward.name, error))
                return
            with self._lock:
                self.judged[place] = judged
                self.num_judged += len(completions)
            report(_Done(self.reward.name))


def _ask_patiently(reward: Reward, prompt: Prompt, completions: list[Completion], retries: int) -> Judged:
    judged = _ask_group(reward, prompt, completions)
    for _ in range(retries):
        failed = [member for member, parts in enumerate(judged) if any(part.status == "failed" for part in parts)]
        if not failed:
            break
        again = _ask_group(reward, prompt, [completions[member] for member in failed])
        for member, parts in zip(failed, again, strict=True):
            judged[member] = parts
    return judged


def _ask_group(reward: Reward, prompt: Prompt, completions: list[Completion]) -> Judged:
    if not completions:
        return []
    try:
        judged = reward.score_group(prompt, completions)
    except ToishiError:
        raise
    except Exception as error:
        words = "".join(traceback.format_exception_only(error)).strip()
        broken = Judgement(value=None, status="failed", reason=words, kind="raised")
        return [(broken,)] * len(completions)
    if not isinstance(judged, list) or len(judged) != len(completions):
        got = f"{len(judged)} entries" if isinstance(judged, list) else type(judged).__name__
        raise RewardError(
            f"reward '{reward.name}', prompt {prompt.id}: expected a list with one tuple of judgements for each of "
            f"{len(completions)} completions, got {got}"
        )
    for member, (judgements, completion) in enumerate(zip(judged, completions, strict=True)):
        problem = _contract_problem(judgements, completion.num_tokens)
        if problem:
            raise RewardError(f"reward '{reward.name}', prompt {prompt.id}, completion {member}: {problem}")
    return list(judged)


def _contract_problem(judgements: object, num_tokens: int) -> str | None:
    if not isinstance(judgements, tuple) or not judgements or not all(isinstance(item, Judgement) for item in judgements):
        return f"expected a non-empty tuple of Judgement, got {judgements!r}"
    return next((problem for item in judgements if (problem := _judgement_problem(item, num_tokens))), None)


def _judgement_problem(judgement: Judgement, num_tokens: int) -> str | None:
    value = judgement.value
    if (judgement.status == "ok") != (value is not None):
        return f"status '{judgement.status}' with value {value!r}; a value belongs to status 'ok' and to no other"
    if value is not None and not _is_finite_number(value):
        return f"the value {value!r} is not a finite number"
    if judgement.span is not None and not 0 <= judgement.span[0] < judgement.span[1] <= num_tokens:
        return f"the span {judgement.span} is not inside the completion's {num_tokens} tokens"
    return None


def _is_finite_number(value: object) -> bool:
    return isinstance(value, Real) and math.isfinite(value)
