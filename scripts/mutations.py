"""Plants deliberate faults, one at a time, in a copy of the project: each must turn a test red.

    python scripts/mutations.py            all
    python scripts/mutations.py kl mask    those whose name contains one of the words

Exit status 0 only if every fault was found. The working tree is never touched.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Fault:
    """Replace `old` (which must occur exactly once) by `new` in `file`; `tests` should then fail."""

    name: str
    file: str
    old: str
    new: str
    tests: str


WORKED = "tests/algorithms/test_worked_step.py"
UPDATE = "tests/test_update.py"
VALUING, TEMPORAL = "tests/test_valuing.py", "tests/algorithms/test_temporal.py"
PACKING = "tests/test_packing.py"
ENGINES = "tests/engines/test_torch.py tests/engines/test_exactness.py"

FAULTS = (
    Fault("advantage sign", "ops/surrogates.py", "return -advantages_N * held_N", "return advantages_N * held_N", WORKED),
    Fault(
        "clip on the wrong side",
        "ops/surrogates.py",
        "(advantages_N > 0) & (ratio_N > 1 + clip_high)",
        "(advantages_N < 0) & (ratio_N > 1 + clip_high)",
        WORKED,
    ),
    Fault(
        "clip bounds swapped",
        "ops/surrogates.py",
        "torch.where(low_N, 1 - clip_low,",
        "torch.where(low_N, 1 - clip_high,",
        "tests/ops/test_surrogates.py",
    ),
    Fault(
        "ratio upside down",
        "ops/surrogates.py",
        "log_ratio_N = logprobs_N - old_logprobs_N.detach()",
        "log_ratio_N = old_logprobs_N.detach() - logprobs_N",
        WORKED,
    ),
    Fault(
        "kl direction",
        "ops/kl.py",
        "    log_ratio_N = ref_logprobs_N - logprobs_N\n",
        "    log_ratio_N = logprobs_N - ref_logprobs_N\n",
        "tests/ops/test_kl.py",
    ),
    Fault(
        "population for sample deviation",
        "ops/advantages.py",
        "group_std(rewards, valid, ddof)",
        "group_std(rewards, valid, 0)",
        WORKED,
    ),
    Fault(
        "leave-one-out keeps the own reward",
        "ops/advantages.py",
        "(owner_PG.unsqueeze(2) != owner_PG.unsqueeze(1)) & valid_PG.unsqueeze(1)",
        "(owner_PG.unsqueeze(2) >= 0) & valid_PG.unsqueeze(1)",
        WORKED,
    ),
    Fault("value of the micro-batch", "valuing.py", "loss_N.sum() / num_tokens", "loss_N.sum() / len(loss_N)", VALUING),
    Fault("values taught by whitened advantages", "valuing.py", "(one.returns or ()", "(one.advantage_per_token", VALUING),
    Fault("value never held", "ops/values.py", "torch.where(low_N | high_N, held_loss_N, plain_N)", "plain_N", VALUING),
    Fault("next value forgotten", "ops/gae.py", "gamma * following_T - values_T", "0 * following_T - values_T", TEMPORAL),
    Fault("micro-batch denominator", "update.py", "num_tokens=counts.num_tokens", "num_tokens=len(row.targets_N)", UPDATE),
    Fault(
        "sequences of the micro-batch",
        "update.py",
        "num_sequences=counts.num_sequences",
        "num_sequences=len(row.rollouts)",
        UPDATE,
    ),
    Fault(
        "loss mask dropped",
        "packing.py",
        "        if trained:\n            yield (last",
        "        if True:\n            yield (last",
        PACKING,
    ),
    Fault("off by one shift", "packing.py", "start + offset - 1", "start + offset", PACKING),
    Fault(
        "end token without loss",
        "packing.py",
        "            yield (last if offset == 0",
        "            if offset < len(completion.token_ids) - 1: yield (last if offset == 0",
        PACKING,
    ),
    Fault(
        "siblings see one another",
        "policy/layout.py",
        "allowed_LL[span.prompt_end : span.end, span.start : span.prompt_end] = True",
        "allowed_LL[span.prompt_end : span.end, span.start : span.end] = True",
        PACKING,
    ),
    Fault(
        "positions run on",
        "packing.py",
        "positions += range(len(prompt_ids), len(prompt_ids) + length)",
        "positions += range(len(ids) - length, len(ids))",
        PACKING,
    ),
    Fault(
        "temperature forgotten in training",
        "update.py",
        "logprobs_N, entropy_N = predicted.logprobs_and_entropy(row.targets_N, settings.temperature)",
        "logprobs_N, entropy_N = predicted.logprobs_and_entropy(row.targets_N, 1.0)",
        UPDATE,
    ),
    Fault("temperature forgotten in sampling", "engines/rows.py", "div_(sampling.temperature)", "div_(1.0)", ENGINES),
    Fault(
        "reference follows the policy",
        "policy/policy.py",
        "        with self.with_weights(self._reference):",
        "        with self.with_weights({name: weight.data for name, weight in self._trained.items()}):",
        UPDATE,
    ),
    Fault(
        "reference is not a copy",
        "policy/policy.py",
        "{name: known[name].detach().clone() for name in self._trained}",
        "{name: known[name].detach() for name in self._trained}",
        UPDATE,
    ),
    Fault("bf16 weights not published", "update.py", "    policy.publish()\n", "", UPDATE),
    Fault(
        "gradient of the last row only",
        "policy/policy.py",
        "            if master.grad is None:\n                master.grad = owner._widened(",
        "            if True:\n                master.grad = owner._widened(",
        UPDATE,
    ),
    Fault("gradient clipped twice as hard", "update.py", "limit / norm", "limit / norm / 2", UPDATE),
    Fault(
        "old log-probs not kept", "update.py", "if train.num_updates > 1 else {}", "if train.num_updates > 99 else {}", UPDATE
    ),
    Fault(
        "finished rows stay on the plain path",
        "engines/plain.py",
        "cache.batch_select_indices(",
        "(",
        "tests/engines/test_torch.py",
    ),
    Fault(
        "rows move without their own keys",
        "engines/fast.py",
        "            self.cache.move(moves)\n",
        "            pass\n",
        ENGINES,
    ),
    Fault(
        "padding of prompts is attended to", "engines/fast.py", "causal_LL & is_real_P1L", "causal_LL | ~is_real_P1L", ENGINES
    ),
    Fault("shorter prompts see behind their end", "engines/shared.py", "] < prompt_B[:, None]", "] < 10**6", ENGINES),
    Fault("a row sees what an earlier one left", "engines/shared.py", "] <= step.own_B[:, None]", "] <= 10**6", ENGINES),
    Fault("siblings of another prompt", "engines/shared.py", "slot * most + at", "at", ENGINES),
    Fault(
        "rows apart see behind their end",
        "engines/cache.py",
        "device=device) <= lengths_B[:, None]",
        "device=device) <= lengths_B.amax()",
        ENGINES,
    ),
    Fault("entropy of the wrong sign", "engines/rows.py", "log_total_B - _mean(", "log_total_B + _mean(", ENGINES),
    Fault(
        "top-p keeps one token too few",
        "ops/sampling.py",
        "(reached_BC < top_p).sum(dim=-1, keepdim=True)",
        "((reached_BC < top_p).sum(dim=-1, keepdim=True) - 1).clamp_min_(0)",
        "tests/ops/test_sampling.py",
    ),
    Fault(
        "siblings share their random numbers",
        "rollout.py",
        "id_.step, id_.group, id_.member)",
        "id_.step, id_.group)",
        "tests/test_rollout.py",
    ),
    Fault(
        "a failed reward counts as 0",
        "algorithms/composing.py",
        'scores=scores, reward=None, status="failed", failure=failure',
        'scores=scores, reward=0.0, status="completed", failure=failure',
        "tests/test_scoring.py",
    ),
    Fault(
        "resume repeats prompts", "session.py", 'saved.step, saved.state["next_prompt"]', "saved.step, 0", "tests/test_loop.py"
    ),
    Fault(
        "resume forgets Adam",
        "session.py",
        '    learner.optimizer.load_state_dict(saved.state["optimizer"])\n',
        "",
        "tests/test_loop.py",
    ),
)


def main(words: list[str]) -> int:
    chosen = [fault for fault in FAULTS if not words or any(word in fault.name for word in words)]
    survived = []
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "project"
        shutil.copytree(
            ROOT, copy, ignore=shutil.ignore_patterns(".git", ".venv", ".*_cache", ".hypothesis", "runs", "__pycache__")
        )
        for number, fault in enumerate(chosen, 1):
            begin = time.perf_counter()
            verdict = unplantable(fault, copy) or ("found" if is_found(fault, copy) else "SURVIVED")
            survived += [] if verdict == "found" else [fault.name]
            print(f"{number:2}/{len(chosen)}  {verdict:9} {time.perf_counter() - begin:5.1f} s  {fault.name}", flush=True)
    print(
        f"{len(chosen) - len(survived)} of {len(chosen)} faults found"
        + (f"; not found: {', '.join(survived)}" if survived else "")
    )
    return 1 if survived else 0


def unplantable(fault: Fault, root: Path) -> str:
    """Why the fault cannot be planted; empty if it can."""
    count = (root / "src" / "toishi" / fault.file).read_text(encoding="utf-8").count(fault.old)
    return "" if count == 1 else f"NOT PLANTED: expected its text once in {fault.file}, found it {count} times"


def is_found(fault: Fault, copy: Path) -> bool:
    """Whether the tests fail with the fault in place; the copy is whole again afterwards."""
    path = copy / "src" / "toishi" / fault.file
    whole = path.read_text(encoding="utf-8")
    path.write_text(whole.replace(fault.old, fault.new), encoding="utf-8")
    try:
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *fault.tests.split()]
        environment = os.environ | {"PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        return (
            subprocess.run(
                command, cwd=copy, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
            ).returncode
            == 1
        )
    finally:
        path.write_text(whole, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
