r"""The two marks that texts may carry, `code` and **bold**, as a list of pieces.

Decision: a backslash takes its meaning from a mark. Words that are not ours (answers, tokens, reasons) go through `literal` or
`code`, so that whatever a model wrote is shown as it wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

Style = Literal["", "code", "bold"]
_SPECIAL = re.compile(r"([\\`*])")
_ESCAPED = re.compile(r"\\([\\`*])")
_MARKS = re.compile(r"\\[\\`*]|`((?:\\.|[^`\\])+)`|\*\*((?:\\.|[^\\])+?)\*\*", re.DOTALL)
"""An escaped mark, which is passed over, or one of the two marks."""


def pieces(text: str) -> Iterator[tuple[Style, str]]:
    r"""
    >>> list(pieces("say `ok` **twice**"))
    [('', 'say '), ('code', 'ok'), ('', ' '), ('bold', 'twice')]
    >>> list(pieces(r"2 \*\* 3"))
    [('', '2 ** 3')]
    """
    end = 0
    for match in _MARKS.finditer(text):
        if match.lastindex is None:
            continue
        if match.start() > end:
            yield "", _plain(text[end : match.start()])
        yield ("code", _plain(match.group(1))) if match.group(1) else ("bold", _plain(match.group(2)))
        end = match.end()
    if end < len(text):
        yield "", _plain(text[end:])


def literal(text: str) -> str:
    r"""Someone else's words inside a text: nothing in them is a mark.

    >>> literal("a * b"), list(pieces(literal("`**x**`")))
    ('a \\* b', [('', '`**x**`')])
    """
    return _SPECIAL.sub(r"\\\1", text)


def code(text: str) -> str:
    r"""
    >>> code("ok"), list(pieces(code("`")))
    ('`ok`', [('code', '`')])
    """
    return f"`{literal(text)}`" if text else ""


def chance(probability: float) -> str:
    """A probability beside its bar: one digit after the point, more where that would hide it.

    >>> chance(0.514), chance(0.0), chance(0.00012)
    ('51.4%', '0.0%', '0.01%')
    """
    return f"{probability:.1%}" if probability >= 0.001 or probability == 0 else f"{probability * 100:.1g}%".replace("-", "−")


def _plain(text: str) -> str:
    return _ESCAPED.sub(r"\1", text)
