"""How much memory is free, and how much of it this process holds already.

Decisions:
1. No dependency for it: /proc and the control group's limit on Linux, the device's own count on CUDA, else unknown.
2. What a plan is compared with is both together: part of what a run needs (libraries, the loaded model) is taken by then.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch


def free_memory(device: str = "cpu") -> int | None:
    """Bytes that could be taken now, or None where the system does not say."""
    if device.startswith("cuda"):
        return int(torch.cuda.mem_get_info(torch.device(device))[0])
    known = [found for found in (_available(), _left_in_control_group()) if found is not None]
    return min(known) if known else None


def held_memory(device: str = "cpu") -> int:
    """Bytes that this process holds now; 0 where the system does not say."""
    if device.startswith("cuda"):
        return int(torch.cuda.memory_reserved(torch.device(device)))
    return _kibibytes(Path("/proc/self/status"), "VmRSS") or 0


def reachable_memory(device: str = "cpu") -> int | None:
    """Bytes that this process could hold altogether, or None where the system does not say."""
    free = free_memory(device)
    return None if free is None else free + held_memory(device)


def _available(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """What Linux says could be taken without swapping."""
    return _kibibytes(meminfo, "MemAvailable")


def _kibibytes(path: Path, name: str) -> int | None:
    """A line such as `VmRSS:  120 kB`, in bytes; None where there is none."""
    try:
        lines = path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    values: Mapping[str, str] = dict(line.split(":", 1) for line in lines if ":" in line)
    return int(values[name].split()[0]) * 1024 if name in values else None


def _left_in_control_group(folder: Path = Path("/sys/fs/cgroup")) -> int | None:
    """A container's limit less what it holds (without file pages, which it gives back when asked)."""
    try:
        limit = (folder / "memory.max").read_text(encoding="ascii").strip()
        held = int((folder / "memory.current").read_text(encoding="ascii"))
        stat = dict(line.split() for line in (folder / "memory.stat").read_text(encoding="ascii").splitlines())
    except (OSError, ValueError):
        return None
    return None if limit == "max" else int(limit) - held + int(stat.get("inactive_file", 0))
