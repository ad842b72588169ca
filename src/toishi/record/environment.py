"""What a run ran on: versions, machine, code state. Reads package metadata, so that nothing heavy is imported for it."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

_PACKAGES = (
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "numpy",
    "pyarrow",
    "pydantic",
    "peft",
    "datasets",
    "gguf",
    "vllm",
)
_GIT_TIMEOUT_S = 10


def environment() -> dict[str, Any]:
    """`toishi`, `versions`, `machine` and `code` of run.json.

    >>> sorted(environment())
    ['code', 'machine', 'toishi', 'versions']
    """
    return {
        "toishi": _version("toishi"),
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in _PACKAGES if _version(name)},
        "machine": _machine(),
        "code": code_state(Path(__file__).resolve().parent),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _machine() -> dict[str, Any]:
    machine: dict[str, Any] = {
        "platform": platform.platform(),
        "cpu": platform.processor() or platform.machine(),
        "cpu_model": _cpu_model(Path("/proc/cpuinfo")),
        "cpu_count": os.cpu_count(),
    }
    torch = sys.modules.get("torch")
    if torch is not None:
        machine["torch_threads"] = torch.get_num_threads()
        machine["cpu_instructions"] = torch.backends.cpu.get_cpu_capability()
        machine["gpus"] = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return machine


def _cpu_model(path: Path) -> str | None:
    """What Linux calls the processor; None elsewhere."""
    with contextlib.suppress(OSError):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)
    return None


def code_state(folder: Path) -> dict[str, Any] | None:
    """Commit of the git checkout that holds `folder` and whether tracked files differ from it; None outside a checkout."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None or _git(folder, "ls-files", "--error-unmatch", ".") is None:
        return None
    return {"commit": commit, "dirty": bool(_git(folder, "status", "--porcelain", "--untracked-files=no"))}


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=_GIT_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
