"""How d loss / d log-prob of a token is made of its factors, in plain float64: no autograd, no tensor.

    weight = - advantage · ratio_factor · correction · share · pooling + kl_coef · share · kl_slope

Decisions:
1. The derivative is written out by hand for every choice of a row, so that it is another road to the number than autograd's.
2. With a ratio of the whole answer a token moves the loss of all its tokens: their sum is `pooling` shares of their mean
   advantage.
3. An entropy term reaches the weights through the entropies, which are separate inputs of the loss: it is not in here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from toishi.algorithms.rows import Algorithm
from toishi.ops.surrogates import LEAST_REST
from toishi.types import Rollout, TokenStreams

SHARES: Mapping[str, Callable[[int, int, int, int], float]] = {
    "token_mean": lambda length, tokens, sequences, limit: 1 / tokens,
    "sequence_mean_token_mean": lambda length, tokens, sequences, limit: 1 / (sequences * length),
    "sequence_sum": lambda length, tokens, sequences, limit: 1 / sequences,
    "constant_length": lambda length, tokens, sequences, limit: 1 / (sequences * limit),
}
KL_SLOPES: Mapping[str, Callable[[float, float], float]] = {
    "k2": lambda logprob, ref: logprob - ref,
    "k3": lambda logprob, ref: -math.expm1(ref - logprob),
    "ratio_k3": lambda logprob, ref: logprob - ref,
}
"""d estimate / d log-prob; for ratio_k3 times the token's ratio."""
UNHELD: Mapping[str, Callable[[float, float], float]] = {
    "score_function": lambda advantage, probability: 1.0,
    "dynamic": lambda advantage, probability: probability,
    "unlikelihood": lambda advantage, probability: _odds(probability) if advantage < 0 else 1.0,
}
"""Surrogates without a ratio: what stands in its place, from the advantage and the token's probability."""
ON_BOUND = 1e-6


def _odds(probability: float) -> float:
    """p / (1 - p); 0 next to the pole, where the loss is held."""
    return probability / (1 - probability) if probability < math.exp(-LEAST_REST) else 0.0


@dataclass(frozen=True, slots=True)
class Denominators:
    """What the losses of an update are divided by."""

    num_tokens: int
    num_sequences: int
    max_length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Factors:
    """The factors of one token; `scale` is the largest term that was added, which rounding is measured against."""

    advantage: float
    ratio: float
    clip: int
    ratio_factor: float
    correction: float
    share: float
    pooling: float
    kl_slope: float
    kl_coef: float

    @property
    def policy_part(self) -> float:
        return -self.advantage * self.ratio_factor * self.correction * self.share * self.pooling

    @property
    def kl_part(self) -> float:
        return self.kl_coef * self.share * self.kl_slope

    @property
    def product(self) -> float:
        return self.policy_part + self.kl_part

    @property
    def scale(self) -> float:
        return abs(self.policy_part) + self.kl_coef * self.share * (1.0 + abs(self.kl_slope))


def factors_of(
    rollout: Rollout, stream: TokenStreams, advantages: Sequence[float], row: Algorithm, counts: Denominators
) -> list[Factors]:
    """The factors of each token with loss, in order.

    advantages  of every token of the answer
    """
    places = [place for place, trained in enumerate(rollout.completion.loss_mask) if trained]
    logs = [_clamped(stream.logprob[place] - stream.old_logprob[place]) for place in places]
    share = SHARES[row.reduction](max(1, len(places)), counts.num_tokens, counts.num_sequences, counts.max_length)
    ratios = _ratios(logs, row.ratio_level)
    own = [
        _own(rollout, stream, place, advantages[place], ratio, math.exp(log), share, row)
        for place, log, ratio in zip(places, logs, ratios, strict=True)
    ]
    pooled = row.policy_term and row.ratio_level != "token" and row.surrogate in ("clipped", "dual_clip")
    return _pooled(own, row) if pooled else own


def _clamped(log_ratio: float) -> float:
    return min(max(log_ratio, -80.0), 80.0)


