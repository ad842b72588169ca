"""One answer while it grows, and the draw that gives every row of a batch its next token.

Decisions:
1. Every token's two uniform numbers come from the request's key and the position alone, so an answer does not depend on what
   else was in the batch. The draw inverts the cumulative distribution in two levels, without sorting the vocabulary.
2. Log-softmax is at least fp32 whatever the model computes in. Its exponentials are made once and serve the draw, the log-prob
   and the entropy.
3. What a step needs to know goes to Python in one transfer, so a GPU is waited for once per token.
4. A CPU draws for a few rows at a time: their fp32 numbers stay in its cache, and memory for them is used again. Numbers of a
   whole batch are given back to the system and fetched anew in every step, which costs more than the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from toishi.engines.base import Request, Sampling
from toishi.errors import EngineError
from toishi.ops.random import uniforms
from toishi.ops.sampling import choose, filtered
from toishi.types import Completion, FinishReason

_CACHED_NUMBERS = 2**19


@dataclass
class Row:
    """One answer while it grows. `index` is the place of its request in the call."""

    index: int
    prompt_ids: tuple[int, ...]
    draws: Sequence[Sequence[float]]
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    finish: FinishReason | None = None

    @classmethod
    def of(cls, index: int, request: Request, sampling: Sampling) -> Row:
        return cls(index, request.prompt_ids, uniforms(request.key, 2 * sampling.max_new_tokens).reshape(-1, 2).tolist())

    @property
    def length(self) -> int:
        """Tokens before the newest one: prompt and answer that the model has seen, and the newest token's position."""
        return len(self.prompt_ids) + len(self.token_ids) - 1


@dataclass(frozen=True)
class Ending:
    """When an answer ends and how it reads: any of `stop_ids`, any text in `sampling.stop`, or the limit of tokens.

    on_finished  called with every row that has ended
    """

    stop_ids: frozenset[int]
    decode: Callable[[Sequence[int]], str]
    sampling: Sampling
    on_finished: Callable[[Row], None] = lambda row: None

    def reason(self, row: Row) -> FinishReason | None:
        """Why the row ends with its newest token; None while it goes on."""
        if row.token_ids[-1] in self.stop_ids:
            return "stop"
        if self.sampling.stop:
            text = self.decode(row.token_ids)
            if any(mark in text for mark in self.sampling.stop):
                return "stop"
        return "length" if len(row.token_ids) >= self.sampling.max_new_tokens else None

    def completion(self, row: Row) -> Completion:
        """The finished row as a value; a stop string and what follows are cut from its text."""
        text = self.decode(row.token_ids)
        for mark in self.sampling.stop:
            text = text.split(mark, 1)[0]
        assert row.finish is not None
        return Completion(
            token_ids=tuple(row.token_ids),
            loss_mask=(1,) * len(row.token_ids),
            sampled_logprobs=tuple(row.logprobs),
            entropies=tuple(row.entropies),
            text=text,
            finish_reason=row.finish,
        )


def advance(rows: Sequence[Row], logits_BV: Tensor, ending: Ending) -> None:
    """Draw the next token of every row from its logits and note it, with `finish` set where it was the last.

    Raises EngineError when the model gave NaN or infinity.
    """
    draws_B2 = [row.draws[len(row.token_ids)] for row in rows]
    for row, token, logprob, entropy in zip(rows, *drawn(logits_BV, draws_B2, ending.sampling), strict=True):
        row.token_ids.append(int(token))
        row.logprobs.append(logprob)
        row.entropies.append(entropy)
        row.finish = ending.reason(row)
        if row.finish is not None:
            ending.on_finished(row)


def drawn(
    logits_BV: Tensor, draws_B2: Sequence[Sequence[float]], sampling: Sampling
) -> tuple[list[float], list[float], list[float]]:
    """Token, log-prob and entropy (nats) of every row, from the distribution that it is drawn from.

    >>> tokens, logprobs, entropies = drawn(torch.tensor([[0.5, 0.5]]).log(), [(0.5, 0.6)], Sampling(max_new_tokens=1))
    >>> int(tokens[0]), round(logprobs[0], 4), round(entropies[0], 4)
    (1, -0.6931, 0.6931)
    """
    if logits_BV.device.type == "mps":
        logits_BV = logits_BV.cpu()  # MPS has no float64, which the cumulative sums need
    few = max(1, _CACHED_NUMBERS // logits_BV.shape[1]) if logits_BV.device.type == "cpu" else len(logits_BV)
    parts = [
        _drawn(logits_BV[start : start + few], draws_B2[start : start + few], sampling)
        for start in range(0, len(logits_BV), few)
    ]
    values = torch.cat(parts, dim=1).tolist()
    if not all(total - total == 0 for total in values[3]):
        raise EngineError(
            "the model returned NaN or infinity instead of probabilities while sampling; its weights are damaged. "
            "Go back to an earlier checkpoint (toishi resume), or load the model with model.dtype=float32"
        )
    return values[0], values[1], values[2]


def _drawn(logits_BV: Tensor, draws_B2: Sequence[Sequence[float]], sampling: Sampling) -> Tensor:
    """Token, log-prob, entropy and log of the sum of all exponentials of the shifted logits (4, B), in float64."""
    shifted_BV = logits_BV.to(torch.promote_types(logits_BV.dtype, torch.float32), copy=True)
    if sampling.temperature != 1:
        shifted_BV.div_(sampling.temperature)
    if sampling.truncates:
        full_BV = shifted_BV.log_softmax(dim=-1)
        shifted_BV = filtered(full_BV, top_p=sampling.top_p, top_k=sampling.top_k, min_p=sampling.min_p)
    shifted_BV.sub_(shifted_BV.amax(dim=-1, keepdim=True))
    probs_BV = shifted_BV.softmax(dim=-1)
    # The likeliest token is at 0 now, so its probability is 1 over the sum of all exponentials.
    log_total_B = -probs_BV.amax(dim=-1).log()
    chosen_B = shifted_BV.argmax(dim=-1) if sampling.greedy else choose(probs_BV, draws_B2)
    logprobs_B = shifted_BV.gather(1, chosen_B[:, None])[:, 0] - log_total_B
    entropies_B = log_total_B - _mean(probs_BV, shifted_BV)
    return torch.stack([column.double() for column in (chosen_B, logprobs_B, entropies_B, log_total_B)])


def _mean(probs_BV: Tensor, values_BV: Tensor) -> Tensor:
    """Sum of probability times value over the vocabulary; a value of -inf, whose probability is 0, counts 0."""
    means_B: Tensor = torch.linalg.vecdot(probs_BV, values_BV)
    if bool(means_B.isnan().any()):
        means_B = torch.linalg.vecdot(probs_BV, values_BV.clamp_min(torch.finfo(values_BV.dtype).min))
    return means_B
