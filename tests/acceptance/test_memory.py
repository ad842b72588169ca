"""The estimate against the peak resident size of whole runs, each in a fresh process. Minutes; `make test-all` runs it."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.memory import BASE, KINDS, METHODS, SHORT, line, measured, method_line

pytestmark = [
    pytest.mark.slow,
    pytest.mark.bundled,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from /proc"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_the_estimate_is_within_a_fifth_of_the_peak(kind: str, tmp_path: Path) -> None:
    found = measured(BASE | KINDS[kind], tmp_path / "run")
    print(line(kind, found))
    assert found["estimate"] == pytest.approx(found["peak"], rel=0.2)


LOOSER = {"GRPO with LoRA": 0.2}
"""Where little is kept, answers that are shorter than the limit weigh more."""


@pytest.mark.parametrize("method", METHODS)
def test_a_methods_tensors_are_as_the_formula_says_and_its_peak_within_a_tenth(method: str, tmp_path: Path) -> None:
    found = measured(SHORT | METHODS[method], tmp_path / "run")
    print(method_line(method, found))
    assert sum(found["held"].values()) == found["kept"]
    assert found["estimate"] == pytest.approx(found["peak"], rel=LOOSER.get(method, 0.1))
