"""Your own data and your own reward, from Python.

    python examples/04_own_reward.py

A reward is a function. It gets all answers to one prompt at once, every column of your data under its own name, and returns
one number for each answer: higher is better, None means "does not apply". Here two of them are summed with weights, and the
tiny random model of this folder (a real one has a name: "bundled", a folder, a hub id) learns what they pay for.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import toishi
from tiny_model import save_tiny_model

ROWS = [{"prompt": f"{a}+{b}=", "letter": "abc"[(a + b) % 3]} for a in range(8) for b in range(8)]


def uses_the_letter(completions: list[str], letter: list[str]) -> list[float]:
    """The column `letter` arrives as a list, one entry for each answer (they are siblings, so all are the same here)."""
    return [answer.count(wanted) / max(len(answer), 1) for answer, wanted in zip(completions, letter, strict=True)]


def no_digits(completions: list[str]) -> list[float | None]:
    """An empty answer has no opinion on digits: None abstains, and the sum goes on without this part."""
    return [None if not answer else float(not any(map(str.isdigit, answer))) for answer in completions]


def main() -> None:
    """Trains for a few steps; what it prints is what `toishi train` prints."""
    with tempfile.TemporaryDirectory() as scratch:
        model = save_tiny_model(Path(scratch) / "model")
        result = toishi.train(
            {"model": {"name": str(model)}, "sampling": {"max_new_tokens": 8}, "optimizer": {"lr": 0.003}},
            task=toishi.task_from_rows(ROWS, heldout=16),
            rewards=[uses_the_letter, no_digits],
            weights=[1.0, 0.5],
            overrides={"train.steps": 20, "evaluation.prompts": 16, "evaluation.every": 0},
            folder=Path(scratch) / "run",
        )
        before, *_, after = [found for found in result.evaluations if found.mode == "sampled"]
        print(f"held-out prompts: {before.value:.3f} before, {after.value:.3f} after {result.step} steps")


if __name__ == "__main__":
    main()
