"""The deliberate faults of scripts/mutations.py can be planted in the code as it is, and name tests that exist."""

from __future__ import annotations

from typing import Any

import pytest

from tests.test_docs import ROOT, script

MUTATIONS = script("mutations")


@pytest.mark.parametrize("fault", MUTATIONS.FAULTS, ids=lambda fault: fault.name)
def test_a_fault_can_be_planted(fault: Any) -> None:
    assert MUTATIONS.unplantable(fault, ROOT) == ""
    assert fault.old != fault.new
    assert all((ROOT / name).exists() for name in fault.tests.split())
