"""Tokens cut where separators and relations stand outside brackets."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from toishi.answers.tokens import Token, Unreadable

Tokens = Sequence[Token]
_RELATIONS = frozenset(("=", "approx", "equiv", "<", ">", "le", "ge", "lt", "gt", "ne", "in"))


def is_separator(token: Token) -> bool:
    """A comma, a semicolon, `and`, `or`."""
    if token.kind == "word":
        return token.text.casefold() in ("and", "or")
    return (token.kind == "sign" and token.text in ",;") or (
        token.kind == "command" and token.text in ("lor", "land", "vee", "wedge")
    )


def is_relation(token: Token) -> bool:
    """An equals sign, an inequality, `in`."""
    return token.kind in ("sign", "command") and token.text in _RELATIONS


def split(tokens: Tokens, at: Callable[[Token], bool]) -> tuple[list[Tokens], list[Token]]:
    """Parts between the tokens that `at` names, outside brackets, and those tokens.

    >>> from toishi.answers.tokens import tokens_of
    >>> len(split(tokens_of("1, (2, 3)"), is_separator)[0])
    2
    """
    parts: list[Tokens] = []
    signs: list[Token] = []
    depth, begin = 0, 0
    for place, token in enumerate(tokens):
        step = _step(token)
        depth += step
        if depth < 0:
            raise Unreadable("a bracket is closed that was not opened")
        if depth == 0 and not step and at(token):
            parts.append(tokens[begin:place])
            signs.append(token)
            begin = place + 1
    if depth:
        raise Unreadable("a bracket is not closed")
    return [*parts, tokens[begin:]], signs


def _step(token: Token) -> int:
    if token.kind == "command" and token.text.startswith(("begin ", "end ")):
        return 1 if token.text.startswith("begin ") else -1
    return (token.kind == "open") - (token.kind == "close")


def closing_place(tokens: Tokens) -> int:
    """Where the bracket that the first token opens is closed. Raises Unreadable when it is not."""
    depth = 0
    for place, token in enumerate(tokens):
        depth += _step(token)
        if depth == 0:
            return place
    raise Unreadable("a bracket is not closed")
