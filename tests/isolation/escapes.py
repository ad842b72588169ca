"""Attempts of a program to get at what is outside of its sandbox, each with a proof that it did.

Every attempt is a Python program. It has escaped if it prints ESCAPED, or if `Outside` sees the effect.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.isolation.leftovers import with_word
from toishi.isolation.levels import Sandbox
from toishi.isolation.limits import Limits
from toishi.isolation.programs import Outcome, Program
from toishi.isolation.sandbox import run_program

LIMITS = Limits(wall_s=10, cpu_s=10, memory_mb=512, disk_mb=4)

PRELUDE = """
import ctypes, os, signal, socket, sys, time
LIBC = ctypes.CDLL(None, use_errno=True)
def escaped(yes=True):
    if yes: print("ESCAPED", flush=True)
"""


@dataclass
class Outside:
    """Things outside of the sandbox that a program should not reach, and whether it did."""

    folder: Path
    victim: subprocess.Popen[bytes]
    port: int
    abstract: str
    word: str = field(default_factory=lambda: f"canary{uuid.uuid4().hex}")
    called: list[str] = field(default_factory=list)

    @property
    def note(self) -> Path:
        return self.folder / "note.txt"

    def values(self) -> dict[str, str]:
        return {
            "NOTE": str(self.note),
            "FOLDER": str(self.folder),
            "VICTIM": str(self.victim.pid),
            "TOISHI": str(os.getpid()),
            "PORT": str(self.port),
            "ABSTRACT": self.abstract,
            "WORD": self.word,
        }


@contextmanager
def outside() -> Iterator[Outside]:
    """A folder that everyone may read and write, a process of ours, and two servers."""
    victim = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    tcp, local = socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX)
    with tempfile.TemporaryDirectory() as name, tcp, local:
        folder = Path(name)
        folder.chmod(0o777)
        abstract = f"toishi-{uuid.uuid4().hex}"
        local.bind(f"\0{abstract}")
        local.listen()
        here = Outside(folder=folder, victim=victim, port=tcp.getsockname()[1], abstract=abstract)
        here.note.write_text("the secret\n")
        here.note.chmod(0o666)
        for server in (tcp, local):
            threading.Thread(target=_listen, args=(server, here.called), daemon=True).start()
        try:
            yield here
        finally:
            for server in (tcp, local):
                server.shutdown(socket.SHUT_RDWR)
            victim.kill()
            victim.wait()
            for pid in with_word(here.word):
                os.kill(pid, 9)


def _listen(server: socket.socket, called: list[str]) -> None:
    try:
        while True:
            connection, _ = server.accept()
            called.append("a call")
            connection.close()
    except OSError:
        return


ATTEMPTS: dict[str, str] = {
    "read a file of the user": "escaped('secret' in open('{NOTE}').read())",
    "change a file that everyone may change": "open('{NOTE}', 'a').write('changed')",
    "delete files of the user": "import shutil; shutil.rmtree('{FOLDER}', ignore_errors=True)",
    "delete files through a link at the clean-up": "os.symlink('{FOLDER}', 'link'); os.mkdir('d'); os.symlink('{NOTE}', 'd/l')",
    "read /etc/shadow": "escaped(len(open('/etc/shadow').read()) > 0)",
    "read the environment of toishi": "escaped(len(open('/proc/{TOISHI}/environ').read()) > 0)",
    "see other processes": "escaped(os.path.exists('/proc/{TOISHI}/cmdline') and open('/proc/{TOISHI}/cmdline').read() != '')",
    "connect to a server on loopback": "socket.create_connection(('127.0.0.1', {PORT}), timeout=3).recv(1)",
    "connect to an abstract socket": "s = socket.socket(socket.AF_UNIX); s.connect('\\0{ABSTRACT}'); s.recv(1)",
    "kill a process of the user": "os.kill({VICTIM}, 9)",
    "trace a process of the user": "escaped(LIBC.ptrace(16, {VICTIM}, 0, 0) == 0)",
    "trace the process that watches it": "escaped(LIBC.ptrace(16, os.getppid(), 0, 0) == 0)",
    "kill the process that watches it": "os.kill(os.getppid(), 9); time.sleep(0.3)",
    "become root": "os.setuid(0); escaped(os.getuid() == 0)",
    "mount a file system": (
        "escaped(LIBC.mount(b'tmpfs', b'/tmp', b'tmpfs', 0, None) == 0 or "
        "(LIBC.unshare(0x10020000) == 0 and LIBC.mount(b'tmpfs', b'/tmp', b'tmpfs', 0, None) == 0))"
    ),
    "make namespaces of its own": "escaped(LIBC.unshare(0x10000000) == 0)",
    "write over the system's programs": "open('/usr/bin/env', 'r+b').close(); escaped()",
    "change a setting of the kernel": "open('/proc/sys/kernel/domainname', 'w').write('x'); escaped()",
    "write to the channel of the result": (
        "for fd in range(3, 64):\n"
        '    try: os.write(fd, b\'{{"started": true}}\\n{{"exit": 0, "limit": null}}\\n\')\n'
        "    except OSError: pass\n"
        "    else: escaped()\n"
        "sys.exit(7)"
    ),
    "survive in the background": (
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork(): os._exit(0)\n"
        "    os.closerange(0, 3)\n"
        "    os.execv(sys.executable, [sys.executable, '-c', 'import time; time.sleep(20)', '{WORD}'])\n"
        "time.sleep(0.3)"
    ),
    "survive by killing the process that watches it": (
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    os.closerange(0, 3)\n"
        "    os.execv(sys.executable, [sys.executable, '-c', 'import time; time.sleep(20)', '{WORD}'])\n"
        "time.sleep(0.3)\n"
        "os.kill(os.getppid(), 9)\n"
        "time.sleep(0.5)"
    ),
    "fill the disk with many files": ("for n in range(12): open(f'big{{n}}', 'wb').write(bytes(1 << 20))\nescaped()"),
}


def _watcher_killed(here: Outside, outcome: Outcome) -> bool:
    return outcome.over == "watcher"


def _survived(here: Outside, outcome: Outcome) -> bool:
    deadline = time.monotonic() + 1
    while (alive := with_word(here.word)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return bool(alive)


EFFECTS: dict[str, Callable[[Outside, Outcome], bool]] = {
    "change a file that everyone may change": lambda here, _: here.note.read_text() != "the secret\n",
    "delete files of the user": lambda here, _: not here.note.exists(),
    "delete files through a link at the clean-up": lambda here, _: not here.note.exists(),
    "connect to a server on loopback": lambda here, _: bool(here.called),
    "connect to an abstract socket": lambda here, _: bool(here.called),
    "kill a process of the user": lambda here, _: here.victim.poll() is not None,
    "kill the process that watches it": _watcher_killed,
    "write to the channel of the result": lambda _, outcome: outcome.exit_code != 7,
    "survive in the background": _survived,
    "survive by killing the process that watches it": _survived,
}


def escapes(attempt: str, sandbox: Sandbox) -> bool:
    """Whether the attempt succeeds in the sandbox."""
    with outside() as here:
        code = PRELUDE + ATTEMPTS[attempt].format(**here.values())
        program = Program(command=(*sandbox.python, "attempt.py"), files={"attempt.py": code})
        outcome = run_program(program, limits=LIMITS, kind=sandbox.kind)
        time.sleep(0.02)
        effect = EFFECTS.get(attempt)
        return "ESCAPED" in outcome.stdout or (effect is not None and effect(here, outcome))
