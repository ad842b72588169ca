"""Scores of groups: what every reward said, composed into one reward for each answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType

from toishi.algorithms.composing import composed
from toishi.algorithms.terms import Term, named
from toishi.rewards.base import Judgement, Reward
from toishi.scoring.asking import Asking, Judged, Progress
from toishi.types import Group, Rollout, RolloutId, Score


def score_groups(
    groups: Sequence[Group], rewards: Sequence[Reward], terms: Sequence[Term | float], *, on_progress: Progress | None = None
) -> tuple[Group, ...]:
    """`groups` with scores, reward and status filled in; rollouts that had failed before are passed through unscored.

        reward_i = sum over rewards k and their parts p of  contribution_ikp, which is weight_k * value_ikp
                   unless a gate, a cap, the noise or a failure says otherwise: see `toishi.algorithms.composing`

    terms  how each reward enters the sum; a number is its weight
    Raises RewardError when a reward breaks its contract, ConfigError for gates that cannot be decided.

    >>> from toishi.rewards.scripted import ScriptedReward, answered
    >>> from toishi.types import Prompt
    >>> prompt = Prompt(id="a", text="2 + 2?")
    >>> group = Group(prompt=prompt, rollouts=(Rollout(id=RolloutId(0, 0, 0), prompt=prompt, completion=answered("4")),))
    >>> rewards = [ScriptedReward(name="right", values=(1.0,)), ScriptedReward(name="kind", values=(0.5,))]
    >>> score_groups([group], rewards, [1.0, 0.5])[0].rewards
    (1.25,)
    """
    with Scoring(rewards, terms, num_groups=len(groups), overlap=False) as scoring:
        for place, group in enumerate(groups):
            scoring.add(place, group)
        return scoring.finish(on_progress)


class Scoring:
    """`score_groups` for groups that come one by one, such as while others are still sampled; the result is the same.

    overlap   rewards that wait (`toishi.rewards.base`) are asked about a group as soon as it comes
    hidden_s  seconds in which a reward was asked before the last group had come; known at the end

    A context: when it is left by an error, no further group is begun.

    >>> from toishi.rewards.scripted import ScriptedReward, answered
    >>> from toishi.types import Prompt
    >>> prompt = Prompt(id="a", text="2 + 2?")
    >>> group = Group(prompt=prompt, rollouts=(Rollout(id=RolloutId(0, 0, 0), prompt=prompt, completion=answered("4")),))
    >>> with Scoring([ScriptedReward(values=(1.0,))], [1.0], num_groups=1) as scoring:
    ...     scoring.add(0, group)
    ...     scoring.finish()[0].rewards
    (1.0,)
    """

    def __init__(
        self, rewards: Sequence[Reward], terms: Sequence[Term | float], *, num_groups: int, overlap: bool = True
    ) -> None:
        self._terms = named(terms, [reward.name for reward in rewards])
        self._asking = Asking(rewards, [term.retries for term in self._terms], num_groups, overlap=overlap)
        self._groups: dict[int, Group] = {}

    def __enter__(self) -> Scoring:
        self._asking.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._asking.__exit__(kind, error, trace)

    @property
    def hidden_s(self) -> float:
        return self._asking.hidden_s

    def add(self, place: int, group: Group) -> None:
        """The group that stands at `place` among all. Raises as `finish`, where the error cannot become another one."""
        self._groups[place] = group
        self._asking.add(place, group.prompt, [rollout.completion for rollout in _scorable(group)])

    def finish(self, on_progress: Progress | None = None) -> tuple[Group, ...]:
        """All groups in order, scored. Raises as `score_groups`."""
        judged = self._asking.judged(on_progress)
        return tuple(
            composed(_with_scores(self._groups[place], self._terms, [of_reward[place] for of_reward in judged]), self._terms)
            for place in range(len(self._groups))
        )


def _scorable(group: Group) -> list[Rollout]:
    return [rollout for rollout in group.rollouts if rollout.status != "failed"]


def _with_scores(group: Group, terms: Sequence[Term], judged: Sequence[Judged]) -> Group:
    """`judged` holds, for each reward, one tuple of judgements for each scorable rollout."""
    scores: dict[RolloutId, tuple[Score, ...]] = {}
    for member, rollout in enumerate(_scorable(group)):
        scores[rollout.id] = tuple(
            _score(term, judgement) for term, of_reward in zip(terms, judged, strict=True) for judgement in of_reward[member]
        )
    rollouts = tuple(replace(r, scores=scores[r.id]) if r.id in scores else r for r in group.rollouts)
    return replace(group, rollouts=rollouts)


def _score(term: Term, judgement: Judgement) -> Score:
    return Score(
        reward=term.name,
        value=None if judgement.value is None else float(judgement.value),
        weight=term.weight,
        reason=judgement.reason,
        status=judgement.status,
        span=judgement.span,
        readable=judgement.readable,
        kind=judgement.kind,
    )
