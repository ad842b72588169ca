"""A table in which a reader chooses what is shown: HTML, the cases as JSON beside it, and a script that puts them in place.

Decisions:
1. The script looks up and nothing else: every text and number was made in Python.
2. Without a script, and on paper, the first case stands there as a plain table; the controls appear only where they work.
3. The JSON holds no `<`, `>` or `&`, and the script none of `<` and `&`, so the page stays XML.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from toishi.explanation.page.blocks import Case, Choice, Lookup
from toishi.explanation.page.marked import marked, plain

SCRIPT = Path(__file__).parent / "lookup.js"
DIGITS = 6
"""Significant digits of the cases' numbers."""
_ROOM = 1.15
"""What the picture's ends stand for, relative to the largest number in it."""


def lookup(block: Lookup) -> str:
    """Controls, what is said, the table, the command, and the cases."""
    case = block.first
    said = "".join(f"<p>{escape(text)}</p>" for text in case.said)
    command = escape(case.option.join(block.command))
    caption = f"<figcaption>{marked(block.caption)}</figcaption>" if block.caption else ""
    return f"""<div class="lookup" data-lookup="">
{_controls(block)}
<div class="said" data-part="said" aria-live="polite">{said}</div>
<figure>{caption}{_table(block, case)}</figure>
<p>{marked(block.words.command)}</p>
<p class="command"><code data-part="command">{command}</code></p>
<script type="application/json" data-part="data">{_data(block)}</script>
</div>"""


def _controls(block: Lookup) -> str:
    words = block.words
    number, place = block.chosen
    choice = block.choices[number]
    options = "".join(
        f'<option value="{at}"{_if(at == number, "selected")}>{escape(one.label)}</option>'
        for at, one in enumerate(block.choices)
    )
    ends = [escape(block.cases[choice.cases[at]].value) for at in (0, -1)]
    last = len(choice.cases) - 1
    slider = (
        f'<input type="range" data-part="slider" autocomplete="off" aria-label="{escape(words.slider)}" min="0" max="{last}" '
        f'step="1" value="{place}" aria-valuetext="{escape(block.first.value)}"{_if(last == 0, "disabled")}/>'
    )
    apart = f'<input type="checkbox" data-part="apart" autocomplete="off"{_if(choice.apart is None, "disabled")}/>'
    return f"""<div class="controls" data-part="controls" hidden="hidden">
<label>{escape(words.choice)} <select data-part="choice" autocomplete="off">{options}</select></label>
<div class="slide"><div>{escape(words.slider)}: <output data-part="value">{escape(block.first.value)}</output></div>
<div><small data-part="low">{ends[0]}</small>{slider}<small data-part="high">{ends[1]}</small></div></div>
<div class="buttons"><label>{apart} {escape(words.apart)}</label>
<button type="button" data-part="reset">{escape(words.reset)}</button></div>
<p class="why" data-part="why">{escape(choice.why_not)}</p>
</div>"""


def _if(holds: bool, name: str) -> str:
    return f' {name}="{name}"' if holds else ""


def _table(block: Lookup, case: Case) -> str:
    kinds = [(' class="n"' if column.numeric else "", column.title, varies) for column, varies in block.columns]
    head = "".join(f'<th scope="col"{kind}>{marked(title)}</th>' for kind, title, _ in kinds)
    kinds[-1] = (' class="tone"', *kinds[-1][1:])
    head += f'<th scope="col">{marked(block.words.picture)}</th>'
    lines = []
    for at, cells in enumerate(block.whole_lines(case)):
        drawn = [
            f'<td{kind} data-title="{escape(plain(title))}"{_if(varies, "data-varies")}><div>{_text(cell, varies)}</div></td>'
            for cell, (kind, title, varies) in zip(cells, kinds, strict=True)
        ]
        drawn.append(f'<td class="picture" data-title="{escape(plain(block.words.picture))}">{_picture(block, case, at)}</td>')
        chosen = "chosen" if at == block.choices[block.chosen[0]].line else "other"
        lines.append(f'<tr class="{case.tones[at]} {chosen}">{"".join(drawn)}</tr>')
    body = "\n".join(lines)
    return f'<table class="wide"><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>'


def _text(cell: str, varies: bool) -> str:
    return escape(cell) if varies else marked(cell)


def _picture(block: Lookup, case: Case, line: int) -> str:
    """A line through 0, the mark, and the middle with its reach; what is missing is hidden."""
    scale, mark = _scale(block), block.marks[line]
    middle, reach = (case.numbers[line][at] for at in block.drawn)
    parts = ['<i class="axis"></i>']
    if mark is not None:
        parts.append(f'<i class="mark" style="left: {_percent(mark / scale)}"></i>')
    if middle is None or reach is None:
        parts.append('<i class="band" hidden="hidden"></i><i class="dot" hidden="hidden"></i>')
    else:
        band = f"left: {_percent((middle - reach) / scale)}; width: {100 * reach / scale:.2f}%"
        parts.append(f'<i class="band" style="{band}"></i><i class="dot" style="left: {_percent(middle / scale)}"></i>')
    return f'<div class="track" aria-hidden="true">{"".join(parts)}</div>'


def _percent(share: float) -> str:
    return f"{50 + 50 * share:.2f}%"


def _scale(block: Lookup) -> float:
    middles = [numbers[block.drawn[0]] for case in block.cases for numbers in case.numbers]
    known = [abs(value) for value in (*middles, *block.marks) if value is not None]
    return _ROOM * max(known, default=0.0) or 1.0


def _data(block: Lookup) -> str:
    said = (text for case in block.cases for text in case.said)
    cells = (cell for case in block.cases for line in case.cells for cell in line)
    place = {text: at for at, text in enumerate(dict.fromkeys((*said, *cells)))}
    value = {
        "command": block.command,
        "numbers": block.numbers,
        "drawn": block.drawn,
        "scale": _scale(block),
        "choices": [_choice(choice) for choice in block.choices],
        "texts": list(place),
        "cases": [_case(case, place) for case in block.cases],
    }
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _choice(choice: Choice) -> dict[str, Any]:
    return {
        "line": choice.line,
        "cases": choice.cases,
        "start": choice.start,
        "apart": choice.apart,
        "why": choice.why_not,
    }


def _case(case: Case, place: Mapping[str, int]) -> dict[str, Any]:
    """place  text -> where it stands among the page's texts: most are those of many cases."""
    return {
        "value": case.value,
        "option": case.option,
        "said": [place[text] for text in case.said],
        "cells": [[place[cell] for cell in line] for line in case.cells],
        "tones": case.tones,
        "numbers": [[_rounded(number) for number in line] for line in case.numbers],
    }


def _rounded(number: float | None) -> float | None:
    return None if number is None else float(f"{number:.{DIGITS}g}")
