"""How much memory is free, and how much of it this process holds already.

Decisions:
1. No dependency for it: /proc and the control group's limit on Linux, the device's own count on CUDA, else unknown.
2. What a plan is compared with is both together: part of what a run needs (libraries, the loaded model) is taken by then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch


def free_memory(device: str = "cpu") -> int | None:
    """Bytes that could be taken now, or None where the system does not say."""
    if device.startswith("cuda"):
        return int(torch.cuda.mem_get_info(torch.device(device))[0])
    known = [found for found in (_available(), _left_in_control_groups(), _left_of_addresses()) if found is not None]
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


@dataclass(frozen=True)
class _Files:
    """How a version of control groups names a limit, what is held, and the file pages in it that are given back when asked."""

    limit: str
    held: str
    pages: str


_FIRST = _Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_SECOND = _Files("memory.max", "memory.current", "inactive_file")
_NO_LIMIT = 1 << 60
"""The first version says so by a number near 2^63."""


def _left_in_control_groups(mine: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """The least that is left in any control group around this process (a container's, a service's); None without a limit."""
    found = [_left_in(folder, files) for folder, files in _groups(mine, root)]
    return min((left for left in found if left is not None), default=None)


def _groups(mine: Path, root: Path) -> Iterator[tuple[Path, _Files]]:
    """This process' groups and those around them.

    A container may know them by names of its host: then only the outermost is there.
    """
    try:
        lines = mine.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = ["0::/"]
    for line in lines:
        _, kinds, name = line.split(":", 2)
        if kinds and "memory" not in kinds.split(","):
            continue
        top, files = (root / "memory", _FIRST) if kinds else (root, _SECOND)
        folder = top / name.strip("/")
        yield from ((place, files) for place in (folder, *folder.parents) if place.is_relative_to(top))


def _left_in(folder: Path, files: _Files) -> int | None:
    try:
        limit = (folder / files.limit).read_text(encoding="ascii").strip()
        held = int((folder / files.held).read_text(encoding="ascii"))
        stat = dict(line.split() for line in (folder / "memory.stat").read_text(encoding="ascii").splitlines())
    except (OSError, ValueError):
        return None
    return None if limit == "max" or int(limit) >= _NO_LIMIT else int(limit) - held + int(stat.get(files.pages, 0))


def _left_of_addresses() -> int | None:
    """What `ulimit -v` leaves of this process' address space; None without such a limit."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    size = _kibibytes(Path("/proc/self/status"), "VmSize")
    return None if limit == resource.RLIM_INFINITY or size is None else max(0, limit - size)
