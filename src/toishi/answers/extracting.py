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
1. Reasoning (`<think>...</think>`, also where the opening tag was prefilled, or never closed) is not looked at.
2. Boxes are never merged: of several the last one counts. If that is empty or never closed, there is no answer.
3. Everything is found in one pass over the text, so that 50,000 open braces cost no more than 50,000 letters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Where = Literal["box", "marked", "anywhere"]
TAIL_CHARS = 20_000
MAX_CHARS = 1_000

_OPENED = re.compile(r"<(?:think|thinking|reasoning)>", re.IGNORECASE)
_CLOSED = re.compile(r"</(?:think|thinking|reasoning)>", re.IGNORECASE)
_BRACES = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])|\\.|[{}]", re.DOTALL)
_BARE_BOX = re.compile(r"\s*(\\[A-Za-z]+|[^\s{}\\])")
_TAG = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.IGNORECASE | re.DOTALL)
_HASHES = re.compile(r"^[ \t]*####[ \t]*(\S.*)$", re.MULTILINE)
_SENTENCE = re.compile(
    r"\banswer\b(?:[ ](?:to|for)\b[^.\n:=]{0,80}?)?[ ]?(?:\*\*|__)?[ ]?(?:\bis\b|\bwould be\b|:|=)"
    r"(?:[ ]?(?:equal to\b|:|\*\*))*\s*(?=\S)|^[#* ]*final answer[:* ]*\n\s*(?=\S)",
    re.IGNORECASE | re.MULTILINE,
)
_CUT = re.compile(
    r"[.!](?:\s+[A-Z\"(]|\s*$)|,?\s+(?:because|since|as|so|which|where|although|though|when|for|after|if)\s"
    r"|,\s*(?:but|not|and not)\s|;\s"
)
_BOLD = re.compile(r"\*\*([^*\n]+)\*\*[.!]?$")
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
    text = without_reasoning(prefill + completion)
    boxes = list(_boxes(text))
    if boxes:
        inside = boxes[-1]
        return Extracted(inside, "box") if inside else None
    if where == "box":
        return None
    return _marked(text[-TAIL_CHARS:], whole=text) or (_anywhere(text[-TAIL_CHARS:]) if where == "anywhere" else None)


def without_reasoning(text: str) -> str:
    """What stands after the reasoning; nothing where the reasoning never ends.

    >>> without_reasoning("<think>a</think> b"), without_reasoning("a</think> b"), without_reasoning("<think>a")
    (' b', ' b', '')
    """
    closed = list(_CLOSED.finditer(text))
    text = text[closed[-1].end() :] if closed else text
    opened = _OPENED.search(text)
    return text[: opened.start()] if opened else text


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
                elif text[match.end() :].lstrip()[:1] == "{":
                    begin = text.index("{", match.end()) + 1
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
    for pattern, place in ((_TAG, "tag"), (_HASHES, "hashes")):
        found = pattern.findall(tail)
        if found:
            return _short(found[-1], place)
    sentences = list(_SENTENCE.finditer(tail))
    if sentences:
        return _short(_sentence(tail[sentences[-1].end() :].partition("\n")[0]), "sentence")
    bold = _BOLD.search(tail.rstrip())
    if bold is not None:
        return _short(bold[1], "bold")
    return None if "\n" in whole.strip() else _short(whole, "whole")


def _short(text: str, place: str) -> Extracted | None:
    """Nothing, and what is longer than any answer, is none."""
    text = text.strip()
    return Extracted(text, place) if 0 < len(text) <= MAX_CHARS else None


def _sentence(rest: str) -> str:
    """The answer at the beginning of the rest of a line."""
    rest = rest[: 2 * MAX_CHARS].strip()
    formula = re.match(r"(\$[^$]+\$)(?:[.,;!]|\s*$|\s+(?:because|since|as)\b)", rest)
    if formula is not None:
        return formula[1]
    cut = _CUT.search(rest)
    return (rest[: cut.start()] if cut else rest).strip().strip("*_").rstrip("*_ ")


def _anywhere(tail: str) -> Extracted | None:
    formulas = [next(filter(None, match.groups()), "") for match in _FORMULA.finditer(tail)]
    if formulas:
        return Extracted(formulas[-1].strip(), "formula")
    numbers = _NUMBER.findall(tail)
    return Extracted(numbers[-1].rstrip(","), "number") if numbers else None
