"""`toishi judge audit` end to end: answers from a file or a run, a judge of known noise, and the printed report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tests.cli.conftest import run_command
from tests.rejudging.noisy import NoisyPairs, NoisyReward, letters
from tests.rejudging.test_step import noisy, write
from toishi.config import Config, load_config
from toishi.errors import ConfigError, DataError
from toishi.judging import JudgeCall, ScriptedJudge
from toishi.judging.audit_parts import AuditReport
from toishi.rejudging import AuditPlan, answers_of_file, answers_of_run, audit_judge
from toishi.rewards import REWARDS

WORDS = ("aeiou", "aeibb", "abbbb", "bbbbb", "aeioub", "aab")


@pytest.fixture(autouse=True)
def _noisy_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REWARDS, "noisy", NoisyReward)
    monkeypatch.setitem(REWARDS, "pairs", NoisyPairs)


def config(*rewards: dict[str, Any], group_size: int = 8) -> Config:
    return load_config({"rewards": list(rewards), "train": {"group_size": group_size}})


def rows(prompts: int, **rest: Any) -> list[dict[str, Any]]:
    return [
        {"prompt": f"{number}?", "answer": word, "label": letters(word) > 0.5, **rest}
        for number in range(prompts)
        for word in WORDS
    ]


def file(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def audited(path: Path, *rewards: dict[str, Any], **plan: Any) -> AuditReport:
    return audit_judge(config(*rewards), answers_of_file(path, limit=10_000), AuditPlan(**plan))


def test_known_noise_is_recovered_from_a_file(tmp_path: Path) -> None:
    report = audited(file(tmp_path / "a.jsonl", rows(80)), {"name": "noisy", "noise_sd": 0.25})
    assert (report.prompts, report.answers, report.asked, report.group_size) == (80, 480, 1440, 8)
    assert report.noise is not None
    assert report.noise.sd.low <= 0.25 <= report.noise.sd.high
    spread = np.std([letters(word) for word in WORDS], ddof=1)
    assert report.noise.spread == pytest.approx(spread, rel=0.1)
    assert report.mistakes is not None
    assert report.mistakes.youden_j.low > 0.2
    assert report.used == {"calls": 240.0}


def test_askings_have_numbers_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    again = NoisyReward.score_group_again

    def noted(self: NoisyReward, prompt: Any, completions: Any, repeat: int) -> Any:
        asked.append(repeat)
        return again(self, prompt, completions, repeat)

    monkeypatch.setattr(NoisyReward, "score_group_again", noted)
    audited(file(tmp_path / "a.jsonl", rows(1)), {"name": "noisy"}, askings=4)
    assert asked == [0, 1, 2, 3]


def test_a_run_is_audited_against_its_own_checker(tmp_path: Path) -> None:
    checker = {"name": "right", "kind": "noisy", "noise_sd": 0.0}
    run = write(tmp_path / "run", [*noisy(0.1), checker])
    found = answers_of_run(run, limit=40)
    assert sum(len(group.rollouts) for group in found.groups) == 40
    report = audit_judge(load_config(run.run["config"]), found, AuditPlan(reward="noisy", against="right", askings=2))
    assert report.agreement is not None
    assert report.agreement.base_rate is None  # the checker's values are shares
    assert report.agreement.spearman.value > 0.8
    assert report.used == {"calls": 10.0}  # the first asking is the recorded one


def test_a_judge_of_pairs_that_prefers_the_first(tmp_path: Path) -> None:
    path = file(tmp_path / "a.jsonl", rows(20))
    fair = audited(path, {"name": "pairs", "noise_sd": 0.0}).position
    biased = audited(path, {"name": "pairs", "noise_sd": 0.0, "first": 0.35}).position
    assert fair is not None
    assert biased is not None
    assert fair.flips is not None
    assert fair.flips.value == 0
    # pairs nearer than .35 go to whoever is shown first
    values = [letters(word) for word in WORDS]
    near = [abs(a - b) < 0.35 for place, a in enumerate(values) for b in values[place + 1 :]]
    assert biased.pairs == 20 * 15
    assert biased.flips is not None
    assert biased.flips.value == pytest.approx(np.mean(near))
    assert biased.first is not None
    assert biased.first.value == pytest.approx(0.5 + np.mean(near) / 2)


def test_the_real_reward_with_a_judge_of_words(tmp_path: Path) -> None:
    """The reward `judge` itself: right answers get 9 or 8, wrong ones 2, one reply in eight cannot be read."""
    count = 0

    def reply(call: JudgeCall) -> str:
        nonlocal count
        count += 1
        if count % 8 == 0:
            return "no idea"
        right = any(word in call.messages[-1]["content"] for word in ("aeiou", "aeibb"))
        return json.dumps({"reason": "so", "score": 2 if not right else 9 - call.repeat % 2})

    judge = ScriptedJudge(script=reply)
    report = audited(file(tmp_path / "a.jsonl", rows(10)), {"name": "judge", "judge": judge, "probe": "off"}, askings=2)
    assert report.mistakes is not None
    assert (report.mistakes.false_positive.value, report.mistakes.false_negative.value) == (0, 1 / 4)  # of four, "aab" gets 2
    assert report.used["calls"] >= 120
    assert report.used["unreadable_no_json"] > 0


def test_bad_rows_are_all_named(tmp_path: Path) -> None:
    bad: list[dict[str, Any]] = [
        {"prompt": "a?", "answer": 7, "label": 1},
        {"prompt": "b?", "answer": "x"},
        {"prompt": "c?", "answer": "x", "label": "yes"},
    ]
    with pytest.raises(DataError) as caught:
        answers_of_file(
            file(tmp_path / "a.jsonl", [*bad, {"prompt": "d?", "answer": "x", "label": 1, "source": "me"}]), limit=10
        )
    for words in ("row 1: 'answer'", "row 2: it has no label", "row 3: 'label'", "row 4: 'source'"):
        assert words in str(caught.value)


def test_mistakes_are_named(tmp_path: Path) -> None:
    path = file(tmp_path / "a.jsonl", rows(2))
    with pytest.raises(ConfigError, match="no reward of the recipe is a judge"):
        audited(path, {"name": "length", "target": 3})
    with pytest.raises(ConfigError, match="the recipe has 2 judges: noisy, pairs"):
        audited(path, {"name": "noisy"}, {"name": "pairs"})
    with pytest.raises(ConfigError, match="did you mean 'noisy'"):
        audited(path, {"name": "noisy"}, reward="nosy")
    with pytest.raises(DataError, match="have labels already"):
        audited(path, {"name": "noisy"}, {"name": "length", "target": 3}, against="length")
    with pytest.raises(ConfigError, match="its own truth"):
        audited(path, {"name": "noisy"}, against="noisy")


def test_the_command(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump({"rewards": [{"name": "noisy", "noise_sd": 0.3}], "train": {"group_size": 4}}))
    labels = file(tmp_path / "a.jsonl", rows(20))
    ended = run_command("judge", "audit", recipe, "--labels", labels)
    assert ended.code == 0
    assert max(map(len, ended.out.splitlines())) <= 80
    for words in ("agreement", "noise", "at G=4", "(formula)", "(simulated)"):
        assert words in ended.out
    said = json.loads(run_command("judge", "audit", recipe, "--labels", labels, "--group-size", "16", "--json").out)
    assert (said["group_size"], said["answers"]) == (16, 120)
    assert said["word"] in ("good", "usable", "unclear", "bad")
    assert said["mistakes"]["youden_j"]["low"] < said["mistakes"]["youden_j"]["value"]
    refused = run_command("judge", "audit", recipe, width=200)
    assert refused.code == 1
    assert "--labels FILE" in refused.err


def test_the_command_on_a_run(tmp_path: Path) -> None:
    """Without labels nothing is good; the recipe's settings are the run's own unless --set says otherwise."""
    run = write(tmp_path / "run", noisy(0.3))
    options = ("--answers", "40", "--askings", "2", "--set", "train.group_size=16", "--json")
    ended = run_command("judge", "audit", run.folder, *options)
    said = json.loads(ended.out)
    assert (said["word"], said["agreement"], said["group_size"], said["asked"]) == ("unclear", None, 16, 80)
    error = 3 * 0.3 / (2 * 40) ** 0.5  # of a standard deviation from 40 pairs
    assert said["noise"]["sd"]["value"] == pytest.approx(0.3, abs=error)
    assert len(said["sign_flips"]) == 5
