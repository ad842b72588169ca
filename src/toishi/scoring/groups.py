"""Scores of groups: what every reward said, composed into one reward for each answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from toishi.algorithms.composing import composed
from toishi.algorithms.terms import Term, named
from toishi.rewards.base import Judgement, Reward
from toishi.scoring.asking import Judged, Progress, ask_all
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
    known = named(terms, [reward.name for reward in rewards])
    asked = [(group.prompt, [rollout.completion for rollout in _scorable(group)]) for group in groups]
    by_reward = ask_all(rewards, asked, [term.retries for term in known], on_progress)
    return tuple(composed(_with_scores(group, known, judged), known) for group, *judged in zip(groups, *by_reward, strict=True))


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
