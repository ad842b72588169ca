"""From the last hidden states to log-probs: how the policy reaches the vocabulary head of an unmodified transformers model.

Decisions:
1. The fast way runs the base model to its last hidden state and computes log-probs from there, without logits. What a model
   does between the two (a scale, a soft-cap, a bias) is read from its configuration, and then *verified on the model at hand*:
   the module's own logits against the fast ones, on the hidden states that it computes and on others put in their place,
   large ones included, at which no cap and no scale can hide.
2. A model with a head of one number (a reward model) is asked for its score of an answer, in the place of a log-prob.
3. Where the structure is unknown, or something else than a plain linear layer is the head (an adapter on it), or a number
   differs, the plain way is taken: the module's own logits. `why` says which.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from toishi.ops.head import Head, head_logits, head_logprobs_and_entropy
from toishi.ops.logprobs import logprobs_and_entropy

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4}
COARSE_TOLERANCE = 0.04
"""Largest distance relative to the largest logit; in 16 bits the model rounds its capped logits, the fast way does not."""
_FACTORS = (1.0, 50.0)
_TOKENS = 5


class Predictions(Protocol):
    """What a forward pass says about the next token at N positions; it hangs on the model's graph."""

    def logprobs_and_entropy(self, targets_N: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        """Log-prob of each target and entropy, both (N,), as `ops.logprobs.logprobs_and_entropy` defines them."""

    def logits(self, places_n: Tensor) -> Tensor:
        """All logits (n, V) at some of the N positions: for few at a time."""

    @property
    def hidden_ND(self) -> Tensor | None:
        """Last hidden states (N, D) at these positions, from the same pass: what a critic's head reads. None: it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FromLogits:
    """The plain way: logits as the module gives them."""

    logits_NV: Tensor
    hidden_ND: Tensor | None = None

    def logprobs_and_entropy(self, targets_N: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        return logprobs_and_entropy(self.logits_NV, targets_N, temperature)

    def logits(self, places_n: Tensor) -> Tensor:
        return self.logits_NV[places_n]


@dataclass(frozen=True, slots=True, kw_only=True)
class FromHidden:
    """The fast way: logits exist for a slice of the vocabulary at a time."""

    hidden_ND: Tensor
    head: Head

    def logprobs_and_entropy(self, targets_N: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        return head_logprobs_and_entropy(self.hidden_ND, self.head, targets_N, temperature)

    def logits(self, places_n: Tensor) -> Tensor:
        return head_logits(self.hidden_ND[places_n], self.head)


@dataclass(frozen=True, slots=True, kw_only=True)
class FromScores:
    """A reward model's score at each of the N positions, where others have a log-prob. There is no distribution behind it."""

    score_N: Tensor
    hidden_ND: Tensor | None = None

    def logprobs_and_entropy(self, targets_N: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        return self.score_N, self.score_N * 0.0  # on the graph, as every row's entropy is

    def logits(self, places_n: Tensor) -> Tensor:
        raise TypeError("a reward model predicts no tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class FastHead:
    """A causal language model taken apart.

    base     the model below the head
    linear   the head's layer
    scale, softcap  as in `ops.head.Head`
    """

    base: nn.Module
    linear: nn.Linear
    scale: float
    softcap: float | None

    @property
    def head(self) -> Head:
        """The head with its weights of the moment."""
        return Head(weight_VD=self.linear.weight, bias_V=self.linear.bias, scale=self.scale, softcap=self.softcap)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadChoice:
    """Which way a model takes to its log-probs, and why; `fast` is None for the plain one.

    base  the model below the head, whose last hidden state a critic reads; None where there is none
    score  the layer that gives a reward model's number; None for a model that predicts tokens
    """

    fast: FastHead | None
    why: str
    base: nn.Module | None = None
    score: nn.Linear | None = None


def output_layer(module: Any) -> Any:
    """The layer from the last hidden states to what the model says: the vocabulary's head, or that of a score."""
    return score_layer(module) or module.get_output_embeddings()


def score_layer(module: Any) -> nn.Linear | None:
    """The head of a sequence classifier with one number on a decoder; None for other models."""
    layer = getattr(module, "score", None)
    return layer if isinstance(layer, nn.Linear) and layer.out_features == 1 else None


def choose_head(module: Any) -> HeadChoice:
    """Takes the model apart if that can be done, and verifies it on the spot: three passes over five tokens."""
    if (score := score_layer(module)) is not None:
        return HeadChoice(fast=None, score=score, why="a score from the last hidden state of an answer")
    causal = module.get_base_model() if hasattr(module, "peft_config") else module
    base, linear = causal.get_decoder(), causal.get_output_embeddings()
    obstacle = ""
    if base is causal:
        obstacle = f"{type(causal).__name__} has no base model below its head"
    elif type(linear) is not nn.Linear:
        obstacle = f"the head is a {type(linear).__name__} of {type(linear).__module__.partition('.')[0]}"
    elif linear._forward_hooks or linear._forward_pre_hooks:
        obstacle = "the head has hooks"
    below = None if base is causal else base
    if obstacle:
        return HeadChoice(fast=None, why=f"{obstacle}: log-probs from the model's own logits", base=below)
    fast = FastHead(base=base, linear=linear, scale=_scale(causal), softcap=_softcap(causal))
    found, bound = _difference(module, fast), TOLERANCE.get(linear.weight.dtype, COARSE_TOLERANCE)
    if not found <= bound:
        why = f"hidden state times head is not what {type(causal).__name__} computes (relative difference {found:.2g})"
        own = f"{why}: log-probs from the model's own logits"
        return HeadChoice(fast=None, why=own, base=None if math.isinf(found) else below)  # infinite: no hidden state came out
    why = "log-probs from hidden states, verified on this model: logits are never stored"
    return HeadChoice(fast=fast, why=why, base=below)


def _scale(causal: Any) -> float:
    """Cohere multiplies by `logit_scale`, Granite divides by `logits_scaling`."""
    config = causal.config.get_text_config()
    return float(getattr(config, "logit_scale", None) or 1.0) / float(getattr(config, "logits_scaling", None) or 1.0)


def _softcap(causal: Any) -> float | None:
    """Gemma 2 and its kin."""
    softcap = getattr(causal.config.get_text_config(), "final_logit_softcapping", None)
    return None if softcap is None else float(softcap)


@torch.no_grad()
def _difference(module: Any, fast: FastHead) -> float:
    """Largest distance of the module's logits to the fast ones, relative to the largest; infinite for a foreign output."""
    device = fast.linear.weight.device
    ids_1L = (torch.arange(_TOKENS, device=device) * 7 + 3).remainder(fast.linear.out_features)[None]
    keep_n = torch.tensor([_TOKENS - 1, 0, 2, 0], device=device)
    inputs = {"input_ids": ids_1L, "position_ids": torch.arange(_TOKENS, device=device)[None], "use_cache": False}
    own_nV = module(**inputs, logits_to_keep=keep_n).logits[0]
    hidden_1LD = getattr(fast.base(**inputs), "last_hidden_state", None)
    if hidden_1LD is None:
        return math.inf
    noise_1LD = torch.randn(hidden_1LD.shape, generator=torch.Generator().manual_seed(0)).to(hidden_1LD)
    pairs = [(own_nV, hidden_1LD)]
    for factor in _FACTORS:
        replaced_1LD = noise_1LD * factor
        with fast.base.register_forward_hook(lambda _part, _given, output, put=replaced_1LD: _with_hidden(output, put)):
            pairs.append((module(**inputs, logits_to_keep=keep_n).logits[0], replaced_1LD))
    apart = [_relative(own, head_logits(hidden[0][keep_n], fast.head)) for own, hidden in pairs]
    return math.nan if any(map(math.isnan, apart)) else max(apart)


def _with_hidden(output: Any, hidden_1LD: Tensor) -> Any:
    output.last_hidden_state = hidden_1LD
    return output


def _relative(own_nV: Tensor, fast_nV: Tensor) -> float:
    if own_nV.shape != fast_nV.shape:
        return math.inf
    own_nV = own_nV.to(fast_nV.dtype)
    return float((own_nV - fast_nV).abs().max() / own_nV.abs().max())
