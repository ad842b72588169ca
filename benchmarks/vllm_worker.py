"""vLLM's worker: sampling only, through its offline class. Command: step (which samples).

Weights move after every training step, so what a step before left in the prefix cache would be stale: it is emptied first.
Within a step siblings share their prompt's cache, as vLLM does by itself.
"""

from __future__ import annotations

import os

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # one process, so that its CPU-seconds and peak are its own

from typing import Any

from vllm import LLM, SamplingParams  # type: ignore[import-not-found, unused-ignore]
from vllm.inputs import TokensPrompt  # type: ignore[import-not-found, unused-ignore]

from benchmarks.protocol import Channel, Message, Meter, device_peak_bytes, job_options, peak_bytes
from benchmarks.shapes import Shape


def main() -> None:
    """Loads the model, then works through commands."""
    given = job_options(__doc__)
    channel = Channel()
    engine = LLM(model=given.model, dtype="bfloat16", max_model_len=2048, seed=0, disable_log_stats=True, **given.options)
    vocab_size = engine.llm_engine.model_config.get_vocab_size()
    channel.send({"ready": {"settings": "bf16 weights, log-probs of the sampled tokens, prefix cache emptied between steps"}})
    for command in channel.commands():
        channel.send(sample(engine, Shape.from_json(command["shape"]), vocab_size, given.device))


def sample(engine: Any, shape: Shape, vocab_size: int, device: str) -> Message:
    """All answers of a step, one request each, of exactly the lengths wanted."""
    prompts = [TokensPrompt(prompt_token_ids=ids) for ids in shape.prompts(vocab_size) for _ in range(shape.group_size)]
    wanted = [
        SamplingParams(temperature=1.0, max_tokens=length, ignore_eos=True, logprobs=1, detokenize=False)
        for length in shape.lengths_B
    ]
    engine.reset_prefix_cache()
    meter = Meter()
    with meter():
        found = engine.generate(prompts, wanted, use_tqdm=False)
    made = [len(answer.outputs[0].token_ids) for answer in found]
    assert made == list(shape.lengths_B), f"lengths were not forced: got {made}"
    return {
        "step_s": None, "cpu_s": meter.cpu_s, "generation_s": meter.wall_s, "training_s": None, "tokens": sum(made),
        "peak_bytes": peak_bytes(), "device_peak_bytes": device_peak_bytes(device),
    }  # fmt: skip


if __name__ == "__main__":
    main()
