"""Which device and which compute precision a run uses.

Decisions:
1. On a CPU nobody can tell from the model's name whether bfloat16 is fast (it needs matrix units for it), so it is measured:
   one matrix product of a small model's size, float32 against bfloat16, medians of interleaved repeats.
2. bfloat16 has to win clearly (1.3 times) to be worth its rounding.
3. The answer of a measurement may differ between runs: the caller stores it and passes it by name on resume.
"""

from __future__ import annotations

import statistics
import time
from functools import cache

import torch
from torch.nn.functional import linear

from toishi.errors import ConfigError

_MIN_SPEEDUP = 1.3
_ROWS, _IN, _OUT = 512, 576, 1536
_REPEATS = 9

_BY_NAME = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}


def choose_device(requested: str) -> torch.device:
    """'auto' takes CUDA, then Apple's MPS, then the CPU.

    >>> choose_device("cpu")
    device(type='cpu')
    """
    if requested == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(requested)
    except RuntimeError:
        raise ConfigError(f"model.device: expected 'auto', 'cpu', 'cuda', 'cuda:1' or 'mps', got {requested!r}") from None
    _require_present(device)
    return device


def choose_dtype(requested: str, device: torch.device) -> torch.dtype:
    """The compute precision; 'auto' is bfloat16 where the hardware is clearly faster with it, else float32.

    >>> choose_dtype("float64", torch.device("cpu"))
    torch.float64
    """
    if requested != "auto":
        return _BY_NAME[requested]
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    if device.type == "cpu":
        return torch.bfloat16 if bfloat16_speedup() >= _MIN_SPEEDUP else torch.float32
    return torch.float32


@cache
def bfloat16_speedup() -> float:
    """How many times faster a matrix product is in bfloat16 than in float32 on this CPU, measured once per process."""
    times_s: dict[torch.dtype, list[float]] = {torch.float32: [], torch.bfloat16: []}
    with torch.no_grad():
        operands = {dtype: (torch.ones(_ROWS, _IN, dtype=dtype), torch.ones(_OUT, _IN, dtype=dtype)) for dtype in times_s}
        for _ in range(_REPEATS):
            for dtype, (rows, weight) in operands.items():
                start = time.perf_counter()
                linear(rows, weight)
                times_s[dtype].append(time.perf_counter() - start)
    return statistics.median(times_s[torch.float32]) / statistics.median(times_s[torch.bfloat16])


def _require_present(device: torch.device) -> None:
    is_absent_cuda = device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count()
    is_absent_mps = device.type == "mps" and not torch.backends.mps.is_available()
    if is_absent_cuda or is_absent_mps:
        raise ConfigError(f"model.device: {device} is not available here; use 'auto' or 'cpu'")
