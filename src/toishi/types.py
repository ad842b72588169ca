"""The nouns of toishi: plain frozen values, no torch, no I/O.

Decisions:
1. The *group* (one prompt, its G sampled completions) is the unit that rewards and advantages see, so that
   pairwise judges, leave-one-out baselines and rankings need no special path.
2. A failed score or rollout is data with a status and a reason. It is never a reward of 0.
3. Identity is data: `RolloutId(step, group, member)` prints as a path and joins every record.

Legend of shape suffixes used in the whole code base: P prompts of a step, G members of a group, B = P*G
sequences, N packed tokens (only positions that carry a log-prob), L positions of one packed row, V vocabulary.

The flow, one way: `Prompt -> Completion -> Rollout(scores, reward, advantage) -> Group -> Batch -> StepReport`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Message = Mapping[str, str]
"""One chat turn: {"role": "user" | "assistant" | "system", "content": text}."""

FinishReason = Literal["stop", "length", "unknown"]
ScoreStatus = Literal["ok", "abstained", "failed"]
RolloutStatus = Literal["completed", "truncated", "failed"]
ScoreUse = Literal["counted", "capped", "gated", "levelled", "left_out"]
RESIDUE = 1e-12


@dataclass(frozen=True, slots=True, order=True)
class RolloutId:
    """Where a rollout stands in a run.

    >>> str(RolloutId(step=12, group=3, member=0))
    '12/3/0'
    """

    step: int
    group: int
    member: int

    def __str__(self) -> str:
        return f"{self.step}/{self.group}/{self.member}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What the model is asked, exactly one of `messages` (chat) or `text` (plain continuation).

    `columns` holds every other column of the data row; rewards receive them by name. `gold` is the column
    that the task calls the right answer (also present in `columns` under its own name).
    `token_ids` and `prefill` are filled when the policy renders the prompt: `prefill` is text that the chat template
    already wrote for the assistant (for example "<think>"), which format rewards must know about.
    """

    id: str
    messages: tuple[Message, ...] | None = None
    text: str | None = None
    gold: Any = None
    columns: Mapping[str, Any] = field(default_factory=dict)
    token_ids: tuple[int, ...] = ()
    prefill: str = ""

    @property
    def is_conversational(self) -> bool:
        return self.messages is not None

    @property
    def shown(self) -> str:
        """The text a person recognises the prompt by: the last user turn, or the plain text."""
        if self.messages is None:
            return self.text or ""
        return self.messages[-1]["content"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One sampled answer, token by token, with the log-probs under which it was sampled.

    token_ids       includes the stop token when there is one (it was sampled, it gets loss)
    loss_mask       1 where the token was sampled by the policy, 0 for tool results and prefilled text
    sampled_logprobs  log-prob of each token at the sampling temperature, as the engine saw it; empty when it did not say
    entropies       entropy (nats) of the distribution each token was drawn from, same temperature; empty when not said
    text            decoded without the stop token and without anything after it
    finish_reason   "stop" (a stop id or stop string was met) or "length" (the token limit cut it); "unknown" in others' records

    >>> Completion(token_ids=(5, 2), loss_mask=(1, 1), sampled_logprobs=(-0.1, -0.2), entropies=(0.3, 0.4),
    ...            text="4", finish_reason="stop").num_tokens
    2
    """

    token_ids: tuple[int, ...]
    loss_mask: tuple[int, ...]
    sampled_logprobs: tuple[float, ...]
    entropies: tuple[float, ...]
    text: str
    finish_reason: FinishReason
    policy_version: int = 0

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def is_truncated(self) -> bool:
        return self.finish_reason == "length"


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What one reward said about one completion.

    value   the number, or None when `status` is not "ok"
    weight  the reward's weight in the sum
    reason  why: the judge's words, the checker's reading, the error message
    status  "ok"; "abstained" (the reward does not apply to this row); "failed" (it broke: excluded, counted, never 0)
    span    half-open token range [start, end) of the completion that this score is about (rewards of intermediate
            steps); None means the whole completion
    readable  whether an answer in the asked-for form could be read at all; None where the reward does not look for one.
              Evaluation splits its value into (share readable) x (value of the readable ones) by it
    kind    one short word that puts failures of a kind together, such as "timed_out"; empty where none is told apart
    use     how it enters the sum: "counted" as weight x value; "capped" at a bound; "gated": 0, its gate is closed; "levelled":
            the group's mean, its differences are within the reward's noise; "left_out" of the whole group's sums
    paid    its part of the sum where that is not weight x value; None when it is left out

    >>> Score(reward="number", value=1.0, weight=0.5, reason="read 7, gold 7").contribution
    0.5
    >>> Score(reward="style", value=1.0, weight=0.5, use="gated", paid=0.0).contribution
    0.0
    """

    reward: str
    value: float | None
    weight: float = 1.0
    reason: str = ""
    status: ScoreStatus = "ok"
    span: tuple[int, int] | None = None
    readable: bool | None = None
    kind: str = ""
    use: ScoreUse = "counted"
    paid: float | None = None

    @property
    def contribution(self) -> float | None:
        """Its part of the rollout's reward; None when it has none."""
        if self.use != "counted":
            return self.paid
        return None if self.value is None else self.weight * self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One completion with everything later stages learned about it.

    reward       weighted sum of its scores; None when it could not be scored (then it is outside the baseline)
    advantage    a number for the whole completion, or one number per token; None before it is computed
    ref_logprobs log-probs under the reference model (the model at step 0); None when no KL term needs them
    policy_logprobs  log-probs under the policy before the step, where advantages are made of them and no sampler told them
    status       completed | truncated | failed; `failure` names the boundary and the message of a failure
    """

    id: RolloutId
    prompt: Prompt
    completion: Completion
    scores: tuple[Score, ...] = ()
    reward: float | None = None
    advantage: float | tuple[float, ...] | None = None
    ref_logprobs: tuple[float, ...] | None = None
    policy_logprobs: tuple[float, ...] | None = None
    status: RolloutStatus = "completed"
    failure: str = ""

    @property
    def own_logprobs(self) -> tuple[float, ...]:
        """Log-probs under the policy before the step: as sampled, or `policy_logprobs`; empty where neither is known."""
        return self.completion.sampled_logprobs or self.policy_logprobs or ()

    @property
    def advantage_per_token(self) -> tuple[float, ...]:
        """`advantage` spread over the tokens; 0 for a rollout outside the baseline."""
        if self.advantage is None:
            return (0.0,) * self.completion.num_tokens
        if isinstance(self.advantage, tuple):
            return self.advantage
        return (self.advantage,) * self.completion.num_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupBaseline:
    """The numbers that turned a group's rewards into advantages.

    mean, std   of the `count` rewards that took part (std with the row's ddof); None for an empty group
    count       how many members took part: failed and abstained ones are left out
    kept        False when the algorithm's filter dropped the group
    why         in words: why it was dropped, or which reward's differences were within its noise; empty otherwise
    """

    mean: float | None
    std: float | None
    count: int
    kept: bool = True
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One prompt and its sampled siblings."""

    prompt: Prompt
    rollouts: tuple[Rollout, ...]
    baseline: GroupBaseline | None = None

    @property
    def rewards(self) -> tuple[float | None, ...]:
        return tuple(rollout.reward for rollout in self.rollouts)

    @property
    def is_tied(self) -> bool:
        """All valid rewards are equal up to rounding (or fewer than two are valid): no learning signal by comparison."""
        valid = [reward for reward in self.rewards if reward is not None]
        return len(valid) < 2 or max(valid) - min(valid) <= RESIDUE * max(map(abs, valid))


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenStreams:
    """Per-token numbers of one rollout in one optimizer update, all of length `completion.num_tokens`.

    `token_weight` is d loss / d logprob of the step's loss: the whole influence of a token as one number.
    `clip` is 0 (free), 1 (held at the lower bound), 2 (held at the upper bound), 3 (held by the dual clip).
    `divergence` (nats) is from the teacher's next-token distribution, where the loss has such a term.
    A rollout that cannot contribute (advantage 0, no KL, no entropy term) is not run through the model again;
    `computed` is False then and every stream but `advantage` is empty.
    """

    rollout: RolloutId
    computed: bool
    advantage: tuple[float, ...] = ()
    old_logprob: tuple[float, ...] = ()
    logprob: tuple[float, ...] = ()
    ref_logprob: tuple[float, ...] = ()
    entropy: tuple[float, ...] = ()
    ratio: tuple[float, ...] = ()
    clip: tuple[int, ...] = ()
    kl_policy_ref: tuple[float, ...] = ()
    divergence: tuple[float, ...] = ()
    token_weight: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """One optimizer update. A step has several when it runs inner epochs or minibatches.

    scalars  loss, grad_norm (before clipping), lr, clip fractions, ratio statistics, ...
    streams  one `TokenStreams` for each rollout that took part
    """

    step: int
    index: int
    scalars: Mapping[str, float]
    streams: tuple[TokenStreams, ...] = ()

    @property
    def id(self) -> str:
        return f"{self.step}/{self.index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """Everything one training step produced, ready for the record."""

    step: int
    groups: tuple[Group, ...]
    updates: tuple[Update, ...]
    metrics: Mapping[str, float | int | str | None]
    timings_s: Mapping[str, float]

    @property
    def rollouts(self) -> Sequence[Rollout]:
        return [rollout for group in self.groups for rollout in group.rollouts]
