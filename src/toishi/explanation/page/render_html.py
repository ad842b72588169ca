"""The page as one HTML file: no network, nothing beside it; a script only where something can be looked up.

Decisions:
1. Bars are inline SVG with a text equivalent; colour never carries a meaning alone.
2. The markup is XML as well (every tag closed), so that any parser can check it.
3. On a narrow screen a wide table becomes one card for each line, each cell with its column's title: nothing scrolls sideways.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path
from typing import Any

from rich.cells import cell_len

from toishi.explanation.page.blocks import (
    Bars,
    Block,
    Folded,
    Formula,
    Heat,
    Line,
    Lookup,
    Page,
    Paragraph,
    Section,
    Signed,
    Table,
    Token,
    Tokens,
    Verdict,
    unfolded,
)
from toishi.explanation.page.marked import marked, plain
from toishi.explanation.page.markup import chance
from toishi.explanation.page.render_lookup import SCRIPT, lookup

STYLE = Path(__file__).parent / "page.css"
WIDTH, LABEL, NUMBERS = 480, 130, 80
ROW, THICK = 46, 15
NARROW = 34
"""Characters that fit into a line of a table on a telephone."""


def html_page(page: Page) -> str:
    """The whole file as text."""
    sections = "\n".join(_section(number, section, page) for number, section in enumerate(page.sections, start=1))
    links = "".join(f'<li><a href="#{section.key}">{escape(section.title)}</a></li>' for section in page.sections)
    return f"""<!DOCTYPE html>
<html lang="{page.language}">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<title>{escape(page.title)}</title>
<style>
{STYLE.read_text(encoding="utf-8")}</style>
</head>
<body>
<main>
<h1>{escape(page.title)}</h1>
<p class="lead">{marked(page.lead)}</p>
{sections.split("</section>", 1)[0]}</section>
<nav aria-label="{escape(page.contents)}"><h2>{escape(page.contents)}</h2><ol>{links}</ol></nav>
{sections.split("</section>", 1)[1]}
<footer><p>{marked(page.footer)}</p></footer>
</main>{_script(page)}
</body>
</html>
"""


def _script(page: Page) -> str:
    looks_up = any(isinstance(block, Lookup) for section in page.sections for block in unfolded(section.blocks))
    return f"\n<script>\n{SCRIPT.read_text(encoding='utf-8')}</script>" if looks_up else ""


def _section(number: int, section: Section, page: Page) -> str:
    blocks = "\n".join(_DRAW[type(block)](block, page) for block in section.blocks)
    return f"""<section id="{section.key}">
