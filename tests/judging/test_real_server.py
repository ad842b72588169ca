"""A real server (`transformers serve`) on loopback, and a proxy before it that breaks answers: what reaches the advantages.

The tiny model's replies are noise, but the server, its HTTP and the client are real; a reply is worth the number of its vowels.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import toishi
from tests.judging.fault_proxy import FAULTS, SLOW_S, Fault, faulty, seeded_plan
from tests.judging.real_server import transformers_serve
from tests.judging.stub_server import Asked, Said, chat, error, serving
from tests.tiny import save_tiny
from toishi.algorithms.apply import assign_advantages
from toishi.algorithms.rows import algorithm
from toishi.judging import limits
from toishi.judging.base import Judge, JudgeCall, JudgeFailure, JudgeRefused, JudgeReply
from toishi.judging.endpoint import EndpointJudge
from toishi.judging.in_process import InProcessJudge
from toishi.judging.judge_options import JudgeOptions
from toishi.policy.bundled import bundled_model_folder
from toishi.record.reader import Run
from toishi.rewards.base import Judgement, Reward
from toishi.rewards.judge import JudgeReward
from toishi.rewards.scripted import answered
from toishi.scoring import score_groups
from toishi.types import Completion, Group, Prompt, Rollout, RolloutId

ANSWERS = tuple(f"Answer {letter} is the best of them" for letter in "abcdef")
FAILED = 3


@dataclass(frozen=True, kw_only=True)
class Vowels:
    """The number of vowels in what the judge replies to an answer."""

    judge: Judge
    name: str = "vowels"
    columns: tuple[str, ...] = ()
    concurrent: bool = True

    def score_group(self, prompt: Prompt, completions: Sequence[Completion]) -> list[tuple[Judgement, ...]]:
        return [(self._judgement(said),) for said in self.judge.ask([_question(one.text) for one in completions])]

    def _judgement(self, said: JudgeReply | JudgeFailure) -> Judgement:
        if isinstance(said, JudgeFailure):
            return Judgement(value=None, status="failed", reason=said.message)
        return Judgement(value=float(sum(letter in "aeiouAEIOU" for letter in said.text)), reason=said.text)


def _question(text: str) -> JudgeCall:
    return JudgeCall(messages=({"role": "user", "content": text},), max_tokens=12)


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FIRST_PAUSE_S", 0.01)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Room for a whole rubric: its tokenizer makes nearly every letter a token."""
    return save_tiny(tmp_path_factory.mktemp("served") / "model", seed=7, max_position_embeddings=8192)


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[str]:
    with transformers_serve(model, model.parent / "server.log") as url:
        yield url


def judge_at(url: str, model: Path | str, **options: Any) -> AbstractContextManager[EndpointJudge]:
    given: dict[str, Any] = {"model": str(model), "base_url": url, "cache": False, "timeout_s": 20.0}
    return closing(EndpointJudge(JudgeOptions(**(given | options))))


def rewarded(reward: Reward, texts: Sequence[str]) -> Group:
    """One group of these answers with rewards and advantages (GRPO)."""
    prompt = Prompt(id="a", text="Which is the best?")
    rollouts = tuple(
        Rollout(id=RolloutId(1, 0, member), prompt=prompt, completion=answered(text)) for member, text in enumerate(texts)
    )
    groups = score_groups([Group(prompt=prompt, rollouts=rollouts)], [reward], [1.0])
    return assign_advantages(groups, algorithm("grpo"), max_new_tokens=64)[0]


def require_as_if_never_sampled(reward: Reward, whole: Group, failed: int = FAILED) -> None:
    """The member `failed` has no reward and advantage 0; all others have those of a group without it."""
    without = rewarded(reward, [text for place, text in enumerate(ANSWERS) if place != failed])
    broken, others = whole.rollouts[failed], [one for place, one in enumerate(whole.rollouts) if place != failed]
    assert (broken.status, broken.reward, broken.advantage) == ("failed", None, 0.0)
    assert [one.reward for one in others] == [one.reward for one in without.rollouts]
    # to the last digits, not bit for bit: a sum over seven is added up in another order than one over eight without one
    assert [one.advantage for one in others] == pytest.approx([one.advantage for one in without.rollouts], rel=1e-12, abs=1e-14)
    assert len({one.advantage for one in others}) > 1, "the rewards of the test are all the same: it proves nothing"


