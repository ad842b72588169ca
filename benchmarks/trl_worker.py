"""TRL's worker: `GRPOTrainer.train()`, held between two optimizer steps until the driver asks for the next one.

Command: step. A step's time runs from the trainer's on_step_begin to its on_step_end: generation, rewards, forward, backward,
clipping, AdamW. The generation phase is the trainer's own `_generate_single_turn`.

Options (JSON): weights ("float32": master weights under bf16 autocast, as TRL loads them; "bfloat16": no masters), and
whatever is to be passed on to GRPOConfig as `config`.

Decisions:
1. Prompts are handed over as token ids in place of `_tokenize_prompts`, so that both sides read the same ones.
2. Lengths are forced where each backend allows it: a stopping criterion per row for `generate`, max_new_tokens per request for
   continuous batching. A row that ends early ends with the stop token, as a real answer would, so TRL masks what follows.
"""

from __future__ import annotations

import os
import tempfile
import time
from typing import Any

import torch
from datasets import Dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    StoppingCriteria,
    StoppingCriteriaList,
    TrainerCallback,
)
from trl import GRPOConfig, GRPOTrainer

from benchmarks.protocol import Channel, device_peak_bytes, job_options, peak_bytes
from benchmarks.shapes import Shape, rewards

_PROMPTS_IN_STOCK = 4096


def main() -> None:
    """Builds the trainer and gives control to its loop."""
    given = job_options(__doc__)
    channel = Channel()
    shape = Shape.from_json(given.shape)
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    with tempfile.TemporaryDirectory() as folder:
        work = Work(shape)
        trainer = made(folder, given.model, shape, given.device, given.options)
        work.take_over(trainer)
        trainer.add_callback(Held(channel, work, trainer, given.device))
        channel.send({"ready": {"settings": settings(trainer, given.options)}})
        trainer.train()


def made(folder: str, model: str, shape: Shape, device: str, options: dict[str, Any]) -> GRPOTrainer:
    """A trainer with TRL's defaults, except for what makes the work the same."""
    rows = shape.num_prompts * shape.group_size
    config: dict[str, Any] = {
        "output_dir": folder, "per_device_train_batch_size": rows, "gradient_accumulation_steps": 1,
        "num_generations": shape.group_size, "max_completion_length": shape.max_new_tokens, "learning_rate": 1e-6,
        "lr_scheduler_type": "constant", "beta": 0.0, "bf16": True, "use_cpu": device == "cpu", "shuffle_dataset": False,
        "max_steps": _PROMPTS_IN_STOCK, "save_strategy": "no", "report_to": [], "logging_steps": _PROMPTS_IN_STOCK,
        "disable_tqdm": True, "dataloader_pin_memory": False, "seed": 0,
        "generation_kwargs": {"min_new_tokens": shape.max_new_tokens},
    }  # fmt: skip
    names = [str(number % shape.num_prompts) for number in range(shape.num_prompts * _PROMPTS_IN_STOCK)]
    values = rewards(shape.group_size)

    def fixed(completions: list[str], **columns: Any) -> list[float]:
        return [values[number % shape.group_size] for number in range(len(completions))]

    return GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, options.get("weights", "float32"))),
        processing_class=AutoTokenizer.from_pretrained(model),
        reward_funcs=fixed,
        args=GRPOConfig(**config | options.get("config", {})),
        train_dataset=Dataset.from_dict({"prompt": names}),
    )


def settings(trainer: GRPOTrainer, options: dict[str, Any]) -> str:
    """What a reader of the table should know about this row, in words."""
    args = trainer.args
    weights = "fp32 weights, bf16 autocast" if options.get("weights", "float32") == "float32" else "bf16 weights, no masters"
    return (
        f"{weights}, AdamW; batch {args.per_device_train_batch_size} x {args.gradient_accumulation_steps}, "
        f"gradient checkpointing {'on' if args.gradient_checkpointing else 'off'}"
    )


class Work:
    """The shape of the step in progress, and the seconds that its generation phase took."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.generation_s = 0.0
        self.made: list[int] = []

    def take_over(self, trainer: GRPOTrainer) -> None:
        """Put prompts, forced lengths and a clock into the trainer's generation."""
        prompts = self.shape.prompts(trainer.model.config.vocab_size)
        trainer._tokenize_prompts = lambda names: ([prompts[int(name)] for name in names], None, {})
        inner, generate = trainer._generate_single_turn, trainer.model.generate
        eos = trainer.processing_class.eos_token_id

        def timed(*args: Any, **kwargs: Any) -> Any:
            begin = time.perf_counter()
            found = inner(*args, **kwargs)
            self.generation_s += time.perf_counter() - begin
            self.made += [len(ids) for ids in found[0]]
            return found

        def forced(input_ids: Any, **kwargs: Any) -> Any:
            lengths_B = torch.tensor(self.shape.lengths_B, device=input_ids.device)
            start = input_ids.shape[1]
            criteria = StoppingCriteriaList([Lengths(start, lengths_B)])
            ids_BL = generate(input_ids=input_ids, stopping_criteria=criteria, **kwargs)
            early = lengths_B < self.shape.max_new_tokens
            rows = torch.arange(len(lengths_B), device=input_ids.device)
            ids_BL[rows[early], start + lengths_B[early] - 1] = eos
            return ids_BL

        trainer._generate_single_turn = timed
        trainer.model.generate = forced
        if trainer.use_transformers_continuous_batching:
            self._force_requests()

    def _force_requests(self) -> None:
        from transformers.generation.continuous_batching import ContinuousBatchingManager

        add = ContinuousBatchingManager.add_request

        def forced(manager: Any, input_ids: list[int], request_id: str, **kwargs: Any) -> Any:
            length = self.shape.lengths_B[int(request_id.removeprefix("req_"))]
            wanted = {"max_new_tokens": length, "eos_token_id": -1}
            return add(manager, input_ids, request_id, **kwargs | wanted)

        ContinuousBatchingManager.add_request = forced


class Lengths(StoppingCriteria):  # type: ignore[misc, unused-ignore]
    """Each row ends at its own length."""

    def __init__(self, start: int, lengths_B: torch.Tensor) -> None:
        self.start, self.lengths_B = start, lengths_B

    def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
        return input_ids.shape[1] - self.start >= self.lengths_B


class Held(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Waits for the driver before each optimizer step, and answers after it."""

    def __init__(self, channel: Channel, work: Work, trainer: GRPOTrainer, device: str) -> None:
        self.channel, self.work, self.trainer, self.device = channel, work, trainer, device

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        """Block until there is a command."""
        command = self.channel.receive()
        if command is None:
            raise SystemExit(0)
        self.work.shape = Shape.from_json(command["shape"])
        self.work.generation_s, self.work.made = 0.0, []
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        """Say how long it took."""
        wall, cpu = time.perf_counter() - self.wall, time.process_time() - self.cpu
        made, wanted = self.work.made, list(self.work.shape.lengths_B)
        assert made == wanted, f"lengths were not forced: wanted {wanted}, got {made}"
        self.channel.send(
            {
                "step_s": wall,
                "cpu_s": cpu,
                "generation_s": self.work.generation_s,
                "training_s": wall - self.work.generation_s,
                "tokens": sum(made),
                "peak_bytes": peak_bytes(),
                "device_peak_bytes": device_peak_bytes(self.device),
            }
        )


if __name__ == "__main__":
    main()
