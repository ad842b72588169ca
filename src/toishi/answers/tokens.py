"""A line of LaTeX or plain maths cut into tokens; every character must belong to one.

Decisions:
1. What cannot be cut raises `Unreadable`: an answer is read whole or not at all.
2. Letters outside `\\text{}` are symbols, except names of functions, words that people use in answers, and runs that are long
   or of mixed case.
3. `1,234` is one number, but in brackets without ", " (such as `(1,234)`) commas separate.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from toishi.answers.things import THINGS
from toishi.answers.units import UNIT_NAMES

MAX_TOKENS = 2000
MAX_NUMBER_CHARS = 4000

TokenKind = Literal["number", "letter", "word", "command", "sign", "open", "close"]


class Unreadable(ValueError):
    """A text that is not maths as this package reads it; the message says where it stopped."""


class TooLarge(ValueError):
    """A text or a value that is too long, too deep or too big to be worked out."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token. `value` is set for numbers; `spaced` says that a space stood before it."""

    kind: TokenKind
    text: str
    spaced: bool = False
    value: Fraction | None = None


_FUNCTION_NAMES = "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh ln log lg exp sqrt gcd lcm max min arg"
FUNCTIONS = frozenset(_FUNCTION_NAMES.split())
_TEXT_COMMAND_NAMES = """
    text textbf textit textrm textsf texttt emph mbox hbox mathrm mathbf mathit mathsf mathtt operatorname boldsymbol bm
    textnormal textup
"""
_TEXT_COMMANDS = frozenset(_TEXT_COMMAND_NAMES.split())
_SHORT_WORDS = """
    no yes go up on it is at an we he me my by do to of or if so us as ox in am pm and not the per for all but has its
    one two six ten day days sum let than st nd rd th
"""
WORDS = frozenset(_SHORT_WORDS.split())
_NAMED_SIGNS = {"<=": "le", ">=": "ge", "!=": "ne", "**": "^"}
_HALF_DAY = re.compile(r"[ap]\.m\.?", re.IGNORECASE)
_NUMBER = re.compile(
    r"""(?P<repeat>\d*\.\d*)\\(?:overline|bar|dot)\{(?P<period>\d+)\}
    |(?P<round>\d*\.)\((?P<inside>\d+)\)
    |(?P<grouped>\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?)
    |(?P<spaced>\d{1,3}(?:[ ]\d{3})+(?!\d)(?:\.\d+)?)
    |(?P<plain>(?:\d+\.\d+|\d+\.(?=\s*(?:$|[,;)\]}]))|\.\d+|\d+)(?:[eE][-+]?\d{1,4}(?![\d.A-Za-z{^]))?)""",
    re.VERBOSE,
)
_COMMAND = re.compile(r"\\(?:[A-Za-z]+|[{}$%|#&_\\])")
_BARE_WORD = re.compile(r"[^\W\d_]+")
_TEXT_PART = re.compile(r"\s*(?:(?P<word>(?:[ap]\.m\.?|[^\W\d_]+(?:['-][^\W\d_]+)*))|(?P<rest>\S))")
_SIGNS = "+-*/^_=<>,;:!%'|$&€£¥₹‰\""


def tokens_of(text: str) -> tuple[Token, ...]:
    """Tokens of a tidied text. Raises Unreadable for a character that has no meaning, TooLarge for a text that is too long.

    >>> [token.text for token in tokens_of(r"2\\sin x \\text{ cm}")]
    ['2', 'sin', 'x', 'cm']
    >>> [str(token.value) for token in tokens_of("1,234 5 (1,234)") if token.kind == "number"]
    ['1234', '5', '1', '234']
    """
    if len(text) > 4 * MAX_TOKENS:
        raise TooLarge(f"{len(text):,} characters")
    separated = ", " in text or ";" in text
    found: list[Token] = []
    place, depth, spaced = 0, 0, False
    while place < len(text):
        if text[place] == " ":
            place, spaced = place + 1, True
            continue
        new, place = _next(text, place, spaced, grouped=depth == 0 or separated)
        depth += sum(token.kind == "open" for token in new) - sum(token.kind == "close" for token in new)
        found += new
        spaced = False
    return tuple(found)


def _next(text: str, place: int, spaced: bool, *, grouped: bool) -> tuple[list[Token], int]:
    sign = text[place]
    if sign.isdigit() or (sign == "." and text[place + 1 : place + 2].isdigit()) or text.startswith(".\\overline", place):
        return _number(text, place, spaced, grouped)
    if sign == "\\":
        return _command(text, place, spaced)
    if sign.isalpha():
        run = _BARE_WORD.match(text, place)
        assert run is not None
        half = _HALF_DAY.match(text, place)
        if half is not None:
            return [Token("word", half[0], spaced)], half.end()
        return _letters(run[0], spaced), run.end()
    if sign in "([{":
        return [Token("open", sign, spaced)], place + 1
    if sign in ")]}":
        return [Token("close", sign, spaced)], place + 1
    if sign in _SIGNS:
        named = _NAMED_SIGNS.get(text[place : place + 2])
        if named is not None:
            return [Token("sign" if named == "^" else "command", named, spaced)], place + 2
        return [Token("sign", sign, spaced)], place + 1
    raise Unreadable(f"{sign!r} has no meaning here")


