"""Texts that are alike: copies, near-duplicates, and passages that a text shares with an evaluation set.

Decisions:
1. Alike is the Jaccard similarity of the sets of three words in a row: |A ∩ B| / |A ∪ B|. Numbers and signs are words, so "12 +
   7" and "12 + 8" are two questions, and a character of a script without spaces is a word.
2. All pairs above a threshold are found, exactly, by prefix filtering (Bayardo, Ma, Srikant, "Scaling up all pairs similarity
   search", 2007): with shingles sorted from rare to frequent, two sets can only be that alike if their first few have one in
   common. MinHash would miss some pairs by chance, and needs random numbers or another package to do so.
3. A shared passage is 13 words in a row, as in the decontamination of GPT-3 (arXiv 2005.14165). Texts with fewer
   words are compared as copies and near-duplicates only.
"""

from __future__ import annotations

import math
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import regex

from toishi.rewards.scripts import UNSPACED_CLASS

SHINGLE_WORDS = 3
PASSAGE_WORDS = 13
ALIKE = 0.8

_WORD = regex.compile(rf"[{UNSPACED_CLASS}]|(?:(?![{UNSPACED_CLASS}])[\p{{L}}\p{{M}}])+|\p{{N}}+|[^\s\p{{L}}\p{{M}}\p{{N}}]")

Shingles = frozenset[tuple[str, ...]]


def words_of(text: str) -> tuple[str, ...]:
    """Words, numbers and signs, without regard to case and width.

    >>> words_of("What is 12+7? 你好")
    ('what', 'is', '12', '+', '7', '?', '你', '好')
    """
    return tuple(str(word) for word in _WORD.findall(unicodedata.normalize("NFKC", text).casefold()))


def shingles_of(text: str, size: int = SHINGLE_WORDS) -> Shingles:
    """All runs of `size` words; a shorter text is one run.

    >>> sorted(shingles_of("a b c d"))
    [('a', 'b', 'c'), ('b', 'c', 'd')]
    """
    words = words_of(text)
    if len(words) <= size:
        return frozenset({words} if words else ())
    return frozenset(words[start : start + size] for start in range(len(words) - size + 1))


def jaccard(first: Shingles, second: Shingles) -> float:
    """|A ∩ B| / |A ∪ B|; 0 for two empty sets.

    >>> jaccard(shingles_of("a b c d"), shingles_of("a b c e"))
    0.3333333333333333
    """
    shared = len(first & second)
    union = len(first) + len(second) - shared
    return shared / union if union else 0.0


def alike_pairs(
    texts: Sequence[str], others: Sequence[str] | None = None, *, at_least: float = ALIKE
) -> list[tuple[int, int, float]]:
    """(place, place, similarity) of every pair with a similarity of at least `at_least`, in order.

    others  None: pairs inside `texts`, the lower place first; else pairs of a text with one of `others`
    Raises ValueError unless 0 < at_least <= 1.

    >>> alike_pairs(["one two three four", "five", "One  two three four"])
    [(0, 2, 1.0)]
    >>> alike_pairs(["one two three"], ["five", "one two three"])
    [(0, 1, 1.0)]
    """
    if not 0 < at_least <= 1:
        raise ValueError(f"a similarity is above 0 and at most 1, got {at_least}")
    inside = others is None
    left = [shingles_of(text) for text in texts]
    right = left if others is None else [shingles_of(text) for text in others]
    seen = Counter(shingle for sets in ([left] if inside else [left, right]) for one in sets for shingle in one)
    index: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for place, one in enumerate(right):
        for shingle in _prefix(one, seen, at_least):
            index[shingle].append(place)
    found = []
    for place, one in enumerate(left):
        candidates = {other for shingle in _prefix(one, seen, at_least) for other in index.get(shingle, ())}
        for other in sorted(other for other in candidates if not inside or other > place):
            similarity = jaccard(one, right[other])
            if similarity >= at_least:
                found.append((place, other, similarity))
    return found


def _prefix(one: Shingles, seen: Mapping[tuple[str, ...], int], at_least: float) -> list[tuple[str, ...]]:
    """The rarest shingles, so many that whoever is alike has to share one: |A| - ceil(t |A|) + 1."""
    # 1e-9: a product such as 0.7 * 10 may lie a rounding above the whole number, which would make the prefix too short
    count = len(one) - math.ceil(at_least * len(one) - 1e-9) + 1
    return sorted(one, key=lambda shingle: (seen[shingle], shingle))[:count]


def clusters(count: int, pairs: Sequence[tuple[int, int, float]]) -> list[int]:
    """For each of `count` places the first place that it is alike to, by way of others too; itself where there is none.

    >>> clusters(4, [(0, 2, 0.9), (2, 3, 0.9)])
    [0, 1, 0, 0]
    """
    first = list(range(count))

    def root(place: int) -> int:
        while first[place] != place:
            first[place] = first[first[place]]
            place = first[place]
        return place

    for one, other, _ in pairs:
        low, high = sorted((root(one), root(other)))
        first[high] = low
    return [root(place) for place in range(count)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """A text that an evaluation set holds too.

    place, other  places of the text and of the one in the evaluation set
    how           "copy" (the same words), "alike" (a near-duplicate), "passage" (13 words in a row)
    similarity    Jaccard; 1 for a copy
    """

    place: int
    other: int
    how: str
    similarity: float


def overlaps(texts: Sequence[str], others: Sequence[str], *, at_least: float = ALIKE) -> list[Overlap]:
    """For each text that overlaps with `others` its closest one: a copy before an alike one before a shared passage.

    >>> [(one.place, one.how) for one in overlaps(["What is 2 + 2?", "What is 2 + 3?"], ["what is 2+2?"])]
    [(0, 'copy')]
    >>> passage = " ".join("abcdefghijklm")
    >>> [(one.place, one.how) for one in overlaps([f"{passage} " + "n " * 30], [f"{passage} " + "o " * 30])]
    [(0, 'passage')]
    """
    found: dict[int, Overlap] = {}
    copies: dict[tuple[str, ...], int] = {}
    passages: dict[tuple[str, ...], int] = {}
    for other, text in enumerate(others):
        copies.setdefault(words_of(text), other)
        for passage in _passages(text):
            passages.setdefault(passage, other)
    for place, text in enumerate(texts):
        words = words_of(text)
        if words and words in copies:
            found[place] = Overlap(place=place, other=copies[words], how="copy", similarity=1.0)
    for place, other, similarity in sorted(alike_pairs(texts, others, at_least=at_least), key=lambda pair: -pair[2]):
        found.setdefault(place, Overlap(place=place, other=other, how="alike", similarity=similarity))
    for place, text in enumerate(texts):
        shared = None if place in found else next((passages[one] for one in _passages(text) if one in passages), None)
        if shared is not None:
            similarity = jaccard(shingles_of(text), shingles_of(others[shared]))
            found[place] = Overlap(place=place, other=shared, how="passage", similarity=similarity)
    return [found[place] for place in sorted(found)]


def _passages(text: str) -> list[tuple[str, ...]]:
    words = words_of(text)
    return [words[start : start + PASSAGE_WORDS] for start in range(len(words) - PASSAGE_WORDS + 1)]
