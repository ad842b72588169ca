"""Reading numbers and golds out of text, strictly: what cannot be read whole is not read at all.

Decisions:
1. A number is read as an exact fraction, so 0.1 + 0.2 is 0.3 and no float rounding decides a reward.
2. Digits and marks that form no number ("3,5", "1.2.3", "08:30", "2^3", "1/0", "1_000", "0x1F") are unreadable, and an
   unreadable last number is not replaced by an earlier one: failing closed costs a sample, guessing teaches the guess.
3. Digits of every script (３, ٣) and every minus sign (−, –, －) count; words ("seven", "二"), NaN and infinity do not.
4. An answer's number must also be a whole value where it stands (`surroundings`): in "1 / 5" and "5 million", 5 is not it.
5. Digits glued to a letter before them (B12, x2, H2O) are a label. What follows a number is its unit: "12km" reads 12,
   "50%" reads 50.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from toishi.answers.exact import shown_fraction
from toishi.rewards.surroundings import is_whole
from toishi.types import Prompt

_MAX_CHARS = 400
_MINUS = str.maketrans(dict.fromkeys("−–‒‐‑﹣－", "-") | {"＋": "+", "．": ".", "\u00a0": " ", "\u202f": " ", "\u2009": " "})
_NUMBER = re.compile(
    r"""
    (?: (?<![0-9A-Za-z_)\]}.,%/^]) (?P<sign>[-+±]) [$€£¥]?     # a sign stuck to the number, but not the minus of 12-5
      | (?<=[=≈:]) [ ]* (?P<loose>[-+±]) [ ]* [$€£¥]?          # "= - 5"
      | (?<![A-Za-z_^0-9]) (?<![0-9][.,/:]) (?<!\^[{(])         # no label such as B12, no exponent such as x^2
    )
    (?P<body>
        0(?:[xX][0-9A-Fa-f]+|[bB][01]+|[oO][0-7]+)(?![0-9A-Za-z])  # 0x1F
      | (?:[0-9]{1,3}(?:[ ][0-9]{3})+(?![0-9])(?:[.][0-9]+)?)  # 12 500
      | (?:[0-9]|(?<![0-9A-Za-z])[.](?=[0-9])) (?:[0-9.,/:]*[0-9])? (?:[eE][-+]?[0-9]+)?
        (?:_[0-9](?:[0-9_.,/:]*[0-9])?)?                          # 1_000
        (?:\^[{(]?[-+]?[0-9A-Za-z]*)?
    )
    """,
    re.VERBOSE,
)
_PLAIN = re.compile(r"(?:[0-9]+(?:[.][0-9]+)?|[.][0-9]+|[0-9]{1,3}(?:,[0-9]{3})+(?:[.][0-9]+)?)(?:[eE][-+]?[0-9]{1,3})?")
_RATIO = re.compile(r"[0-9]+/[0-9]+")


@dataclass(frozen=True, slots=True)
class Reading:
    """A stretch of text that looks like a number, its value (None when it cannot be read as one), whether it is whole."""

    text: str
    value: Fraction | None
    is_whole: bool = True


def read_numbers(text: str) -> list[Reading]:
    """Every number-like stretch of `text`, in order.

    >>> [str(reading.value) for reading in read_numbers("1,234.5 apples, −3 pears and 1/4 of B12")]
    ['2469/2', '-3', '1/4']
    >>> [(reading.text, reading.value) for reading in read_numbers("at 08:30 or 3,5")]
    [('08:30', None), ('3,5', None)]
    """
    plain = _plain_signs(text)
    return [
        Reading(
            match[0].strip(),
            _value(match["sign"] or match["loose"] or "", match["body"]),
            is_whole(plain, match.start(), match.end()),
        )
        for match in _NUMBER.finditer(plain)
    ]


def read_whole(text: str) -> Fraction | None:
    """The number that `text` is, with nothing but spaces, a currency sign or a full stop around it.

    >>> read_whole(" 1,234. "), read_whole("12 km"), read_whole("二")
    (Fraction(1234, 1), None, None)
    """
    stripped = text.strip().lstrip("$€£¥").removesuffix(".").strip()
    readings = read_numbers(stripped)
    whole = len(readings) == 1 and readings[0].text == _plain_signs(stripped)
    return readings[0].value if whole else None


def read_gold(gold: Any) -> Fraction | str:
    """The gold as a number, or, as text, why it is not one.

    >>> read_gold(7), read_gold("1,000"), read_gold(0.5), read_gold([7])
    (Fraction(7, 1), Fraction(1000, 1), Fraction(1, 2), 'the gold is a list, not a number: [7]')
    """
    if gold is None:
        return "the row has no gold"
    if isinstance(gold, Decimal) and gold.is_finite():
        return Fraction(gold)
    if isinstance(gold, bool) or not isinstance(gold, int | float | str | Decimal):
        return f"the gold is a {type(gold).__name__}, not a number: {gold!r}"
    try:
        value = read_whole(str(gold))
    except ValueError:  # more digits than Python writes out
        return f"the gold is a {type(gold).__name__} of too many digits"
    return f"the gold {gold!r} cannot be read as one number" if value is None else value


def shown_number(value: Fraction) -> str:
    """A number as a person writes it.

    >>> shown_number(Fraction(7)), shown_number(Fraction(-1, 4)), shown_number(Fraction(1, 3))
    ('7', '-0.25', '1/3')
    """
    if value.denominator == 1:
        return shown_fraction(value)
    as_float = float(value) if abs(value) < 10**15 else 0.0
    return repr(as_float) if Fraction(repr(as_float)) == value else f"{value.numerator}/{value.denominator}"


def without_echo(text: str, question: str) -> str:
    """`text` without the sentences of the question that it repeats word for word and that have a number in them.

    A line that could be one of several choices, or a short one ("3 km"), stays: it may be the answer. What is taken out leaves
    a space, so that nothing new is joined.

    >>> without_echo("What is 10 - 5? It is 5.", "What is 10 - 5? Be brief.")
    ' ? It is 5.'
    >>> without_echo("(B) 15 km", "How far?\\n(A) 12 km\\n(B) 15 km")
    '(B) 15 km'
    """
    for sentence in re.split(r"[.?!]\s|[.?!]?\n|[.?!]$", question):
        words = sentence.split()
        if len(words) > 3 and re.search(r"\d", sentence) and _is_sentence(words):
            text = re.sub(r"(?<!\w)" + r"\s+".join(map(re.escape, words)) + r"(?!\w)", " ", text, flags=re.IGNORECASE)
    return text


def _is_sentence(words: list[str]) -> bool:
    if re.fullmatch(r"[(\[]?[A-Za-z0-9][)\].:]", words[0]) or words[0] in "-*•":
        return False
    return sum(bool(re.search(r"[^\W\d_]{2}", word)) for word in words) > 1


def gold_of(prompt: Prompt, gold_column: str | None) -> Any:
    """The gold of the named column, or the one the task names."""
    return prompt.gold if gold_column is None else prompt.columns.get(gold_column)


def _plain_signs(text: str) -> str:
    plain = text.translate(_MINUS)
    if plain.isascii():
        return plain
    return "".join(str(unicodedata.decimal(sign, sign)) for sign in plain)


def _value(sign: str, body: str) -> Fraction | None:
    digits = body.replace(" ", "")
    if sign == "±" or len(digits) > _MAX_CHARS:
        return None
    if not _PLAIN.fullmatch(digits) and not _RATIO.fullmatch(digits):
        return None
    try:
        size = Fraction(digits.replace(",", ""))
    except ZeroDivisionError:
        return None
    return -size if sign == "-" else size
