"""Commands that check what is on record, and print what the library knows: audit, algorithms, recipes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from toishi.cli.common import AsJson, RunFolder, print_json


def audit(run: RunFolder, as_json: AsJson = False) -> None:
    """Check that a run folder is whole, and recompute its advantages and token weights from the stored scores.

    Ends with exit code 1 if anything is missing, damaged, or does not come out the same.

    Example:  toishi audit runs/first
    """
    from toishi.consoles import make_console

    console = make_console(stderr=as_json)
    with console.status("auditing") as status:
        from toishi.explanation.audit import audit as audit_run
        from toishi.explanation.audit import render_audit

        report = audit_run(run, lambda done, total: status.update(f"auditing step {done} of {total}"))
    if as_json:
        print_json(report.as_dict())
    else:
        render_audit(report, console)
    if not report.ok:
        raise typer.Exit(1)


def algorithms(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Print everything about this one.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the algorithms as rows of choices, or explain one: equation, paper, traps.

    Example:  toishi algorithms grpo
    """
    from toishi.algorithms.notes import NOTES, describe
    from toishi.algorithms.rows import ROWS, algorithm
    from toishi.cli.algorithm_tables import algorithms_table, note_page
    from toishi.consoles import make_console

    if as_json:
        rows = [algorithm(name)] if name else list(ROWS.values())
        print_json([{"row": row.model_dump(), "note": asdict(describe(row.name))} for row in rows])
        return
    console = make_console()
    console.print(note_page(algorithm(name), describe(name)) if name else algorithms_table(ROWS, NOTES))


def recipes(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Print this recipe's YAML.", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """List the built-in recipes, or print one to copy and change.

    Example:  toishi recipes own_data > my_recipe.yaml
    """
    from toishi.recipes import recipe_description, recipe_names, recipe_path

    if name is None:
        _list_recipes({known: recipe_description(known) for known in recipe_names()}, as_json)
        return
    text = recipe_path(name).read_text(encoding="utf-8")
    if as_json:
        from toishi.recipes import load_recipe

        print_json(load_recipe(name).model_dump(mode="json"))
    else:
        typer.echo(text, nl=False)


def _list_recipes(descriptions: dict[str, str], as_json: bool) -> None:
    from rich.table import Table

    from toishi.consoles import make_console

    if as_json:
        print_json(descriptions)
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, description in descriptions.items():
        table.add_row(name, description)
    console = make_console()
    console.print(table)
    console.print(
        "\nRun one:   [green]toishi train NAME[/green]\nCopy one:  [green]toishi recipes NAME > mine.yaml[/green]",
        highlight=False,
    )
