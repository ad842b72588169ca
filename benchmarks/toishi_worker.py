"""toishi's worker: whole training steps as `toishi train` makes them, and what this machine's matrix products reach.

Commands: step (one training step, recorded on disk as always), limits (products of the training pass's shapes), decode
(sampling with many rows against products with as many rows), sample (sampling alone).
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.limits import (
    Products,
    decoding_flop,
    decoding_rate,
    layer_weights,
    products_rate,
    training_flop,
    whole_row_rate,
)
from benchmarks.protocol import Channel, Message, Meter, device_peak_bytes, job_options, peak_bytes
from benchmarks.shapes import Shape, even, rewards
from toishi import loop
from toishi.display import Display
from toishi.engines import torch as torch_engine
from toishi.engines.base import Request, Sampling
from toishi.engines.rows import Ending, Row
from toishi.given import Given, with_given
from toishi.loop import train_step
from toishi.recipes import load_recipe
from toishi.rewards.scripted import ScriptedReward
from toishi.session import Session, gather, start
from toishi.tracing.live import live_updates
from toishi.types import FinishReason, Prompt

_forced_B: list[int] = []


@dataclass(frozen=True)
class ForcedEnding(Ending):
    """Ends each answer at the length decided in advance, never earlier: one comparison a token, as a stop id is."""

    def reason(self, row: Row) -> FinishReason | None:
        return "length" if len(row.token_ids) >= _forced_B[row.index] else None


def main() -> None:
    """Loads the model as a run would, then works through commands."""
    given = job_options(__doc__)
    channel = Channel()
    shape = Shape.from_json(given.shape)
    setattr(torch_engine, "Ending", ForcedEnding)  # noqa: B010  the engine has no public way to force lengths
    with tempfile.TemporaryDirectory() as folder:
        session = made(Path(folder), given.model, shape, given.device, given.options)
        with session.writer:
            sizes = {"parameters": session.policy.num_parameters, "layer_weights": layer_weights(session.policy.module)}
            channel.send({"ready": {"settings": settings(session), **sizes}})
            for command in channel.commands():
                channel.send(COMMANDS[command.pop("do")](session, **command))


def made(folder: Path, model: str, shape: Shape, device: str, options: dict[str, Any]) -> Session:
    """A run of the recipe `sums` with the shape's numbers and rewards that are fixed."""
    config = load_recipe(
        "sums",
        {
            "model.name": model, "model.dtype": "bfloat16", "model.device": device, "train.steps": 10_000,
            "train.prompts_per_step": shape.num_prompts, "train.group_size": shape.group_size,
            "sampling.max_new_tokens": shape.max_new_tokens, "sampling.max_prompt_tokens": max(128, *shape.prompt_lengths),
            "optimizer.lr": 1e-6, "optimizer.warmup_steps": 0, "evaluation.prompts": 0, **options,
        },
    )  # fmt: skip
    given = Given(rewards=(ScriptedReward(values=tuple(rewards(shape.group_size))),))
    config = with_given(config, given)
    return start(config, gather(config, given), folder / "run")


def settings(session: Session) -> str:
    """What a reader of the table should know about this row, in words."""
    tokens = session.settings.token_budget
    return f"bf16 compute, fp32 masters, AdamW; defaults of a run (rows of up to {tokens} tokens, step recorded)"


def step(session: Session, shape: dict[str, Any]) -> Message:
    """One training step: sample, score, advantages, update, record."""
    work = Shape.from_json(shape)
    _resize(session, work)
    prompts = [
        Prompt(id=str(number), text="x", token_ids=tuple(ids))
        for number, ids in enumerate(work.prompts(session.policy.module.config.vocab_size))
    ]
    session.prompts = lambda count: prompts[:count]  # type: ignore[method-assign]
    _forced_B[:] = work.lengths_B
    meter = Meter()
    with meter():
        report = train_step(session, Display.silent())
        session.writer.write_step(report, session.renderer.pieces, streams=session.config.record.tokens)
    session.step = report.step
    sampled = [rollout.completion.num_tokens for group in report.groups for rollout in group.rollouts]
    assert tuple(sampled) == work.lengths_B, f"lengths were not forced: got {sampled}"
    assert all(update.scalars["update/skipped"] == 0 for update in report.updates), "the step taught nothing"
    return {
        "step_s": meter.wall_s, "cpu_s": meter.cpu_s, "generation_s": report.timings_s["rollout"],
        "training_s": report.timings_s["update"], "tokens": sum(sampled), "peak_bytes": peak_bytes(),
        "device_peak_bytes": device_peak_bytes(session.policy.device.type),
    }  # fmt: skip


