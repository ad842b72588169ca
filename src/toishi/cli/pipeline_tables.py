"""How a pipeline stands, before it is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from toishi.pipelines.running import STATES

if TYPE_CHECKING:
    from toishi.pipelines.running import PipelineView


def render_look(view: PipelineView, faults: Mapping[str, Sequence[str]], console: Console) -> None:
    """Every stage with its state, then everything that is wrong."""
    table = Table(
        title=f"Pipeline {view.pipeline.name} in {view.folder}", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
    )
    for name in ("#", "stage", "kind", "state"):
        table.add_column(name, overflow="fold")
    for place, stage in enumerate(view.stages, start=1):
        table.add_row(str(place), Text(stage.name), stage.kind, STATES[stage.state])
    console.print(table)
    for where, listed in faults.items():
        for fault in listed:
            console.print(Text.assemble(("error ", "bold red"), f"{where}: {fault}"), soft_wrap=True)
    measured = ", ".join(view.pipeline.file.measure) or "nothing"
    console.print(Text(f"Measured on held-out prompts after every model: {measured}", style="dim"))
    console.print(Text("Nothing is wrong with any stage." if not faults else f"{sum(map(len, faults.values()))} to mend."))
