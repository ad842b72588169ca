"""How the walk speaks: a catalogue, and the one way in which numbers are written.

Decisions:
1. Tables show a fixed number of digits, so that columns align; running text drops trailing zeros.
2. A minus is a minus sign, and a number that rounds to 0 has no sign.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from toishi.explanation.page.blocks import Column, Line, Table, Tone
from toishi.explanation.page.markup import code
from toishi.explanation.toy.messages import Catalogue


@dataclass(frozen=True, slots=True)
class Voice:
    """Texts of one language, numbers with `digits` digits after the point."""

    say: Catalogue
    digits: int = 4

    def number(self, value: float | None) -> str:
        """
        >>> Voice(Catalogue("en")).number(-0.25), Voice(Catalogue("en")).number(-1e-17)
        ('−0.2500', '0.0000')
        """
        if value is None:
            return self.say("none")
        text = f"{value:.{self.digits}f}"
        return text.replace("-", "−") if float(text) else text.removeprefix("-")

    def signed(self, value: float | None) -> str:
        """
        >>> Voice(Catalogue("en")).signed(0.25), Voice(Catalogue("en")).signed(0.0)
        ('+0.2500', '0.0000')
        """
        text = self.number(value)
        return f"+{text}" if value is not None and value > 0 and float(text) else text

    def short(self, value: float | None) -> str:
        """
        >>> Voice(Catalogue("en")).short(0.5), Voice(Catalogue("en")).short(-2.0)
        ('0.5', '−2')
        """
        text = self.number(value)
        return text.rstrip("0").rstrip(".") if value is not None and "." in text else text

    def percent(self, value: float) -> str:
        """
        >>> Voice(Catalogue("en")).percent(0.0525)
        '5.2%'
        """
        return f"{value * 100:.{max(1, self.digits - 3)}f}%"

    def tiny(self, value: float) -> str:
        """A difference between two roads to one number.

        >>> Voice(Catalogue("en")).tiny(2.8e-17)
        '2.8e-17'
        """
        return f"{value:.1e}" if value else "0"

    def listed(self, texts: Iterable[str]) -> str:
        return self.say("list_joiner").join(texts)

    def columns(self, *names: str) -> tuple[Column, ...]:
        """Columns by the last part of their key; those that hold text are known by name."""
        return tuple(Column(self.say(f"col.{name}"), numeric=name not in TEXT_COLUMNS) for name in names)

    def by_word(self, caption: str, label: str, words: Iterable[str], lines: Iterable[Line]) -> Table:
        """A table with a label and one column of numbers for each word of the vocabulary."""
        columns = (*self.columns(label), *(Column(code(word)) for word in words))
        return Table(columns, tuple(lines), caption)


TEXT_COLUMNS = {
    *("number", "answer", "says", "word", "quantity", "kl", "row"),
    *("clip", "term", "meaning", "place", "sum", "product"),
    *("so_far", "surprise_sum", "advantage_sum", "implicit"),
}


def tone(value: float) -> Tone:
    """
    >>> tone(1.0), tone(-1.0), tone(1e-12)
    ('up', 'down', '')
    """
    return "" if abs(value) < 1e-9 else "up" if value > 0 else "down"
