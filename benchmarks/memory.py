"""The estimate of `toishi check` beside the memory that whole runs really took, each in a fresh process.

    python -m benchmarks.memory                     every kind of run: estimate, peak, their ratio (minutes)
    python -m benchmarks.memory --kinds adapters    some of them
    python -m benchmarks.memory --methods           every method: bytes a weight, counted, and the peak

The peak is the largest resident size of the process (VmHWM), so Linux only.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook

import toishi.loop
from toishi.memory.methods import LEAST, MOST
from toishi.session import Session

ONE_RUN = """
import json, sys
from pathlib import Path
import toishi.loop
from benchmarks.memory import counting
from benchmarks.protocol import peak_bytes
from toishi.recipes import load_recipe
with counting() as found:
    toishi.loop.train(load_recipe("sums", json.loads(sys.argv[1])), Path(sys.argv[2]))
plan = found.pop("plan")
said = {"estimate": plan.estimate.needed, "phase": plan.estimate.peak.name, "kept": plan.kept.num_bytes}
print(json.dumps(found | said | {"peak": peak_bytes(), "weights": plan.kept.weights}))
"""
BASE: dict[str, Any] = {
    "train.steps": 2, "evaluation.prompts": 0, "model.dtype": "bfloat16", "sampling.max_new_tokens": 64,
}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "all weights, bfloat16": {},
    "all weights, float32": {"model.dtype": "float32"},
    "adapters": {"model.lora": {}},
    "SGD": {"optimizer.name": "sgd"},
    "gradient checkpointing": {"train.gradient_checkpointing": True},
    "rows of 4,096 tokens": {"train.micro_batch_tokens": 4096},
    "traced steps": {"record.trace_every": 1},
}
SHORT: dict[str, Any] = BASE | {"model.dtype": "float32", "sampling.max_new_tokens": 24}
_PPO: dict[str, Any] = {"algorithm": {"name": "ppo", "kl_coef": 0.05}, "train.group_size": 2, "train.prompts_per_step": 16}
_WRITTEN: dict[str, Any] = {"task.written": True, "train.prompts_per_step": 16}
_PAIRS: dict[str, Any] = _WRITTEN | {"train.group_size": 2, "train.prompts_per_step": 8}
METHODS: dict[str, dict[str, Any]] = {
    "SFT": {"algorithm": "sft", "train.group_size": 1} | _WRITTEN,
    "reward model": {"algorithm": "reward_model", "rewards": []} | _PAIRS,
    "DPO": {"algorithm": "dpo"} | _PAIRS,
    "GRPO": {"algorithm": "grpo"},
    "GRPO with KL": {"algorithm": {"name": "grpo", "kl": "k3", "kl_coef": 0.04}},
    "A2C, shared trunk": _PPO | {"algorithm": "a2c"},
    "PPO with KL, shared trunk": _PPO,
    "PPO with KL, critic of its own": _PPO | {"critic.kind": "separate"},
    "GKD, a teacher as large": {
        "algorithm": "gkd", "task.written": True, "train.group_size": 1, "train.prompts_per_step": 16,
        "teacher": {"name": "bundled"},
    },
    "GRPO with LoRA": {"model.lora": {}, "algorithm": "grpo"},
}  # fmt: skip
"""How a run by each method of `toishi.memory.METHODS` is started, fp32, AdamW."""


@contextmanager
def counting() -> Iterator[dict[str, Any]]:
    """Inside, every optimizer step counts the tensors that are held at that moment. In what this gives, "held" is the most of
    them, by name, and "plan" the memory plan that the run began with."""
    sessions: list[Session] = []
    found: dict[str, Any] = {"held": {}}
    loop: Any = toishi.loop
    start = loop.start

    def starting(*given: Any) -> Session:
        sessions.append(start(*given))
        found["plan"] = sessions[-1].memory
        return sessions[-1]

    def count(*_: Any) -> None:
        now = held(sessions[-1])
        if sum(now.values()) > sum(found["held"].values()):
            found["held"] = now

    loop.start = starting
    hook = register_optimizer_step_post_hook(count)
    try:
        yield found
    finally:
        loop.start = start
        hook.remove()


def held(session: Session) -> dict[str, int]:
    """Bytes of the weights in memory, and of what there is one of for a weight, by name as `toishi.memory` names it.

    Each piece of memory counts once. Left out are an optimizer's step counters and a model's constants.
    """
    policy, critic = session.policy, session.critic
    teacher = None if policy.teacher is None else policy.teacher.model
    pieces: dict[str, list[Any]] = {
        "weights": [*policy.masters.values(), *(w for w in policy.module.parameters() if not w.requires_grad)],
        "gradients": [master.grad for master in policy.masters.values()],
        "compute copy": [weight for weight in policy.module.parameters() if weight.requires_grad],
        "optimizer": _moments(session.optimizer),
        "reference model": list((policy._reference or {}).values()),
        "teacher": [] if teacher is None else list(teacher.module.parameters()),
        "critic": [],
    }
    if critic is not None:
        pieces["critic"] += [*critic.masters.values(), *(master.grad for master in critic.masters.values())]
        pieces["critic"] += [*_moments(critic.optimizer), *(critic.trunk.module.parameters() if critic.owns_trunk else ())]
    seen: set[int] = set()
    return {name: sum(_new(piece, seen) for piece in some if piece is not None) for name, some in pieces.items()}


def _moments(optimizer: Any) -> list[Any]:
    return [value for state in optimizer.state.values() for name, value in state.items() if name != "step"]


def _new(piece: Any, seen: set[int]) -> int:
    """Bytes of a tensor whose memory was not seen yet."""
    place = piece.untyped_storage().data_ptr()
    if place in seen:
        return 0
    seen.add(place)
    return int(piece.numel() * piece.element_size())


def measured(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Bytes estimated and taken by a run with these settings, the phase in which it is estimated to need most, and the bytes
    that training keeps for weights: as they are `kept` by the plan, and as they were `held`."""
    command = [sys.executable, "-c", ONE_RUN, json.dumps(settings), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the run with {dict(settings)} ended with exit code {done.returncode}: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def line(kind: str, found: Mapping[str, Any]) -> str:
    """A row of the table of kinds.

    >>> line("SGD", {"estimate": 3_000_000_000, "peak": 2_500_000_000, "phase": "update"})
    '| SGD | 3.00 | update | 2.50 | 1.20 |'
    """
    estimate, peak = found["estimate"], found["peak"]
    return f"| {kind} | {estimate / 1e9:.2f} | {found['phase']} | {peak / 1e9:.2f} | {estimate / peak:.2f} |"


def method_line(method: str, found: Mapping[str, Any]) -> str:
    """A row of the table of methods.

    >>> sizes = {"weights": 10**8, "kept": 1_600_000_000, "estimate": 2_200_000_000, "peak": 2_000_000_000}
    >>> method_line("GRPO", sizes | {"held": {"weights": 400_000_000, "rest": 1_200_000_000}})
    '| GRPO | 16.00 | 1.600 | equal | 2.20 | 2.00 | 1.10 |'
    """
    held, estimate, peak = sum(found["held"].values()), found["estimate"], found["peak"]
    equal = "equal" if held == found["kept"] else f"{found['kept'] / 1e9:.3f}"
    kept = f"{held / found['weights']:.2f} | {held / 1e9:.3f} | {equal}"
    return f"| {method} | {kept} | {estimate / 1e9:.2f} | {peak / 1e9:.2f} | {estimate / peak:.2f} |"


def saved(found: Mapping[str, Mapping[str, Any]]) -> str:
    """What comparing answers saves over a critic of its own, as counted and as the peaks of the two processes say.

    >>> few = {"held": {"weights": 16 * 10**8}, "peak": 2 * 10**9}
    >>> saved({LEAST: few, MOST: {"held": {"weights": 36 * 10**8}, "peak": 4 * 10**9}})
    'GRPO keeps 2.00 GB less than PPO with KL, critic of its own; its process peaked 2.00 GB lower.'
    """
    least, most = found[LEAST], found[MOST]
    kept, peak = sum(most["held"].values()) - sum(least["held"].values()), most["peak"] - least["peak"]
    return f"{LEAST} keeps {kept / 1e9:.2f} GB less than {MOST}; its process peaked {peak / 1e9:.2f} GB lower."


def main() -> None:
    """Measures and prints a table of docs/memory.md."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--kinds", nargs="*", default=list(KINDS), choices=KINDS, help="which runs")
    options.add_argument("--methods", nargs="*", choices=METHODS, help="methods instead; without a name, all of them")
    chosen = options.parse_args()
    if chosen.methods is None:
        print("| run | estimate, GB | in phase | peak, GB | estimate / peak |\n|---|---|---|---|---|")
        for kind in chosen.kinds:
            print(line(kind, _in_a_folder(BASE | KINDS[kind])), flush=True)
        return
    print("| method | bytes a weight | kept, GB | by formula | estimate, GB | peak, GB | estimate / peak |")
    print("|---|---|---|---|---|---|---|")
    found = {}
    for method in chosen.methods or METHODS:
        found[method] = _in_a_folder(SHORT | METHODS[method])
        print(method_line(method, found[method]), flush=True)
    if {LEAST, MOST} <= set(found):
        print(f"\n{saved(found)}")


def _in_a_folder(settings: Mapping[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        return measured(settings, Path(folder) / "run")


if __name__ == "__main__":
    main()
