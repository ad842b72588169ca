"""Forms that can be read in two ways, and that the grammar would read in one of them without a word: they are refused.

Decisions:
1. `0.(3)` has no digit before its bracket, so it repeats. `2.5(3)` could repeat or be a product.
2. `3-5 days` and a gold `1-5` are ranges as likely as differences; so are numbers joined by a long dash.
3. Runs of digits and capital letters with an index (`FF_{16}`) are numbers of another base, `H_2O` is no product.
"""

from __future__ import annotations

import re

from toishi.answers.beyond import names_a_derivative

_BRACKETED = re.compile(r"\d*\.(?:\d+\s*[(\[]\s*\d+\s*[)\]]|\d*\s*(?:\{\s*\d+\s*\}|\[\s*\d+\s*\]))")
_FORMS = (
    (
        re.compile(r"\d*\.(?:\d+\s*[(\[]\s*\d+\s*[)\]]|\d*\s*(?:\{\s*\d+\s*\}|\[\s*\d+\s*\]))"),
        "a decimal before digits in brackets",
    ),
    (re.compile(r"(?<![\\A-Za-z])(?=\d*[A-F])[0-9A-F]{2,}\s*_\s*\{?\s*\d"), "a number of another base, or a product"),
    (re.compile(r"[A-Z][a-z]?_\{?\d+\}?\s*[A-Z]"), "a chemical formula, or a product"),
    (re.compile(r"(?<![-\w.)}\]^*/+])\d+(?:\.\d+)?\s*-\s*\d+(?:\.\d+)?\s*(?:\\text\w*\s*\{)?\s*[^\W\d_]{2,}"), "a range"),
    (re.compile(r"\\not(?![A-Za-z])|\\neg(?![A-Za-z])|\\lnot(?![A-Za-z])"), "a denial"),
)
_DASHED = re.compile(r"\d\s*[–—]\s*\d")
_RANGE = re.compile(r"\d+(?:\.\d+)?\s*-\s*\d+(?:\.\d+)?")


def ambiguity(text: str, *, is_gold: bool) -> str | None:
    """What makes a formula ambiguous, or None.

    >>> ambiguity("3-5 days", is_gold=False), ambiguity("1-5", is_gold=True), ambiguity("1-5", is_gold=False)
    ('a range', 'a range or a difference', None)
    >>> ambiguity("2.5(3)", is_gold=False), ambiguity("0.5(x+1)", is_gold=False)
    ('a decimal before digits in brackets', None)
    """
    if _DASHED.search(text):
        return "a long dash between numbers"
    if is_gold and _RANGE.fullmatch(text.strip()):
        return "a range or a difference"
    if names_a_derivative(text):
        return "a derivative"
    return next((name for form, name in _FORMS if form.search(text)), None)
