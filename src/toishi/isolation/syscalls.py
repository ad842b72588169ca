"""System calls that the standard library does not have, by ctypes. Linux only; each raises OSError with the call's name."""

from __future__ import annotations

import ctypes
import os
import platform
import struct

NEW_NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
"""Mount, cgroup, host name, IPC, user, process and network namespaces."""
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 1 << 12, 1 << 14, 1 << 18
READ_ONLY, NO_SUID, NO_DEV = 1, 2, 4
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
_MNT_DETACH = 2
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_MOUNT_SETATTR = 442
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "riscv64": 41, "ppc64le": 203, "s390x": 217}
_CAPABILITIES_V3 = 0x20080522
_KEYS_OF = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "ppc64le": 271, "s390x": 280}  # keyctl
_JOIN_SESSION_KEYRING = 1
_X86_64 = (29, 64, 68, 248, 249, 250, 319, 447)  # shmget semget msgget add_key request_key keyctl memfd_create memfd_secret
_I386 = (117, 286, 287, 288, 356, 393, 395, 399, 447)  # ipc, then the same
_GENERIC = (186, 190, 194, 217, 218, 219, 279, 447)
_REFUSED = {
    "x86_64": ((0xC000003E, _X86_64), (0x40000003, _I386)),
    "aarch64": ((0xC00000B7, _GENERIC),),
    "riscv64": ((0xC00000F3, _GENERIC),),
}
"""machine -> (what the kernel calls the way of calling, numbers of calls). A 32 bit program may run on a 64 bit machine."""
_LOAD, _EQUALS, _AND, _RETURN = 0x20, 0x15, 0x54, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | 38  # ENOSYS: as a kernel without this call
_NOT_X32 = 0xBFFFFFFF
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


def join_new_keyring() -> None:
    """A session keyring of one's own: the keys of whoever started this stay theirs. A system without keys is no error."""
    if platform.machine() in _KEYS_OF:
        _LIBC.syscall(_KEYS_OF[platform.machine()], _JOIN_SESSION_KEYRING, None)


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def refuse_calls() -> None:
    """From now on, and in all that is started: no keys of the kernel's, no System V objects, no files that lie in memory only.

    Keys and System V objects outlive a program; the latter and files in memory are memory that no limit counts. It takes
    drop_capabilities before. Does nothing on machines whose calls it does not know.
    """
    code = []
    for way, numbers in _REFUSED.get(platform.machine(), ()):
        below = len(numbers)
        code += [(_LOAD, 0, 0, 4), (_EQUALS, 0, below + 4, way), (_LOAD, 0, 0, 0), (_AND, 0, 0, _NOT_X32)]
        code += [(_EQUALS, below - place, 0, number) for place, number in enumerate(numbers)]
        code += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE)]
    if code:
        code.append((_RETURN, 0, 0, _REFUSE))  # a way of calling that the machine should not have
        packed = b"".join(struct.pack("=HBBI", *line) for line in code)
        listed = _Filter(len(code), packed)
        result = _LIBC.prctl(_PR_SET_SECCOMP, ctypes.c_ulong(_MODE_FILTER), ctypes.byref(listed), 0, 0)
        _checked("seccomp", result)
