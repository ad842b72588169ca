"""Formulas compared with sympy. Runs in a child process that can be killed; nothing here has a limit of its own.

Decisions:
1. Symbols are real. Values at a few fixed points can only refute; that two formulas are equal has to be proved by sympy.
   Points at which neither is real are passed over; where only positive ones are left, symbols are taken as positive. Where one
   of the two is real and the other is not (`\\ln|x|`, `\\ln x`) nothing is decided.
2. Values are compared relative to their size, with 30 digits, so tiny and huge values differ as others do.
3. What can be neither refuted nor proved is undecided.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import sympy  # type: ignore[import-untyped]

from toishi.answers.beyond import is_plain_latex, lost_parts
from toishi.answers.comparing import Comparison
from toishi.answers.grammar import Node
from toishi.answers.reading import gold_from_json, read_answer
from toishi.answers.tokens import TooLarge, Unreadable

DIGITS = 30
_POINTS = ("17/10", "-13/7", "31/10", "-5/11", "3/13", "23/4")


class Undecided(Exception):
    """Neither proved nor refuted."""


def compare(job: Mapping[str, Any]) -> dict[str, Any]:
    """One comparison: {"gold": JSON, "type", "answer", "unit", "tolerance"} -> {"verdict": ..., "reason": ...}.

    >>> compare({"gold": '"(x-1)(x+1)"', "type": "auto", "answer": "x^2-1", "unit": "required", "tolerance": 0.0})
    {'verdict': 'right', 'reason': ''}
    """
    gold = gold_from_json(job["gold"], job["type"])
    try:
        answer = read_answer(job["answer"], gold, things=frozenset(job.get("things", ())))
        reason = Comparison(Symbolic(job["tolerance"]), job["unit"]).reason(gold.value, answer)
    except Undecided as error:
        return {"verdict": "undecided", "reason": str(error)}
    except TooLarge as error:
        return {"verdict": "undecided", "reason": f"too large to compare: {error}"}
    except Unreadable as error:
        return {"verdict": "wrong", "reason": f"cannot be read: {error}"}
    return {"verdict": "wrong" if reason else "right", "reason": reason or ""}


def read_latex(text: str) -> str:
    """How math-verify's parser reads a formula beyond the grammar. Raises Unreadable when it leaves a part of it out."""
    return str(_from_latex(text))


