"""Formulas: tokens in, a tree out. A tree is nested tuples: (name, part, ...), with names and texts as leaves.

    ("num", numerator, denominator)   ("sym", "x")   ("const", "pi" | "e" | "i" | "oo")
    ("add", a, b, ...)   ("mul", a, b, ...)   ("div", a, b)   ("pow", a, b)   ("pm", a, b)   ("mp", a, b)
    ("fn", name, a, ...)   ("call", "f", a, ...)   ("fact", a)

Decisions:
1. Every token must be used; a formula is never read in part. `a/bc` is (a/b)c, as every programming language reads it.
2. `3\\frac12` and `3 1/2` are mixed numbers. `e` and `i` are the constants. `f(x)` is a function for f, g, h and P only.
3. `1010_2` and `x_1` are names: a number in another base equals only itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from toishi.answers.cursor import ACCENTS, END, FLOORS, GREEK, Cursor
from toishi.answers.tokens import FUNCTIONS, Token, TooLarge, Unreadable

Node = tuple[Any, ...]
MAX_DEPTH = 60

_CALLED = frozenset("fghFGHP")
_CLOSED_BY = {"(": ")", "[": "]", "{": "}", "set{": "}set"}


def number_node(value: Fraction) -> Node:
    """A number as a leaf."""
    return ("num", value.numerator, value.denominator)


def parse_formula(tokens: Sequence[Token]) -> Node:
    """The tree of a formula. Raises Unreadable when a token is left over, TooLarge when it is nested too deep.

    >>> from toishi.answers.tokens import tokens_of
    >>> parse_formula(tokens_of(r"3\\sqrt{x}"))
    ('mul', ('num', 3, 1), ('pow', ('sym', 'x'), ('num', 1, 2)))
    """
    parser = _Parser(tokens)
    node = parser.sum()
    if parser.now is not END:
        raise Unreadable(f"nothing can be made of {parser.now.text!r}")
    return node


class _Parser(Cursor):
    """Recursive descent over one list of tokens."""

    def sum(self) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TooLarge(f"brackets nested more than {MAX_DEPTH} deep")
        node = self.signed()
        while self.is_sign("+", "-") or self.is_command("pm", "mp"):
            operator = self.take().text
            right = self.product()
            if operator in ("pm", "mp"):
                node = (operator, node, right)
            else:
                node = ("add", node, right if operator == "+" else ("mul", ("num", -1, 1), right))
        self.depth -= 1
        return node

    def signed(self) -> Node:
        if self.is_command("pm", "mp"):
            return (self.take().text, ("num", 0, 1), self.product())
        if self.is_sign("+"):
            self.take()
            return self.product()
        return self.product()

    def product(self) -> Node:
        if self.is_sign("-"):
            self.take()
            if self.is_sign("+", "-"):
                raise Unreadable("two signs in a row")
            return ("mul", ("num", -1, 1), self.product())
        node = self.power()
        while True:
            if self.is_sign("*") or self.is_command("cdot", "times", "ast"):
                self.take()
                node = ("mul", node, self.signed_factor())
            elif self.is_sign("/") or self.is_command("div"):
                self.take()
                node = ("div", node, self.signed_factor())
            elif self.begins_factor():
                node = self.beside(node)
            else:
                return node

    def signed_factor(self) -> Node:
        if self.is_sign("-"):
            self.take()
            return ("mul", ("num", -1, 1), self.signed_factor())
        return self.power()

    def beside(self, left: Node) -> Node:
        """Two factors without a sign between them: a product, or a mixed number."""
        first, number = self.tokens[self.place - 1], self.now
        right = self.power()
        whole = first.kind == "number" and first.value is not None and first.value.denominator == 1
        if number.kind == "number":
            if not (whole and left[0] == "num" and self.is_sign("/") and number.spaced and not self.now.spaced):
                raise Unreadable(f"two numbers beside each other: {first.text!r} {number.text!r}")
            self.take()
            right = ("div", right, self.power())
        if right[0] == "div" and number.text == "frac" and first.kind == "number" and right[1][0] == right[2][0] == "num":
            if not whole:
                raise Unreadable("a fraction after a decimal")
            return ("add", left, right)
        if number.kind == "number":
            return ("add", left, right)
        return ("mul", left, right)

    def power(self) -> Node:
        base = self.postfix(self.atom())
        if self.is_sign("^"):
            self.take()
            if self.degrees():
                return ("mul", base, ("div", ("const", "pi"), ("num", 180, 1)))
            base = self.postfix(("pow", base, self.argument()))
            if self.is_sign("^"):
                raise Unreadable("two exponents in a row")
        return base

    def postfix(self, node: Node) -> Node:
        while self.is_sign("!"):
            self.take()
            node = ("fact", node)
        return node

    def argument(self) -> Node:
        """What a `^` or a command takes: a group in braces, a sign and a number, or one token (one digit, as TeX has it)."""
        if self.now.text == "{" and self.now.kind == "open":
            return self.group("{")
        if self.is_sign("-"):
            self.take()
            return ("mul", ("num", -1, 1), self.argument())
        return self.atom()

    def one_digit(self) -> Node:
        """An argument of `\\frac`: `\\frac34` has two digits where plain text would have one number."""
        token = self.now
        if token.kind != "number" or token.value is None:
            return self.argument()
        if not token.text.isdigit():
            raise Unreadable(f"\\frac takes one digit or a group, got {token.text!r}")
        rest = token.text[1:]
        if rest:
            self.tokens[self.place] = Token("number", rest, value=Fraction(rest))
        else:
            self.place += 1
        return ("num", int(token.text[0]), 1)

    def group(self, opening: str) -> Node:
        self.expect(opening)
        bars, self.bars = self.bars, 0
        node = self.sum()
        self.bars = bars
        self.expect(_CLOSED_BY[opening])
        return node

    def atom(self) -> Node:
        token = self.now
        if token.kind == "number" and token.value is not None:
            self.take()
            return self.subscripted(token.text) if self.is_sign("_") else number_node(token.value)
        if token.kind == "letter" or (token.kind == "word" and len(token.text) == 1):
            self.take()
            return self.symbol(token.text)
        if token.kind == "open" and token.text in "([{":
            return self.group(token.text)
        if self.is_sign("|") or self.is_command("lvert"):
            return self.absolute()
        if token.kind == "command":
            self.take()
            return self.command(token.text)
        raise Unreadable("the formula ends too early" if token is END else f"{token.text!r} cannot begin a formula")

    def absolute(self) -> Node:
        self.take()
        self.bars += 1
        node = self.sum()
        self.bars -= 1
        if not (self.is_sign("|") or self.is_command("rvert")):
            raise Unreadable("a bar is not closed")
        self.take()
        return ("fn", "abs", node)

    def symbol(self, name: str) -> Node:
        if self.is_sign("_"):
            return self.subscripted(name)
        primes = 0
        while self.is_sign("'"):
            self.take()
            primes += 1
        if name in _CALLED and self.now.text == "(" and not self.now.spaced:
            return ("call", name + "'" * primes, self.group("("))
        if name in "ei" and not primes:
            return ("const", name)
        return ("sym", name + "'" * primes)

    def subscripted(self, name: str) -> Node:
        self.take()
        inside = self.raw_group() if self.now.text == "{" else self.take().text
        if not inside or inside == "end":
            raise Unreadable("an empty index")
        return ("sym", f"{name}_{inside}")

    def command(self, name: str) -> Node:
        if name == "frac":
            top = self.one_digit()
            return ("div", top, self.one_digit())
        if name in ("binom", "dbinom", "tbinom"):
            top = self.one_digit()
            return ("fn", "binom", top, self.one_digit())
        if name == "sqrt":
            return self.root()
        if name == "infty":
            return ("const", "oo")
        if name == "pi":
            return ("const", "pi")
        if name in GREEK:
            return self.symbol(f"\\{name}")
        if name in ACCENTS:
            return ("sym", f"{name} {self.raw_group()}")
        if name in ("angle", "triangle"):
            letters = ""
            while self.now.kind in ("letter", "word"):
                letters += self.take().text
            return ("sym", f"{name} {letters}")
        if name in FLOORS:
            closing, function = FLOORS[name]
            node = self.sum()
            self.expect(closing)
            return ("fn", function, node)
        if name in FUNCTIONS:
            return self.function(name)
        raise Unreadable(f"\\{name} is not known")

    def root(self) -> Node:
        degree: Node = ("num", 2, 1)
        if self.now.text == "[":
            degree = self.group("[")
        inside = self.one_digit() if self.now.kind == "number" and not self.now.spaced else self.argument()
        if degree[0] == "num":
            return ("pow", inside, ("num", degree[2], degree[1])) if degree[1] else _no_root()
        return ("pow", inside, ("div", ("num", 1, 1), degree))

    def function(self, name: str) -> Node:
        base, exponent = None, None
        if self.is_sign("_"):
            self.take()
            base = self.one_digit()
        if self.is_sign("^"):
            self.take()
            exponent = self.argument()
        self.in_function += 1
        arguments = self.arguments()
        self.in_function -= 1
        node: Node
        if name == "log" and base is not None:
            node = ("fn", "log", *arguments, base)
        elif base is not None:
            raise Unreadable(f"\\{name} takes no index")
        else:
            node = ("fn", name, *arguments)
        if exponent is None:
            return node
        if exponent == ("num", -1, 1) or exponent == ("mul", ("num", -1, 1), ("num", 1, 1)):
            return ("fn", f"arc{name}", *arguments)
        return ("pow", node, exponent)

    def arguments(self) -> list[Node]:
        """In brackets, or, as in `sin 2x`, factors up to the next function, operator or bracket."""
        if self.now.text in ("(", "{") and self.now.kind == "open":
            closing = _CLOSED_BY[self.take().text]
            found = [self.sum()]
            while self.is_sign(","):
                self.take()
                found.append(self.sum())
            self.expect(closing)
            return found
        node = self.power()
        while self.begins_factor() and self.now.text != "(" and self.now.text not in FUNCTIONS:
            node = self.beside(node)
        return [node]


def _no_root() -> Node:
    raise Unreadable("a root of degree 0")