def _number(text: str, place: int, spaced: bool, grouped: bool) -> tuple[list[Token], int]:
    match = _NUMBER.match(text, place)
    if match is None:
        raise Unreadable(f"{text[place : place + 12]!r} is not a number")
    if match["grouped"] is not None and not grouped:
        digits = match[0].partition(",")[0]
        return [Token("number", digits, spaced, value=Fraction(digits))], place + len(digits)
    if match["grouped"] is not None and re.match(r",\d", text[match.end() :]):
        raise Unreadable(f"{match[0]!r} may be one number or several")
    if len(match[0]) > MAX_NUMBER_CHARS:
        raise TooLarge(f"a number of {len(match[0]):,} characters")
    groups = match.groupdict()
    if groups["repeat"] is not None:
        value = _repeating(groups["repeat"], groups["period"])
    elif groups["round"] is not None:
        value = _repeating(groups["round"], groups["inside"])
    else:
        if re.match(r"0\d", match[0]):
            raise Unreadable(f"a number that begins with 0: {match[0]!r}")
        value = Fraction(match[0].replace(",", "").replace(" ", "").rstrip("."))
    return [Token("number", match[0], spaced, value=value)], match.end()


def _repeating(start: str, period: str) -> Fraction:
    whole, _, digits = start.partition(".")
    head = Fraction(int(whole or "0")) + (Fraction(int(digits), 10 ** len(digits)) if digits else 0)
    return head + Fraction(int(period), (10 ** len(period) - 1) * 10 ** len(digits))


def _command(text: str, place: int, spaced: bool) -> tuple[list[Token], int]:
    match = _COMMAND.match(text, place)
    if match is None:
        raise Unreadable(f"{text[place : place + 12]!r} is not a command")
    name, end = match[0][1:], match.end()
    if name in _TEXT_COMMANDS:
        inside, end = _group(text, end)
        if not text[end:].strip() and re.search(r"(?:^|[^.])\.\s*$", inside) and not re.search(r"[ap]\.m\.\s*$", inside, re.I):
            inside = inside.rstrip()[:-1]  # the full stop of a sentence
        return _words(inside, spaced), end
    if name in ("begin", "end"):
        inside, end = _group(text, end)
        if inside == "array" and name == "begin":
            _, end = _group(text, end)
        return [Token("command", f"{name} {inside.replace('array', 'matrix')}", spaced)], end
    if name in ("mathbb", "mathcal"):
        inside, end = _group(text, end)
        return [Token("command", f"bb {inside.strip()}", spaced)], end
    special = {"{": Token("open", "set{", spaced), "}": Token("close", "}set", spaced), "%": Token("sign", "%", spaced)}
    special |= {"$": Token("sign", "$", spaced), "|": Token("sign", "norm", spaced), "\\": Token("sign", "row", spaced)}
    return [special.get(name, Token("command", name, spaced))], end


def _group(text: str, place: int) -> tuple[str, int]:
    """What stands in the braces (or is the one sign) after `place`, and where it ends."""
    while place < len(text) and text[place] == " ":
        place += 1
    if place >= len(text):
        raise Unreadable("a command without its argument")
    if text[place] != "{":
        return text[place], place + 1
    depth = 0
    for end in range(place, len(text)):
        depth += (text[end] == "{") - (text[end] == "}")
        if depth == 0:
            return text[place + 1 : end], end + 1
    raise Unreadable("a brace is not closed")


def _words(inside: str, spaced: bool) -> list[Token]:
    """The content of `\\text{}`: words stay words, everything else is read as outside."""
    found: list[Token] = []
    place, spaced = 0, spaced or inside.startswith(" ")
    while place < len(inside):
        if inside[place] == " ":
            place, spaced = place + 1, True
            continue
        match = _TEXT_PART.match(inside, place)
        if match is not None and match["word"]:
            found.append(Token("word", match["word"], spaced))
            place = match.end()
        else:
            new, place = _next(inside, place, spaced, grouped=True)
            found += new
        spaced = False
    return found


def _letters(run: str, spaced: bool) -> list[Token]:
    if len(run) == 1:
        return [Token("letter", run, spaced)]
    if run in FUNCTIONS or run in ("pi", "infty"):
        return [Token("command", run, spaced)]
    if run.casefold() in WORDS or run in UNIT_NAMES or run in THINGS or not _are_symbols(run):
        return [Token("word", run, spaced)]
    return [Token("letter", letter, spaced and not place) for place, letter in enumerate(run)]


def _are_symbols(run: str) -> bool:
    """Whether two or three letters are a product, such as `xy` or `abc`, rather than a word or a name."""
    one_case = run.islower() or run.isupper()
    return one_case and (len(run) == 2 or (len(run) == 3 and (list(run) == sorted(run) or not set("aeiou") & set(run.lower()))))
