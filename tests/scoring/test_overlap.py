"""Scoring while others are still sampled: that it happens, that it changes no number, and how it ends when something breaks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.scoring.test_asking import Calling, lengths
from tests.test_loop import assert_same_run, recipe
from tests.test_scoring import group_of
from tests.tiny import save_tiny, tiny_model
from toishi import loop
from toishi.engines.base import Finished, Request, Sampling, TellsFinished
from toishi.engines.torch import TorchEngine
from toishi.errors import EngineError, RewardError
from toishi.given import Given, given_objects, with_given
from toishi.record.reader import Run
from toishi.rewards.base import Judgement, Waits
from toishi.rewards.code import CodeReward
from toishi.rewards.function import FunctionReward
from toishi.rewards.judge import JudgeReward
from toishi.rewards.number import NumberReward
from toishi.rewards.scripted import answered
from toishi.rollout import sample_groups
from toishi.scoring import Scoring, score_groups
from toishi.types import Completion, Group, Prompt

PATIENCE_S = 20.0
PROMPTS = [Prompt(id=f"row {place}", text="?", token_ids=(place + 1, 5)) for place in range(4)]


@dataclass(frozen=True, kw_only=True)
class Waiting(Calling):
    """A reward that may be asked during sampling."""

    waits: bool = True


@dataclass
class Telling:
    """Answers 'x', 'xx', ... by place; groups of two end in `order`, and `between` runs after each of them."""

    order: Sequence[int]
    between: Callable[[int], None] = lambda place: None
    name: str = "telling"

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        return [answered("x" * (number + 1)) for number in range(len(requests))]

    def generate_telling(self, requests: Sequence[Request], sampling: Sampling, on_finished: Finished) -> list[Completion]:
        completions = self.generate(requests, sampling)
        for place in self.order:
            for number in (2 * place + 1, 2 * place):
                on_finished(number, completions[number])
            self.between(place)
        return completions


@dataclass
class Plain:
    """The same answers from an engine that tells nothing."""

    name: str = "plain"

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        return Telling(()).generate(requests, sampling)


def overlapped(engine: Any, rewards: Sequence[Any], seen: list[Scoring] | None = None) -> tuple[Group, ...]:
    with Scoring(rewards, [1.0] * len(rewards), num_groups=len(PROMPTS)) as scoring:
        if seen is not None:
            seen.append(scoring)
        sample_groups(PROMPTS, engine, Sampling(max_new_tokens=4), seed=0, step=1, group_size=2, on_group=scoring.add)
        return scoring.finish()


def one_after_the_other(rewards: Sequence[Any]) -> tuple[Group, ...]:
    groups = sample_groups(PROMPTS, Plain(), Sampling(max_new_tokens=4), seed=0, step=1, group_size=2)
    return score_groups(groups, rewards, [1.0] * len(rewards))


def scoring_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("toishi-score")]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    for thread in scoring_threads():
        thread.join(PATIENCE_S)
    assert scoring_threads() == []


@pytest.mark.parametrize("concurrent", [False, True])
def test_a_reward_is_asked_while_others_are_sampled(concurrent: bool) -> None:
    """The sampler goes on only when the first group is being judged, and the judge answers only when the last was sampled."""
    begun, sampled = threading.Event(), threading.Event()
    seen: list[Scoring] = []

    def judge(prompt: str, texts: list[str]) -> list[float | None]:
        begun.set()
        assert sampled.wait(PATIENCE_S)
        return lengths(prompt, texts)

    def between(place: int) -> None:
        assert begun.wait(PATIENCE_S)
        if place == 3:
            time.sleep(0.05)
            sampled.set()

    reward = Waiting(name="a", call=judge, concurrent=concurrent)
    groups = overlapped(Telling((0, 1, 2, 3), between), [reward], seen)
    assert [group.rewards for group in groups] == [(1.0, 2.0), (3.0, 4.0), (5.0, 6.0), (7.0, 8.0)]
    assert seen[0].hidden_s >= 0.05
    assert groups == one_after_the_other([reward])


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 0, 2), (3, 2, 1, 0)])
@pytest.mark.parametrize("concurrent", [False, True])
def test_the_order_of_arrival_changes_nothing(order: tuple[int, ...], concurrent: bool) -> None:
    """Also not for a reward that remembers: one that is not concurrent is asked in the order of the groups."""

    def rewards() -> tuple[list[str], list[Any]]:
        asked: list[str] = []

        def counting(prompt: str, texts: list[str]) -> list[float | None]:
            asked.append(prompt)
            return [len(text) + (0.0 if concurrent else 100.0 * len(asked)) for text in texts]

        waiting = Waiting(name="a", call=counting, concurrent=concurrent)
        return asked, [
            waiting,
            Waiting(name="b", call=lambda prompt, texts: [None] * len(texts)),
            Calling(name="c", call=lengths),
        ]

    (_, wanted), (asked, mine) = rewards(), rewards()
    assert overlapped(Telling(order), mine) == one_after_the_other(wanted)
    assert sorted(asked) == [prompt.id for prompt in PROMPTS]
    if not concurrent:
        assert asked == [prompt.id for prompt in PROMPTS]


def test_a_reward_that_computes_is_asked_when_all_are_sampled() -> None:
    asked: list[str] = []
    asked_before: list[int] = []

    def note(prompt: str, texts: list[str]) -> list[float | None]:
        asked.append(prompt)
        return lengths(prompt, texts)

    overlapped(Telling((0, 1, 2, 3), lambda place: asked_before.append(len(asked))), [Calling(name="a", call=note)])
    assert (asked_before, asked) == ([0, 0, 0, 0], [prompt.id for prompt in PROMPTS])


def test_an_engine_that_tells_nothing_works_as_before() -> None:
    told: list[int] = []
    groups = sample_groups(
        PROMPTS,
        Plain(),
        Sampling(max_new_tokens=4),
        seed=0,
        step=1,
        group_size=2,
        on_group=lambda place, group: told.append(place),
    )
    assert told == [0, 1, 2, 3]
    assert groups == sample_groups(PROMPTS, Telling((2, 0, 3, 1)), Sampling(max_new_tokens=4), seed=0, step=1, group_size=2)
    assert overlapped(Plain(), [Waiting(name="a", call=lengths)]) == one_after_the_other([Calling(name="a", call=lengths)])
    assert (isinstance(Plain(), TellsFinished), isinstance(Telling(()), TellsFinished)) == (False, True)


def test_an_engine_that_forgets_an_answer_is_refused() -> None:
    with pytest.raises(EngineError, match="'telling' told of 6 of 8 answers"):
        sample_groups(PROMPTS, Telling((0, 1, 3)), Sampling(max_new_tokens=4), seed=0, step=1, group_size=2)


@pytest.mark.parametrize("batched", [True, False])
def test_the_torch_engine_tells_of_each_answer_when_it_ends(batched: bool) -> None:
    """With two places for eight answers, one group has ended after four of them; the fifth ends only when a judge has begun."""
    begun, texts = threading.Event(), list[str]()

    def decode(ids: Sequence[int]) -> str:
        texts.append(" ".join(map(str, ids)))
        assert len(texts) <= 4 or begun.wait(PATIENCE_S)
        return texts[-1]

    def judge(prompt: str, texts: list[str]) -> list[float | None]:
        begun.set()
        return lengths(prompt, texts)

    engine = TorchEngine(tiny_model("llama"), stop_ids=[0], decode=decode, batched_prompts=batched, max_rows=2)
    groups = overlapped(engine, [Waiting(name="a", call=judge, concurrent=True)])
    assert begun.is_set()
    assert len(texts) == 8
    assert groups == overlapped(Silent(engine), [Calling(name="a", call=lengths)])


@dataclass
class Silent:
    """An engine whose telling is not heard."""

    engine: TorchEngine
    name: str = "torch"

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        return self.engine.generate(requests, sampling)


def test_the_earliest_groups_error_is_the_one_that_is_raised() -> None:
    """The third group breaks first; the second, which comes later, breaks too."""
    broken = threading.Event()

    def breaks(prompt: str, texts: list[str]) -> list[float | None]:
        if prompt == "row 2":
            broken.set()
            return [float("nan")] * 2
        return [float("inf")] * 2 if prompt == "row 1" else lengths(prompt, texts)

    engine = Telling((2, 3, 0, 1), lambda place: None if broken.wait(PATIENCE_S) else pytest.fail("not asked"))
    for _ in range(3):
        with pytest.raises(RewardError, match="prompt row 1, completion 0: the value inf"):
            overlapped(engine, [Waiting(name="a", call=breaks, concurrent=True)])


def test_a_broken_reward_ends_the_sampling() -> None:
    """The first group's error cannot become another one: nothing more is sampled."""
    broken, sampled = threading.Event(), list[int]()

    def breaks(prompt: str, texts: list[str]) -> list[float | None]:
        broken.set()
        return [float("nan")] * len(texts)

    def between(place: int) -> None:
        sampled.append(place)
        assert broken.wait(PATIENCE_S)
        time.sleep(0.05)

    with pytest.raises(RewardError, match="row 0"):
        overlapped(Telling((0, 1, 2, 3), between), [Waiting(name="a", call=breaks)])
    assert sampled == [0]


