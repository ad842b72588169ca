"""Marks in texts, and words that must not become marks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from toishi.explanation.page.markup import code, literal, pieces
from toishi.explanation.page.render_html import marked

anything = st.text(alphabet=st.sampled_from("ab`*\\ <&\n"), min_size=1, max_size=12)


@given(anything)
def test_literal_words_come_out_as_they_went_in(text: str) -> None:
    assert "".join(piece for _, piece in pieces(literal(text))) == text
    assert all(style == "" for style, _ in pieces(literal(text)))


@given(anything, anything)
def test_code_is_one_piece_whatever_is_in_it(text: str, other: str) -> None:
    found = list(pieces(f"say {code(text)} and {literal(other)}"))
    assert ("code", text) in found
    assert "".join(piece for _, piece in found) == f"say {text} and {other}"


def test_bold_may_hold_literal_words() -> None:
    assert list(pieces(f"**{literal('#1 *')}** is out")) == [("bold", "#1 *"), ("", " is out")]


def test_html_escapes_after_marking() -> None:
    assert marked(code("<b>")) == "<code>&lt;b&gt;</code>"
