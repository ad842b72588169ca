"""Our own namespaces, for where bubblewrap is not installed: a new root in memory that shows some places read-only.

Decisions:
1. There is no /proc inside: nothing of the outside to read, nothing to cover up, and nothing to mount, which some containers
   forbid.
2. Started by root, nobody is mapped besides root, and the program becomes nobody: for root no limit on processes holds, and
   many files of the kernel are open to it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from toishi.isolation import syscalls

NOBODY = 65534
DEVICES = ("null", "zero", "full", "random", "urandom")


def enter(spec: dict[str, Any], status_fd: int) -> int | None:
    """Goes on as the first process of new namespaces; the process before waits for it. Returns the user to become, if any."""
    as_root = os.getuid() == 0
    finish_maps = _map_users_from_outside() if as_root else _map_own_user(os.getuid(), os.getgid())
    syscalls.unshare(syscalls.NEW_NAMESPACES)
    finish_maps()
    first = os.fork()
    if first:
        _wait_for(first, status_fd)
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    with suppress(OSError):  # where this is forbidden: a namespace inside this one has no more rights over what lies outside
        Path("/proc/sys/user/max_user_namespaces").write_text("0")
    _build_root(spec)
    return NOBODY if as_root else None


def _wait_for(first: int, status_fd: int) -> NoReturn:
    """Stays outside until the namespaces are gone; asked to stop, or left by toishi, it ends them."""
    signal.signal(signal.SIGTERM, lambda *_: os.kill(first, signal.SIGKILL))
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGTERM)
    os.closerange(0, status_fd + 1)
    os.waitpid(first, 0)
    os._exit(0)


def _map_own_user(user: int, group: int) -> Callable[[], None]:
    def finish() -> None:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")

    return finish


def _map_users_from_outside() -> Callable[[], None]:
    """Root and nobody stand for themselves inside; only a process that is still outside may say so."""
    ready, go = os.pipe()
    inside = os.getpid()
    helper = os.fork()
    if helper == 0:
        os.close(go)
        os.read(ready, 1)
        try:
            for name in ("uid_map", "gid_map"):
                Path(f"/proc/{inside}/{name}").write_text(f"0 0 1\n{NOBODY} {NOBODY} 1\n")
        except OSError as error:
            os._exit(error.errno or 1)
        os._exit(0)
    os.close(ready)

    def finish() -> None:
        os.close(go)
        number = os.waitstatus_to_exitcode(os.waitpid(helper, 0)[1])
        if number:
            raise OSError(number, f"uid_map: {os.strerror(number)}")

    return finish


def _build_root(spec: dict[str, Any]) -> None:
    """A new file system in memory with the readable places of the old one, and nothing else."""
    syscalls.mount(None, "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
    root = "/proc"  # it exists everywhere, and no readable place lies in it
    syscalls.mount("tmpfs", root, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, "size=1m,mode=755")
    for device in DEVICES:
        _show(f"/dev/{device}", f"{root}/dev/{device}", syscalls.NO_SUID)
    os.mkdir(root + "/box")
    options = f"size={spec['disk_mb']}m,nr_inodes=8192,mode=755"
    syscalls.mount("tmpfs", root + "/box", "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, options)
    os.mkdir(root + spec["folder"])
    for name, shown in (("tmp", "/tmp"), ("shm", "/dev/shm")):
        os.mkdir(f"{root}/box/{name}")
        os.chmod(f"{root}/box/{name}", 0o1777)
        os.mkdir(root + shown)
        syscalls.mount(f"{root}/box/{name}", root + shown, None, syscalls.MS_BIND)
    for place in spec["readable"]:
        _show(place, root + place, syscalls.READ_ONLY | syscalls.NO_SUID | syscalls.NO_DEV)
    syscalls.make_root_of(root)
    syscalls.set_attributes("/", syscalls.READ_ONLY, recursive=False)


def _show(place: str, at: str, attributes: int) -> None:
    """The old `place` at `at`; a link stays a link."""
    if os.path.islink(place):
        os.makedirs(os.path.dirname(at), exist_ok=True)
        os.symlink(os.readlink(place), at)
        return
    if os.path.isdir(place):
        os.makedirs(at, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(at), exist_ok=True)
        Path(at).touch()
    syscalls.mount(place, at, None, syscalls.MS_BIND | syscalls.MS_REC)
    syscalls.set_attributes(at, attributes)
