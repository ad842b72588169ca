"""Trees worked out exactly where they are rational, put into one order where they are not, and shown.

Decisions:
1. Fractions all the way: 2^{-80} and 2^{-81} differ, and no float decides.
2. A value of more than 20,000 digits is not worked out: `TooLarge` stands for "could not compare".
3. 0 times a part that may have no value (a division, a logarithm, an infinity) is left as it is: it is not 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import reduce
from typing import Any

from toishi.answers.grammar import Node, number_node
from toishi.answers.tokens import TooLarge, Unreadable

MAX_BITS = 66_000
MAX_FACTORIAL = 5_000


def value_of(node: Node) -> Fraction | None:
    """The exact value of a tree if it is rational by arithmetic alone, else None.

    Raises TooLarge for a value of too many digits, Unreadable for a division by 0.

    >>> value_of(("add", ("num", 1, 2), ("pow", ("num", 9, 1), ("num", 1, 2)))), value_of(("sym", "x"))
    (Fraction(7, 2), None)
    """
    done = canonical(node)
    return Fraction(done[1], done[2]) if done[0] == "num" else None


def canonical(node: Node) -> Node:
    """An equal tree with numbers worked out and sums and products flat and in one order. Equal results mean equal values.

    >>> from toishi.answers.grammar import parse_formula
    >>> from toishi.answers.tokens import tokens_of
    >>> canonical(parse_formula(tokens_of("2ba"))) == canonical(parse_formula(tokens_of("b*2a")))
    True
    """
    kind = node[0]
    if kind in ("num", "sym", "const", "latex"):
        return node
    if kind in ("fn", "call"):
        return _function(kind, node[1], tuple(canonical(part) for part in node[2:]))
    parts = tuple(canonical(part) for part in node[1:])
    if kind == "add":
        return _sum(parts)
    if kind == "mul":
        return _product(parts)
    if kind == "div":
        return _product((parts[0], _power(parts[1], ("num", -1, 1))))
    if kind == "pow":
        return _power(*parts)
    if kind == "fact":
        return _factorial(parts[0])
    return (kind, *parts)


def symbols_of(node: Node) -> frozenset[str]:
    """Names of the variables in a tree.

    >>> sorted(symbols_of(("add", ("sym", "x"), ("mul", ("num", 2, 1), ("sym", "y")))))
    ['x', 'y']
    """
    if node[0] == "sym":
        return frozenset((node[1],))
    return frozenset().union(*(symbols_of(part) for part in node[1:] if isinstance(part, tuple)))


def order_of(node: Any) -> str:
    """What parts of sums and products are put in order by. Numbers of any length have one, which `repr` refuses to write.

    >>> order_of(("num", 2**20000, 1)) > order_of(("num", 2**19999, 1))
    False
    """
    if isinstance(node, tuple):
        return f"({', '.join(map(order_of, node))})"
    return hex(node) if isinstance(node, int) and abs(node) >= 10**300 else repr(node)


def has_infinity(node: Node) -> bool:
    """Whether infinity is a part of a tree."""
    return node == ("const", "oo") or any(has_infinity(part) for part in node[1:] if isinstance(part, tuple))


def expanded_signs(node: Node) -> list[Node]:
    """The two trees that a tree with `\\pm` stands for (upper signs, lower signs), or the tree itself."""
    if not _has_signs(node):
        return [node]
    return [_with_sign(node, upper=True), _with_sign(node, upper=False)]


def shown(node: Node) -> str:
    """A tree as a person would type it.

    >>> shown(("mul", ("num", -1, 1), ("pow", ("sym", "x"), ("num", 1, 2))))
    '-sqrt(x)'
    """
    kind, parts = node[0], node[1:]
    if kind == "num":
        return shown_fraction(Fraction(parts[0], parts[1]))
    if kind in ("sym", "const", "latex"):
        return str(parts[0]).removeprefix("\\")
    if kind in ("fn", "call"):
        return f"{parts[0]}({', '.join(map(shown, parts[1:]))})"
    if kind == "pow" and parts[1] == ("num", 1, 2):
        return f"sqrt({shown(parts[0])})"
    if kind == "mul":
        return _shown_product(parts)
    if kind == "add":
        terms = [shown(part) for part in sorted(parts, key=lambda part: shown(part).startswith("-"))]
        return " + ".join(terms).replace("+ -", "- ")
    if kind == "fact":
        return f"{_bracketed(parts[0])}!"
    if kind == "pow" and parts[1][0] == "num" and parts[1][1] < 0:
        return _shown_product((node,))
    if kind == "pow":
        return "^".join(map(_bracketed, parts))
    sign = {"div": "/", "pm": " ± ", "mp": " ∓ "}[kind]
    return sign.join(map(_bracketed, parts))


def _shown_product(parts: tuple[Node, ...]) -> str:
    below = [part for part in parts if part[0] == "pow" and part[2][0] == "num" and part[2][1] < 0]
    above = [part for part in parts if part not in below and part != ("num", -1, 1)]
    first, *rest = above or [("num", 1, 1)]
    text = "*".join([shown(first) if first[0] == "num" and first[2] == 1 else _bracketed(first), *map(_bracketed, rest)])
    for part in below:
        text += f"/{_bracketed(_power(part[1], ('num', -part[2][1], part[2][2])))}"
    return ("-" if ("num", -1, 1) in parts else "") + text


def shown_fraction(value: Fraction) -> str:
    """A number in decimals where they end soon, else as a fraction; very long ones in short.

    >>> shown_fraction(Fraction(1, 4)), shown_fraction(Fraction(1, 3)), shown_fraction(Fraction(2**400))
    ('0.25', '1/3', '258224987808...(121 digits)')
    """
    if value.denominator == 1:
        return _digits(value.numerator)
    if 10**12 % value.denominator == 0 and abs(value.numerator) < 10**15:
        whole = f"{abs(value.numerator) * (10**12 // value.denominator):013d}"
        return ("-" if value < 0 else "") + f"{whole[:-12]}.{whole[-12:]}".rstrip("0")
    return f"{_digits(value.numerator)}/{_digits(value.denominator)}"


def _digits(value: int) -> str:
    if abs(value) < 10**40:
        return str(value)
    count = int(abs(value).bit_length() * math.log10(2))
    count += abs(value) >= 10**count
    return f"{'-' if value < 0 else ''}{abs(value) // 10 ** (count - 12)}...({count} digits)"


def _bracketed(node: Node) -> str:
    text = shown(node)
    return f"({text})" if node[0] in ("add", "mul", "div", "pm", "mp") or text.startswith("-") or "/" in text else text


def _flat(kind: str, parts: tuple[Node, ...]) -> Iterator[Node]:
    for part in parts:
        yield from part[1:] if part[0] == kind else (part,)


def _checked(value: Fraction) -> Node:
    if value.numerator.bit_length() > MAX_BITS or value.denominator.bit_length() > MAX_BITS:
        raise TooLarge("a number of more than 20,000 digits")
    return number_node(value)


def _sum(parts: tuple[Node, ...]) -> Node:
    total, rest = Fraction(0), []
    for part in _flat("add", parts):
        if part[0] == "num":
            total += Fraction(part[1], part[2])
        else:
            rest.append(part)
    if total or not rest:
        rest.append(_checked(total))
    return rest[0] if len(rest) == 1 else ("add", *sorted(rest, key=order_of))


def _product(parts: tuple[Node, ...]) -> Node:
    factor, rest = Fraction(1), []
    for part in _flat("mul", parts):
        if part[0] == "num":
            factor *= Fraction(part[1], part[2])
        else:
            rest.append(part)
    number = _checked(factor)
    if not rest:
        return number
    if factor == 0 and all(map(_has_value, rest)):
        return number
    ordered = sorted(rest, key=order_of)
    if factor != 1:
        ordered.insert(0, number)
    return ordered[0] if len(ordered) == 1 else ("mul", *ordered)


def _has_value(node: Node) -> bool:
    """Whether a tree has a finite value whatever its symbols are."""
    if node[0] == "pow" and not (node[2][0] == "num" and node[2][2] == 1 and node[2][1] > 0):
        return False
    if node[0] == "const":
        return bool(node[1] != "oo")
    if node[0] in ("fn", "num", "sym"):
        return node[0] != "fn" or (node[1] in ("sin", "cos", "abs", "exp", "floor", "ceil") and all(map(_has_value, node[2:])))
    return node[0] in ("add", "mul", "pow") and all(map(_has_value, node[1:]))


def _power(base: Node, exponent: Node) -> Node:
    if exponent == ("num", 1, 1):
        return base
    if exponent[0] == "num" and base[0] == "pow" and base[2][0] == "num" and base[2][2] == exponent[2] == 1:
        return _power(base[1], number_node(Fraction(base[2][1] * exponent[1])))
    if base[0] != "num" or exponent[0] != "num":
        return ("pow", base, exponent)
    value, power = Fraction(base[1], base[2]), Fraction(exponent[1], exponent[2])
    if value == 0 and power <= 0:
        raise Unreadable("a division by 0" if power < 0 else "0^0")
    if power.denominator == 1:
        size = max(value.numerator.bit_length(), value.denominator.bit_length()) * abs(power.numerator)
        if size > MAX_BITS and abs(value) != 1:
            raise TooLarge("a number of more than 20,000 digits")
        return number_node(value ** (power.numerator if abs(value) != 1 else power.numerator % 2))
    root = _root(value, power.denominator)
    if root is None:
        return ("pow", base, exponent)
    return _power(number_node(root), ("num", power.numerator, 1))


def _root(value: Fraction, degree: int) -> Fraction | None:
    """The real root of a positive fraction if it is rational."""
    if value < 0 or degree > 64:
        return None
    roots = [_whole_root(part, degree) for part in (value.numerator, value.denominator)]
    return None if roots[0] is None or roots[1] is None else Fraction(roots[0], roots[1])


def _whole_root(value: int, degree: int) -> int | None:
    if degree == 2:
        guess = math.isqrt(value)
        return guess if guess * guess == value else None
    if value.bit_length() > 1000:
        return None
    near = round(value ** (1 / degree))
    return next((root for root in (near - 1, near, near + 1) if root >= 0 and root**degree == value), None)


def _factorial(part: Node) -> Node:
    if part[0] != "num":
        return ("fact", part)
    if part[2] != 1 or part[1] < 0:
        raise Unreadable("a factorial of what is no whole number")
    if part[1] > MAX_FACTORIAL:
        raise TooLarge(f"a factorial of more than {MAX_FACTORIAL}")
    return ("num", math.factorial(part[1]), 1)


def _function(kind: str, name: str, parts: tuple[Node, ...]) -> Node:
    node = (kind, name, *parts)
    if kind == "call" or any(part[0] != "num" for part in parts):
        return node
    values = [Fraction(part[1], part[2]) for part in parts]
    if name == "abs":
        return number_node(abs(values[0]))
    if name in ("floor", "ceil"):
        return number_node(Fraction(math.floor(values[0]) if name == "floor" else math.ceil(values[0])))
    if name in ("max", "min"):
        return number_node(max(values) if name == "max" else min(values))
    whole = all(value.denominator == 1 and 0 <= value <= MAX_FACTORIAL for value in values)
    if whole and name in ("binom", "gcd", "lcm"):
        numbers = [value.numerator for value in values]
        function = {"binom": math.comb, "gcd": math.gcd, "lcm": math.lcm}[name]
        return number_node(Fraction(reduce(function, numbers)))
    return node


def _has_signs(node: Node) -> bool:
    return node[0] in ("pm", "mp") or any(_has_signs(part) for part in node[1:] if isinstance(part, tuple))


def _with_sign(node: Node, *, upper: bool) -> Node:
    parts = tuple(_with_sign(part, upper=upper) if isinstance(part, tuple) else part for part in node[1:])
    if node[0] not in ("pm", "mp"):
        return (node[0], *parts)
    plus = (node[0] == "pm") == upper
    return ("add", parts[0], parts[1] if plus else ("mul", ("num", -1, 1), parts[1]))
