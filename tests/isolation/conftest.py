"""The sandboxes that this machine has."""

from __future__ import annotations

import pytest

from toishi.errors import ConfigError
from toishi.isolation.levels import Sandbox, find_sandbox


@pytest.fixture
def namespaces() -> Sandbox:
    try:
        return find_sandbox("namespaces")
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture
def best() -> Sandbox:
    """Namespaces where there are some."""
    try:
        return find_sandbox("namespaces")
    except ConfigError:
        return find_sandbox("plain")


@pytest.fixture(params=["best", pytest.param("plain", marks=pytest.mark.slow)])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """The best sandbox of this machine; with the slow tests, the plain one too."""
    if request.param == "plain":
        return find_sandbox("plain")
    found: Sandbox = request.getfixturevalue("best")
    return found
