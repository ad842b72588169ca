"""What is free: read from files that are made by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from toishi.memory import free_memory, held_memory, reachable_memory
from toishi.memory.free import _available, _left_in_control_groups


def test_available_memory_is_read_in_kibibytes(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal:       16000000 kB\nMemAvailable:    8000000 kB\n", encoding="ascii")
    assert _available(tmp_path / "meminfo") == 8_000_000 * 1024
    assert _available(tmp_path / "none") is None


def write_files(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"memory.{name}").write_text(text, encoding="ascii")


def test_a_containers_limit_counts_and_its_file_pages_do_not(tmp_path: Path) -> None:
    """Second version of control groups: the process' own group, or the one around it, whichever leaves less."""
    (tmp_path / "mine").write_text("0::/slice/run.scope\n")
    root, own = tmp_path / "root", tmp_path / "root" / "slice" / "run.scope"
    write_files(root, max="1000\n", current="700\n", stat="anon 400\ninactive_file 250\n")
    assert _left_in_control_groups(tmp_path / "mine", root) == 1000 - 700 + 250
    write_files(own, max="500\n", current="200\n", stat="anon 200\ninactive_file 10\n")
    assert _left_in_control_groups(tmp_path / "mine", root) == 500 - 200 + 10
    write_files(own, max="max\n")
    write_files(root, max="max\n")
    assert _left_in_control_groups(tmp_path / "mine", root) is None
    assert _left_in_control_groups(tmp_path / "none", tmp_path / "nowhere") is None


def test_the_first_version_of_control_groups_counts_as_well(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("5:cpu,cpuacct:/\n4:memory:/a/b\n0::/\n")
    root = tmp_path / "root"
    write_files(root / "memory", limit_in_bytes="9223372036854771712\n", usage_in_bytes="7\n", stat="total_inactive_file 0\n")
    assert _left_in_control_groups(tmp_path / "mine", root) is None
    stat = "inactive_file 1\ntotal_inactive_file 30\n"
    write_files(root / "memory" / "a", limit_in_bytes="900\n", usage_in_bytes="500\n", stat=stat)
    assert _left_in_control_groups(tmp_path / "mine", root) == 900 - 500 + 30


def test_a_limit_on_addresses_counts() -> None:
    code = """
import resource
from toishi.memory import free_memory
resource.setrlimit(resource.RLIMIT_AS, (6 * 10**9, 6 * 10**9))
print(free_memory())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0 < int(done.stdout) < 6 * 10**9


def test_what_can_be_had_is_what_is_free_and_what_is_held() -> None:
    free, held = free_memory(), held_memory()
    assert free is None or 10**6 < free < 10**15
    assert held == 0 or 10**7 < held < 10**12
    reachable = reachable_memory()
    assert (reachable is None) == (free is None)
