"""The same table on a GPU: TRL, TRL with vLLM inside, vLLM alone, and toishi.

    python -m benchmarks.gpu [--shapes S,L,V] [--systems toishi,trl,trl-vllm,vllm] [--repeats 3] [--json FILE]

The environments are not made for you, because builds for GPUs differ: BENCH_TRL_PYTHON is an interpreter with trl[vllm],
BENCH_VLLM_PYTHON one with vllm. Peak memory is what torch held on the GPU in a worker's own process; vLLM's engine reserves its
share in advance, in a process of its own where it has one, so compare it with care. toishi samples with its own engine: it has
none that calls vLLM, and the table says so in a row.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import torch

from benchmarks.bench import options, run
from benchmarks.systems import ON_GPU


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 2 where there is no GPU."""
    parser = options()
    parser.description = __doc__
    parser.set_defaults(systems=",".join(ON_GPU))
    given = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print("no GPU: torch.cuda.is_available() is False. The table for CPUs is `make bench`.", file=sys.stderr)
        return 2
    return run(given, ON_GPU, "cuda")


if __name__ == "__main__":
    sys.exit(main())