def _resize(session: Session, work: Shape) -> None:
    """Give the session this shape's numbers, as if it had been started with them."""
    train, sampling = session.config.train, session.config.sampling
    train = train.model_copy(update={"prompts_per_step": work.num_prompts, "group_size": work.group_size})
    sampling = sampling.model_copy(update={"max_new_tokens": work.max_new_tokens})
    session.config = session.config.model_copy(update={"train": train, "sampling": sampling})
    session.settings = replace(session.settings, train=train, max_new_tokens=work.max_new_tokens)


def limits(session: Session, shape: dict[str, Any]) -> Message:
    """What the products of the training pass reach, and its useful work; makes one step to see which products there are."""
    work, module, seen = Shape.from_json(shape), session.policy.module, Products()
    plain = live_updates

    def watched(*args: Any) -> Any:
        with seen:
            return plain(*args)

    setattr(loop, "live_updates", watched)  # noqa: B010
    try:
        step(session, shape)
    finally:
        setattr(loop, "live_updates", plain)  # noqa: B010
    rows = max((product.M for product in seen.counts if not product.left_transposed), default=work.fed_tokens)
    return {
        "training_flop": training_flop(module, fed_tokens=work.fed_tokens, trained_tokens=work.new_tokens),
        "made_flop": float(sum(count * product.flop for product, count in seen.counts.items())),
        "distinct_products": len(seen.counts),
        "own_shapes_flops": products_rate(seen.counts, session.policy.device),
        "whole_rows": min(rows, work.fed_tokens),
        "whole_rows_flops": whole_row_rate(module, min(rows, work.fed_tokens), session.policy.compute_dtype),
    }


def sample(session: Session, shape: dict[str, Any]) -> Message:
    """Sampling alone."""
    work = Shape.from_json(shape)
    _forced_B[:] = work.lengths_B
    prompts = work.prompts(session.policy.module.config.vocab_size)
    requests = [
        Request(prompt_ids=tuple(ids), key=(0, number, member))
        for number, ids in enumerate(prompts)
        for member in range(work.group_size)
    ]
    meter = Meter()
    with meter():
        session.engine.generate(requests, Sampling(max_new_tokens=work.max_new_tokens))
    return {"generation_s": meter.wall_s, "cpu_s": meter.cpu_s, "tokens": work.new_tokens, "peak_bytes": peak_bytes()}


def decode(session: Session, rows: int, new: tuple[int, int], repeats: int) -> Message:
    """Seconds of the decoding steps between two lengths of answers, and what products with as many rows reach meanwhile."""
    shapes = [even("decode", prompt_lengths=(34, 36, 38, 40) * 2, group_size=rows // 8, new=length) for length in new]
    short_s: list[float] = []
    long_s: list[float] = []
    rates: list[float] = []
    for _ in range(repeats):
        rates.append(decoding_rate(session.policy.module, rows))
        for shape, found in zip(shapes, (short_s, long_s), strict=True):
            found.append(sample(session, shape.as_json())["generation_s"])
    module = session.policy.module
    return {
        "rows": rows, "new": list(new), "short_s": short_s, "long_s": long_s,
        "decoding_flop": decoding_flop(module, rows=rows, tokens=new[1] - new[0]),
        "call_flop": decoding_flop(module, rows=rows, tokens=new[1]),
        "products_flops": statistics.median(rates),
    }  # fmt: skip


COMMANDS: dict[str, Callable[..., Message]] = {"step": step, "limits": limits, "sample": sample, "decode": decode}

if __name__ == "__main__":
    main()
