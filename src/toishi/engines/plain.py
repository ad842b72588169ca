"""The plain path: any causal model, one prompt at a time, through whatever cache the model makes.

It is what the fast path (engines.fast) is compared with. The prompt is computed once and its cache repeated for its rows; there
is no padding and no mask, so nothing is asked of the model but to go on from its own cache.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from toishi.engines.rows import Ending, Row, advance


def cache_name(module: Any) -> str:
    """What the model calls its cache, as an argument and in its output."""
    inner = module.get_base_model() if hasattr(module, "get_base_model") else module
    return "cache" if "cache" in inspect.signature(inner.forward).parameters else "past_key_values"


def decode_plainly(module: Any, rows: Sequence[Row], ending: Ending, *, max_rows: int) -> None:
    """Finish all rows, at most `max_rows` siblings at the same time."""
    by_prompt: dict[tuple[int, ...], list[Row]] = {}
    for row in rows:
        by_prompt.setdefault(row.prompt_ids, []).append(row)
    for siblings in by_prompt.values():
        for start in range(0, len(siblings), max_rows):
            _decode_siblings(module, siblings[start : start + max_rows], ending)


def _decode_siblings(module: Any, rows: list[Row], ending: Ending) -> None:
    name, device = cache_name(module), module.device
    output = module(**_inputs([list(rows[0].prompt_ids)], 0, device), use_cache=True, logits_to_keep=1)
    cache = getattr(output, name)
    cache.batch_repeat_interleave(len(rows))
    logits_BV: Tensor = output.logits[:, -1].expand(len(rows), -1)
    while True:
        advance(rows, logits_BV, ending)
        going_on = [place for place, row in enumerate(rows) if row.finish is None]
        if not going_on:
            return
        if len(going_on) < len(rows):
            cache.batch_select_indices(torch.tensor(going_on, device=device))
            rows = [rows[place] for place in going_on]
        inputs = _inputs([[row.token_ids[-1]] for row in rows], rows[0].length, device)
        logits_BV = module(**inputs, **{name: cache}, use_cache=True, logits_to_keep=1).logits[:, -1]


def _inputs(ids: list[list[int]], start: int, device: torch.device) -> dict[str, Any]:
    """Token ids with their positions, which are the same in every row because siblings have equal lengths."""
    ids_BL = torch.tensor(ids, device=device)
    positions_BL = torch.arange(start, start + ids_BL.shape[1], device=device).expand_as(ids_BL)
    return {"input_ids": ids_BL, "position_ids": positions_BL, "attention_mask": None}
