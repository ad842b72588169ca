"""Writing systems: which script a character belongs to, and which scripts put no spaces between words."""

from __future__ import annotations

import regex

UNSPACED = ("Han", "Hiragana", "Katakana", "Thai", "Lao", "Khmer", "Myanmar")
UNSPACED_CLASS = "".join(rf"\p{{Script={script}}}" for script in UNSPACED)

_WORD = regex.compile(
    rf"[{UNSPACED_CLASS}]"  # each character by itself
    rf"|(?:(?![{UNSPACED_CLASS}])[\p{{L}}\p{{M}}])+(?:['’](?:(?![{UNSPACED_CLASS}])[\p{{L}}\p{{M}}])+)*"
)


def words(text: str) -> list[str]:
    """The words of a text, without numbers and signs; a script without spaces gives one word for each character.

    >>> words("It's 3 o'clock, 你好!")
    ["It's", "o'clock", '你', '好']
    """
    return [str(word) for word in _WORD.findall(text)]


def is_unspaced(character: str) -> bool:
    """Whether a character belongs to a script that puts no spaces between words.

    >>> [is_unspaced(character) for character in "a你あก1"]
    [False, True, True, True, False]
    """
    return regex.fullmatch(rf"[{UNSPACED_CLASS}]", character) is not None
