"""Runs a program that nobody trusts, and says how it ended.

Decisions:
1. `jail` watches the program from outside it, as a process of its own; this module starts it, passes bytes, and keeps the
   limits that need a view from here: output, and the memory of all processes of a run together.
2. As many programs run at once as there are processors; more wait, and waiting is not counted.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from toishi.isolation.limits import Limits, NotStarted
from toishi.isolation.programs import BOX, Kind, Outcome, Program, jail_command, spec_file

START_LIMIT_S = 20.0
STOP_LIMIT_S = 8.0
LOOK_S = 0.05
KEPT_ERRORS = 4096
_CHUNK = 1 << 16


def run_program(program: Program, *, limits: Limits, kind: Kind) -> Outcome:
    """Runs `program` to its end or to a limit; nothing of it is left afterwards.

    Raises NotStarted if there is no sandbox of this kind or its command cannot be run.

    >>> outcome = run_program(Program(command=("cat",), stdin="hello"), limits=Limits(), kind="plain")
    >>> outcome.exit_code, outcome.stdout, outcome.limit
    (0, 'hello', None)
    """
    with slots(), Running(program, limits=limits, kind=kind) as running:
        return running.finish()


def slots() -> threading.BoundedSemaphore:
    """One for each processor, two at least: to be held while a program runs."""
    return _SLOTS


class Running:
    """A started program. As a context manager it leaves nothing behind, whatever happens.

    stdin, stdout  descriptors to use instead of pipes of our own; they are closed here once the program has them
    kept_errors    how many of the last bytes of its stderr to keep
    """

    def __init__(
        self,
        program: Program,
        *,
        limits: Limits,
        kind: Kind,
        stdin: int | None = None,
        stdout: int | None = None,
        kept_errors: int = KEPT_ERRORS,
    ) -> None:
        self._limits, self._kept_errors = limits, kept_errors
        self._unsent = memoryview(b"" if stdin is not None else program.stdin.encode("utf-8", "surrogatepass"))
        self._folder: str | None = None
        given = [descriptor for descriptor in (stdin, stdout) if descriptor is not None]
        opened: list[int] = []
        try:
            self._folder = tempfile.mkdtemp(prefix="toishi-run-") if kind == "plain" else None
            self._status_end, status_write = opened = _ends()
            errors = _ends() if stdin is not None else None  # two programs that talk: what this one says there is the result
            opened += errors or []
            with spec_file(program, limits, self._folder or BOX) as spec:
                self._process = subprocess.Popen(
                    jail_command(kind, program, limits, spec.fileno(), status_write),
                    bufsize=0,
                    stdin=subprocess.PIPE if stdin is None else stdin,
                    stdout=subprocess.PIPE if stdout is None else stdout,
                    stderr=subprocess.PIPE if errors is None else errors[1],
                    env={"PATH": os.defpath, "LANG": "C.UTF-8"},
                    cwd="/",
                    pass_fds=[spec.fileno(), status_write],
                    start_new_session=True,
                )
            opened.remove(self._status_end)
            if errors is not None:
                opened.remove(errors[0])
            self._errors_end = os.fdopen(errors[0], "rb", 0) if errors is not None else self._process.stderr
        except (OSError, ValueError) as error:
            self._remove_folder()
            raise NotStarted(f"the sandbox did not start: {error}") from error
        finally:
            for descriptor in (*given, *opened):
                os.close(descriptor)
        self._start = time.monotonic()
        self._output, self._errors, self._status = bytearray(), bytearray(), bytearray()
        self._error_bytes = 0
        self._over = ""

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        for pipe in (self._process.stdin, self._process.stdout, self._errors_end):
            if pipe is not None:
                pipe.close()
        os.close(self._status_end)
        self._remove_folder()

    def finish(self) -> Outcome:
        """Passes bytes until the program has ended; kills it at a limit."""
        with selectors.DefaultSelector() as selector:
            self._register(selector)
            self._pass_bytes(selector)
            self._end()  # the status is written: this only waits
            while not self._over and any(self._handle(selector, key) for key, _ in selector.select(0)):
                pass
        return self._outcome()

    def stop(self, over: str = "wall") -> None:
        """Asks the jail to kill everything; `over` says which limit was hit, if none was before."""
        if not self._over:
            self._over = over
            self._process.terminate()

    def _register(self, selector: selectors.BaseSelector) -> None:
        selector.register(self._status_end, selectors.EVENT_READ, self._take_status)
        for pipe, take in ((self._process.stdout, self._take_output), (self._errors_end, self._take_error)):
            if pipe is not None:
                selector.register(pipe, selectors.EVENT_READ, take)
        if self._process.stdin is not None:
            os.set_blocking(self._process.stdin.fileno(), False)
            selector.register(self._process.stdin, selectors.EVENT_WRITE)

    def _pass_bytes(self, selector: selectors.BaseSelector) -> None:
        deadline = self._start + self._limits.wall_s + START_LIMIT_S
        next_look = self._start + LOOK_S
        while self._status_end in selector.get_map():
            for key, _ in selector.select(LOOK_S):
                self._handle(selector, key)
            now = time.monotonic()
            if not self._over and now > deadline:
                self.stop("wall")
            elif not self._over and now > next_look:
                next_look = now + LOOK_S
                if _memory_bytes(self._process.pid) > self._limits.memory_mb << 20:
                    self.stop("memory")
            if self._over:
                deadline = min(deadline, now + STOP_LIMIT_S)
                if now > deadline:
                    return

    def _handle(self, selector: selectors.BaseSelector, key: selectors.SelectorKey) -> bool:
        """Moves some bytes; False at the end of them."""
        if key.events & selectors.EVENT_WRITE:
            more = self._send_some(key.fd)
        else:
            chunk = os.read(key.fd, _CHUNK)
            key.data(chunk)
            more = bool(chunk)
        if not more:
            selector.unregister(key.fileobj)
            if key.events & selectors.EVENT_WRITE and self._process.stdin is not None:
                self._process.stdin.close()
        return more

    def _send_some(self, descriptor: int) -> bool:
        try:
            self._unsent = self._unsent[os.write(descriptor, self._unsent[:_CHUNK]) :] if self._unsent else self._unsent
        except BlockingIOError:
            return True
        except OSError:  # the program does not want its input
            return False
        return bool(self._unsent)

    def _take_output(self, chunk: bytes) -> None:
        self._output += chunk[: self._limits.output_bytes - len(self._output) + 1]
        if len(self._output) > self._limits.output_bytes:
            self.stop("output")

    def _take_error(self, chunk: bytes) -> None:
        self._errors = (self._errors + chunk)[-self._kept_errors :]
        self._error_bytes += len(chunk)
        if self._error_bytes > max(self._limits.output_bytes, self._kept_errors):
            self.stop("output")

    def _take_status(self, chunk: bytes) -> None:
        self._status += chunk[:_CHUNK]

    def _end(self) -> None:
        """The jail is gone, and with it what it holds."""
        for signal_number in (None, signal.SIGTERM, signal.SIGKILL):
            if self._process.returncode is None and signal_number is not None:
                with suppress(ProcessLookupError):
                    (os.killpg if signal_number == signal.SIGKILL else os.kill)(self._process.pid, signal_number)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_LIMIT_S if signal_number else 0.5)
                return
        self._process.wait()

    def _outcome(self) -> Outcome:
        report: dict[str, Any] = {}
        for line in self._status.splitlines():
            report |= json.loads(line)
        errors = self._errors.decode("utf-8", "replace")
        if "error" in report:
            raise NotStarted(f"the sandbox did not start: {report['error']}")
        if "started" not in report and self._over in ("", "wall"):
            why = (
                f"nothing happened for {START_LIMIT_S:g} s"
                if self._over
                else errors.strip()[-500:] or "it ended without a word"
            )
            raise NotStarted(f"the sandbox did not start: {why}")
        over = self._over or (report["limit"] if "exit" in report else "watcher") or ""
        return Outcome(
            exit_code=report.get("exit"),
            stdout=self._output[: self._limits.output_bytes].decode("utf-8", "replace"),
            stderr=errors,
            limit=self._in_words(over) if over else None,
            over=over,
            wall_s=report.get("wall_s", time.monotonic() - self._start),
            cpu_s=report.get("cpu_s"),
        )

    def _in_words(self, over: str) -> str:
        return {
            "wall": f"took longer than {self._limits.wall_s:g} s",
            "cpu": f"used more than {self._limits.cpu_s:g} s of processor time",
            "memory": f"used more than {self._limits.memory_mb:,} MB",
            "disk": f"wrote more than {self._limits.disk_mb:,} MB to a file",
            "output": f"wrote more than {self._limits.output_bytes:,} bytes",
            "watcher": "killed the process that watched it, or the system did",
            "finished": "was not needed any more",
        }[over]

    def _remove_folder(self) -> None:
        folder, self._folder = self._folder, None
        if folder is None:
            return
        with suppress(RecursionError):
            shutil.rmtree(folder, ignore_errors=True)
        if os.path.lexists(folder):  # rights taken away, or folders thousands deep; neither command follows links below
            for words in (["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
                subprocess.run([*words, "--", folder], stderr=subprocess.DEVNULL, check=False)


def _ends() -> list[int]:
    """[to read, to write]: of a socket, which no other process of the user can open by /proc, as it can a pipe."""
    return [end.detach() for end in socket.socketpair()]


def _memory_bytes(pid: int) -> int:
    """Memory that a process and all below it hold; 0 where the system does not tell."""
    total, waiting = 0, [pid]
    while waiting:
        folder = Path("/proc", str(waiting.pop()))
        with suppress(OSError, ValueError, IndexError):
            total += int((folder / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            for children in folder.glob("task/*/children"):
                waiting += [int(child) for child in children.read_text().split()]
    return total


_SLOTS = threading.BoundedSemaphore(max(2, os.cpu_count() or 1))


def _after_fork() -> None:
    global _SLOTS
    _SLOTS = threading.BoundedSemaphore(max(2, os.cpu_count() or 1))


os.register_at_fork(after_in_child=_after_fork)
