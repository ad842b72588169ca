"""Formulas beyond the grammar (sums, integrals, limits): which may be given to math-verify's parser, and what it left out.

Decisions:
1. That parser skips what it does not know, without a word. So every command, sign, letter and number of the source must be one
   that it knows, and must be found in what it read.
2. Words, units and what stands apart behind a formula are refused before it is asked.
3. `\\frac{dy}{dx}` and `dy/dx` name a derivative; nobody can tell which function it is of, so neither is read.
"""

from __future__ import annotations

import re

BEYOND = re.compile(r"\\(?:int|iint|oint|sum|prod|lim)(?![A-Za-z])")
_DERIVATIVE = re.compile(
    r"\\frac\s*\{?\s*(?:d|\\partial)(?:\^\{?\w\}?)?\s*(?:\\?[A-Za-z]+|\([^()]*\))?\s*\}?\s*\{\s*(?:d|\\partial)\s*\\?[A-Za-z]"
    r"|(?<![A-Za-z\\])d\^?\d?\s*[a-zA-Z]\s*/\s*d\s*[a-zA-Z](?![A-Za-z])"
)
_COMMANDS_WORDS = """
    int iint oint sum prod lim frac sqrt infty to cdot times pi sin cos tan cot sec csc arcsin arccos arctan sinh cosh
    tanh ln log exp binom le ge left right alpha beta gamma theta lambda mu rho sigma tau phi omega
"""
_COMMANDS = frozenset(_COMMANDS_WORDS.split())
_SIGNS = re.compile(r"[A-Za-z0-9+\-*/^_{}()\[\]|.! ]")
_OPERATOR = re.compile(
    r"\\(?:int|iint|oint|sum|prod|lim)(?![A-Za-z])\s*(?:[_^]\s*(?:\{[^{}]*\}|\\[A-Za-z]+|-?[A-Za-z0-9])\s*){0,2}"
)
_BELOW = re.compile(r"_\s*\{[^{}]*\}")
_APART = re.compile(r"[A-Za-z0-9})\]]\s+\d|[A-Za-z0-9})\]]\s*\{\}")


def names_a_derivative(text: str) -> bool:
    """Whether `text` has a derivative in it, which the grammar would read as a fraction of products.

    >>> names_a_derivative(r"\\frac{dy}{dx} = 2x"), names_a_derivative("dy/dx"), names_a_derivative(r"\\frac{d}{2}")
    (True, True, False)
    """
    return _DERIVATIVE.search(text) is not None


def is_plain_latex(text: str) -> bool:
    """Whether a formula has only commands and signs that math-verify's parser is known to read.

    >>> is_plain_latex(r"\\sum_{k=1}^3 k"), is_plain_latex(r"\\sum_{k=1}^3 k \\text{ million}"), is_plain_latex("k 1")
    (True, False, False)
    """
    if not set(re.findall(r"\\([A-Za-z]+)", text)) <= _COMMANDS:
        return False
    plain = re.sub(r"\\[A-Za-z]+|\\,", " ", _BELOW.sub("_{}", text))
    commandless = re.sub(r"\\[A-Za-z]+\s*", "#", _OPERATOR.sub("#", text))
    return _SIGNS.sub("", plain) == "" and _APART.search(commandless) is None


def lost_parts(text: str, read: str) -> list[str]:
    """Numbers and letters of a formula that are not in what was read of it.

    >>> lost_parts(r"\\sum_{k=1}^{5} n k", "Sum(k, (k, 1, 5))")
    ['n']
    """
    letters = re.sub(r"\\[A-Za-z]+", " ", text)
    parts = {*re.findall(r"\d+", text), *re.findall(r"[A-Za-z]", letters)} - {"d", "e", "i"}
    return sorted(part for part in parts if part not in read)
