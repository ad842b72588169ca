"""The reward `command`: a checker accepts, rejects, or breaks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.isolation.leftovers import belongings, settled
from tests.rewards.judging import asked, judge
from tests.rewards.test_code import level
from toishi.config import RewardConfig
from toishi.errors import ConfigError
from toishi.isolation.limits import NotStarted
from toishi.recipes import load_recipe
from toishi.rewards import Judgement, build_rewards, command
from toishi.rewards.command import CommandReward
from toishi.tasks import build_task


def reward(*words: str, **options: Any) -> CommandReward:
    return CommandReward(command=words, **({"sandbox": level(), "timeout_s": 5.0} | options))


def python(code: str, **options: Any) -> CommandReward:
    return reward("{python}", "-c", code, **options)


def test_exit_codes_accept_and_reject() -> None:
    checker = reward("grep", "-x", "qed")
    assert judge(checker, "so\nqed", asked()) == Judgement(value=1.0, reason="accepted: qed", readable=True)
    assert judge(checker, "so", asked()) == Judgement(value=0.0, reason="rejected", readable=True)


def test_the_answer_comes_by_file_and_columns_come_along() -> None:
    code = "import sys; text = open('answer.txt').read(); sys.exit(0 if text == open('goal.txt').read() else 4)"
    checker = python(code, file="answer.txt", inputs={"goal.txt": "goal"}, reject_codes=(4,))
    prompt = asked(columns={"goal": "x = 1"})
    assert checker.columns == ("goal",)
    assert (judge(checker, "x = 1", prompt).value, judge(checker, "x = 2", prompt).value) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("raise SystemExit(2)", "checker_broke"),
        ("import os; os.kill(os.getpid(), 11)", "checker_broke"),
        ("import time; time.sleep(60)", "over_limit"),
        ("while True: print('x' * 10000)", "over_limit"),
    ],
)
def test_a_checker_that_breaks_gives_no_score(code: str, kind: str) -> None:
    before = belongings()
    judged = judge(python(code, timeout_s=0.5), "qed", asked())
    assert (judged.value, judged.status, judged.kind) == (None, "failed", kind)
    assert settled(before) == ""


def test_running_out_of_time_may_mean_wrong() -> None:
    slow = "import time, sys; time.sleep(60 if 'long' in sys.stdin.read() else 0)"
    checker = python(slow, timeout_s=1.0, timeout="wrong")
    judged = judge(checker, "a long proof", asked())
    assert (judged.value, judged.reason) == (0.0, "the checker took longer than 1 s")
    assert judge(checker, "a proof", asked()).value == 1.0
    memory = python("bytearray(300 << 20); import time; time.sleep(60)", timeout_s=1.0, timeout="failed")
    assert judge(memory, "", asked()).value in (None, 0.0)


def test_an_accepting_checker_may_have_to_say_so() -> None:
    checker = python("import sys; print('note'); print(sys.stdin.read())", accept_pattern="^proved$")
    assert judge(checker, "proved", asked()).value == 1.0
    assert judge(checker, "not proved", asked()).value == 0.0
    unlucky = python("print('a' * 40 + 'b')", accept_pattern="(a|aa)+$")
    assert judge(unlucky, "x", asked()).kind in ("over_limit", "")


def test_a_block_is_taken_when_labels_are_given() -> None:
    checker = reward("grep", "-q", "theorem", languages=("lean",))
    assert judge(checker, "theorem\n```lean\ntheorem\n```", asked()).value == 1.0
    judged = judge(checker, "theorem", asked())
    assert (judged.value, judged.reason, judged.readable) == (0.0, "no code block labelled lean", False)


def test_reasoning_is_not_shown_to_the_checker() -> None:
    checker = reward("grep", "-q", "qed")
    assert judge(checker, "<think>qed</think> I do not know", asked()).value == 0.0
    assert judge(checker, "<think>hm</think> qed", asked()).value == 1.0


def test_an_answer_that_was_cut_off_is_wrong() -> None:
    assert judge(reward("true"), "qed", asked(), "length") == Judgement(
        value=0.0, reason="cut off at the token limit", readable=False
    )


def test_a_checker_of_ones_own_is_named_in_readable(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    script = tmp_path / "checker.sh"
    script.write_text("grep -q qed\n")
    script.chmod(0o644)
    assert judge(reward("sh", str(script), readable=(str(tmp_path),)), "qed", asked()).value == 1.0


def test_a_sandbox_that_does_not_start_is_no_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise NotStarted("no more processes")

    monkeypatch.setattr(command, "run_program", fails)
    assert judge(reward("true"), "x", asked()).kind == "no_sandbox"


def test_a_checker_that_is_not_there_is_no_zero() -> None:
    judged = judge(reward("no-such-checker"), "x", asked())
    assert (judged.status, judged.kind) == ("failed", "no_sandbox")
    assert "no-such-checker" in judged.reason


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "command"),
        ({"command": []}, "give the checker"),
        ({"command": ["true"], "file": "a/b"}, "bare file name"),
        ({"command": ["true"], "file": "a", "inputs": {"a": "goal"}}, "used once"),
        ({"command": ["true"], "readable": ["/no/such"]}, "/no/such"),
        ({"command": ["true"], "reject_codes": [0, 1]}, "0 accepts"),
        ({"command": ["true"], "accept_pattern": "("}, "not a regular expression"),
        ({"command": ["true"], "inputs": {"a": "goals"}}, "did you mean 'goal'"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    config = RewardConfig.model_validate({"name": "proof", "kind": "command", **options})
    with pytest.raises(ConfigError, match=message):
        build_rewards([config], columns=frozenset({"goal"}))


@pytest.mark.parametrize(
    ("proof", "value", "reason"),
    [
        ("{right}", 1.0, "accepted: proved"),
        ("{last}", 0.0, "does not follow"),
        ("{right}\ntrivially", 0.0, "not a step"),
        ("", 0.0, "the answer is empty"),
        ("proved", 0.0, "not a step: proved"),
        ("{goal} because {goal} and {goal} -> {goal}", 0.0, "does not follow"),
        ("{first}", 0.0, "is not proved"),
    ],
)
def test_the_checker_of_the_recipe_follows_proofs(proof: str, value: float, reason: str) -> None:
    config = load_recipe("proof_checker", {"rewards.0.sandbox": level()})
    task = build_task(config.task, seed=0)
    (checker,) = build_rewards(config.rewards, columns=task.columns)
    prompt = task.train_prompt(0)
    first, last = prompt.gold.split("\n")
    text = proof.format(right=prompt.gold, first=first, last=last, goal=last[0])
    judged = judge(checker, text, prompt)
    assert (judged.value, judged.status) == (value, "ok")
    assert reason in judged.reason


def test_a_checker_that_cannot_start_is_refused_before_the_first_step() -> None:
    with pytest.raises(ConfigError, match="no-such-checker"):
        reward("no-such-checker").prepare([asked()])
    reward("grep", "-x", "qed").prepare([asked()])


def test_the_folder_above_is_no_file_name() -> None:
    with pytest.raises(ConfigError, match="bare file name"):
        reward("cat", file="..")
