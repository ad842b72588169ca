"""`transformers serve` on loopback, as a user would start it: a process of its own, ended by its id."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

START_S = 120.0
_COMMAND = "from transformers.cli.transformers import main; main()"


@contextmanager
def transformers_serve(folder: Path, log: Path) -> Iterator[str]:
    """The address (up to /v1) of a server of the model in `folder`; its words go to the file `log`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu", "--dtype", "float32"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    with log.open("wb") as words:
        process = subprocess.Popen(
            [sys.executable, "-c", _COMMAND, "serve", str(folder), *options], stdout=words, stderr=words, env=environment
        )
        try:
            _wait_for(f"http://127.0.0.1:{port}/health", process, log)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        assert process.poll() is None, log.read_text(encoding="utf-8", errors="replace")
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"the server did not start within {START_S} s:\n{log.read_text(encoding='utf-8', errors='replace')}")