class Symbolic:
    """Decides with sympy. `tolerance` is relative to the gold, for values without symbols."""

    def __init__(self, tolerance: float = 0.0) -> None:
        self.tolerance = tolerance

    def equal(self, gold: Node, answer: Node) -> bool:
        """See `comparing.Decider`. Raises Undecided."""
        if gold == answer:
            return True
        first, second = to_sympy(gold), to_sympy(answer)
        domains = [_bounds(tree) for tree in (gold, answer)]
        if first == second and domains[0] == domains[1]:
            return True
        names = sorted(first.free_symbols | second.free_symbols, key=str)
        if not names:
            return self._equal_constants(first, second)
        positive = once = False
        seen = 0
        for values in _points(len(names)):
            at = dict(zip(names, values, strict=True))
            pair = [
                _real(formula.subs(at)) if all(bound.subs(at).is_nonnegative for bound in bounds) else None
                for formula, bounds in zip((first, second), domains, strict=True)
            ]
            if None in pair:
                once = once or pair != [None, None]
                positive = positive or any(value < 0 for value in values)
                continue
            seen += 1
            if not _near(pair[0], pair[1]):
                return False
        if once:
            raise Undecided("one of the two is a real number where the other is none")
        if not seen:
            return self._complex_at_a_point(first, second, names)
        return _is_zero(first - second, names, positive=positive)

    def proportional(self, gold: Node, answer: Node, *, positive: bool) -> bool:
        """See `comparing.Decider`. Raises Undecided."""
        first, second = to_sympy(gold), to_sympy(answer)
        names = sorted(first.free_symbols | second.free_symbols, key=str)
        for values in _points(len(names)):
            at = dict(zip(names, values, strict=True))
            divisor = second.subs(at)
            factor = sympy.nsimplify(sympy.simplify(first.subs(at) / divisor)) if _real(divisor) not in (None, 0) else None
            if factor is not None and _real(factor) not in (None, 0):
                if positive and not factor > 0:
                    return False
                return self._is_multiple(first, second, factor, names)
        raise Undecided("no point at which the two sides can be compared")

    def _is_multiple(self, first: Any, second: Any, factor: Any, names: list[Any]) -> bool:
        for values in _points(len(names)):
            at = dict(zip(names, values, strict=True))
            pair = [_real(first.subs(at)), _real((factor * second).subs(at))]
            if pair.count(None) == 1:
                raise Undecided("one of the two is a real number where the other is none")
            if None not in pair and not _near(pair[0], pair[1]):
                return False
        return _is_zero(first - factor * second, names, positive=False)

    def _equal_constants(self, first: Any, second: Any) -> bool:
        values = [sympy.N(value, DIGITS) for value in (first, second)]
        if any(value.has(sympy.nan, sympy.zoo) or not value.is_number for value in values):
            raise Undecided("a value that cannot be worked out")
        gap = abs(values[0] - values[1])
        if self.tolerance and bool(gap <= sympy.Float(repr(self.tolerance)) * abs(values[0])):
            return True
        if bool(gap > sympy.Float("1e-20") * max(abs(values[0]), abs(values[1]))):
            return False
        return _is_zero(first - second, [], positive=False)

    def _complex_at_a_point(self, first: Any, second: Any, names: list[Any]) -> bool:
        at = dict(zip(names, next(iter(_points(len(names)))), strict=True))
        if not self._equal_constants_or_unknown(first.subs(at), second.subs(at)):
            return False
        return _is_zero(first - second, names, positive=False)

    def _equal_constants_or_unknown(self, first: Any, second: Any) -> bool:
        values = [sympy.N(value, DIGITS) for value in (first, second)]
        if any(not value.is_number for value in values):
            return True
        return bool(abs(values[0] - values[1]) <= sympy.Float("1e-20") * max(abs(values[0]), abs(values[1])))


@lru_cache(maxsize=4096)
def to_sympy(node: Node) -> Any:
    """The sympy form of a tree; symbols are real. Raises Unreadable for a function without one."""
    kind, parts = node[0], node[1:]
    if kind == "num":
        return sympy.Rational(parts[0], parts[1])
    if kind == "sym":
        return sympy.Symbol(parts[0], real=True)
    if kind == "const":
        return {"pi": sympy.pi, "e": sympy.E, "i": sympy.I, "oo": sympy.oo}[parts[0]]
    if kind == "latex":
        return _from_latex(parts[0])
    if kind == "pow" and parts[1] == ("num", 0, 1):
        return _power_of_zero(to_sympy(parts[0]))
    if kind == "call":
        return sympy.Function(parts[0], real=True)(*map(to_sympy, parts[1:]))
    if kind == "fn":
        return _function(parts[0], [to_sympy(part) for part in parts[1:]])
    values = [to_sympy(part) for part in parts]
    if kind == "add":
        return sympy.Add(*values)
    if kind == "mul":
        return sympy.Mul(*values)
    if kind == "pow":
        return _power(*values)
    if kind == "fact":
        return sympy.factorial(values[0])
    raise Unreadable(f"{kind} has no value")


def _bounds(node: Node) -> list[Any]:
    """What must not be negative for a tree to be real: what stands with symbols under even roots and in logarithms."""
    found = [bound for part in node[1:] if isinstance(part, tuple) for bound in _bounds(part)]
    is_root = node[0] == "pow" and node[2][0] == "num" and node[2][2] % 2 == 0
    if is_root or (node[0] == "fn" and node[1] in ("ln", "log", "lg")):
        inside = to_sympy(node[1] if is_root else node[2])
        found += [inside] if inside.free_symbols else []
    return found


def _power(base: Any, exponent: Any) -> Any:
    """Odd roots of negative numbers are the real ones."""
    odd_root = exponent.is_Rational and exponent.q % 2 == 1 and exponent.q > 1
    if odd_root and base.is_number and base.is_negative:
        return (-1) ** exponent.p * sympy.Pow(-base, exponent)
    return sympy.Pow(base, exponent)