@pytest.mark.parametrize("error", [EngineError("NaN"), KeyboardInterrupt()])
def test_an_error_of_the_sampler_does_not_wait_for_the_rewards(error: BaseException) -> None:
    """It comes through at once although a judge hangs, no further group is begun, and the thread ends with its call."""
    begun, release, asked = threading.Event(), threading.Event(), list[str]()

    def hangs(prompt: str, texts: list[str]) -> list[float | None]:
        asked.append(prompt)
        begun.set()
        assert release.wait(PATIENCE_S)
        return lengths(prompt, texts)

    def between(place: int) -> None:
        assert begun.wait(PATIENCE_S)
        if place == 2:
            raise error

    started = time.monotonic()
    with pytest.raises(type(error)):
        overlapped(Telling((0, 1, 2, 3), between), [Waiting(name="a", call=hangs)])
    assert time.monotonic() - started < PATIENCE_S / 2
    release.set()
    for thread in scoring_threads():
        thread.join(PATIENCE_S)
    assert asked == ["row 0"]


def test_failures_and_retries_are_the_same() -> None:
    def flaky() -> Callable[[str, list[str]], list[float | None]]:
        before: set[str] = set()

        def call(prompt: str, texts: list[str]) -> list[float | None]:
            if prompt in before or prompt == "row 0":
                return lengths(prompt, texts)
            before.add(prompt)
            raise ConnectionError(prompt)

        return call

    for concurrent in (False, True):
        found = overlapped(Telling((1, 3, 2, 0)), [Waiting(name="a", call=flaky(), concurrent=concurrent)])
        assert found == one_after_the_other([Waiting(name="a", call=flaky(), concurrent=concurrent)])
        assert [r.status for group in found for r in group.rollouts] == ["completed"] * 2 + ["failed"] * 6


