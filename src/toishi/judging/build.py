"""From options to a judge that can be asked: one judge for equal options, whoever asks for it.

Decisions:
1. Two rewards with equal options share one judge, so its limits of concurrency and rate hold for both together.
2. `close` lets go of connections and of the cache file, never of the judge: it opens again when it is asked again.
"""

from __future__ import annotations

from functools import cache
from typing import Protocol, runtime_checkable

from toishi.judging.base import Judge
from toishi.judging.judge_options import JudgeOptions, judge_options


@runtime_checkable
class ManagedJudge(Judge, Protocol):
    """A judge with a beginning and an end."""

    def check(self) -> None:
        """Raises JudgeRefused, saying what was tried, what came back and what to do, when it cannot judge as configured."""
        ...

    def notes(self) -> list[str]:
        """What a person should know about how it is asked, one sentence each; complete after `check`."""
        ...

    def close(self) -> None:
        """Lets go of connections and files; a later `ask` opens them again. Never raises; may be called twice."""
        ...


@cache
def build_judge(options: JudgeOptions) -> ManagedJudge:
    """The judge that the options describe. Nothing is contacted or loaded before `check` or `ask`.

    >>> options = JudgeOptions(model="bundled", cache=False)
    >>> build_judge(options) is build_judge(options)
    True
    """
    if options.is_server:
        from toishi.judging.endpoint import EndpointJudge

        return EndpointJudge(options)
    from toishi.judging.in_process import InProcessJudge

    return InProcessJudge(options)


__all__ = ["JudgeOptions", "ManagedJudge", "build_judge", "judge_options"]
