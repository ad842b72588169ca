"""Curves as SVG, written by hand: no package is needed to draw a few lines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

Curve = Sequence[tuple[float, float]]

_WIDTH, _HEIGHT = 460, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 16, 34, 44
_COLOURS = ("#1f6feb", "#d1495b", "#2a9d5c", "#8a5cc2")


def chart(title: str, x_name: str, y_name: str, curves: Mapping[str, Curve]) -> str:
    """Lines through points, x on a logarithmic axis by powers of 2, y from 0; one colour a curve, named in a legend.

    >>> chart("cost", "G", "s", {"toishi": [(2, 1.0), (4, 2.0)]}).count("<circle")
    2
    """
    xs = sorted({x for curve in curves.values() for x, _ in curve})
    top = _nice(max(y for curve in curves.values() for _, y in curve))
    low, high = math.log2(xs[0]), math.log2(xs[-1])

    def place(x: float, y: float) -> tuple[float, float]:
        share = 0.5 if high == low else (math.log2(x) - low) / (high - low)
        return (
            _LEFT + share * (_WIDTH - _LEFT - _RIGHT),
            _HEIGHT - _BOTTOM - y / top * (_HEIGHT - _TOP - _BOTTOM),
        )

    parts = [_text(_LEFT, 18, title, size=14, weight="bold"), _text(_WIDTH / 2, _HEIGHT - 8, x_name, anchor="middle")]
    parts += [_text(8, _TOP - 6, y_name)]
    for step in range(5):
        value = top * step / 4
        _, y = place(xs[0], value)
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ccc"/>')
        parts.append(_text(_LEFT - 6, y + 4, f"{value:g}", anchor="end"))
    for x in xs:
        at, _ = place(x, 0)
        parts.append(_text(at, _HEIGHT - _BOTTOM + 16, f"{x:g}" if x < 10_000 else f"{x / 1000:.0f}k", anchor="middle"))
    for number, (name, curve) in enumerate(curves.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        placed = [place(x, y) for x, y in curve]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in placed]
        parts.append(_text(_LEFT + 10, _TOP + 14 + 16 * number, name, fill=colour))
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" '
        f'font-family="sans-serif">\n<rect width="100%" height="100%" fill="#fff"/>\n{body}\n</svg>\n'
    )


def _text(
    x: float, y: float, text: str, *, size: int = 11, anchor: str = "start", weight: str = "normal", fill: str = "#222"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}" fill="{fill}">'
        f"{escape(text)}</text>"
    )


def _nice(value: float) -> float:
    """The next of 1, 2, 4, 8 times a power of ten.

    >>> _nice(0.3), _nice(17)
    (0.4, 20.0)
    """
    unit = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(unit * factor for factor in (1, 2, 4, 8, 10) if unit * factor >= value)
