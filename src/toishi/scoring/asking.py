"""Every reward is asked about every group, all rewards at the same time.

Decisions:
1. Each reward has threads of its own: one, so that it is asked about one group after the other, in order, or with
   `concurrent = True` as many as there are groups, up to 16, about whichever group has come. Answers are kept by place, so the
   order in which they arrive changes nothing.
2. With `overlap`, a reward that `waits` (for a judge's reply, for another process) is asked about a group as soon as it comes,
   while others are still sampled. The others are asked when all have come: Python that computes beside the sampler holds the
   interpreter that the sampler needs between any two operations, so both together take longer than one after the other.
3. A single reward that is not concurrent is asked in the calling thread where there is nothing that could run beside it.
4. What breaks the contract (wrong count, NaN, a value that is no number) is a `RewardError`, raised before a weight changes;
   what goes wrong while judging (an exception, a time-out) is data with status "failed". After an error only the groups before
   it are begun, and the earliest group's error is the one that is raised: it does not depend on who was faster.
5. Ctrl-C, or an error of the sampler, does not wait: no further group is begun. The threads are daemons: a call that is under
   way cannot be interrupted, and its thread ends after it.
6. A retry asks again about the answers that failed, and only about them: what was said of their siblings stays.
"""

from __future__ import annotations

import heapq
import math
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from numbers import Real
from types import TracebackType

from toishi.errors import RewardError, ToishiError
from toishi.rewards.base import Judgement, Reward
from toishi.types import Completion, Prompt

MAX_CONCURRENT_GROUPS = 16
Judged = list[tuple[Judgement, ...]]
Progress = Callable[[str, int, int], None]
"""(reward's name, answers judged so far, answers in all), called in the thread that asked for the scores."""


class Asking:
    """All rewards at work on `num_groups` groups, which come one by one; a context, at whose end nothing more is begun.

    overlap   rewards that wait are asked while groups are still coming
    hidden_s  seconds in which a reward was asked before the last group had come; known once `judged` was called
    """

    def __init__(self, rewards: Sequence[Reward], retries: Sequence[int], num_groups: int, *, overlap: bool = False) -> None:
        self._board = _Board(num_groups)
        self._lanes = [_Lane(reward, tries, self._board) for reward, tries in zip(rewards, retries, strict=True)]
        self._overlap = overlap
        self.hidden_s = 0.0

    def __enter__(self) -> Asking:
        for lane in self._lanes:
            if self._overlap and getattr(lane.reward, "waits", False):
                lane.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._board.lock:
            self._board.limit = 0
            for lane in self._lanes:
                lane.offered.notify_all()

    def add(self, place: int, prompt: Prompt, completions: list[Completion]) -> None:
        """The group that stands at `place`. Raises what a reward raised, once no group before can raise anything."""
        with self._board.lock:
            self._board.arrived[place] = (prompt, completions)
            self._board.num_answers += len(completions)
            for lane in self._lanes:
                lane.offer(place)
        self._raise_if_settled()

    def judged(self, on_progress: Progress | None = None) -> list[list[Judged]]:
        """What each reward says of each group's completions, when all groups have come.

        Raises RewardError when a reward breaks its contract, and any ToishiError that a reward raises itself.
        """
        self.hidden_s = self._board.busy_s()
        idle = [lane for lane in self._lanes if not lane.started]
        alone = idle[0] if len(self._lanes) == len(idle) == 1 and idle[0].workers == 1 else None
        for lane in idle if alone is None else []:
            lane.start()
        told = [0] * len(self._lanes)
        finished = False
        while not finished:
            if alone is not None:
                alone.judge_next()
            finished = self._wait_for_more(told)
            for number, lane in enumerate(self._lanes):
                for num_judged in lane.counts[told[number] :]:
                    told[number] += 1
                    if on_progress is not None:
                        on_progress(lane.reward.name, num_judged, self._board.num_answers)
            self._raise_if_settled()
        return [lane.judged for lane in self._lanes]

    def _wait_for_more(self, told: Sequence[int]) -> bool:
        """Waits until some lane has judged more than was `told` of it, or all are through; whether they are."""
        with self._board.lock:
            while True:
                finished = all(lane.is_through for lane in self._lanes)
                if finished or any(len(lane.counts) > count for lane, count in zip(self._lanes, told, strict=True)):
                    return finished
                self._board.news.wait()

    def _raise_if_settled(self) -> None:
        with self._board.lock:
            is_settled = self._board.error is not None and all(lane.is_through for lane in self._lanes)
        if is_settled and self._board.error is not None:
            raise self._board.error


