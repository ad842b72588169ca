"""The display on a terminal and elsewhere, on a real run of a tiny model."""

from __future__ import annotations

import io
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from tests.making import group
from tests.tiny import save_tiny
from toishi.config import Config, load_config
from toishi.display import Display
from toishi.display_tables import before_after, evaluation_line, interesting
from toishi.evaluate import Evaluation
from toishi.health import Alarm
from toishi.loop import train


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    model = save_tiny(tmp_path_factory.mktemp("model") / "llama", "llama")
    plain = {
        "model": {"name": str(model), "dtype": "float32"},
        "task": {"name": "sums", "heldout": 2},
        "rewards": [{"name": "vowels", "function": "tests.making:vowels"}],
        "sampling": {"max_new_tokens": 6},
        "train": {"steps": 3, "prompts_per_step": 2, "group_size": 2},
        "evaluation": {"prompts": 2, "samples": 1, "every": 0},
    }
    return load_config(plain)


def shown(config: Config, folder: Path, *, terminal: bool, width: int) -> str:
    out = io.StringIO()
    train(config, folder, Display(Console(file=out, force_terminal=terminal, width=width)))
    return out.getvalue()


def evaluation(mode: str, step: int, value: float, **changes: object) -> Evaluation:
    fields: dict[str, object] = {
        "step": step,
        "mode": mode,
        "num_prompts": 64,
        "samples": 8,
        "temperature": 1.0,
        "value": value,
        "interval": (value - 0.1, value + 0.1),
        "readable": 0.5,
        "value_readable": value / 0.5,
        "truncated": 0.25,
        "mean_tokens": 19.05,
        "unscored": 0,
        "by_prompt": {},
    }
    return Evaluation(**(fields | changes))  # type: ignore[arg-type]


def test_a_terminal_has_a_live_line_with_reward_speed_and_time_left(config: Config, tmp_path: Path) -> None:
    text = shown(config, tmp_path / "run", terminal=True, width=100)
    assert "step 3/3" in text
    assert re.search(r"reward \d\.\d\d · held-out \d\.\d\d · \d+ tokens/s · \d+ s left", text)


def test_slow_rewards_show_how_far_they_are(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toishi.display.SLOW_SCORING_S", 0.0)
    display = Display(Console(file=io.StringIO(), force_terminal=True, width=100))
    session: Any = SimpleNamespace(config=config, step=1)
    with display.progress(session):
        assert display._progress is not None
        (task,) = display._progress.tasks
        with display.scoring() as judged:
            judged("judge", 2, 4)
            judged("number", 4, 4)
            assert task.description == "step 1/3 · judging judge 2/4"
            judged("judge", 4, 4)
            assert task.description == "step 1/3"
    with Display.silent().scoring() as judged:
        judged("judge", 1, 4)


def test_a_pipe_gets_plain_lines(config: Config, tmp_path: Path) -> None:
    text = shown(config, tmp_path / "run", terminal=False, width=80)
    assert "\x1b" not in text
    assert "\r" not in text
    assert len(re.findall(r"^ +\d+ +\d\.\d{3} +\d/2 ", text, re.MULTILINE)) == 3


def test_silent_prints_nothing(config: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(config, tmp_path / "run", Display.silent())
    assert capsys.readouterr() == ("", "")


def test_alarms_are_printed_whole() -> None:
    out = io.StringIO()
    display = Display(Console(file=out, width=200))
    alarm = Alarm(rule="truncation", action="warn", step=3, evidence="40% of answers were cut [x]", remedy="raise the limit")
    display.alarm(alarm)
    assert "40% of answers were cut [x]" in out.getvalue()
    assert "raise the limit" in out.getvalue()


def test_waiting_is_silent_outside_a_terminal() -> None:
    out = io.StringIO()
    with Display(Console(file=out)).waiting("loading"):
        pass
    assert out.getvalue() == ""


def test_evaluation_line_shows_the_change_and_what_was_left_out() -> None:
    first = evaluation("greedy", 0, 0.34)
    assert evaluation_line(first) == "step 0 held-out, greedy: 0.340 [0.240, 0.440], 64 prompts"
    later = evaluation("sampled", 30, 0.86, change=0.52, change_interval=(0.38, 0.64), unscored=2)
    assert evaluation_line(later) == (
        "step 30 held-out, sampled × 8: 0.860 [0.760, 0.960] (change +0.520 [+0.380, +0.640]), 64 prompts, "
        "2 answers without a score left out"
    )


def test_few_prompts_are_shown_without_an_interval() -> None:
    few = evaluation("greedy", 5, 1.0, interval=None, num_prompts=2, change=1.0)
    assert evaluation_line(few) == "step 5 held-out, greedy: 1.000 (change +1.000), 2 prompts; too few prompts for an interval"
    table = before_after([evaluation("greedy", 0, -0.0001, interval=None, num_prompts=2), few])
    assert table is not None
    out = io.StringIO()
    Console(file=out, width=80).print(table)
    assert "Held-out prompts (2), before and after 5 steps; too few prompts for an interval" in " ".join(out.getvalue().split())
    assert [line.split() for line in out.getvalue().splitlines() if "before  " in line] == [["before", "0.000"]]
    assert "[" not in out.getvalue()


def test_a_full_disk_is_said_before_the_first_step(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toishi.disk.free_disk", lambda folder: 1_000)
    text = " ".join(shown(config, tmp_path / "run", terminal=False, width=80).split())
    assert "warning: the checkpoints need up to" in text
    assert text.index("warning: the checkpoints") < text.index("step reward mixed")


def test_a_run_without_any_gradient_says_so(config: Config, tmp_path: Path) -> None:
    still = config.model_copy(update={"rewards": load_config({"rewards": [{"name": "number", "weight": 0.0}]}).rewards})
    text = " ".join(shown(still, tmp_path / "run", terminal=False, width=80).split())
    assert "checkpoints: up to" in text
    assert "No step had a gradient" in text
    assert "too few prompts for an interval" in text


def test_before_and_after_fits_80_columns() -> None:
    out = io.StringIO()
    found = [
        evaluation("greedy", 0, -0.34),
        evaluation("sampled", 0, -0.09),
        evaluation("greedy", 10, -0.5),
        evaluation("greedy", 30, -0.86, change=-0.52, change_interval=(-0.64, -0.38), truncated=0.0),
        evaluation("sampled", 30, -0.82, change=-0.73, change_interval=(-0.8, -0.6)),
    ]
    table = before_after(found)
    assert table is not None
    Console(file=out, width=80).print(table)
    rows = {line.split("  ")[0].strip(): line for line in out.getvalue().splitlines()}
    assert "-0.340 [-0.440, -0.240]" in rows["before"]
    assert "-0.860 [-0.960, -0.760]" in rows["after"]
    assert "-0.520 [-0.640, -0.380]" in rows["change"]
    assert "0.250 → 0.000" in rows["cut at the limit"]
    assert "19.1 → 19.1" in rows["mean tokens"]
    assert "…" not in out.getvalue()


def test_nothing_to_compare_is_no_table() -> None:
    assert before_after([evaluation("greedy", 0, 0.5), evaluation("sampled", 0, 0.5)]) is None


def test_the_group_worth_showing_is_mixed() -> None:
    tied, mixed = group(0, [5], [[6], [7]], [1.0, 1.0]), group(1, [5], [[6], [7]], [1.0, 0.0])
    assert interesting([tied, mixed]) is mixed
    assert interesting([tied]) is None
