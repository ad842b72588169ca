"""What each row means: the single source of `toishi algorithms NAME` and of the documentation pages.

Decisions:
1. A note explains, the row decides: numbers of a row (clip bounds, epsilons) are printed from the row, not repeated here.
2. Equations are losses to minimise, in plain Unicode, with every symbol listed.
3. `differences` says where TRL 1.16 or verl define the same name differently; docs/differences.md has the reasons.
"""

from __future__ import annotations

from collections.abc import Mapping

from toishi.algorithms.note import AlgorithmNote
from toishi.algorithms.notes_group import GROUP_NOTES
from toishi.algorithms.notes_pairs import PAIR_NOTES
from toishi.algorithms.notes_plain import PLAIN_NOTES
from toishi.algorithms.notes_taught import TAUGHT_NOTES
from toishi.algorithms.notes_written import WRITTEN_NOTES
from toishi.errors import ConfigError, nearest

__all__ = ["NOTES", "AlgorithmNote", "describe"]

NOTES: Mapping[str, AlgorithmNote] = {
    note.name: note for note in (*PLAIN_NOTES, *GROUP_NOTES, *WRITTEN_NOTES, *PAIR_NOTES, *TAUGHT_NOTES)
}


def describe(name: str) -> AlgorithmNote:
    """The note of that row.

    Raises ConfigError for an unknown name.

    >>> describe("grpo").paper
    'DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language Models, arXiv 2402.03300'
    >>> describe("grpoo")
    Traceback (most recent call last):
    ...
    toishi.errors.ConfigError: unknown algorithm 'grpoo'; did you mean 'grpo'?
    """
    if name not in NOTES:
        raise ConfigError(f"unknown algorithm '{name}'; {nearest(name, NOTES)}")
    return NOTES[name]
