"""What a run ran on is found without importing anything heavy."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

from toishi.record.environment import code_state, environment


def test_environment_names_versions_and_machine() -> None:
    found = environment()
    assert found["versions"]["python"] == platform.python_version()
    assert {"torch", "transformers", "pyarrow"} <= found["versions"].keys()
    assert found["machine"]["cpu_count"] >= 1


def test_environment_does_not_import_torch() -> None:
    code = "import sys; from toishi.record.environment import environment; environment(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_code_state_of_a_checkout(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], capture_output=True, check=True)

    assert code_state(tmp_path) is None
    git("init")
    (tmp_path / "a.py").write_text("1\n")
    assert code_state(tmp_path) is None
    git("add", "a.py")
    git("commit", "-m", "first")
    clean = code_state(tmp_path)
    assert clean is not None
    assert len(clean["commit"]) == 40
    assert clean["dirty"] is False
    (tmp_path / "a.py").write_text("2\n")
    changed = code_state(tmp_path)
    assert changed is not None
    assert changed["dirty"] is True
