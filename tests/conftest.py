"""What makes the tests quick: only the maths is watched for coverage, and what was imported is no garbage."""

from __future__ import annotations

import gc

import pytest

OWN = tuple(
    f"{place}{part}"
    for part in ("ops/", "algorithms/", "scoring/", "packing.py", "test_packing.py", "test_scoring.py")
    for place in ("tests/", "src/toishi/")
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where only parts of the package are watched, only their own tests are: elsewhere a tracer takes a third of the time."""
    watched = config.getoption("cov_source", None) or [True]
    if True in watched:
        return
    for item in items:
        if not item.nodeid.startswith(OWN):
            item.add_marker("no_cover")


def pytest_collection_finish() -> None:
    """Garbage is not looked for in what was imported: in all of it that takes a second, and TRL's trainer asks for it."""
    gc.collect()
    gc.freeze()
