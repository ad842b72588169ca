"""Links 5 to 9 as values: pushes on tokens, gradient, weights, probabilities, SFT beside it."""

from __future__ import annotations

from dataclasses import dataclass

from toishi.explanation.chain.model_scores import Check
from toishi.record.trace import Contrast, MatrixChange, TextKind, TracedPosition, UpdateTotals


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPush:
    """A token and how d loss / d log-prob came about.

        weight = - advantage · ratio_factor · correction · share · pooling + kl_coef · share · kl_slope

    token         position in the answer
    advantage     the token's; with a ratio of the whole answer, the mean over its tokens that are not held
    ratio         importance ratio at the row's level
    clip          0 free, 1 held low, 2 held high, 3 held by the dual clip
    ratio_factor  what of the ratio reaches the gradient: the ratio; 0 when held; 1 without a ratio; capped for a capped weight
    correction    off-policy weight; 1 without a correction
    share         the token's share of the loss
    pooling       1, or for a ratio of the whole answer how many shares act on each of its tokens
    kl_slope      d KL estimate / d log-prob; 0 without a KL term
    policy_part, kl_part  the two terms of the sum
    product       their sum
    weight        d loss / d log-prob as recorded
    autograd      the same by automatic differentiation of the library's loss; None for an answer that was not computed
    """

    token: int
    text: str
    has_loss: bool
    logprob: float | None
    advantage: float
    ratio: float
    clip: int
    ratio_factor: float
    correction: float
    share: float
    pooling: float
    kl_slope: float
    policy_part: float
    kl_part: float
    product: float
    weight: float
    autograd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberWeights:
    """The tokens of an answer in the update; `why_not` says why an answer has none."""

    member: int
    computed: bool
    why_not: str
    total: float
    absolute: float
    tokens: tuple[TokenPush, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedStart:
    """A stretch of tokens at which some answers agree, as they do on everything before it.

    members  the answers that go through it
    depth    how many partings lie before it
    begin    place of its first token
    texts    its tokens
    pushes   of each token the pushes of all its members together (minus the sum of their weights)
    """

    members: tuple[int, ...]
    depth: int
    begin: int
    texts: tuple[str, ...]
    pushes: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsLink:
    """Link 5: the push on every token in one optimizer update.

    update, num_updates  which update is shown, and of how many
    num_tokens, num_sequences, max_length  the denominators of the whole update
    entropy_slope   d loss / d entropy of each token (an entropy term pushes through it, not through log-probs); 0 without one
    group_share     this group's part of all pushing in the update: sum of |weight|
    through_logits  largest relative distance to autograd through the model's own logits, measured by the trace; None without it
    starts          the tree of the answers' beginnings
    """

    update: int
    num_updates: int
    reduction: str
    num_tokens: int
    num_sequences: int
    max_length: int
    surrogate: str
    ratio_level: str
    clip_low: float
    clip_high: float
    dual_clip: float
    kl: str
    kl_coef: float
    entropy_slope: float
    loss: float
    group_share: float | None
    through_logits: float | None
    members: tuple[MemberWeights, ...]
    starts: tuple[SharedStart, ...]
    check: Check


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateGradient:
    """The gradient of one update, over all weights. `limit` is the length that it is cut to; None: never."""

    update: int
    norm: float
    limit: float | None
    factor: float
    clipped: float
    lr: float
    skipped: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientLink:
    """Link 6: all pushes together, as one direction in the space of weights."""

    updates: tuple[UpdateGradient, ...]
    check: Check


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerChange:
    """A layer's matrices together."""

    layer: str
    weight_norm: float
    gradient_norm: float
    step_norm: float
    change_norm: float
    relative_change: float | None
    changed_share: float
    changed_share_compute: float
    lost_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeLink:
    """Link 7: what gradient, clipping, optimizer and decay made of the weights in the shown update.

    dtype     the compute precision; masters are held in their own
    top, bottom  matrices by relative change
    """

    update: int
    dtype: str
    totals: UpdateTotals
    weight_norm: float
    layers: tuple[LayerChange, ...]
    top: tuple[MatrixChange, ...]
    bottom: tuple[MatrixChange, ...]
    check: Check


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEffect:
    """A token's log-prob before and after the step."""

    text: str
    before: float
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerEffect:
    """An answer before and after the step.

    before, after  its log-prob in nats; change = after - before; times = e^change, how many times as likely it is now
    advantage      sum of its advantage over the tokens' mean; None for an answer that the step did not sample
    agreed         whether it moved the way its advantage asked for; None without an advantage or without a move
    """

    kind: TextKind
    member: int | None
    text: str
    before: float
    after: float
    change: float
    times: float
    advantage: float | None
    agreed: bool | None
    tokens: tuple[TokenEffect, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectLink:
    """Link 8: what became of the probabilities.

    dtype  in which they were measured: the run's compute precision
    noise  nats between two log-probs of one token before the step, by the trace's pass and by the step's own: the largest
    """

    answers: tuple[AnswerEffect, ...]
    positions: tuple[TracedPosition, ...]
    temperature: float
    dtype: str
    noise: float
    check: Check


@dataclass(frozen=True, slots=True, kw_only=True)
class SftLink:
    """Link 9: SFT on the same prompt beside the step's gradient."""

    contrast: Contrast
    check: Check
