"""One tiny model, one traced run, and the same step traced again with SFT beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.explanation.chain.runs import make, trace
from tests.tiny import save_tiny
from toishi.record import Run


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model") / "llama", "llama")


@pytest.fixture(scope="session")
def run(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """GRPO with a KL term, weight decay and a cut gradient, two inner epochs, SFT beside it."""
    settings = {
        "algorithm": {"name": "grpo", "kl": "k3", "kl_coef": 0.1},
        "train.inner_epochs": 2,
        "optimizer": {"lr": 0.01, "weight_decay": 0.1, "max_grad_norm": 0.5},
    }
    return trace(make(tiny, tmp_path_factory.mktemp("chain") / "run", **settings))


@pytest.fixture(scope="session")
def untraced(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return make(tiny, tmp_path_factory.mktemp("chain") / "untraced", **{"record.trace_when": []})
