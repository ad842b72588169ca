"""Labels by people: blind sides, and agreement from numbers by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from toishi.collecting.labelling import LabelItem, agreement, chosen_is_left, label, read_labels
from toishi.errors import DataError, RecordError

ITEMS = [LabelItem(key=f"k{number}", prompt="q", chosen="good", rejected="bad") for number in range(50)]


def test_sides_are_drawn_for_each_labeller_and_stay() -> None:
    of_ada = [chosen_is_left(item, "ada") for item in ITEMS]
    assert 10 < sum(of_ada) < 40
    assert of_ada != [chosen_is_left(item, "bob") for item in ITEMS]
    assert of_ada == [chosen_is_left(item, "ada") for item in ITEMS]


def test_a_key_means_the_side_that_was_shown(tmp_path: Path) -> None:
    sides: list[str] = []
    keys = iter("1" * 50)
    assert label(ITEMS, tmp_path / "l.jsonl", "ada", keys, lambda shown: sides.append(shown.left)) == (50, 0)
    given = read_labels(tmp_path / "l.jsonl")["ada"]
    assert [given[item.key] == "chosen" for item in ITEMS] == [side == "good" for side in sides]


def test_kappa_is_that_of_the_table() -> None:
    """Both say chosen 20 times, both rejected 15 of 50: p_o .7, p_e .5, kappa .4 (a table by hand)."""
    one = ["chosen"] * 25 + ["rejected"] * 25
    other = ["chosen"] * 20 + ["rejected"] * 5 + ["chosen"] * 10 + ["rejected"] * 15
    keys = [item.key for item in ITEMS]
    found = agreement(ITEMS, {"a": dict(zip(keys, one, strict=True)), "b": dict(zip(keys, other, strict=True))})
    (two,) = found.two
    assert two.count == 50
    assert [two.raw.value, two.kappa.value] == pytest.approx([0.7, 0.4])
    assert found.people[0].agrees is not None
    assert found.people[0].agrees.value == 0.5


def test_no_label_and_a_changed_one_are_errors(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="label some first"):
        agreement(ITEMS, {"a": {"elsewhere": "tie"}})
    path = tmp_path / "l.jsonl"
    label(ITEMS, path, "ada", iter("1q"), lambda shown: None)
    path.write_bytes(path.read_bytes().replace(b"ada", b"bob"))
    with pytest.raises(RecordError, match="seal"):
        read_labels(path)
