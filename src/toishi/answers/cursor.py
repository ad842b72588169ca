"""A place in a list of tokens, and what stands there."""

from __future__ import annotations

from collections.abc import Sequence

from toishi.answers.tokens import FUNCTIONS, Token, Unreadable

_GREEK_NAMES = """
    alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta kappa lambda mu nu xi rho sigma tau phi varphi chi psi
    omega Gamma Delta Theta Lambda Sigma Phi Psi Omega ell hbar
"""
GREEK = frozenset(_GREEK_NAMES.split())
FLOORS = {"lfloor": ("rfloor", "floor"), "lceil": ("rceil", "ceil")}
ACCENTS = frozenset(("vec", "hat", "bar", "overline", "overrightarrow", "tilde", "dot", "widehat"))
_OTHERS = ACCENTS | {"frac", "binom", "dbinom", "tbinom", "pi", "infty", "lvert", "angle", "triangle"}
END = Token("sign", "end")


class Cursor:
    """Moves over tokens; counts the bars that are open and the functions that it is inside of."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = [*tokens, END]
        self.place = 0
        self.depth = 0
        self.bars = 0
        self.in_function = 0

    @property
    def now(self) -> Token:
        """The token that comes next."""
        return self.tokens[self.place]

    def take(self) -> Token:
        """The next token, which is then behind."""
        token = self.now
        self.place += 1
        return token

    def is_sign(self, *texts: str) -> bool:
        """Whether the next token is one of these signs."""
        return self.now.kind == "sign" and self.now.text in texts

    def is_command(self, *names: str) -> bool:
        """Whether the next token is one of these commands."""
        return self.now.kind == "command" and self.now.text in names

    def expect(self, text: str) -> None:
        """Passes over `text`. Raises Unreadable when something else stands there."""
        if self.now.text != text or self.now is END:
            raise Unreadable(f"{text!r} is missing")
        self.place += 1

    def begins_factor(self) -> bool:
        """Whether a factor can follow here without a sign before it."""
        token = self.now
        if token is END:
            return False
        if token.kind in ("number", "letter"):
            return True
        if token.kind == "open":
            return token.text != "set{"
        if token.kind == "word":
            return len(token.text) == 1
        if token.kind == "sign":
            return token.text == "|" and self.bars == 0
        return token.kind == "command" and (
            token.text in FUNCTIONS or token.text in GREEK or token.text in FLOORS or token.text in _OTHERS
        )

    def degrees(self) -> bool:
        """Whether `\\circ` follows and an angle may stand here: inside a function; elsewhere it is a unit."""
        tokens = [token.text for token in self.tokens[self.place : self.place + 3]]
        count = 1 if tokens[:1] == ["circ"] else 3 if tokens == ["{", "circ", "}"] else 0
        if count and not self.in_function:
            raise Unreadable("a degree sign inside a formula")
        self.place += count
        return count > 0

    def raw_group(self) -> str:
        """What stands in braces, as it is written; a name."""
        self.expect("{")
        inside = ""
        while self.now.text != "}" and self.now is not END:
            inside += self.take().text
        self.expect("}")
        return inside
