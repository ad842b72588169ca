"""Texts with marks as HTML."""

from __future__ import annotations

from html import escape

from toishi.explanation.page.markup import pieces

TAGS = {"code": "code", "bold": "strong"}


def marked(text: str) -> str:
    """
    >>> marked("`<end>` is **not** 1 > 0")
    '<code>&lt;end&gt;</code> is <strong>not</strong> 1 &gt; 0'
    """
    return "".join(f"<{TAGS[mark]}>{escape(piece)}</{TAGS[mark]}>" if mark else escape(piece) for mark, piece in pieces(text))


def plain(text: str) -> str:
    """Without its marks.

    >>> plain("`a` **b**")
    'a b'
    """
    return "".join(piece for _, piece in pieces(text))
