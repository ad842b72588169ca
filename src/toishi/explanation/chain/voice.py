"""How the chain speaks: a catalogue, and the ways in which numbers are written.

Decisions:
1. A real step's numbers span many sizes, so they have significant digits, not a fixed number of them after the point.
2. A push is minus the token weight: above 0 makes the token more likely. Pages show pushes; `--json` has the weights.
3. How much likelier is said in sentences in percent up to a tenth, as a factor beyond; in tables always as a factor. A factor
   says nothing of the chance itself, so the log-prob stands beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from toishi.explanation.page.blocks import Column, Tone
from toishi.explanation.page.catalogue import Catalogue, languages
from toishi.explanation.page.markup import code

FOLDER = Path(__file__).parent / "messages"
NOTHING = 1e-12
SMALL_FACTOR = 1.1
LIKELY = math.log(0.001)
"""Log-probs above it are shown as probabilities too."""
FAR = 14.0
"""Nats, about a million times: further changes are said in nats."""


@dataclass(frozen=True, slots=True)
class Voice:
    """Texts of one language and numbers with `digits` significant digits."""

    say: Catalogue
    digits: int = 4

    @classmethod
    def of(cls, language: str) -> Voice:
        """The voice of a language. Raises ConfigError when there is no catalogue for it."""
        return cls(Catalogue(FOLDER, language))

    def number(self, value: float | None) -> str:
        """
        >>> voice = Voice.of("en")
        >>> [voice.number(value) for value in (-0.25, 0.0, 1234.5678, 2e-7, None)]
        ['−0.25', '0', '1235', '2e−07', '–']
        """
        if value is None:
            return "–"
        if math.isnan(value) or math.isinf(value):
            return str(value)
        return f"{value + 0.0:.{self.digits}g}".replace("-", "−") if value else "0"

    def signed(self, value: float | None) -> str:
        """
        >>> Voice.of("en").signed(0.25), Voice.of("en").signed(0.0)
        ('+0.25', '0')
        """
        text = self.number(value)
        return f"+{text}" if value is not None and value > 0 else text

    def fine(self, value: float | None) -> str:
        """Two digits more: for what others are divided by, so that the result follows from the numbers shown.

        >>> Voice.of("en").fine(0.46301004)
        '0.46301'
        """
        return Voice(self.say, self.digits + 2).number(value)

    def percent(self, share: float | None) -> str:
        """
        >>> voice = Voice.of("en")
        >>> [voice.percent(share) for share in (0.0525, 1.0, 0.0, 0.00001234, 0.99996)]
        ['5.25%', '100%', '0%', '0.0012%', '99.996%']
        """
        if share is None:
            return "–"
        if 0.999 < share < 1:
            return f"{share * 100:.3f}%"
        return f"{share * 100:.3g}%" if share >= 0.001 or share == 0 else f"{share * 100:.2g}%".replace("-", "−")

    def probability(self, logprob: float) -> str:
        """A log-prob as the probability that it stands for.

        >>> voice = Voice.of("en")
        >>> voice.probability(-0.6931472), voice.probability(-20.0)
        ('50%', '2.1e−07%')
        """
        return self.percent(math.exp(min(logprob, 0.0)))

    def likelier(self, change: float) -> str:
        """How much likelier a change of log-prob makes something, in words.

        >>> voice = Voice.of("en")
        >>> [voice.likelier(change) for change in (0.95, -0.6, 0.02, -0.02, 0.0)]
        ['2.6 times more likely', '1.8 times less likely', '2% more likely', '2% less likely', 'as likely as before']
        >>> voice.likelier(7.32), voice.likelier(-30.0)
        ('1,500 times more likely', 'less likely by 30 nats')
        """
        if abs(change) < NOTHING:
            return self.say("likelier.same")
        side = "more" if change > 0 else "less"
        if abs(change) > FAR:
            return self.say(f"likelier.far_{side}", nats=self.number(abs(change)))
        factor = math.exp(abs(change))
        if factor >= SMALL_FACTOR:
            rounded = float(f"{factor:.2g}")
            return self.say(f"likelier.times_{side}", factor=f"{rounded:,.0f}" if rounded >= 100 else f"{factor:.2g}")
        share = abs(math.expm1(change))
        return self.say(f"likelier.percent_{side}", percent=f"{share * 100:.2g}".replace("-", "−"))

    def times(self, change: float | None) -> str:
        r"""The factor of a probability for a change of its log, for tables: three decimals, or two digits that tell.

        >>> voice = Voice.of("en")
        >>> [voice.times(change) for change in (0.65, -1.12, -0.0131, 0.0003, 0.0, 20.0, None)]
        ['×\xa01.916', '×\xa00.326', '×\xa00.987', '×\xa01.00030', '×\xa01', '×\xa0e^20', '–']
        """
        if change is None:
            return "–"
        if abs(change) > FAR:
            return f"×\u00a0e^{self.number(change)}"
        factor = math.exp(change)
        if factor >= 100:
            return f"×\u00a0{float(f'{factor:.2g}'):,.0f}"
        if factor >= SMALL_FACTOR:
            return f"×\u00a0{factor:.3f}" if factor < 10 else f"×\u00a0{factor:.2g}"
        if factor <= 0.9:
            return f"×\u00a0{factor:.3f}" if factor >= 0.1 else f"×\u00a0{factor:.2g}".replace("-", "−")
        distance = abs(factor - 1)
        return f"×\u00a0{factor:.{max(3, 1 - math.floor(math.log10(distance)))}f}" if distance > 1e-6 else "×\u00a01"

    def with_chance(self, logprob: float) -> str:
        """A log-prob, and the probability where a person can still picture it.

        >>> Voice.of("en").with_chance(-1.745), Voice.of("en").with_chance(-30.0)
        ('−1.745 (17.5%)', '−30')
        """
        return f"{self.number(logprob)} ({self.probability(logprob)})" if logprob > LIKELY else self.number(logprob)

    def members(self, numbers: Iterable[int]) -> str:
        """
        >>> Voice.of("en").members((0, 5))
        '#0, #5'
        """
        return ", ".join(f"#{number}" for number in numbers)

    def columns(self, *names: str) -> tuple[Column, ...]:
        """Columns by the last part of their key; those that hold text are known by name."""
        return tuple(Column(self.say(f"col.{name}"), numeric=name not in TEXT_COLUMNS) for name in names)

    def direction(self, push: float) -> str:
        """up or down."""
        return self.say("up" if push > 0 else "down")


TEXT_COLUMNS = {
    *("number", "answer", "token", "reward_name", "status", "reason", "sum", "clip", "layer", "matrix", "link", "how", "moved"),
    *("worst", "verdict", "who", "start", "members", "term", "meaning", "way"),
}


def visible(text: str) -> str:
    """A token with its white space made visible.

    >>> visible(" the\\n"), visible("")
    ('␣the⏎', '∅')
    """
    return text.replace(" ", "␣").replace("\n", "⏎").replace("\t", "⇥").replace("\r", "␍") or "∅"


def shown(token: str) -> str:
    """A token as it stands in a table or a sentence.

    >>> shown(" a")
    '`␣a`'
    """
    return code(visible(token))


def one_line(text: str, limit: int) -> str:
    """
    >>> one_line("a\\n b", 9), one_line("abcdef", 4)
    ('a b', 'abc…')
    """
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def tone(value: float) -> Tone:
    """
    >>> tone(1.0), tone(-1.0), tone(0.0)
    ('up', 'down', '')
    """
    return "" if value == 0 else "up" if value > 0 else "down"


def known_languages() -> tuple[str, ...]:
    """
    >>> known_languages()
    ('en', 'ja')
    """
    return languages(FOLDER)
