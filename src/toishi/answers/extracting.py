"""Where in a completion its answer stands.

The first of these that is there decides, and nothing after it in this list is looked at:

    box       the last `\\boxed{}` or `\\fbox{}`
    tag       the last `<answer>...</answer>`; a box inside it has been found before
    hashes    the last line that begins with `####`
    sentence  the last "the answer is ...", "Answer: ...", or what follows a heading "Final Answer"
    bold      a last line that ends in `**...**`
    whole     the whole completion, if it is one line
    formula   the last `$...$`                                (only with where="anywhere")
    number    the last number                                 (only with where="anywhere")

Decisions:
1. Reasoning (`<think>...</think>` and its kin, see `reasoning`) and comments of LaTeX and HTML are not looked at.
2. Boxes are never merged: of several the last one counts. If that is empty or never closed, there is no answer.
3. Everything is found in one pass over the text, so that 50,000 open braces cost no more than 50,000 letters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from toishi.answers.reasoning import visible
from toishi.answers.sentences import in_bold, stated

Where = Literal["box", "marked", "anywhere"]
TAIL_CHARS = 20_000
MAX_CHARS = 1_000

_BRACES = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])|\\.|[{}]", re.DOTALL)
_BARE_BOX = re.compile(r"\s*(\\[A-Za-z]+|[^\s{}\\])")
_OPEN_BRACE = re.compile(r"\s*\{")
_TAG = re.compile(r"<(/?)answer>", re.IGNORECASE)
_HASHES = re.compile(r"^[ \t]*####[ \t]*(\S.*)$", re.MULTILINE)
_FORMULA = re.compile(r"\$\$?([^$\n]+)\$?\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.])[-−]?\$?\d[\d,]*(?:\.\d+)?(?:/\d+)?\\?%?")


@dataclass(frozen=True, slots=True)
class Extracted:
    """The text of an answer, and which of the places above it stood in."""

    text: str
    place: str


def extract(completion: str, *, where: Where = "marked", prefill: str = "") -> Extracted | None:
    """The answer's text, or None when there is none.

    where    "box": only a box; "marked": every place above up to the whole text; "anywhere": also in prose
    prefill  what the chat template wrote before the completion, such as "<think>"

    >>> extract("First \\\\boxed{4}; wrong, so \\\\boxed{5}.").text
    '5'
    >>> extract("Hence the answer is $x = 3$, because 3 is odd."), extract("I do not know.\\nSorry.")
    (Extracted(text='$x = 3$', place='sentence'), None)
    """
    text = visible(prefill + completion)
    boxes = list(_boxes(text))
    if boxes:
        inside = boxes[-1]
        return Extracted(inside, "box") if inside else None
    if where == "box":
        return None
    return _marked(text[-TAIL_CHARS:], whole=text) or (_anywhere(text[-TAIL_CHARS:]) if where == "anywhere" else None)


def last_box(text: str) -> str | None:
    """What is in the last box of `text`; "" for an empty one or one that is never closed, None where there is no box."""
    found = list(_boxes(text))
    return found[-1] if found else None


def _boxes(text: str) -> Iterator[str]:
    """What stands in each outermost box; of boxes in boxes the innermost."""
    if "\\boxed" not in text and "\\fbox" not in text:
        return
    begin, depth = -1, 0
    for match in _BRACES.finditer(text):
        mark = match[0]
        if begin < 0:
            if len(mark) > 2:
                bare = _BARE_BOX.match(text, match.end())
                if bare is not None:
                    yield bare[1]
                elif (opened := _OPEN_BRACE.match(text, match.end())) is not None:
                    begin = opened.end()
                else:
                    yield ""
        elif mark in "{}" and match.start() >= begin - 1:
            depth += 1 if mark == "{" else -1
            if depth == 0:
                inside = text[begin : match.start()].strip()
                inner = last_box(inside) if len(inside) < MAX_CHARS else None
                yield inside if inner is None else inner
                begin = -1
    if begin >= 0:
        yield ""


def _marked(tail: str, *, whole: str) -> Extracted | None:
    tagged = _tagged(tail)
    if tagged is not None:
        return _short(tagged, "tag")
    hashes = _HASHES.findall(tail)
    if hashes:
        return _short(hashes[-1], "hashes")
    sentence = stated(tail)
    if sentence is not None:
        return _short(sentence, "sentence")
    bold = in_bold(tail)
    if bold is not None:
        return _short(bold, "bold")
    return None if "\n" in whole.strip() else _short(whole, "whole")


def _tagged(text: str) -> str | None:
    """What the last pair of tags holds; "" where a tag is closed once more; None where there is no pair."""
    begin, found = -1, None
    for tag in _TAG.finditer(text):
        if not tag[1]:
            begin = tag.end()
        elif begin >= 0:
            begin, found = -1, text[begin : tag.start()]
        elif found is not None:
            found = ""
    return found


def _short(text: str, place: str) -> Extracted | None:
    """Nothing, and what is longer than any answer, is none."""
    text = text.strip()
    return Extracted(text, place) if 0 < len(text) <= MAX_CHARS else None


def _anywhere(tail: str) -> Extracted | None:
    formulas = [next(filter(None, match.groups()), "") for match in _FORMULA.finditer(tail)]
    if formulas:
        return Extracted(formulas[-1].strip(), "formula")
    numbers = _NUMBER.findall(tail)
    return Extracted(numbers[-1].rstrip(","), "number") if numbers else None