def _ratios(logs: Sequence[float], level: str) -> list[float]:
    if level == "token":
        return [math.exp(log) for log in logs]
    total = math.fsum(logs) / (max(1, len(logs)) if level == "sequence_mean" else 1)
    return [math.exp(_clamped(total))] * len(logs)


def _own(
    rollout: Rollout,
    stream: TokenStreams,
    place: int,
    advantage: float,
    ratio: float,
    token_ratio: float,
    share: float,
    row: Algorithm,
) -> Factors:
    clip = _clip(row, advantage, ratio) if row.policy_term else 0
    if clip != stream.clip[place] and _on_a_bound(row, ratio):
        clip = stream.clip[place]
    slope = 0.0
    if row.kl in KL_SLOPES and row.needs_reference:
        slope = KL_SLOPES[row.kl](stream.logprob[place], stream.ref_logprob[place])
        slope *= token_ratio if row.kl == "ratio_k3" else 1.0
    return Factors(
        advantage=advantage,
        ratio=ratio,
        clip=clip,
        ratio_factor=_ratio_factor(row, ratio, clip, advantage, math.exp(stream.logprob[place])),
        correction=_correction(row, stream.old_logprob[place], rollout.completion.sampled_logprobs[place : place + 1]),
        share=share,
        pooling=1.0,
        kl_slope=slope,
        kl_coef=row.kl_coef,
    )


def _clip(row: Algorithm, advantage: float, ratio: float) -> int:
    """0 free, 1 held low, 2 held high, 3 held by the dual clip."""
    low, high = 1 - row.clip_low, 1 + row.clip_high
    if row.surrogate in UNHELD:
        return 0
    if row.surrogate == "stop_gradient":
        return 1 if ratio < low else 2 if ratio > high else 0
    if row.surrogate == "dual_clip" and advantage < 0 and ratio > row.dual_clip:
        return 3
    return 1 if advantage < 0 and ratio < low else 2 if advantage > 0 and ratio > high else 0


def _on_a_bound(row: Algorithm, ratio: float) -> bool:
    """So near to a bound that rounding decides the branch: then the recorded branch is the one that was taken."""
    return any(abs(ratio - bound) <= ON_BOUND for bound in (1 - row.clip_low, 1 + row.clip_high, row.dual_clip))


def _ratio_factor(row: Algorithm, ratio: float, clip: int, advantage: float, probability: float) -> float:
    if not row.policy_term:
        return 0.0
    if row.surrogate in UNHELD:
        return UNHELD[row.surrogate](advantage, probability)
    if row.surrogate == "stop_gradient":
        return min(max(ratio, 1 - row.clip_low), 1 + row.clip_high)
    return 0.0 if clip else ratio


def _correction(row: Algorithm, old: float, sampled: Sequence[float]) -> float:
    """`sampled` holds one log-prob, or none where the engine did not say: then nothing can be corrected by it."""
    if row.off_policy == "none" or not row.policy_term:
        return 1.0
    weight = math.exp(old - sampled[0])
    if row.off_policy == "truncated_importance":
        return min(weight, row.off_policy_cap)
    return weight if 1 / row.off_policy_cap <= weight <= row.off_policy_cap else 0.0


def _pooled(own: Sequence[Factors], row: Algorithm) -> list[Factors]:
    """Every token of the answer acts through the one ratio: the sum over its siblings, said as mean times count."""
    if not own:
        return []
    each = 1 / len(own) if row.ratio_level == "sequence_mean" else 1.0
    acting = [factors for factors in own if not factors.clip] or list(own)
    advantage = math.fsum(factors.advantage * factors.correction for factors in acting) / len(acting)
    held = all(factors.clip for factors in own)
    return [
        Factors(
            advantage=advantage,
            ratio=factors.ratio,
            clip=factors.clip,
            ratio_factor=0.0 if held else factors.ratio,
            correction=1.0,
            share=factors.share,
            pooling=each * len(acting),
            kl_slope=factors.kl_slope,
            kl_coef=factors.kl_coef,
        )
        for factors in own
    ]
