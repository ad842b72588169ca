"""Words a person types first: help, version, and what happens to a misspelt command."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.cli.conftest import Command
from toishi import __version__

COMMANDS = {
    *(
        "demo",
        "train",
        "resume",
        "check",
        "explain",
        "audit",
        "algorithms",
        "recipes",
        "fetch",
        "evaluate",
        "sample",
        "compare",
        "replay",
        "verify",
        "whatif",
        "select",
        "collect",
        "pairs",
        "label",
    ),
}
WITH_JSON = COMMANDS - {"demo", "fetch"}


def test_help_lists_every_command(toishi: Command) -> None:
    ended = toishi("--help", width=120)
    assert ended.code == 0
    listed = set(re.findall(r"^│ (\w+) +\w", ended.out, re.MULTILINE))
    assert listed >= COMMANDS
    assert "toishi demo" in ended.out


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_an_example(command: str, toishi: Command) -> None:
    ended = toishi(command, "--help", width=120)
    assert ended.code == 0
    example = re.search(r"Example: +toishi (\w+)(.*)", ended.out)
    assert example is not None
    assert example[1] == command
    assert ("--json" in ended.out) == (command in WITH_JSON)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_options_of_an_example_exist(command: str, toishi: Command) -> None:
    text = toishi(command, "--help", width=160).out
    example = re.search(r"Example: +toishi (.*)", text)
    assert example is not None
    for option in re.findall(r"(?<!\S)--?[a-z][a-z-]*", example[1]):
        assert re.search(rf"│.* {option}[ ,]", text), f"{option} is not an option of {command}"


def test_version(toishi: Command) -> None:
    ended = toishi("--version")
    assert (ended.code, ended.out) == (0, f"toishi {__version__}\n")


@pytest.mark.parametrize(
    "arguments", [("trian",), ("train",), ("train", "sums", "--stpes", "3"), ("sample", "bundled", "hello", "-n", "0")]
)
def test_what_cannot_be_read_ends_with_2(arguments: tuple[str, ...], toishi: Command) -> None:
    ended = toishi(*arguments)
    assert ended.code == 2
    assert ended.out == ""
    assert "Usage: toishi" in ended.err


def test_help_is_light() -> None:
    """Neither torch nor transformers nor pyarrow is imported before a command needs it."""
    code = (
        "import sys\n"
        "from toishi.cli.app import app\n"
        "app(['train', '--help'], standalone_mode=False)\n"
        "heavy = {'torch', 'transformers', 'pyarrow', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_python_dash_m() -> None:
    done = subprocess.run([sys.executable, "-m", "toishi", "--version"], check=True, capture_output=True, text=True)
    assert done.stdout == f"toishi {__version__}\n"