class _Board:
    """What the threads share, under one lock: the groups that have come, where to stop, for how long anyone was asked."""

    def __init__(self, num_groups: int) -> None:
        self.lock = threading.Lock()
        self.news = threading.Condition(self.lock)
        self.arrived: list[tuple[Prompt, list[Completion]] | None] = [None] * num_groups
        self.num_answers = 0
        self.limit = num_groups
        """Only groups before it are begun."""
        self.error: BaseException | None = None
        """Of the group at `limit`."""
        self._in_flight, self._since, self._busy_s = 0, 0.0, 0.0

    def begin(self) -> None:
        """Somebody is asked. Called with the lock held, as is `done`."""
        if self._in_flight == 0:
            self._since = time.perf_counter()
        self._in_flight += 1

    def done(self, place: int, error: BaseException | None) -> None:
        """A call has ended; after an error only earlier groups matter."""
        self._in_flight -= 1
        if self._in_flight == 0:
            self._busy_s += time.perf_counter() - self._since
        if error is not None and place < self.limit:
            self.limit, self.error = place, error
        self.news.notify_all()

    def busy_s(self) -> float:
        with self.lock:
            return self._busy_s + (time.perf_counter() - self._since if self._in_flight else 0.0)


class _Lane:
    """One reward's work: what it said of each group, and after each group how many answers it has judged so far (`counts`)."""

    def __init__(self, reward: Reward, retries: int, board: _Board) -> None:
        self.reward, self._retries, self._board = reward, retries, board
        num_groups = len(board.arrived)
        self._in_order = not getattr(reward, "concurrent", False)
        self.workers = min(num_groups, 1 if self._in_order else MAX_CONCURRENT_GROUPS)
        self.started = False
        self.judged: list[Judged] = [[] for _ in range(num_groups)]
        self.counts: list[int] = []
        self.offered = threading.Condition(board.lock)
        self._ready: list[int] = []
        self._num_taken = 0
        self._undone = dict.fromkeys(range(num_groups))

    @property
    def is_through(self) -> bool:
        """No group is left that has to be judged. Read with the lock held."""
        return all(place >= self._board.limit for place in self._undone)

    def offer(self, place: int) -> None:
        """A group has come. Called with the lock held."""
        heapq.heappush(self._ready, place)
        self.offered.notify()

    def start(self) -> None:
        self.started = True
        for _ in range(self.workers):
            threading.Thread(target=self._work, daemon=True, name=f"toishi-score-{self.reward.name}").start()

    def judge_next(self) -> bool:
        """Judges the next group, for which it waits; False when there will be none."""
        place = self._take()
        if place is not None:
            self._judge(place)
        return place is not None

    def _work(self) -> None:
        while self.judge_next():
            pass

    def _take(self) -> int | None:
        with self._board.lock:
            while not self._is_spent:
                place = self._ready[0] if self._ready else self._board.limit
                if place < self._board.limit and (place == self._num_taken or not self._in_order):
                    self._num_taken += 1
                    self._board.begin()
                    return heapq.heappop(self._ready)
                self.offered.wait()
            return None

    @property
    def _is_spent(self) -> bool:
        """No group will have to be begun: all are, or those before the limit are judged."""
        return self._num_taken == len(self.judged) or self.is_through

    def _judge(self, place: int) -> None:
        asked = self._board.arrived[place]
        assert asked is not None
        judged: Judged = []
        error: BaseException | None = None
        try:
            judged = _ask_patiently(self.reward, *asked, self._retries)
        except BaseException as raised:
            error = raised
        with self._board.lock:
            del self._undone[place]
            if error is None:
                self.judged[place] = judged
                self.counts.append((self.counts[-1] if self.counts else 0) + len(judged))
            self._board.done(place, error)


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
