"""Answers that are no formulas: choice letters, clock times, words. Text in, a value out, or None."""

from __future__ import annotations

import re
import unicodedata

from toishi.answers.tidy import tidied, unwrapped
from toishi.answers.values import Value

_TEXT_COMMAND = re.compile(
    r"\\(?:text|textbf|textit|textrm|textsf|texttt|emph|mbox|mathrm|mathbf|mathit|operatorname|boldsymbol|bm)\s*\{([^{}]*)\}"
)
_TIME = re.compile(
    r"(?P<hour>\d{1,2})(?:\s*:\s*(?P<minute>[0-5]\d)(?:\s*:\s*(?P<second>[0-5]\d))?)?\s*(?:(?P<half>[ap])\.?\s?m\.?)?",
    re.IGNORECASE,
)
_LETTER = re.compile(r"(?:option|choice|answer)?\s*[(\[]?(?P<letter>[A-Za-z])[)\]]?\.?", re.IGNORECASE)
_LABELLED = re.compile(
    r"(?:(?:option|choice|answer)\s+)?(?:[(\[](?P<bracketed>[A-Z])[)\]][.:,]?|(?P<labelled>[A-Z])(?:[.:),]|\s+[-–—]))\s+(?P<rest>\S.*)",
    re.DOTALL,
)
_ANOTHER = re.compile(r"(?<![\w'’])[A-Z](?![\w'’])(?!\s+[a-z])|(?<![\w'’])[B-HJ-Z](?![\w'’])")
_DENIED = re.compile(
    r"^(?:is|was|are)?\s*(?:not|no|wrong|incorrect|false|never|maybe|perhaps)\b|\b(?:not|wrong|incorrect|false|no)\W*$",
    re.IGNORECASE,
)
_ARTICLE = re.compile(r"^(?:the|an|a)\s+(?=\S\S)")
_QUOTES = (('"', '"'), ("'", "'"), ("“", "”"), ("‘", "’"), ("`", "`"), ("**", "**"), ("*", "*"), ("__", "__"), ("_", "_"))


def without_text_commands(text: str) -> str:
    """`\\text{A}` and the like replaced by what is in them, also where they are nested; markdown and `$` around taken away.

    >>> without_text_commands(r"\\textbf{(\\text{A})} 12")
    '(A) 12'
    """
    text = unwrapped(tidied(text))
    for _ in range(8):
        inner = _TEXT_COMMAND.sub(r"\1", text)
        if inner == text:
            break
        text = inner
    return " ".join(text.split())


def read_text(text: str) -> Value:
    """Words, compared without case, accents' spelling, a leading article, marks around them and double spaces.

    >>> read_text(r"\\text{The  Nile}.").data
    'nile'
    """
    plain = unicodedata.normalize("NFKC", without_text_commands(text)).casefold()
    return Value("text", _ARTICLE.sub("", _without_edges(" ".join(plain.split()))))


def _without_edges(text: str) -> str:
    """Without quotes around the whole and marks that end a sentence: `5!`, `.5` and `'s` are left as they are."""
    while True:
        inner = re.sub(r"[\s.,;:]+$|(?<=[^\W\d_])[!?]+$", "", text)
        for begin, end in _QUOTES:
            if len(inner) > len(begin) + len(end) and inner.startswith(begin) and inner.endswith(end):
                inner = inner[len(begin) : -len(end)].strip()
        if inner == text:
            return text
        text = inner


def read_choice(text: str, letters: str = "") -> Value | None:
    """A choice letter: `C`, `(C)`, `C.`, `\\text{C}`, `C: ...`, `(C) ...`; None when there is none, or more than one,
    or when what follows takes it back.

    letters  those that exist; empty: all

    >>> read_choice(r"\\textbf{(D) } 12").data, read_choice("a").data, read_choice("A or B"), read_choice("Apple")
    ('D', 'A', None, None)
    """
    plain = without_text_commands(text)
    alone = _LETTER.fullmatch(plain)
    labelled = _LABELLED.fullmatch(plain)
    letter = ""
    if alone is not None:
        letter = alone["letter"].upper()
    elif labelled is not None and not (_ANOTHER.search(labelled["rest"]) or _DENIED.search(labelled["rest"])):
        letter = labelled["bracketed"] or labelled["labelled"]
    return Value("choice", letter) if letter and (not letters or letter in letters) else None


def read_time(text: str) -> Value | None:
    """A time of day: `8:30`, `08:30`, `8:30 p.m.`, `6 am`; None for anything else.

    >>> read_time("12:15 a.m.").data, read_time("16:40").data, read_time("6"), read_time("24:10")
    (900, 60000, None, None)
    """
    match = _TIME.fullmatch(without_text_commands(text))
    if match is None or (match["minute"] is None and match["half"] is None):
        return None
    hour = int(match["hour"])
    if match["half"] is not None:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if match["half"].lower() == "p" else 0)
    if hour > 23:
        return None
    seconds = hour * 3600 + int(match["minute"] or 0) * 60 + int(match["second"] or 0)
    return Value("time", seconds)
