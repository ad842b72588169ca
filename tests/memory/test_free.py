"""What is free: read from files that are made by hand."""

from __future__ import annotations

from pathlib import Path

from toishi.memory import free_memory, held_memory, reachable_memory
from toishi.memory.free import _available, _left_in_control_group


def test_available_memory_is_read_in_kibibytes(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal:       16000000 kB\nMemAvailable:    8000000 kB\n", encoding="ascii")
    assert _available(tmp_path / "meminfo") == 8_000_000 * 1024
    assert _available(tmp_path / "none") is None


def test_a_containers_limit_counts_and_its_file_pages_do_not(tmp_path: Path) -> None:
    for name, text in {
        "memory.max": "1000\n",
        "memory.current": "700\n",
        "memory.stat": "anon 400\ninactive_file 250\n",
    }.items():
        (tmp_path / name).write_text(text, encoding="ascii")
    assert _left_in_control_group(tmp_path) == 1000 - 700 + 250
    (tmp_path / "memory.max").write_text("max\n", encoding="ascii")
    assert _left_in_control_group(tmp_path) is None
    assert _left_in_control_group(tmp_path / "none") is None


def test_what_can_be_had_is_what_is_free_and_what_is_held() -> None:
    free, held = free_memory(), held_memory()
    assert free is None or 10**6 < free < 10**15
    assert held == 0 or 10**7 < held < 10**12
    reachable = reachable_memory()
    assert (reachable is None) == (free is None)
