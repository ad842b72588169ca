"""Numbers with something behind or before them: percentages, units, money, number words, counted things."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from toishi.answers.exact import canonical, has_infinity, symbols_of
from toishi.answers.grammar import Node, number_node, parse_formula
from toishi.answers.things import NUMBER_WORDS
from toishi.answers.tokens import FUNCTIONS, Token, Unreadable
from toishi.answers.units import PERCENT, SINGLE_LETTERS, unit_of
from toishi.answers.values import Value

MAX_UNIT_TOKENS = 12
_MONEY = "$€£¥₹"
_CODES = frozenset(("USD", "EUR", "GBP"))
Things = frozenset[str] | None


def read_measure(tokens: Sequence[Token], *, loose: bool = False, things: Things = None) -> Value | None:
    """A percentage, a quantity or a number with a number word, or None when the tokens are none of these.

    loose   a unit of one letter may touch its number
    things  words that may count things besides the common ones; None: any (see `things`)

    >>> from toishi.answers.tokens import tokens_of
    >>> from toishi.answers.values import shown
    >>> [shown(read_measure(tokens_of(text))) for text in ("2.5%", r"6\\text{ m}", "$5 million")]
    ['2.5%', '6 m', '5000000 $']
    """
    if len(tokens) > 2 and tokens[0].text == "US" and tokens[1].text == "$":
        tokens = tokens[1:]
    if len(tokens) > 1 and tokens[0].text in _CODES:
        value = _with_number_word(tokens[1:])
        return None if value is None else Value("quantity", value, unit=unit_of(tokens[0].text))
    signed = tokens[0].text == "-" and len(tokens) > 2 and tokens[1].text in _MONEY
    if signed or (tokens[0].kind == "sign" and tokens[0].text in _MONEY):
        rest = [tokens[0], *tokens[2:]] if signed else tokens[1:]
        money = unit_of(tokens[1 if signed else 0].text)
        value = _with_number_word(rest)
        return None if value is None else Value("quantity", value, unit=money)
    if not any(map(_may_be_unit, tokens)) or (any(token.text in FUNCTIONS for token in tokens) and _is_formula(tokens)):
        return None
    found = _with_unit(tokens, loose, things) or _compound(tokens, things)
    if found is not None:
        return found
    number = _with_number_word(tokens)
    return None if number is None else Value("number" if number[0] == "num" else "expression", number)


def _with_unit(tokens: Sequence[Token], loose: bool, things: Things) -> Value | None:
    for place in range(max(1, len(tokens) - MAX_UNIT_TOKENS), len(tokens)):
        found = _measured(tokens[:place], tokens[place:], loose, things)
        if found is not None:
            return found
    return None


def _compound(tokens: Sequence[Token], things: Things) -> Value | None:
    """`2 hours 30 minutes`, `5 feet 10 inches`: parts of one dimension, from the larger unit to the smaller, added up."""
    starts = [
        place for place, token in enumerate(tokens) if token.kind == "number" and (not place or _may_be_unit(tokens[place - 1]))
    ]
    if len(starts) < 2 or starts[0] != 0:
        return None
    parts = [_with_unit(tokens[begin:end], False, things) for begin, end in pairwise([*starts, len(tokens)])]
    units = [part.unit for part in parts if part is not None and part.unit is not None]
    if len(units) < len(parts) or len({unit.dimensions for unit in units}) != 1 or units[0].is_count:
        return None
    if not all(large.factor > small.factor for large, small in pairwise(units)):
        return None
    ratios = [number_node(unit.factor / units[0].factor) for unit in units]
    terms = [("mul", part.data, ratio) for part, ratio in zip(parts, ratios, strict=True) if part is not None]
    return Value("quantity", canonical(("add", *terms)), unit=units[0])


def _measured(before: Sequence[Token], after: Sequence[Token], loose: bool, things: Things) -> Value | None:
    text = _unit_text(after, loose)
    if text is None:
        return None
    if text in ("C", "F") and _with_number_word(before) is not None and after[0].spaced:
        raise Unreadable(f"{text!r} may be degrees or another unit")
    percent = text.casefold() in PERCENT or text == "‰"
    unit = None if percent else unit_of(text, things)
    value = _with_number_word(before) if percent or unit is not None else None
    if value is None:
        return None
    if percent:
        return Value("percent", canonical(("mul", value, ("num", 1, 1000 if text == "‰" else 100))))
    return Value("quantity", value, unit=unit)


def _with_number_word(tokens: Sequence[Token]) -> Node | None:
    """A constant, with number words behind it multiplied in."""
    factor = 1
    while len(tokens) > 1 and tokens[-1].kind == "word" and tokens[-1].text.casefold().rstrip("s") in NUMBER_WORDS:
        factor *= NUMBER_WORDS[tokens[-1].text.casefold().rstrip("s")]
        tokens = tokens[:-1]
    try:
        node = canonical(("mul", ("num", factor, 1), parse_formula(tokens)))
    except Unreadable:
        return None
    return None if symbols_of(node) or node[0] in ("pm", "mp") or has_infinity(node) else node


def _is_formula(tokens: Sequence[Token]) -> bool:
    try:
        parse_formula(tokens)
    except Unreadable:
        return False
    return True


def _may_be_unit(token: Token) -> bool:
    if token.kind == "word" or _is_minute(token):
        return True
    if token.kind == "letter":
        return token.text in SINGLE_LETTERS or token.text in "CF"
    return token.text in ("%", "‰", "circ") or (token.kind == "sign" and token.text in _MONEY)


def _is_minute(token: Token) -> bool:
    """`min` is read as the function where a formula needs it."""
    return token.kind == "command" and token.text == "min"


def _unit_text(tokens: Sequence[Token], loose: bool) -> str | None:
    """The unit that all tokens spell, in the spelling that `unit_of` reads, or None."""
    texts = [token.text for token in tokens]
    if texts[:2] == ["^", "circ"]:
        tokens, start = tokens[2:], "°"
    elif texts[:4] == ["^", "{", "circ", "}"]:
        tokens, start = tokens[4:], "°"
    else:
        start = ""
        first = tokens[0]
        if first.kind == "letter" and not (first.spaced or loose):
            return None
        if first.kind not in ("letter", "word") and not _is_minute(first) and first.text not in (*PERCENT, "‰", *_MONEY):
            return None
    text = start
    for token in tokens:
        if token.kind in ("word", "letter") or _is_minute(token) or token.text in ("%", "‰", *_MONEY):
            text += token.text if text.endswith(("/", "^", "(")) or not text else f" {token.text}"
        elif token.text in ("/", "^", "-") or (token.kind == "number" and text.endswith(("^", "-"))):
            text += token.text
        elif token.text in ("*", "cdot", "times"):
            text += " "
        elif token.text not in ("{", "}"):
            return None
    return text
