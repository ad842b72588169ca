"""The words of the walk: one YAML file for each language in messages/."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from toishi.explanation.page import catalogue

FOLDER = Path(__file__).parent / "messages"


class Catalogue(catalogue.Catalogue):
    """The walk's texts in one language, by dotted key.

    >>> Catalogue("en")("kl.k3_name")
    'k3'
    """

    def __init__(self, language: str) -> None:
        super().__init__(FOLDER, language)


def languages() -> tuple[str, ...]:
    """
    >>> languages()
    ('en', 'ja')
    """
    return catalogue.languages(FOLDER)


def texts(language: str) -> Mapping[str, str]:
    """All texts of the walk in a language."""
    return catalogue.texts(FOLDER, language)
