"""Marks in texts, and words that must not become marks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from toishi.explanation.page.blocks import Column, Folded, Line, Page, Paragraph, Section, Table, Verdict
from toishi.explanation.page.marked import marked
from toishi.explanation.page.markup import code, literal, pieces
from toishi.explanation.page.render_html import html_page
from toishi.explanation.page.render_terminal import render

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


def test_what_is_folded_stays_in_the_file_and_on_the_terminal() -> None:
    section = Section("s", "title", "headline", (Folded("more", (Paragraph("inside"), Verdict(True, "checked", "how"))),))
    page = Page("en", "t", "l", "c", "g", "f", (section,))
    text = html_page(page)
    assert "<details><summary>more</summary>" in text
    assert "<summary>✓ checked</summary><p>how</p>" in text
    console = Console(width=60)
    with console.capture() as capture:
        render(page, console)
    assert all(word in capture.get() for word in ("more", "inside", "checked", "how"))


def test_a_table_too_wide_for_a_telephone_is_marked() -> None:
    def drawn(count: int) -> str:
        table = Table(tuple(Column(f"c{i}") for i in range(count)), (Line(("+0.123456",) * count),))
        return html_page(Page("en", "t", "l", "c", "g", "f", (Section("s", "t", "h", (table,)),)))

    assert '<table class="wide">' not in drawn(3)
    assert '<table class="wide">' in drawn(5)
    assert drawn(5).count('data-title="c4"') == 1
