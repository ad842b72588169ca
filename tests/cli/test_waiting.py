"""Who may spin: one computing process at a time, on a machine without other work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from toishi.cli import waiting
from toishi.cli.waiting import ASLEEP, choose_waiting, is_idle

HOLD = """
import sys
from pathlib import Path
from toishi.cli import waiting
waiting.is_idle = lambda: True
environment = {}
print(waiting.choose_waiting("train", environment, folder=Path(sys.argv[1])), environment, flush=True)
sys.stdin.read()
"""


def holder(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_the_first_spins_and_the_second_sleeps_until_the_first_has_ended(tmp_path: Path) -> None:
    first = holder(tmp_path)
    assert said(first) == "True {}"
    second = holder(tmp_path)
    assert said(second) == f"False {ASLEEP}"
    first.kill()
    first.communicate()
    third = holder(tmp_path)
    assert said(third) == "True {}"
    for process in (second, third):
        process.communicate("")
        assert process.returncode == 0


@pytest.mark.parametrize("command", ["view", "explain", "--help", ""])
def test_commands_that_do_not_compute_leave_the_lock_to_those_that_do(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "is_idle", lambda: True)
    environment: dict[str, str] = {}
    assert not choose_waiting(command, environment, folder=tmp_path)
    assert environment == ASLEEP
    assert list(tmp_path.iterdir()) == []


def test_nobody_spins_on_a_machine_that_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "is_idle", lambda: False)
    environment: dict[str, str] = {}
    assert not choose_waiting("train", environment, folder=tmp_path)
    assert environment == ASLEEP


@pytest.mark.parametrize("given", [{"OMP_WAIT_POLICY": "ACTIVE"}, {"GOMP_SPINCOUNT": "7"}])
def test_what_the_environment_says_is_left_alone(given: dict[str, str], tmp_path: Path) -> None:
    environment = dict(given)
    assert not choose_waiting("train", environment, folder=tmp_path)
    assert environment == given


@pytest.mark.parametrize(
    ("line", "expected"),
    [("0.00 0.01 0.05 1/312 4242", True), ("9.90 0.01 0.05 3/312 4242", False), ("gone", False), ("0.1 0.1", False)],
)
def test_idle_is_read_off_what_runs_now_not_off_the_minute_before(line: str, expected: bool, tmp_path: Path) -> None:
    (tmp_path / "loadavg").write_text(line)
    assert is_idle(tmp_path / "loadavg") is expected


def test_a_system_that_does_not_say_counts_as_busy(tmp_path: Path) -> None:
    assert not is_idle(tmp_path / "missing")


def test_a_lock_that_cannot_be_made_means_sleeping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "is_idle", lambda: True)
    environment: dict[str, str] = {}
    assert not choose_waiting("train", environment, folder=tmp_path / "missing")
    assert environment == ASLEEP


def test_no_folder_for_temporary_files_means_sleeping(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(waiting, "is_idle", lambda: True)
    monkeypatch.setattr(waiting.tempfile, "gettempdir", none)
    environment: dict[str, str] = {}
    assert not choose_waiting("train", environment)
    assert environment == ASLEEP
