"""System calls that the standard library does not have, by ctypes. Linux only; each raises OSError with the call's name."""

from __future__ import annotations

import ctypes
import os
import platform

NEW_NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
"""Mount, cgroup, host name, IPC, user, process and network namespaces."""
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 1 << 12, 1 << 14, 1 << 18
READ_ONLY, NO_SUID, NO_DEV = 1, 2, 4
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
_MNT_DETACH = 2
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_MOUNT_SETATTR = 442
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "riscv64": 41, "ppc64le": 203, "s390x": 217}
_CAPABILITIES_V3 = 0x20080522
_LIBC = ctypes.CDLL(None, use_errno=True)  # this process: its C library


def _checked(what: str, result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def prctl(option: int, value: int) -> None:
    """Sets a property of this process."""
    _checked(f"prctl {option}", _LIBC.prctl(option, ctypes.c_ulong(value), 0, 0, 0))


def unshare(flags: int) -> None:
    """Leaves the named kinds of namespaces for new ones."""
    _checked("unshare", _LIBC.unshare(flags))


def mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    """Mounts, binds or changes propagation, as mount(2)."""
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind, options)]
    _checked(f"mount {target}", _LIBC.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3]))


def set_attributes(target: str, attributes: int, *, recursive: bool = True) -> None:
    """Adds attributes to a mount and, if `recursive`, to all below it (Linux 5.12)."""
    wanted = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    size = ctypes.c_size_t(ctypes.sizeof(wanted))
    result = _LIBC.syscall(_MOUNT_SETATTR, _AT_FDCWD, os.fsencode(target), flags, ctypes.byref(wanted), size)
    _checked(f"mount_setattr {target}", result)


def make_root_of(folder: str) -> None:
    """The mount at `folder` becomes the root; the old root is gone for this mount namespace."""
    number = _PIVOT_ROOT.get(platform.machine())
    if number is None:
        raise OSError(f"pivot_root is not known for {platform.machine()}; install bubblewrap")
    os.chdir(folder)
    _checked("pivot_root", _LIBC.syscall(number, b".", b"."))
    _checked("umount", _LIBC.umount2(b".", _MNT_DETACH))
    os.chdir("/")


def drop_capabilities() -> None:
    """No capability now, and none from any program started later."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    _checked("capset", _LIBC.capset((ctypes.c_uint32 * 2)(_CAPABILITIES_V3, 0), (ctypes.c_uint32 * 6)()))
