"""A trace comes back equal, damage to it is named, and every field of it is explained."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from toishi.errors import RecordError
from toishi.record.trace import (
    Alternative,
    Contrast,
    Direction,
    LayerCosine,
    MatrixChange,
    Trace,
    TracedPosition,
    TracedText,
    UpdateTotals,
    WeightCheck,
    trace_fields,
)
from toishi.record.trace_files import has_trace, read_trace, write_trace
from toishi.record.undo import undo_after

TEXT = TracedText(
    kind="rollout", group=0, member=1, prompt_id="p", text="é [b]", token_ids=(5, 2), token_texts=("é", "</s>"),
    loss_mask=(1, 1), before=(-0.5, -1.0), after=(-0.25, -1.5),
)  # fmt: skip
MATRIX = MatrixChange(
    update=0, name="w", shape=(2, 3), weight_norm=2.0, gradient_norm=1.0, clipped_norm=0.5, step_norm=0.1, step_cosine=0.9,
    decay_norm=0.0, change_norm=0.1, relative_change=0.05, changed_share=1.0, changed_share_compute=0.5, lost_share=0.0,
)  # fmt: skip
TOTALS = UpdateTotals(
    update=0, optimizer="adamw", lr=1e-5, weight_decay=0.0, gradient_norm=1.0, clip_factor=0.5, step_norm=0.1, step_cosine=None,
    decay_norm=0.0, change_norm=0.1, changed_share=1.0, changed_share_compute=0.5, lost_share=0.0,
)  # fmt: skip
BESIDE = Contrast(
    group=0, target="member 1", target_text="é", step_norm=0.01, precision="float32", answers=("member 0", "member 1"),
    directions=(Direction(name="sft", gradient_norm=2.0, cosine_with_sft=1.0, changes=(0.1, 0.5)),),
    layers=(
        LayerCosine(
            layer="layers.0", sft_norm=1.0, grpo_norm=0.0, negative_norm=0.0, grpo_with_sft=None, negative_with_sft=None
        ),
    ),
)  # fmt: skip
TRACE = Trace(
    step=12, why="asked for", dtype="float32", temperature=0.7, failure="", notes=("a note",), updates=(TOTALS,),
    positions=(
        TracedPosition(
            group=0, member=1, token=1, why="heaviest", token_weight=-0.5,
            alternatives=(Alternative(token_id=2, text="</s>", before=0.25, after=0.5),),
        ),
    ),
    check=WeightCheck(group=0, compared=7, largest_relative=1e-8), contrast=BESIDE, texts=(TEXT,), matrices=(MATRIX,),
)  # fmt: skip


@pytest.mark.parametrize("trace", [TRACE, replace(TRACE, contrast=None, check=None, texts=(), matrices=(), updates=())])
def test_a_trace_comes_back_equal(trace: Trace, tmp_path: Path) -> None:
    assert not has_trace(tmp_path, 12)
    folder = write_trace(tmp_path, trace)
    assert sorted(path.name for path in folder.iterdir()) == ["after.parquet", "changes.parquet", "trace.json"]
    assert read_trace(tmp_path, 12) == trace


def test_texts_are_found_by_place() -> None:
    assert TRACE.text(0, 1) is TEXT
    assert TRACE.text(0, 0) is None
    assert TRACE.of_group(0) == (TEXT,)
    assert TEXT.change == -0.25


def test_what_is_not_finite_comes_back(tmp_path: Path) -> None:
    broken = replace(
        TRACE, updates=(replace(TOTALS, gradient_norm=math.inf),), texts=(replace(TEXT, after=(math.nan, -1.0)),), contrast=None
    )
    write_trace(tmp_path, broken)
    found = read_trace(tmp_path, 12)
    assert found.updates[0].gradient_norm == math.inf
    assert math.isnan(found.texts[0].after[0])


def test_a_later_trace_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    write_trace(tmp_path, TRACE)
    write_trace(tmp_path, replace(TRACE, why="again", texts=()))
    assert (read_trace(tmp_path, 12).why, read_trace(tmp_path, 12).texts) == ("again", ())


@pytest.mark.parametrize("name", ["trace.json", "after.parquet", "changes.parquet"])
def test_an_altered_byte_is_refused_by_name(name: str, tmp_path: Path) -> None:
    path = write_trace(tmp_path, TRACE) / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(RecordError, match=name):
        read_trace(tmp_path, 12)


def test_a_step_without_a_trace_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"toishi replay .* --step 12 --trace"):
        read_trace(tmp_path, 12)


def test_a_resume_takes_traces_back(tmp_path: Path) -> None:
    write_trace(tmp_path, TRACE)
    (tmp_path / "metrics.jsonl").write_text("")
    assert undo_after(tmp_path, 11) is not None
    assert not has_trace(tmp_path, 12)
    assert (tmp_path / "undone" / "001" / "traces" / "step_000012" / "trace.json").is_file()


def names_of(value: object, prefix: str = "") -> set[str]:
    """Dotted names of everything in a JSON document, lists as name[]."""
    if isinstance(value, dict):
        found: set[str] = set()
        for key, item in value.items():
            name = f"{prefix}{key}" + ("[]" if isinstance(item, list) else "")
            found |= {name} | names_of(item, f"{name}.")
        return found
    if isinstance(value, list):
        return {name for item in value for name in names_of(item, prefix)}
    return set()


def test_every_field_of_trace_json_is_explained(tmp_path: Path) -> None:
    path = write_trace(tmp_path, TRACE) / "trace.json"
    assert names_of(json.loads(path.read_text())) == set(trace_fields())
