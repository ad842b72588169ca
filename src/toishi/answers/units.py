"""Units of measure, money and angles: their names, and what they are worth in each other.

Decisions:
1. A unit is a factor and a product of base dimensions, so 0.06 m is 6 cm, and 6 cm is neither 6 m nor 6 cm^2.
2. Money of different currencies, degrees and radians, and the scales of temperature are not converted into each other.
3. A word that is no unit counts things (apples, students); it is a dimension of its own. In an answer it must be a common noun
   (`things`), or a word of the gold or the question: nobody can list all words that change a number.
5. Symbols are not folded: MHz is not mHz. `pound` may be weight or money, so it is a dimension of its own.
4. A single letter is a unit only where it stands apart from its number (`6 m`) or upright (`6\\text{ m}`): `6m` is a product.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from toishi.answers.things import ORDINALS, thing_of

Dimensions = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Unit:
    """`factor` times the product of base dimensions. `text` is how it was written."""

    factor: Fraction
    dimensions: Dimensions
    text: str

    @property
    def is_money(self) -> bool:
        return any(name.startswith("money ") for name, _ in self.dimensions)

    @property
    def is_degree(self) -> bool:
        return self.dimensions == (("degree", 1),)

    @property
    def is_ordinal(self) -> bool:
        """`5th` is a place, not a number of things."""
        return self.dimensions[:1] in {((f"thing {ending}", 1),) for ending in ORDINALS}

    @property
    def is_count(self) -> bool:
        """It counts things (or the squares of a grid) rather than measures them."""
        return len(self.dimensions) == 1 and self.dimensions[0][0].startswith(("thing ", "unit"))


_ROWS = """
m meter metre | 1 | m
km kilometer kilometre | 1000 | m
cm centimeter centimetre | 1/100 | m
mm millimeter millimetre | 1/1000 | m
dm decimeter decimetre | 1/10 | m
nm nanometer nanometre | 1/1000000000 | m
μm µm micrometer micrometre | 1/1000000 | m
in inch inches | 254/10000 | m
ft foot feet | 3048/10000 | m
yd yard | 9144/10000 | m
mi mile | 1609344/1000 | m
g gram gramme | 1/1000 | kg
kg kilogram kilogramme | 1 | kg
mg milligram | 1/1000000 | kg
t tonne | 1000 | kg
lb lbs pound-mass | 45359237/100000000 | kg
oz ounce | 45359237/1600000000 | kg
s sec second | 1 | s
ms millisecond | 1/1000 | s
min minute | 60 | s
h hr hrs hour | 3600 | s
day | 86400 | s
week | 604800 | s
month | 1 | month
yr year | 12 | month
decade | 120 | month
century centuries | 1200 | month
L l liter litre | 1/1000 | m 3
mL ml milliliter millilitre | 1/1000000 | m 3
cL cl centiliter | 1/100000 | m 3
cup | 2365882365/10000000000000 | m 3
pint | 473176473/1000000000000 | m 3
quart | 946352946/1000000000000 | m 3
gal gallon | 3785411784/1000000000000 | m 3
ha hectare | 10000 | m 2
acre | 40468564224/10000000 | m 2
N newton | 1 | kg m s -2
kN kilonewton | 1000 | kg m s -2
J joule | 1 | kg m 2 s -2
MJ megajoule | 1000000 | kg m 2 s -2
kWh | 3600000 | kg m 2 s -2
kJ kilojoule | 1000 | kg m 2 s -2
W watt | 1 | kg m 2 s -3
kW kilowatt | 1000 | kg m 2 s -3
mW milliwatt | 1/1000 | kg m 2 s -3
MW megawatt | 1000000 | kg m 2 s -3
Pa pascal | 1 | kg m -1 s -2
kPa kilopascal | 1000 | kg m -1 s -2
MPa megapascal | 1000000 | kg m -1 s -2
atm | 101325 | kg m -1 s -2
Hz hertz | 1 | s -1
kHz kilohertz | 1000 | s -1
MHz megahertz | 1000000 | s -1
GHz gigahertz | 1000000000 | s -1
V volt | 1 | kg m 2 s -3 A -1
mV millivolt | 1/1000 | kg m 2 s -3 A -1
kV kilovolt | 1000 | kg m 2 s -3 A -1
A amp ampere | 1 | A
mA | 1/1000 | A
coulomb | 1 | A s
ohm Ω | 1 | kg m 2 s -3 A -2
K kelvin | 1 | K
mol mole | 1 | mol
rpm | 1/60 | thing_turn s -1
mph | 1609344/3600000 | m s -1
kmh kph kmph | 1000/3600 | m s -1
degree degrees deg ° | 1 | degree
rad radian | 1 | rad
°C celsius | 1 | celsius
°F fahrenheit | 1 | fahrenheit
$ dollar usd USD | 1 | money_dollar
cent ¢ | 1/100 | money_dollar
€ euro EUR | 1 | money_euro
£ GBP | 1 | money_pound
pence penny | 1/100 | money_pound
¥ yen JPY | 1 | money_yen
₹ rupee INR | 1 | money_rupee
yuan RMB CNY | 1 | money_yuan
bit | 1 | bit
byte | 8 | bit
unit | 1 | unit
pound | 1 | thing_pound
KB kilobyte | 8000 | bit
MB megabyte | 8000000 | bit
GB gigabyte | 8000000000 | bit
"""


def _table() -> dict[str, tuple[Fraction, Dimensions]]:
    found: dict[str, tuple[Fraction, Dimensions]] = {}
    for row in _ROWS.strip().splitlines():
        names, factor, dimensions = (part.strip() for part in row.split("|"))
        for name in names.split():
            found[name] = (Fraction(factor), _dimensions(dimensions.split()))
            if len(name) > 2 and name.islower():
                found[name + "s"] = found[name]
    return found


def _dimensions(parts: list[str]) -> Dimensions:
    powers: dict[str, int] = {}
    for place, part in enumerate(parts):
        if not part.lstrip("-").isdigit():
            after = parts[place + 1] if place + 1 < len(parts) else "1"
            powers[part.replace("_", " ")] = int(after) if after.lstrip("-").isdigit() else 1
    return tuple(sorted(powers.items()))


_UNITS = _table()
UNIT_NAMES = frozenset(name for name in _UNITS if len(name) > 1 and name != "in")
SINGLE_LETTERS = frozenset(name for name in _UNITS if len(name) == 1 and name.isalpha())
_WHOLE_WORDS = frozenset(name for name in _UNITS if len(name) > 3 and name.islower())
PERCENT = frozenset(("%", "percent", "per cent", "pct"))


def unit_of(text: str, things: frozenset[str] | None = None) -> Unit | None:
    """The unit that `text` names, or None. Words are joined by single spaces, powers are written `^2`.

    things  words that may name things besides the common ones (small letters, singular); None: any that could

    >>> unit_of("cm").factor, unit_of("square meters").dimensions, unit_of("km/h") == unit_of("kilometers per hour")
    (Fraction(1, 100), (('m', 2),), False)
    >>> unit_of("km/h").dimensions == unit_of("mph").dimensions, unit_of("apples").is_count, unit_of("or more")
    (True, True, None)
    >>> unit_of("gizmos", frozenset()), unit_of("gizmos", frozenset(("gizmo",))).is_count
    (None, True)
    """
    found = _product(text)
    if found is not None:
        return Unit(*found, text)
    named = thing_of(text, things)
    return None if named is None else Unit(Fraction(1), ((f"thing {named}", 1),), text)


def _product(text: str) -> tuple[Fraction, Dimensions] | None:
    """Factors joined by spaces or dots, those after a slash or `per` divided by."""
    parts = re.split(r"\s*(?:/|\bper\b)\s*", text.strip())
    factor, powers = Fraction(1), dict[str, int]()
    for place, part in enumerate(parts):
        sign = 1 if place == 0 else -1
        words = _merged(re.split(r"[\s·*]+", part.strip(" ()")))
        for word, power in words:
            known = _UNITS.get(word) or (_UNITS.get(word.casefold()) if word.casefold() in _WHOLE_WORDS else None)
            if known is None:
                return None
            factor *= known[0] ** (sign * power)
            for name, exponent in known[1]:
                powers[name] = powers.get(name, 0) + sign * power * exponent
    return factor, tuple(sorted((name, power) for name, power in powers.items() if power))


def _merged(words: list[str]) -> list[tuple[str, int]]:
    """Words with their powers: `square m`, `m squared`, `cubic m`, `m^2`, `degrees Celsius`."""
    found: list[tuple[str, int]] = []
    before = 1
    for word in words:
        lower = word.casefold()
        if lower in ("square", "sq", "sq.", "cubic", "cu"):
            before = 2 if lower.startswith("sq") else 3
        elif lower in ("squared", "cubed") and found:
            found[-1] = (found[-1][0], found[-1][1] * (2 if lower == "squared" else 3))
        elif lower in ("c", "f", "celsius", "fahrenheit") and found and found[-1][0] in ("°", "degree", "degrees", "deg"):
            found[-1] = ("celsius" if lower[0] == "c" else "fahrenheit", 1)
        else:
            name, _, power = word.partition("^")
            found.append((name, before * int(power) if re.fullmatch(r"-?\d", power) else before if not power else 0))
            before = 1
    return found if before == 1 and all(power for _, power in found) else [("", 1)]
