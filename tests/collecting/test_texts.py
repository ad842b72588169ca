"""Alike texts: compared with every pair computed one by one."""

from __future__ import annotations

import random

import pytest

from toishi.collecting.texts import alike_pairs, clusters, jaccard, overlaps, shingles_of, words_of


def brute_force(texts: list[str], others: list[str] | None, at_least: float) -> list[tuple[int, int, float]]:
    left = [shingles_of(text) for text in texts]
    right = left if others is None else [shingles_of(text) for text in others]
    return [
        (i, j, jaccard(a, b))
        for i, a in enumerate(left)
        for j, b in enumerate(right)
        if (others is not None or j > i) and jaccard(a, b) >= at_least
    ]


@pytest.mark.parametrize("at_least", [0.3, 0.5, 0.7, 0.8, 1.0])
def test_every_pair_is_found_and_no_other(at_least: float) -> None:
    draw = random.Random(7)
    texts = []
    for _ in range(40):
        base = [draw.choice("abcd") for _ in range(draw.randint(0, 12))]
        texts.append(" ".join(base))
        texts.append(" ".join(draw.choice("abcd") if draw.random() < 0.08 else word for word in base))
    found = alike_pairs(texts, at_least=at_least)
    assert found == brute_force(texts, None, at_least)
    assert found
    assert alike_pairs(texts[:30], texts[30:], at_least=at_least) == brute_force(texts[:30], texts[30:], at_least)


def test_numbers_make_another_question_and_case_does_not() -> None:
    texts = ["What is 12 + 7?", "What is 12 + 8?", "what  is 12 + 7 ?"]
    assert [(one, other) for one, other, _ in alike_pairs(texts)] == [(0, 2)]


def test_scripts_without_spaces_have_a_word_for_each_character() -> None:
    assert words_of("東京は12度、です") == ("東", "京", "は", "12", "度", "、", "で", "す")


def test_a_similarity_outside_its_range_is_refused() -> None:
    for wrong in (0.0, 1.1):
        with pytest.raises(ValueError, match="above 0 and at most 1"):
            alike_pairs(["a"], at_least=wrong)


def test_clusters_join_what_is_alike_by_way_of_others() -> None:
    assert clusters(5, [(1, 3, 0.9), (0, 1, 0.9)]) == [0, 0, 2, 0, 4]


def test_overlap_says_how() -> None:
    passage = " ".join("word" + "abcdefghijklm"[number] for number in range(13))
    held = ["How many legs has a cat in the house?", f"{passage} and then it ends", "one two three four five six seven eight"]
    texts = [
        "something else entirely",
        "HOW many legs has a cat in the house ?",
        f"Before it: {passage} " + " ".join("xyz" for _ in range(40)),
        "one two three four five six seven eight nine",
        " ".join(passage.split()[:12]),
    ]
    assert [(one.place, one.other, one.how) for one in overlaps(texts, held)] == [
        (1, 0, "copy"),
        (2, 1, "passage"),
        (3, 2, "alike"),
    ]
