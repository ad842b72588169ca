"""How OpenMP's threads wait for work: chosen before torch is first imported, which reads it once.

Decisions:
1. Threads that spin while they wait are faster than threads that sleep: 4.3 instead of 6.4 s for the same training step on two
   quiet cores. But two processes that spin on the same cores slow each other down ten times and more (50 s each), where two
   that sleep took 7.6 s each, and one that spins beside one that sleeps 5.1 and 9.3 s.
2. So one process of a user at a time may spin: the first that takes a lock, if nothing else runs on the machine at that moment.
   All others sleep.
3. No number depends on it. What the environment already says is left alone.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import MutableMapping
from pathlib import Path

ASLEEP = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}
COMPUTING = frozenset({"train", "resume", "demo", "evaluate", "replay", "select", "collect", "pipeline"})
"""Commands that keep all cores busy for long; others leave the lock to them."""
_LOOKS, _PAUSE_S = 5, 0.002

_held: list[int] = []


def choose_waiting(command: str, environment: MutableMapping[str, str], *, folder: Path | None = None) -> bool:
    """Whether this process' threads spin; if not, `environment` says so. `folder` holds the lock, by default the system's
    folder for temporary files."""
    if any(name in environment for name in ASLEEP):
        return False
    spins = command in COMPUTING and is_idle() and _take_lock(folder)
    if not spins:
        environment.update(ASLEEP)
    return spins


def is_idle(source: Path = Path("/proc/loadavg")) -> bool:
    """Whether nothing but this process runs now; False where the system does not say. A few looks, since anything runs once."""
    for _ in range(_LOOKS):
        running = _running(source)
        if running is None:
            return False
        if running <= 1:
            return True
        time.sleep(_PAUSE_S)
    return False


def _running(source: Path) -> int | None:
    """Linux's count of what runs or could run at this moment, this process included."""
    try:
        return int(source.read_text(encoding="ascii").split()[3].partition("/")[0])
    except (OSError, ValueError, IndexError):
        return None


def _take_lock(folder: Path | None) -> bool:
    """Hold the lock until this process ends; False when another one holds it, or there can be none."""
    try:
        import fcntl
    except ImportError:  # Windows
        return False
    try:
        folder = folder or Path(tempfile.gettempdir())
        lock = os.open(folder / f"toishi-spins-{os.getuid()}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return False
    _held.append(lock)
    return True
