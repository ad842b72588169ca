"""The training of `02_whole_loop_inline.py` once more, with toishi, and the proof that both are the same.

    python examples/03_same_with_the_library.py

Rewards are equal, and advantages, losses and all final weights agree within 1e-9, although toishi samples all answers of a
step together, with a cache, and trains on packed rows in which siblings share their prompt. It also leaves a run folder in
which every number of every step can be looked at.
"""

from __future__ import annotations

import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

import toishi
from tiny_model import save_tiny_model
from toishi.tasks import ScriptedTask

inline: Any = import_module("02_whole_loop_inline")
TOLERANCE = 1e-9


def digit_share(completions: list[str], **columns: Any) -> list[float]:
    """The same reward with the signature that toishi (and TRL) call: all answers to one prompt at once."""
    return [inline.digit_share(answer) for answer in completions]


def train(model: Path, folder: Path) -> toishi.Result:
    """Three steps from the model in `model`. What is not written here has its default: GRPO, AdamW, clip 0.2."""
    recipe = {
        "seed": inline.SEED,
        "model": {"name": str(model), "dtype": "float64"},
        "algorithm": "grpo",
        "sampling": {"max_new_tokens": inline.MAX_NEW_TOKENS},
        "train": {
            "steps": inline.STEPS,
            "prompts_per_step": inline.PROMPTS_PER_STEP,
            "group_size": inline.GROUP_SIZE,
            "inner_epochs": inline.INNER_EPOCHS,
        },
        "optimizer": {"lr": inline.LEARNING_RATE, "max_grad_norm": inline.MAX_GRAD_NORM},
        "evaluation": {"prompts": 0},
    }
    return toishi.train(recipe, task=ScriptedTask(inline.PROMPTS), rewards=[digit_share], folder=folder, quiet=True)


def largest_difference(run: toishi.Run, steps: list[Any], weights: dict[str, torch.Tensor]) -> float:
    """Over advantages, losses and final weights; the rewards must be equal."""
    differences: list[float] = []
    for number, by_hand in enumerate(steps, start=1):
        step = run.step(number)
        assert [rollout.reward for rollout in step.rollouts] == by_hand.rewards
        advantages = [rollout.advantage for rollout in step.rollouts]
        losses = [update.scalars["update/loss"] for update in step.updates]
        pairs = [*zip(advantages, by_hand.advantages, strict=True), *zip(losses, by_hand.losses, strict=True)]
        differences += [abs(a - b) for a, b in pairs if isinstance(a, float)]
    saved = load_file(run.folder / "checkpoints" / "step_000003" / "model" / "model.safetensors")
    differences += [float((saved[name] - weight).abs().max()) for name, weight in weights.items() if name in saved]
    return max(differences)


def main() -> None:
    """Runs both and compares."""
    with tempfile.TemporaryDirectory() as scratch:
        model = save_tiny_model(Path(scratch) / "model")
        steps, weights = inline.train(model)
        result = train(model, Path(scratch) / "run")
        run = toishi.Run.open(result.folder)
        for number, by_hand in enumerate(steps, start=1):
            mine, other = run.line(number)["reward/mean"], sum(by_hand.rewards) / len(by_hand.rewards)
            print(f"step {number}: mean reward {other:.6f} inline, {mine:.6f} with toishi")
        difference = largest_difference(run, steps, weights)
        print(f"largest difference in any advantage, loss or final weight: {difference:.1e}")
        assert difference < TOLERANCE
        toishi.explain(result.folder, step=3)


if __name__ == "__main__":
    main()
