"""What stands around a number: whether the number is all of a value, or a part of one (`1 / 5`, `5!`, `-(5)`, `5 million`).

Decisions:
1. A number counts only where everything that touches it is known to leave its value alone. A sign, a letter or a mark that is
   not known makes it unreadable, and nothing of it is paid.
2. LaTeX that only dresses a number (`\\boxed{}`, `\\text{}`, `$`, thin spaces between groups of three) is taken away first;
   `\\frac{a}{b}` of two whole numbers is `a/b`.
"""

from __future__ import annotations

import re
import unicodedata

from toishi.answers.things import changes_number
from toishi.answers.units import SINGLE_LETTERS, UNIT_NAMES

_DRESS = re.compile(
    r"\\(?:boxed|fbox|text|textbf|textit|mathbf|mathrm|textcolor\{\w+\}|displaystyle|left|right|quad|qquad)(?![A-Za-z])"
    r"|\\[\[\]();:!]|\\(?=[$%])"
)
_FRACTION = re.compile(r"(?<![\d}.)])\\[dt]?frac\s*(?:\{\s*(\d+)\s*\}\s*\{\s*(\d+)\s*\}|(\d)(\d)(?!\d))")
_GROUPS = re.compile(r"(?<![\d.,])\d{1,3}(?:(?:\{,\}|\\,)\d{3})+(?!\d)")
_RULE = re.compile(r"^[ \t]*[-*_]{3,}[ \t]*$|^[ \t]*#+[ \t]*|[\u200b\u200c\u200d\u2060\ufeff]", re.MULTILINE)
_NEGATIVE = re.compile(r"\bnegative\s+(?=[$€£¥]?[\d.])|(?:^|\bis\s+|[=:]\s*)minus\s+(?=[$€£¥]?[\d.])", re.IGNORECASE)
_VULGAR = re.compile("(?<![0-9])[¼-¾⅐-⅞]")
_DRESSED_BEFORE = re.compile(r"(?:[\s(\[{*_|`\"“‘]|(?:US|CA|AU)?[$€£¥])+$")
_DENIED = re.compile(
    r"(?:\b(?:not|never|minus|negative|plus|times|over|under|below|above)|n['’]t)\s*(?:(?:be|equal|to|exactly|the)\s+){0,2}$",
    re.I,
)
_PLAIN_BEFORE = frozenset("`=:,.;>≈→⇒?!)]}%'’")
_PLAIN_AFTER = frozenset("`.,;:?)]}*_$\"'’”|%°。、，；：")
_GOING_ON_WORDS = """
    is are was were be been not no never none wrong right false true correct and or to with without more less than at
    about approximately around percent per if when because since as so unless except maybe perhaps possibly probably
    else otherwise where while although though by from of the a an i in on only up down left all any some each other
    another am pm remainder
"""
_GOING_ON = frozenset(_GOING_ON_WORDS.split())
_OPERATOR_AFTER = re.compile(
    r"[)\]}*_$]*[ \t]*(?:[-+−–—×÷·⋅/^]|\*\*?|[xX](?=\s*10)|\\(?:times|cdot|div|pm|sqrt|frac|pi|over))"
    r"[ \t]*[-(\[{$]*(?:\d|[(\\]|[^\W\d_](?![^\W\d_]))"
)
_WORD_AFTER = re.compile(r"[)\]}*_$]*\s+([^\W\d_]+)")


def undressed(text: str) -> str:
    """`text` without LaTeX that only dresses numbers.

    >>> undressed(r"\\boxed{1{,}234} or $\\frac{1}{2}$, negative 5")
    '{1,234} or $1/2$, -5'
    """
    text = _GROUPS.sub(lambda match: match[0].replace("{,}", ",").replace("\\,", ","), text)
    text = _FRACTION.sub(lambda match: f"{match[1] or match[3]}/{match[2] or match[4]}", text)
    text = _VULGAR.sub(lambda match: unicodedata.normalize("NFKC", match[0]).replace("⁄", "/"), text)
    text = _DRESS.sub("", text).replace("\\,", " ").replace("\\ ", " ")
    text = _RULE.sub("", text)
    return _NEGATIVE.sub(lambda match: re.sub(r"(?:negative|minus)\s+$", "-", match[0], flags=re.IGNORECASE), text)


def is_whole(text: str, begin: int, end: int) -> bool:
    """Whether the number at `text[begin:end]` is a value by itself and not a part of one.

    >>> [is_whole(text, *span) for text, span in (("It is 5 km.", (6, 7)), ("1 / 5", (4, 5)), ("5 million", (0, 1)))]
    [True, False, False]
    """
    return _clear_before(text[max(0, begin - 80) : begin]) and _clear_after(text[end : end + 80])


def _clear_before(before: str) -> bool:
    dressed = _DRESSED_BEFORE.search(before)
    touching = before[dressed.start() :] if dressed else ""
    rest = before[: dressed.start()] if dressed else before
    if not rest:
        return True
    sign = rest[-1]
    if sign.isalnum():
        function = touching[:1] in ("(", "{", "[") and sign.isascii()
        if function or unicodedata.numeric(sign, None) is not None or re.search(r"\d[A-Za-z]{1,2}$|\\[A-Za-z]+$", rest):
            return False
        return not _DENIED.search(f"{rest} ")
    if sign in "'’" and rest[-2:-1].isdigit():
        return False
    return sign in _PLAIN_BEFORE or (unicodedata.category(sign) in ("So", "Po", "Ps", "Pe") and sign not in "\\/*#&@·٫٬")


def _clear_after(after: str) -> bool:
    if _OPERATOR_AFTER.match(after):
        return False
    word = _WORD_AFTER.match(after)
    if word is not None and _is_scale(word[1]):
        return False
    if not after or after[0].isspace() or after[0] in _PLAIN_AFTER:
        return True
    letters = re.match(r"[A-Za-zµμ]+", after)
    if letters is not None:
        return letters[0] in UNIT_NAMES or letters[0] in SINGLE_LETTERS - {"K"}
    return unicodedata.category(after[0]) == "Lo" or after[0] in "$€£¥<"


def _is_scale(word: str) -> bool:
    """Whether a word behind a number changes it: `million`, `tenths`; not `is` or `because`, which go on with the sentence."""
    plain = word.casefold()
    return changes_number(plain) and plain not in _GOING_ON
