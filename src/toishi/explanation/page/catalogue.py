"""Message catalogues: the words of a page, one YAML file for each language.

Decisions:
1. A language is a file. Nothing else knows which languages there are.
2. English is complete; a key that another language lacks is an error, not a silent English sentence.
3. Texts use `code` and **bold**, which each renderer draws in its way.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from toishi.errors import ConfigError, nearest


class Catalogue:
    """The texts of one language by dotted key.

    folder    where the languages' files lie
    Raises ConfigError for a language without a file.
    """

    def __init__(self, folder: Path, language: str) -> None:
        if language not in languages(folder):
            raise ConfigError(f"there are no texts in language '{language}'; {nearest(language, languages(folder))}")
        self.language = language
        self.texts = texts(folder, language)

    def __call__(self, key: str, **values: object) -> str:
        return self.texts[key].format(**values)

    def maybe(self, key: str) -> str:
        """The text, or nothing where the catalogue has none under that key."""
        return self.texts.get(key, "")


def languages(folder: Path) -> tuple[str, ...]:
    """Names of the languages that have a file."""
    return tuple(sorted(path.stem for path in folder.glob("*.yaml")))


@cache
def texts(folder: Path, language: str) -> Mapping[str, str]:
    """All texts of a language as one flat mapping; items of a list get their index as the last part of the key."""
    return dict(_flat(yaml.safe_load((folder / f"{language}.yaml").read_text(encoding="utf-8")), ""))


def _flat(node: Any, prefix: str) -> list[tuple[str, str]]:
    if isinstance(node, Mapping):
        return [pair for key, child in node.items() for pair in _flat(child, f"{prefix}{key}.")]
    if isinstance(node, list):
        return [pair for index, child in enumerate(node) for pair in _flat(child, f"{prefix}{index}.")]
    return [(prefix.removesuffix("."), str(node))]