def _power_of_zero(base: Any) -> Any:
    """1, unless the base is (or may be) 0 or infinite."""
    if sympy.simplify(base).is_zero or base.has(sympy.oo, sympy.zoo, sympy.nan):
        raise Unreadable("0^0")
    return sympy.Integer(1)


def _function(name: str, values: list[Any]) -> Any:
    inverse = {"sec": "asec", "csc": "acsc", "cot": "acot", "sin": "asin", "cos": "acos", "tan": "atan"}
    if name == "log":
        return sympy.log(values[0], values[1]) if len(values) == 2 else sympy.log(values[0], 10)
    if name in ("ln", "lg"):
        return sympy.log(values[0]) if name == "ln" else sympy.log(values[0], 10)
    if name.startswith("arc") and name[3:] in inverse:
        return getattr(sympy, inverse[name[3:]])(*values)
    if name in ("gcd", "lcm"):  # an unknown function of integers: sympy's own is that of polynomials
        return sympy.Function(name, real=True)(*sorted(values, key=sympy.default_sort_key))
    known = {
        "abs": sympy.Abs,
        "floor": sympy.floor,
        "ceil": sympy.ceiling,
        "binom": sympy.binomial,
        "max": sympy.Max,
        "min": sympy.Min,
    }
    plain = ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "exp", "arg")
    function = known.get(name) or (getattr(sympy, name) if name in plain else None)
    if function is None:
        raise Unreadable(f"{name} has no value")
    return function(*values)


def _points(count: int) -> list[tuple[Any, ...]]:
    """A few fixed points, all coordinates different: with both signs, then negative, then positive ones only."""
    numbers = [sympy.Rational(text) for text in _POINTS]
    shifted = [
        tuple(numbers[(shift + place) % len(numbers)] + place // len(numbers) for place in range(count)) for shift in range(3)
    ]
    negative = tuple(-abs(number) for number in shifted[0])
    return [*shifted, negative, *(tuple(abs(number) + 1 for number in point) for point in shifted)]


def _real(value: Any) -> Any:
    """The value with 30 digits if it is a finite real number, else None."""
    done = sympy.N(value, DIGITS)
    if not done.is_number or done.has(sympy.nan, sympy.zoo, sympy.oo):
        return None
    real, imaginary = done.as_real_imag()
    if not (real.is_Number and imaginary.is_Number):
        return None
    return real if abs(imaginary) <= abs(real) * sympy.Float("1e-25") else None


def _near(first: Any, second: Any) -> bool:
    return bool(abs(first - second) <= sympy.Float("1e-18") * max(abs(first), abs(second)))


def _is_zero(difference: Any, names: list[Any], *, positive: bool) -> bool:
    """Whether sympy can prove that a difference is 0 (or that it is not). Raises Undecided."""
    if positive:
        difference = difference.subs({name: sympy.Symbol(f"{name}_", positive=True) for name in names})
    for simpler in (sympy.expand, sympy.simplify, lambda value: _without_logs(value, force=positive)):
        done = simpler(difference)
        if done == 0:
            return True
    found = difference.equals(0)
    if found is None:
        raise Undecided("sympy could neither prove nor refute that the two are equal")
    return bool(found)


def _without_logs(value: Any, *, force: bool) -> Any:
    return sympy.simplify(sympy.expand_log(sympy.expand_func(value), force=force))


@lru_cache(maxsize=1024)
def _from_latex(text: str) -> Any:
    from math_verify.parser import LatexExtractionConfig, parse

    if not is_plain_latex(text):
        raise Unreadable(f"{text!r} has parts that are no formula")
    found = parse(f"${text}$", [LatexExtractionConfig()], fallback_mode="no_fallback", parsing_timeout=0)
    formula = found[0] if found else None
    if not isinstance(formula, sympy.Expr):
        raise Unreadable(f"math-verify reads {text!r} as {formula!r}")
    lost = lost_parts(text, sympy.srepr(formula) + str(formula))
    if lost:
        raise Unreadable(f"math-verify reads {text!r} as {formula}, without {', '.join(lost)}")
    real = {symbol: sympy.Symbol(symbol.name, real=True) for symbol in formula.free_symbols}
    return formula.subs(real).doit()
