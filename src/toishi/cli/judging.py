"""Commands about judges: `toishi judge parse`, and what else is said of them."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from toishi.cli.auditing_judge import audit
from toishi.cli.common import AsJson, print_json

group = typer.Typer(
    name="judge", help="How a judge's words become a score, and how far it can be trusted.", no_args_is_help=True
)


def parse(
    scale: Annotated[str, typer.Option(metavar="LOW-HIGH", help="The range that the judge was told.")] = "1-10",
    candidates: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="The reply scores a group of N: a list is read.", show_default=False)
    ] = None,
    form: Annotated[
        Literal["json", "rating", "last_line"],
        typer.Option(help="What to read: a JSON object, [[7]], or a last line that is the number."),
    ] = "json",
    as_json: AsJson = False,
) -> None:
    """Read a judge's reply from stdin as training would, and say which score it gives or why it gives none.

    A reply that cannot be read is a result and ends with exit code 0; in training it is asked once more and then counts as no
    score, never as 0.

    Example:  echo '{"reason": "two slips", "score": 7}' | toishi judge parse --scale 1-10
    """
    from toishi.errors import ConfigError
    from toishi.judging.parse import read_reply
    from toishi.judging.scale import Scale

    stated = Scale.read(scale, where="--scale")
    if stated.letters:
        raise ConfigError(f"--scale: letters are read from probabilities, not from text; got {scale!r}, expected numbers")
    if candidates is not None and form != "json":
        raise ConfigError(f"--form {form}: a group's scores are read as JSON only; leave --form or --candidates out")
    text = typer.get_binary_stream("stdin").read().decode("utf-8", errors="replace")
    reading = read_reply(text, stated, candidates=candidates, form=form)
    key = "score" if candidates is None else "scores"
    value = None if reading.error else list(reading.scores) if candidates is not None else reading.score
    if as_json:
        print_json({key: value, "error": reading.error or None, "why": reading.why or None})
    elif reading.error:
        typer.echo(f"no score ({reading.error}): {reading.why}")
    else:
        typer.echo(f"{key} {', '.join(f'{one:g}' for one in reading.scores)} of {stated}")


COMMANDS = (parse, audit)
