"""How far long work is: a bar on a terminal, elsewhere a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

SAY_EVERY_S = 30.0


@contextmanager
def counting(console: Console, noun: str = "prompts") -> Iterator[Callable[[int, int], None]]:
    """Gives what to call with (done, in all).

    >>> from io import StringIO
    >>> from rich.console import Console
    >>> console = Console(file=StringIO())
    >>> with counting(console, "pairs") as told:
    ...     told(3, 3)
    >>> console.file.getvalue()
    '3 of 3 pairs\\n'
    """
    if console.is_terminal:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn(noun), BarColumn(bar_width=24), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task(noun, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
        return
    last = time.monotonic()

    def said(done: int, total: int) -> None:
        nonlocal last
        if done == total or time.monotonic() - last >= SAY_EVERY_S:
            last = time.monotonic()
            console.print(f"{done} of {total} {noun}", highlight=False)

    yield said
