"""What a program in a sandbox cannot do, and what limits alone do not stop: docs/sandbox.md has the same table."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.isolation.escapes import ATTEMPTS, escapes
from toishi.errors import ConfigError
from toishi.isolation.levels import Sandbox, find_sandbox

PAGE = Path(__file__).parents[2] / "docs" / "sandbox.md"


def table() -> dict[str, list[str]]:
    """attempt -> what the page says of namespaces, of plain limits for an ordinary user, and of plain limits for root."""
    rows = [[cell.strip() for cell in line.strip("| \n").split("|")] for line in PAGE.read_text("utf-8").splitlines()]
    return {cells[0]: cells[1:] for cells in rows if len(cells) == 4 and set(cells[1:]) <= {"no", "yes"}}


def test_the_page_has_every_attempt() -> None:
    assert list(table()) == list(ATTEMPTS)
    assert {cells[0] for cells in table().values()} == {"no"}


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_no_attempt_gets_out_of_the_namespaces(attempt: str, namespaces: Sandbox) -> None:
    assert not escapes(attempt, namespaces)


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_the_page_says_what_plain_limits_let_through(attempt: str) -> None:
    try:
        plain = find_sandbox("plain")
    except ConfigError as error:
        pytest.skip(str(error))
    said = table()[attempt][2 if os.getuid() == 0 else 1]
    assert ("yes" if escapes(attempt, plain) else "no") == said
