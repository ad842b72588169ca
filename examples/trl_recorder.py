"""TRL trains, toishi watches: an ordinary TRL script with one more argument, and what it shows of a step afterwards.

    python examples/trl_recorder.py

A tiny random model learns, in four TRL steps, to write vowels. Needs: pip install 'toishi[trl]'
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from tiny_model import save_tiny_model
from toishi.callbacks import TRLRecorder
from toishi.explanation.audit import audit
from toishi.explanation.chain.build import explain_chain
from toishi.record import Run


def vowels(completions: list[str], **_: object) -> list[float]:
    """Share of vowels."""
    return [sum(letter in "ae" for letter in text) / max(1, len(text)) for text in completions]


def main() -> None:
    """Train with TRL, then look at the run folder."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        trainer = GRPOTrainer(
            model=str(save_tiny_model(folder / "model")),
            reward_funcs=vowels,
            args=GRPOConfig(
                output_dir=str(folder / "trl"),
                per_device_train_batch_size=8,
                num_generations=8,
                max_completion_length=6,
                max_steps=4,
                learning_rate=1e-2,
                disable_dropout=True,
                gradient_checkpointing=False,
                bf16=False,
                use_cpu=True,
                report_to="none",
                save_strategy="no",
                logging_strategy="no",
                disable_tqdm=True,
            ),
            train_dataset=Dataset.from_dict({"prompt": ["abc", "bad", "cab", "fed"]}),
            callbacks=[TRLRecorder(folder / "run")],
        )
        trainer.train()
        run = Run.open(folder / "run")
        report = audit(run)
        print(f"steps on record: {len(run.steps)}; audit: {'whole' if report.ok else report.findings}")
        print(f"not on record: {', '.join(report.missing)}")
        for line in explain_chain(run, 1).headlines:
            print("-", line)


if __name__ == "__main__":
    main()
