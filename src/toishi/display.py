"""What a person sees while a run goes on. No decisions about the run are made here.

Decisions:
1. A step is one line of numbers under a header that names them; a live line below it (bar, reward, tokens/s, time left) exists
   on a terminal only. Elsewhere, in a log file or a pipe, the same lines are printed plain and flushed.
2. Everything shown is also in the run folder: the display keeps nothing but which group is worth showing.
3. `Display.silent()` is the same display writing to nowhere, so the loop has no `if display`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text

from toishi.display_tables import (
    LEADING,
    NOTES_ON_EVALUATION,
    NOTES_ON_STEPS,
    before_after,
    disk_of,
    duration,
    evaluation_line,
    facts_table,
    interesting,
    number,
    plan,
    step_header,
    step_line,
)
from toishi.explanation.curve import reward_curve
from toishi.explanation.overview import NOTHING_TAUGHT, nothing_taught
from toishi.explanation.render import render_group
from toishi.explanation.step import step_report
from toishi.record import Run

if TYPE_CHECKING:
    from toishi.evaluate import Evaluation
    from toishi.health import Alarm
    from toishi.session import Session
    from toishi.types import StepReport

RUNNING_MEAN_STEPS = 5
SLOW_SCORING_S = 1.0
_ALARM_STYLE = {"note": "dim", "warn": "yellow", "stop": "bold red"}


class Display:
    """Prints a run to a console; one display serves one run."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._progress: Progress | None = None
        self._bar = TaskID(0)
        self._has_header = False
        self._shown: tuple[int, int] | None = None

    @classmethod
    def silent(cls) -> Display:
        """A display that prints nothing, for use from Python."""
        return cls(Console(quiet=True))

    def started(self, session: Session) -> None:
        """Says in words what is about to happen."""
        self._print(facts_table(plan(session)))
        for note in session.notes:
            self._print(Text(note, style="dim"))
        disk = disk_of(session)
        short = (f"the checkpoints need {disk.words}: see toishi check",) if disk.fits is False else ()
        for notice in (*session.notices, *short):
            self.console.print(Text.assemble(("warning: ", "bold yellow"), (notice, "yellow")))

    def resumed(self, session: Session, reasons: Sequence[str]) -> None:
        """Says from where the run goes on, and which damaged checkpoints were passed over."""
        for reason in reasons:
            self._print(Text(f"passed over: {reason}", style="yellow"))
        steps = session.config.train.steps
        left = f"{steps - session.step} of {steps} steps to go" if session.step < steps else "it has done all of its steps"
        self._print(Text(f"Going on after step {session.step}: {left}.", style="bold"))
        self._print(facts_table(plan(session)))
        for note in session.notes:
            self._print(Text(note, style="dim"))

    def notice(self, text: str) -> None:
        """Something about the run that a person should know before it goes on."""
        self._print(Text(text, style="yellow"))

    @contextmanager
    def progress(self, session: Session) -> Iterator[None]:
        """Inside, a terminal shows the live line."""
        if not self.console.is_terminal or self.console.quiet:
            yield
            return
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[numbers]}"))
        with Progress(*columns, console=self.console, transient=True, refresh_per_second=4) as progress:
            steps = session.config.train.steps
            self._bar = progress.add_task(f"step {session.step}/{steps}", total=steps, completed=session.step, numbers="")
            self._progress = progress
            try:
                yield
            finally:
                self._progress = None

    def step(self, session: Session, report: StepReport) -> None:
        """One line for a finished step."""
        source = session.config.algorithm.source
        if not self._has_header:
            self.console.print(Text(NOTES_ON_STEPS[source], style="dim"))
            self._print(Text(step_header(source), style="bold"))
            self._has_header = True
        self._print(Text(step_line(report.step, report.metrics, source)))
        found = interesting(report.groups)
        self._shown = (report.step, found.rollouts[0].id.group) if found else self._shown
        self._advance(session)

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Names a longer piece of work while it lasts."""
        if self._progress is not None:
            shown = self._progress.tasks[0]
            before, numbers = shown.description, shown.fields["numbers"]
            self._progress.update(self._bar, description=text, numbers="")
            yield
            self._progress.update(self._bar, description=before, numbers=numbers)
            return
        if self.console.is_terminal and not self.console.quiet:
            with self.console.status(text):
                yield
            return
        yield

    @contextmanager
    def scoring(self) -> Iterator[Callable[[str, int, int], None]]:
        """Gives what to call as answers are judged: (reward's name, judged, in all). Slow rewards show in the live line."""
        started, counts = time.monotonic(), dict[str, tuple[int, int]]()

        def judged(name: str, done: int, total: int) -> None:
            counts[name] = (done, total)
            if self._progress is not None and time.monotonic() - started > SLOW_SCORING_S:
                waiting = [f"{reward} {done}/{total}" for reward, (done, total) in counts.items() if done < total]
                self._progress.update(self._bar, description=f"{before} · judging {', '.join(waiting)}" if waiting else before)

        before = self._progress.tasks[0].description if self._progress is not None else ""
        yield judged
        if self._progress is not None:
            self._progress.update(self._bar, description=before)

    def evaluation(self, session: Session, found: Evaluation) -> None:
        """One line for a held-out measurement."""
        if len(session.evaluations) == 1:
            note = NOTES_ON_EVALUATION[session.config.algorithm.predicts]
            self.console.print(Text(f"\n{note}", style="dim"))
        self._print(Text(evaluation_line(found), style="cyan"))

    def alarm(self, alarm: Alarm) -> None:
        """What a health rule saw, and what to do about it."""
        self.console.print(Text(alarm.text, style=_ALARM_STYLE[alarm.action]))

    def ended(self, session: Session, finished: bool) -> None:
        """The result: before and after, the reward curve, one group, and where to look next."""
        folder = session.writer.folder
        if not finished:
            steps = session.config.train.steps
            self._print(Text(f"\nStopped after step {session.step} of {steps}. Its record is whole.", style="bold yellow"))
            self._print(Text(f"Go on from the last checkpoint with:  toishi resume {folder}"))
            return
        table = before_after(session.evaluations)
        if table is not None:
            self._print(Text(""))
            self._print(table)
        if nothing_taught(session.metrics):
            self.console.print(Text(f"\n{NOTHING_TAUGHT}", style="yellow"))
        if session.metrics:
            leading = LEADING[session.config.algorithm.source][1]
            self._print(Text("\n" + reward_curve(session.metrics, min(self.console.width, 100), key=leading)))
        self._show_group(folder)
        step = self._shown[0] if self._shown else session.step
        self._print(_next_lines(str(folder), step, *_ASK[session.config.algorithm.predicts]))

    def _show_group(self, folder: Path) -> None:
        """The last group that taught something, out of the record."""
        if self._shown is None or self.console.quiet:
            return
        step, number = self._shown
        view = step_report(Run.open(folder), step)
        self._print(
            Text(
                f"\nOne group of step {step}: answers above the mean were pushed up, others down",
                style="bold",
            )
        )
        render_group(next(group for group in view.groups if group.group == number), self.console)

    def _advance(self, session: Session) -> None:
        if self._progress is None:
            return
        total, recent = session.config.train.steps, session.metrics[-RUNNING_MEAN_STEPS:]
        name, metric = LEADING[session.config.algorithm.source]
        parts = [f"{name} {number(_mean(recent, metric))}"]
        if session.evaluations:
            parts.append(f"held-out {number(session.evaluations[-1].value)}")
        parts.append(f"{number(_mean(recent, 'tokens/per_s'), 0)} tokens/s")
        seconds = _mean(session.metrics[-10:], "time/step_s")
        if seconds is not None:
            parts.append(f"{duration(seconds * (total - session.step))} left")
        text = f"step {session.step}/{total}"
        self._progress.update(self._bar, completed=session.step, description=text, numbers=" · ".join(parts))

    def _print(self, what: Any) -> None:
        """Lines of numbers are never wrapped by the console: a table of steps stays a table at any width."""
        self.console.print(what, soft_wrap=isinstance(what, Text), highlight=False)


_ASK = {
    "tokens": ('toishi sample {} "..."', "ask the trained model something"),
    "score": (
        "toishi evaluate {}",
        "rank the held-out pairs again; the reward `reward_model` takes the folder of its checkpoint",
    ),
}
"""What a model predicts -> the command that asks it, and what for."""


def _next_lines(folder: str, step: int, asking: str, purpose: str) -> Text:
    lines = Text.assemble("\nrun folder  ", (folder, "bold"), "\n\nWhat next:\n")
    for command, meaning in (
        (f"toishi explain {folder} --step {step}", "every group of that step: scores, mean, advantage"),
        (f"toishi audit {folder}", "recompute every advantage and token weight from the stored scores"),
        (asking.format(folder), purpose),
    ):
        lines.append(f"  {command}\n", style="green")
        lines.append(f"      {meaning}\n", style="dim")
    return lines


def _mean(lines: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [line[name] for line in lines if line.get(name) is not None]
    return sum(values) / len(values) if values else None