<h2><a href="#{section.key}">{number}. {escape(section.title)}</a></h2>
<p class="headline">{marked(section.headline)}</p>
{blocks}
</section>"""


def _paragraph(block: Paragraph, page: Page) -> str:
    return f"<p>{marked(block.text)}</p>"


def _formula(block: Formula, page: Page) -> str:
    return f'<p class="formula">{escape(block.text)}</p>'


def _table(block: Table, page: Page) -> str:
    kinds = [' class="n"' if column.numeric else "" for column in block.columns]
    titles = zip(block.columns, kinds, strict=True)
    head = "".join(f'<th scope="col"{kind}>{marked(column.title)}</th>' for column, kind in titles)
    kinds = [f'{kind} data-title="{escape(plain(column.title))}"' for column, kind in zip(block.columns, kinds, strict=True)]
    body = "\n".join(_line(line, kinds) for line in block.lines)
    wide = ' class="wide"' if _is_wide(block) else ""
    head = f"<thead><tr>{head}</tr></thead>"
    return f"<figure>{_caption(block.caption)}<table{wide}>{head}<tbody>\n{body}\n</tbody></table></figure>"


def _is_wide(block: Table) -> bool:
    """Whether its lines would not fit on a telephone; text wraps, numbers do not."""
    needed = 0
    for index, column in enumerate(block.columns):
        pieces_of = [plain(line.cells[index]) for line in block.lines]
        words = [piece for text in (*pieces_of, column.title) for piece in ([text] if column.numeric else text.split())]
        longest = max((cell_len(word) for word in words), default=0)
        needed += min(longest, 14) + 1
    return needed > NARROW


def _line(line: Line, kinds: list[str]) -> str:
    tone = f' class="{line.tone}"' if line.tone else ""
    cells = "".join(f"<td{kind}>{_cell(cell)}</td>" for cell, kind in zip(line.cells, kinds, strict=True))
    return f"<tr{tone}>{cells}</tr>"


def _cell(text: str) -> str:
    return f"<div>{marked(text)}</div>" if text else ""


def _folded(block: Folded, page: Page) -> str:
    inner = "\n".join(_DRAW[type(one)](one, page) for one in block.blocks)
    return f"<details><summary>{marked(block.title)}</summary>\n{inner}\n</details>"


def _bars(block: Bars, page: Page) -> str:
    longest = max((max(before, after) for _, before, after in block.items), default=0.0) or 1.0
    scale = (WIDTH - LABEL - NUMBERS) / longest
    rows = []
    for index, (word, before, after) in enumerate(block.items):
        y, tone = index * ROW, "up" if after > before else "down"
        rows.append(f'<text x="{LABEL - 12}" y="{y + 24}" text-anchor="end">{escape(word)}</text>')
        rows.append(_bar(LABEL, y + 4, before * scale, "before", chance(before), "soft"))
        rows.append(_bar(LABEL, y + 4 + THICK + 2, after * scale, tone, chance(after), ""))
    said = "; ".join(f"{word} {chance(before)} → {chance(after)}" for word, before, after in block.items)
    return _chart(f"{block.caption} · {page.legend}", said, rows, len(block.items) * ROW)


def _signed(block: Signed, page: Page) -> str:
    largest = max((abs(value) for _, value, _ in block.items), default=0.0) or 1.0
    half = (WIDTH - LABEL - NUMBERS) / 2
    middle, step = LABEL + half + NUMBERS / 2, THICK + 13
    rows = [f'<line class="axis" x1="{middle:.1f}" x2="{middle:.1f}" y1="0" y2="{len(block.items) * step}"/>']
    for index, (label, value, number) in enumerate(block.items):
        y, length, side = index * step + 6, abs(value) / largest * (half - NUMBERS / 2), "down" if value < 0 else "up"
        left = middle - length if value < 0 else middle
        rows.append(f'<text x="0" y="{y + 12}">{escape(label)}</text>')
        rows.append(f'<rect class="{side}" x="{left:.1f}" y="{y}" width="{length:.1f}" height="{THICK}"/>')
        x, anchor = (left - 6, "end") if value < 0 else (middle + length + 6, "start")
        rows.append(f'<text x="{x:.1f}" y="{y + 12}" text-anchor="{anchor}">{number}</text>')
    said = "; ".join(f"{label} {number}" for label, _, number in block.items)
    return _chart(block.caption, said, rows, len(block.items) * step + 4)


def _heat(block: Heat, page: Page) -> str:
    """A table whose cells are as strongly marked as their number is far from 0."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in block.columns)
    body = "\n".join(
        f'<tr><th scope="row">{escape(name)}</th>{"".join(map(_heat_cell, levels, texts))}</tr>'
        for name, levels, texts in zip(block.rows, block.levels, block.texts, strict=True)
    )
    table = f'<table class="heat"><thead><tr><td></td>{head}</tr></thead><tbody>\n{body}\n</tbody></table>'
    return f"<figure>{_caption(block.caption)}{table}</figure>"


def _heat_cell(level: float, text: str) -> str:
    side = "down" if level < 0 else "up"
    return f'<td class="{side}" style="--level: {round(min(1.0, abs(level)) * 70)}%">{escape(text)}</td>'


def _tokens(block: Tokens, page: Page) -> str:
    spans = "".join(_token(token) for token in block.items)
    return f'<figure>{_caption(block.caption)}<p class="tokens">{spans}</p></figure>'


def _token(token: Token) -> str:
    side = "up" if token.level > 0 else "down" if token.level < 0 else "still"
    level = f' style="--level: {round(min(1.0, abs(token.level)) * 70)}%"' if token.level else ""
    return f'<span class="t {side}"{level} title="{escape(token.said)}">{escape(token.text)}</span><wbr/>'


def _verdict(block: Verdict, page: Page) -> str:
    kind, text = "passed" if block.ok else "broken", f"{'✓' if block.ok else '✗'} {marked(block.text)}"
    if not block.detail:
        return f'<p class="check {kind}">{text}</p>'
    return f'<details class="check {kind}"><summary>{text}</summary><p>{marked(block.detail)}</p></details>'


def _bar(x: float, y: float, length: float, tone: str, number: str, number_tone: str) -> str:
    kind = f' class="{number_tone}"' if number_tone else ""
    return (
        f'<rect class="{tone}" x="{x}" y="{y}" width="{length:.1f}" height="{THICK}" rx="2"/>'
        f'<text{kind} x="{x + length + 8:.1f}" y="{y + 12}">{number}</text>'
    )


def _chart(caption: str, said: str, rows: list[str], height: int) -> str:
    drawn = "".join(rows)
    svg = f'<svg viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img" aria-label="{escape(said)}">{drawn}</svg>'
    return f"<figure>{_caption(caption)}{svg}</figure>"


def _caption(text: str) -> str:
    return f"<figcaption>{marked(text)}</figcaption>" if text else ""


_DRAW: Mapping[type[Block], Callable[[Any, Page], str]] = {
    Paragraph: _paragraph,
    Formula: _formula,
    Table: _table,
    Bars: _bars,
    Signed: _signed,
    Heat: _heat,
    Tokens: _tokens,
    Lookup: lambda block, page: lookup(block),
    Verdict: _verdict,
    Folded: _folded,
}