def test_the_served_model_says_what_the_same_model_says_in_process(server: str, model: Path) -> None:
    local = InProcessJudge(JudgeOptions(model=str(model), cache=False, dtype="float32"))
    calls = [_question(text) for text in ANSWERS]
    with judge_at(server, model) as served:
        served.check()
        said = served.ask(calls)
        assert said == local.ask(calls)
        assert all(isinstance(one, JudgeReply) for one in said)


def test_a_model_that_the_server_does_not_have_stops_at_the_start(server: str) -> None:
    with judge_at(server, "another-model") as judge, pytest.raises(JudgeRefused, match="has no model 'another-model'"):
        judge.check()


def test_a_schema_and_log_probs_that_this_server_ignores_are_told_apart(server: str, model: Path) -> None:
    with judge_at(server, model) as judge:
        (said,) = judge.ask([replace(_question("x"), json_schema={"type": "object"})])
        assert isinstance(said, JudgeReply)
    with judge_at(server, model, probabilities=True) as judge, pytest.raises(JudgeRefused, match="gave no log-probs"):
        judge.check()


def test_typed_decisions_give_probabilities(server: str, model: Path) -> None:
    calls = [replace(_question(text), choices=tuple("123456789")) for text in ANSWERS]
    with judge_at(server, model, probabilities="systemone") as judge:
        judge.check()
        said = judge.ask(calls)
        assert judge.gives_probabilities
        assert judge.usage().completion_tokens == 0
    found = [dict(one.probabilities or {}) for one in said if isinstance(one, JudgeReply)]
    assert [list(one) for one in found] == [list("123456789")] * len(ANSWERS)
    assert [sum(one.values()) for one in found] == pytest.approx([1.0] * len(ANSWERS), abs=1e-5)
    assert len({one["5"] for one in found}) == len(ANSWERS)


@pytest.mark.parametrize("seed", [0, 1])
def test_faults_that_pass_change_no_score(server: str, model: Path, seed: int) -> None:
    passing = tuple(fault for fault in FAULTS if fault not in ("401", "slow"))
    with judge_at(server, model) as direct:
        expected = rewarded(Vowels(judge=direct), ANSWERS)
    with faulty(server, seeded_plan(seed, passing, share=0.6)) as proxy, judge_at(proxy.url, model) as judge:
        found = rewarded(Vowels(judge=judge), ANSWERS)
    assert len(proxy.asked) > len(ANSWERS), "the plan broke nothing"
    assert [one.reward for one in found.rollouts] == [one.reward for one in expected.rollouts]
    assert [one.advantage for one in found.rollouts] == [one.advantage for one in expected.rollouts]


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != "401"])
def test_a_fault_that_stays_takes_one_member_out_and_changes_no_other(server: str, model: Path, fault: Fault) -> None:
    def plan(asked: Asked, before: int) -> Fault | None:
        return fault if ANSWERS[FAILED].encode() in asked.raw else None

    with faulty(server, plan) as proxy:
        options: dict[str, Any] = {"retries": 0, "timeout_s": 0.8 * SLOW_S} if fault == "slow" else {"retries": 2}
        with judge_at(proxy.url, model, **options) as judge:
            require_as_if_never_sampled(Vowels(judge=judge), rewarded(Vowels(judge=judge), ANSWERS))


def test_a_rejected_key_stops_the_scoring_at_once(server: str, model: Path) -> None:
    with faulty(server, lambda asked, before: "401") as proxy, judge_at(proxy.url, model, concurrency=1) as judge:
        with pytest.raises(JudgeRefused, match="key rejected"):
            rewarded(Vowels(judge=judge), ANSWERS)
        assert len(proxy.asked) <= 2