def test_no_group_at_all() -> None:
    with Scoring([Waiting(name="a", call=lengths, concurrent=True)], [1.0], num_groups=0) as scoring:
        assert scoring.finish() == ()


def test_rollouts_that_failed_before_are_not_judged() -> None:
    lost = group_of("x", "yy")
    lost = replace(lost, rollouts=(replace(lost.rollouts[0], status="failed", failure="lost"), lost.rollouts[1]))
    with Scoring([Waiting(name="a", call=lengths)], [1.0], num_groups=1) as scoring:
        scoring.add(0, lost)
        (group,) = scoring.finish()
    assert group == score_groups([lost], [Calling(name="a", call=lengths)], [1.0])[0]
    assert group.rewards == (None, 2.0)


def test_who_waits() -> None:
    def plain(completions: list[str]) -> list[float]:
        return [0.0] * len(completions)

    async def asks(completions: list[str]) -> list[float]:
        return [0.0] * len(completions)

    assert [FunctionReward.from_callable(function).waits for function in (plain, asks)] == [False, True]
    assert FunctionReward.from_callable(plain, waits=True).waits is True
    assert FunctionReward.from_callable(asks, waits=False).waits is False
    assert CodeReward(sandbox="plain").waits is True
    assert not isinstance(NumberReward(), Waits)
    assert JudgeReward(judge={"base_url": "http://127.0.0.1:1/v1", "model": "m"}).waits is True
    assert JudgeReward(judge={"model": "bundled"}).waits is False


@dataclass
class Judge:
    """Pays the parity of the text's length; counts; remembers how often it was asked during sampling."""

    name: str = "judge"
    columns: tuple[str, ...] = ()
    concurrent: bool = True
    waits: bool = True
    calls: int = 0
    lock: Any = field(default_factory=threading.Lock)

    def usage(self) -> dict[str, float]:
        return {"calls": float(self.calls)}

    def score_group(self, prompt: Prompt, completions: Sequence[Completion]) -> Any:
        with self.lock:
            self.calls += 1
        time.sleep(0.002)
        return [(Judgement(value=float(len(completion.text) % 3), reason=completion.text),) for completion in completions]


def test_a_whole_run_is_the_same_with_and_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three rows at a time, so that one group ends after the other; also with refill and a reward that counts its calls."""
    tiny = save_tiny(tmp_path / "llama", "llama")
    defaults = TorchEngine.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "max_rows", 3)
    folders = []
    for name in ("with", "without"):
        given: Given = given_objects(None, [Judge()])
        config = with_given(recipe(tiny, **{"train.refill_rounds": 2, "train.prompts_per_step": 3}), given)
        if name == "without":
            monkeypatch.setattr("toishi.rollout.TellsFinished", ())
        folders.append(loop.train(config, tmp_path / name, given=given).folder)
    assert_same_run(*folders)
    hidden = [sum(line["time/scoring_hidden_s"] for line in Run.open(folder).metrics) for folder in folders]
    assert hidden[0] > hidden[1] >= 0
