"""Text as models write it, made plain before anything is read: one minus sign, one kind of digit, no layout commands.

Decisions:
1. Only what cannot change a value is taken away: spacing, sizes of brackets, markdown marks, `$` around the whole.
2. Digits of every script and every minus sign count. Superscripts become powers, vulgar fractions become `\\frac`.
3. A comma in braces or a thin space between groups of three digits is a thousands separator.
"""

from __future__ import annotations

import re
import unicodedata

_SIGNS = {
    **dict.fromkeys("−–‒‐‑﹣－", "-"),
    **dict.fromkeys("\u00a0\u202f\u2009\u2007\u200a\u3000\t\r\n", " "),
    **dict.fromkeys("\u200b\u200c\u200d\ufeff\u2060\u2061\u2062", ""),
    **dict.fromkeys("’′‘", "'"),
    **dict.fromkeys("“”", '"'),
    **dict(zip("＋．，％（）＝：∕⁄", "+.,%()=://", strict=True)),
    "＄": "\\$ ",
    "×": "\\times ",
    "·": "\\cdot ",
    "⋅": "\\cdot ",
    "∙": "\\cdot ",
    "÷": "\\div ",
    "√": "\\sqrt ",
    "∞": "\\infty ",
    "≤": "\\le ",
    "⩽": "\\le ",
    "≥": "\\ge ",
    "⩾": "\\ge ",
    "≠": "\\ne ",
    "≈": "\\approx ",
    "±": "\\pm ",
    "∓": "\\mp ",
    "∪": "\\cup ",
    "∈": "\\in ",
    "∅": "\\emptyset ",
    "ℝ": "\\mathbb{R}",
    "°": "^\\circ ",
    "π": "\\pi ",
    "θ": "\\theta ",
    "α": "\\alpha ",
    "β": "\\beta ",
    "λ": "\\lambda ",
}
_TABLE = str.maketrans(_SIGNS)
_POWERS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n", strict=True))
_POWER_RUN = re.compile(f"[{''.join(_POWERS)}]+")
_VULGAR = re.compile("[¼-¾⅐-⅞]")
_LAYOUT = re.compile(
    r"\\(?:left|right|bigl|bigr|Bigl|Bigr|biggl|biggr|Biggl|Biggr|big|Big|bigg|Bigg|displaystyle|textstyle|limits|nolimits"
    r"|mathstrut|strut|phantom\{[^{}]*\}|normalsize|large|Large|small|bf|it|underline|(?:text)?color\{[A-Za-z]+\})(?![A-Za-z])"
    r"(?:(?:(?<=left)|(?<=right))[.](?!\d))?|\\(?:blacksquare|square|checkmark|qed)\s*$"
)
_RENAMED = {
    **dict.fromkeys(("\\dfrac", "\\tfrac", "\\cfrac"), "\\frac"),
    "\\leqslant": "\\le",
    "\\leq": "\\le",
    "\\geqslant": "\\ge",
    "\\geq": "\\ge",
    "\\neq": "\\ne",
    "\\lbrace": "\\{",
    "\\rbrace": "\\}",
    "\\colon": ":",
    "\\langle": "(",
    "\\rangle": ")",
    "\\infin": "\\infty",
    "\\varnothing": "\\emptyset",
    "\\to": "\\to",
}
_NAMES = re.compile("(?:" + "|".join(map(re.escape, sorted(_RENAMED, key=len, reverse=True))) + ")(?![A-Za-z])")
_SPACES = re.compile(r"\\(?:[,;: ]|quad(?![A-Za-z])|qquad(?![A-Za-z])|(?:hspace|vspace)\*?\{[^{}]*\})|~")
_MARKED = re.compile(r"[\\`*{_xX^]")
_MARKDOWN = re.compile(r"(\*\*|__|`)(?=\S)(.+?)(?<=\S)\1", re.DOTALL)
_DELIMITERS = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"))


def tidied(text: str) -> str:
    """`text` with signs, digits, spaces and names of commands unified.

    >>> tidied("−１２\\\\,500 \\\\dfrac12 x²")
    '-12 500 \\\\frac12 x^{2}'
    """
    if text.isascii() and not _MARKED.search(text):
        return " ".join(text.split())
    text = _plain_signs(text)
    text = _MARKDOWN.sub(r"\2", text)
    text = text.replace("\\!", "").replace("\\\\", "\x02")
    text = _LAYOUT.sub("", text)
    text = _NAMES.sub(lambda match: _RENAMED[match[0]], text)
    text = re.sub(r"(?<=\d)\{,\}(?=\d{3}(?!\d))", "", text).replace("{:}", ":")
    text = re.sub(r"\\(overline|bar|dot)\s*(\d)", r"\\\1{\2}", text)
    text = re.sub(r"(?<=\d)\s*(?:\\deg(?![A-Za-z])|\^\s*(?:o(?![A-Za-z])|\{o\}))", r"^\\circ ", text)
    text = re.sub(r"\\rm\s*(?=\{)", r"\\mathrm", text)
    text = re.sub(r"(?<=\d)\s*[xX]\s*(?=10\s*\^)", r"\\times ", text)
    text = _SPACES.sub(" ", text).replace("\x02", "\\\\")
    return " ".join(text.split())


def _plain_signs(text: str) -> str:
    if text.isascii():
        return text
    text = _POWER_RUN.sub(lambda match: "^{" + "".join(_POWERS[sign] for sign in match[0]) + "}", text)
    text = _VULGAR.sub(lambda match: "\\frac{{{}}}{{{}}}".format(*unicodedata.normalize("NFKC", match[0]).split("⁄")), text)
    text = text.translate(_TABLE)
    return "".join(str(unicodedata.decimal(sign, sign)) for sign in text)


def unwrapped(text: str) -> str:
    """`text` without `$`, `\\(` or `\\[` around the whole of it, and without a full stop after it.

    >>> unwrapped(r" $\\frac{1}{2}$. "), unwrapped("$5"), unwrapped("$5$ and $6$")
    ('\\\\frac{1}{2}', '$5', '$5$ and $6$')
    """
    text = text.strip()
    if text.endswith((".", "。")) and not text.endswith(("..", "a.m.", "p.m.", "A.M.", "P.M.")):
        text = text[:-1].rstrip()
    for begin, end in _DELIMITERS:
        inside = text[len(begin) : -len(end)]
        if text.startswith(begin) and text.endswith(end) and len(text) > len(begin) + len(end) and begin not in inside:
            return unwrapped(inside)
    return text