def test_no_process_thread_or_socket_is_left(model: Path) -> None:
    def state() -> tuple[set[str], set[threading.Thread], str]:
        fds = {os.readlink(link) for fd in os.listdir("/proc/self/fd") if os.path.lexists(link := f"/proc/self/fd/{fd}")}
        children = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text(encoding="ascii")
        return {fd for fd in fds if fd.startswith("socket")}, set(threading.enumerate()), children

    before = state()
    for seed in range(3):
        with serving(said_by_content) as upstream, faulty(upstream.url, seeded_plan(seed, ("429", "cut", "500"))) as proxy:
            with judge_at(proxy.url, model) as judge:
                rewarded(Vowels(judge=judge), ANSWERS)
            assert len(proxy.asked) > len(ANSWERS)
    assert state() == before


def said_by_content(asked: Asked) -> Said:
    """A judge that is no model: a score from 1 to 10 that the request's content decides, in the form that `judge` asks for."""
    score = 1 + hashlib.sha256(asked.raw).digest()[0] % 10
    return chat(json.dumps({"reason": "so it is", "score": score}))


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(chat("I would rather not say."), id="no JSON"),
        pytest.param(chat('{"reason": "great", "score": 11}'), id="out of range"),
        pytest.param(chat('{"reason": "good", "sco', finish="length"), id="cut at its limit"),
        pytest.param(chat(""), id="empty text"),
        pytest.param(error(429, "slow down"), id="429 always"),
        pytest.param(error(400, "too long"), id="400"),
    ],
)
def test_the_reward_judge_gives_a_failed_call_no_score(broken: Said) -> None:
    def answer(asked: Asked) -> Said:
        return broken if ANSWERS[FAILED].encode() in asked.raw else said_by_content(asked)

    with serving(answer) as stub, judge_at(stub.url, "m", retries=1) as judge:
        reward = JudgeReward(judge=judge, probe="off")
        require_as_if_never_sampled(reward, rewarded(reward, ANSWERS))


def test_five_scores_for_six_answers_give_no_score_after_one_more_try() -> None:
    five = chat(json.dumps({"reason": "so", "scores": [1, 2, 3, 4, 5]}))
    with serving(lambda asked: five) as stub, judge_at(stub.url, "m") as judge:
        group = rewarded(JudgeReward(judge=judge, probe="off", mode="ranking"), ANSWERS)
    assert len(stub.asked) == 2
    assert {one.status for one in group.rollouts} == {"failed"}
    assert all("6" in one.failure and "5" in one.failure for one in group.rollouts)


def rlaif_rubric(url: str, judge: Path | str, policy: Path | str, folder: Path, **changes: Any) -> Run:
    """The recipe `rlaif-rubric` with its judge at `url`, two steps."""
    overrides = {
        "model.name": str(policy),
        "rewards.0.judge.base_url": url,
        "rewards.0.judge.model": str(judge),
        "rewards.0.judge.cache": str(folder / "replies.sqlite"),
        "train.steps": 2,
        "evaluation.prompts": 0,
        "checkpoint.every": 0,
    }
    return Run.open(toishi.train("rlaif-rubric", overrides=overrides | changes, folder=folder / "run", quiet=True).folder)


def require_judged(run: Run) -> None:
    """Two steps of eight answers, each with a number between 0 and 1 and the judge's words; nothing failed."""
    assert run.steps == (1, 2)
    for step in run.steps:
        scores = [score for rollout in run.step(step).rollouts for score in rollout.scores]
        assert len(scores) == 8
        assert {score.status for score in scores} == {"ok"}
        assert all(0 <= (score.value or 0.0) <= 1 and "expected" in score.reason for score in scores)


def test_the_recipe_trains_with_a_real_server_behind_faults(server: str, model: Path, tmp_path: Path) -> None:
    passing: tuple[Fault, ...] = ("429", "500", "cut", "empty")
    with faulty(server, seeded_plan(0, passing, share=0.3)) as proxy:
        run = rlaif_rubric(proxy.url, model, model, tmp_path, **{"sampling.max_new_tokens": 16, "model.dtype": "float32"})
    require_judged(run)


@pytest.mark.slow
@pytest.mark.bundled
def test_the_recipe_trains_with_the_bundled_model_as_judge(tmp_path: Path) -> None:
    """Two models of 135M parameters on the same cores: slow, and the whole of what a user does."""
    folder = bundled_model_folder()
    with transformers_serve(folder, tmp_path / "server.log") as url:
        run = rlaif_rubric(url, folder, "bundled", tmp_path)
    require_judged(run)
