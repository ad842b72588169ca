"""The key of a server: read from its environment variable, checked, and cut out of whatever a server says.

Decisions:
1. A key that cannot be a key (a blank, a line break, a character outside ASCII) is refused before anything is sent, in words
   that do not contain it. Nothing is stripped: a line break at the end is a mistake where the key was set.
2. A key of fewer than `MIN_KEY_CHARS` characters is refused: it could not be cut out of a text without cutting other words.
3. Every run of `MIN_KEY_CHARS` characters that the key contains is cut, not only the whole key: servers show shortened keys,
   and a text may have been cut in the middle of one. The forms that JSON, Python, addresses and base64 give it are cut as well.
"""

from __future__ import annotations

import base64
import json
import os
from urllib.parse import quote

from toishi.errors import ConfigError

MIN_KEY_CHARS = 8
_CUT = "***"


def key_in(variable: str) -> str:
    """The key in an environment variable. Raises ConfigError, without the key, where there is none that can be sent."""
    key = os.environ.get(variable, "")
    if not key:
        raise ConfigError(f"judge.key_env: the environment variable {variable} is not set; put the server's key there")
    if not all("!" <= character <= "~" for character in key):
        raise ConfigError(
            f"judge.key_env: the text in the environment variable {variable} holds a blank, a line break or a character "
            "outside ASCII, so it cannot be sent as a key. Set it to the key alone; "
            f'export {variable}="$(cat FILE)" leaves out the line break at the end of a file'
        )
    if len(key) < MIN_KEY_CHARS:
        raise ConfigError(
            f"judge.key_env: the key in the environment variable {variable} has {len(key)} characters, expected at least "
            f"{MIN_KEY_CHARS}: a shorter one could not be kept out of the records. Give the server a longer key; where it "
            "wants none, remove judge.key_env"
        )
    return key


class KeyCutter:
    """Cuts a key, and runs of `MIN_KEY_CHARS` of its characters, out of texts.

    >>> KeyCutter("sk-0123456789").cut("got sk-0123456789, or sk-012345...; 123 is fine")
    'got ***, or ***...; 123 is fine'
    >>> KeyCutter(None).cut("no key, nothing to cut")
    'no key, nothing to cut'
    """

    def __init__(self, key: str | None) -> None:
        forms = set() if key is None else _forms(key)
        width = MIN_KEY_CHARS
        self._runs = frozenset(form[at : at + width] for form in forms for at in range(len(form) - width + 1))

    def cut(self, text: str) -> str:
        """The text without the key."""
        if not self._runs:
            return text
        parts, kept, at = [], 0, 0
        while at <= len(text) - MIN_KEY_CHARS:
            if text[at : at + MIN_KEY_CHARS] not in self._runs:
                at += 1
                continue
            end = at + MIN_KEY_CHARS
            while text[end - MIN_KEY_CHARS + 1 : end + 1] in self._runs:
                end += 1
            parts += [text[kept:at], _CUT]
            kept = at = end
        return "".join([*parts, text[kept:]])


def _forms(key: str) -> set[str]:
    raw = key.encode("ascii")
    encoded = {base64.b64encode(raw).decode().rstrip("="), base64.urlsafe_b64encode(raw).decode().rstrip("=")}
    return {key, json.dumps(key)[1:-1], repr(key)[1:-1], quote(key, safe=""), *encoded}


def printable(text: str) -> str:
    """The text with what cannot be seen (control characters, half characters) written as escapes.

    >>> printable("red " + chr(27) + "[31m")
    'red \\\\x1b[31m'
    """
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)
