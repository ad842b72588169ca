"""A student out of a larger model's layers."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.tiny import FAMILIES, Family, save_tiny
from toishi.errors import ModelError
from toishi.policy.shrinking import kept_layers, shrink_model


def test_layers_are_spread_evenly_with_both_ends() -> None:
    assert kept_layers(30, 24)[0] == 0
    assert kept_layers(30, 24)[-1] == 29
    for total in range(2, 40):
        for wanted in range(2, total + 1):
            chosen = kept_layers(total, wanted)
            steps = {after - before for before, after in pairwise(chosen)}
            assert len(chosen) == wanted
            assert (chosen[0], chosen[-1]) == (0, total - 1)
            assert max(steps) - min(steps) <= 1


@pytest.mark.parametrize("family", FAMILIES)
def test_the_student_has_the_first_layer_and_everything_around_them(family: Family, tmp_path: Path) -> None:
    teacher = save_tiny(tmp_path / "teacher", family)
    facts = shrink_model(str(teacher), tmp_path / "student", layers=1)
    assert (facts["layers"], facts["layers_before"]) == ([0], 2)
    before, after = load_file(teacher / "model.safetensors"), load_file(tmp_path / "student" / "model.safetensors")
    assert set(after) == {name for name in before if ".1." not in name}
    assert all(after[name].equal(before[name]) for name in after)
    assert facts["parameters"] == sum(weight.numel() for weight in after.values())
    student = AutoModelForCausalLM.from_pretrained(tmp_path / "student").eval()
    ids = AutoTokenizer.from_pretrained(tmp_path / "student")("the cat", return_tensors="pt")["input_ids"]
    whole = AutoModelForCausalLM.from_pretrained(teacher).eval()
    with torch.no_grad():
        hidden = whole(ids, output_hidden_states=True).hidden_states[1]
        found = student(ids, output_hidden_states=True).hidden_states
    assert student.config.num_hidden_layers == 1
    normed = whole.base_model.norm(hidden) if hasattr(whole.base_model, "norm") else whole.base_model.ln_f(hidden)
    torch.testing.assert_close(found[-1], normed)


@pytest.mark.parametrize("layers", [0, 2, 3])
def test_a_student_is_smaller(layers: int, tmp_path: Path) -> None:
    teacher = save_tiny(tmp_path / "teacher", "llama")
    with pytest.raises(ModelError, match=f"has 2 layers: a student has from 1 to 1 of them, got {layers}"):
        shrink_model(str(teacher), tmp_path / "student", layers=layers)
    assert not (tmp_path / "student").exists()
