"""What rewards that run a program have in common: the options of the sandbox and its limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from toishi.errors import ConfigError
from toishi.isolation.levels import Level, describe, find_sandbox
from toishi.isolation.limits import Limits
from toishi.types import Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandboxed:
    """Options of a reward that runs programs.

    require_stop  an answer cut off at the token limit is not run and gets 0
    sandbox       "plain" accepts limits without a sandbox where there are no namespaces
    readable      files and folders that the program may read besides the system's programs and libraries; relative ones from
                  the current directory
    timeout_s     seconds for one run, on the clock and of each processor
    memory_mb     MB for all processes of one run, and of address space for each of them
    """

    require_stop: bool = True
    sandbox: Level = "namespaces"
    readable: tuple[str, ...] = ()
    timeout_s: Annotated[float, Field(gt=0, le=3600)] = 10.0
    memory_mb: Annotated[int, Field(ge=16)] = 512
    processes: Annotated[int, Field(ge=1)] = 16
    disk_mb: Annotated[int, Field(ge=1)] = 16
    output_bytes: Annotated[int, Field(ge=1)] = 1_000_000

    @property
    def concurrent(self) -> bool:
        """Groups may be scored at once; the sandbox runs as many programs as there are processors."""
        return True

    @property
    def waits(self) -> bool:
        """Programs run in processes of their own."""
        return True

    @property
    def limits(self) -> Limits:
        """What one run may use."""
        return Limits(
            wall_s=self.timeout_s,
            cpu_s=self.timeout_s,
            memory_mb=self.memory_mb,
            processes=self.processes,
            disk_mb=self.disk_mb,
            output_bytes=self.output_bytes,
        )

    @property
    def places(self) -> tuple[str, ...]:
        """`readable` as absolute paths."""
        return tuple(str(Path(place).expanduser().absolute()) for place in self.readable)

    def check_readable(self) -> None:
        """Raises ConfigError for a place that does not exist."""
        absent = [place for place in self.places if not Path(place).exists()]
        if absent:
            raise ConfigError(f"readable: there is no {absent[0]} (looked in {Path.cwd()})")

    def prepare(self, prompts: Sequence[Prompt]) -> None:
        """Raises ConfigError where the sandbox that was asked for does not exist."""
        find_sandbox(self.sandbox)

    def notes(self) -> list[str]:
        """Which limits hold here, and which do not."""
        return [f"{line}." for line in describe(self.sandbox, self.limits)]
