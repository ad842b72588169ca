"""From completions to rewards: every reward is asked, its answer checked, and the weighted sum taken with its parts kept.

Decisions:
1. A part that failed makes the rollout failed: a sum over fewer parts would compare unlike things, and 0 would be a lie.
2. An abstained part is left out of the sum; a rollout that every reward abstained on has no reward, and is not failed.
3. What breaks the contract (wrong count, NaN, a value that is no number) is a `RewardError`, raised before a weight changes;
   what goes wrong while judging (an exception, a time-out) is data with status "failed".
4. Rewards run in turn, and group by group; one with `concurrent = True` is asked about several groups at once, from threads.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from numbers import Real

from toishi.errors import RewardError, ToishiError
from toishi.rewards.base import Judgement, Reward
from toishi.types import Completion, Group, Prompt, Rollout, RolloutId, Score

MAX_CONCURRENT_GROUPS = 16
Judged = list[tuple[Judgement, ...]]


def score_groups(groups: Sequence[Group], rewards: Sequence[Reward], weights: Sequence[float]) -> tuple[Group, ...]:
    """`groups` with scores, reward and status filled in; rollouts that had failed before are passed through unscored.

        reward_i = sum over rewards k and their parts p with status ok of  weight_k * value_ikp

    Raises RewardError when a reward breaks its contract.

    >>> from toishi.rewards.scripted import ScriptedReward, answered
    >>> from toishi.types import RolloutId
    >>> prompt = Prompt(id="a", text="2 + 2?")
    >>> group = Group(prompt=prompt, rollouts=(Rollout(id=RolloutId(0, 0, 0), prompt=prompt, completion=answered("4")),))
    >>> rewards = [ScriptedReward(name="right", values=(1.0,)), ScriptedReward(name="kind", values=(0.5,))]
    >>> score_groups([group], rewards, [1.0, 0.5])[0].rewards
    (1.25,)
    """
    asked = [(group.prompt, [rollout.completion for rollout in _scorable(group)]) for group in groups]
    judged_by_reward = [_ask(reward, asked) for reward in rewards]
    named = [(reward.name, weight) for reward, weight in zip(rewards, weights, strict=True)]
    return tuple(_scored_group(group, named, judged) for group, *judged in zip(groups, *judged_by_reward, strict=True))


def scoring_summary(groups: Sequence[Group]) -> dict[str, float | int | None]:
    """For each reward: mean and std (ddof 1) over the completions it gave a value, and how many failed and abstained.

    A completion's value is the sum of its parts, without the weight. None where there is no number to report.
    """
    by_reward: dict[str, list[list[Score]]] = {}
    for rollout in (rollout for group in groups for rollout in group.rollouts):
        parts: dict[str, list[Score]] = {}
        for score in rollout.scores:
            parts.setdefault(score.reward, []).append(score)
        for name, scores in parts.items():
            by_reward.setdefault(name, []).append(scores)
    return {key: value for name, completions in by_reward.items() for key, value in _summary(name, completions).items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRunRow:
    """What the rewards said of one made-up answer to one real prompt.

    answer  what kind of answer: "nothing", "the gold", "another gold" or "no idea"
    """

    prompt: Prompt
    answer: str
    text: str
    scores: tuple[Score, ...]
    reward: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """The rewards tried on made-up answers: `errors` forbid a start, `warnings` are for a person to judge."""

    rows: tuple[DryRunRow, ...]
    errors: tuple[str, ...]
    warnings: tuple[str, ...]


def dry_run(rewards: Sequence[Reward], weights: Sequence[float], prompts: Sequence[Prompt]) -> DryRun:
    """The rewards on real prompts with made-up answers: "", the gold, another prompt's gold, "I don't know.".

    Needs no model, so it finds before one is loaded that a reward breaks, pays nothing, or pays wrong answers as well.
    Raises RewardError when a reward breaks its contract.

    >>> from toishi.rewards.number import NumberReward
    >>> prompts = [Prompt(id="a", text="5 + 7?", gold=12), Prompt(id="b", text="1 + 1?", gold=2)]
    >>> [(row.text, row.reward) for row in dry_run([NumberReward()], [1.0], prompts).rows][:3]
    [('', 0.0), ('12', 1.0), ('2', 0.0)]
    """
    fakes = [_fake_answers(prompt, prompts) for prompt in prompts]
    groups = [_fake_group(place, prompt, answers) for place, (prompt, answers) in enumerate(zip(prompts, fakes, strict=True))]
    rows = tuple(
        DryRunRow(prompt=group.prompt, answer=answer, text=text, scores=rollout.scores, reward=rollout.reward)
        for group, answers in zip(score_groups(groups, rewards, weights), fakes, strict=True)
        for rollout, (answer, text) in zip(group.rollouts, answers.items(), strict=True)
    )
    return DryRun(rows=rows, errors=_failures(rows), warnings=tuple(_doubts(rows)))


def _fake_answers(prompt: Prompt, prompts: Sequence[Prompt]) -> dict[str, str]:
    answers = {"nothing": ""}
    if prompt.gold is not None:
        answers["the gold"] = str(prompt.gold)
        others = [str(other.gold) for other in prompts if other.gold is not None and other.gold != prompt.gold]
        answers |= {"another gold": others[0]} if others else {}
    return answers | {"no idea": "I don't know."}


def _fake_group(place: int, prompt: Prompt, answers: Mapping[str, str]) -> Group:
    """Tokens and log-probs are made up: one token per word, and one that stops."""
    rollouts = []
    for member, text in enumerate(answers.values()):
        count = len(text.split()) + 1
        zeros = (0.0,) * count
        completion = Completion(
            token_ids=(0,) * count,
            loss_mask=(1,) * count,
            sampled_logprobs=zeros,
            entropies=zeros,
            text=text,
            finish_reason="stop",
        )
        rollouts.append(Rollout(id=RolloutId(0, place, member), prompt=prompt, completion=completion))
    return Group(prompt=prompt, rollouts=tuple(rollouts))


def _failures(rows: Sequence[DryRunRow]) -> tuple[str, ...]:
    """One line for each reward that failed, with the first row it failed on."""
    first: dict[str, str] = {}
    for row in rows:
        for score in row.scores:
            if score.status == "failed":
                first.setdefault(score.reward, f"reward '{score.reward}' failed on prompt {row.prompt.id}: {score.reason}")
    return tuple(first.values())


def _doubts(rows: Sequence[DryRunRow]) -> Iterator[str]:
    paid = [row.reward for row in rows if row.reward is not None]
    if not paid:
        yield "no made-up answer got a reward: every reward abstained or failed"
    elif max(paid) == min(paid):
        yield (
            f"all {len(paid)} made-up answers get the same reward {paid[0]:g}: expected of a reward for a form that none of "
            "them has, but a reward that is always the same teaches nothing"
        )
    golds = {row.prompt.id: row for row in rows if row.answer == "the gold"}
    for row in rows:
        gold = golds.get(row.prompt.id)
        if gold is not None and row.answer in ("nothing", "another gold") and _is_paid_as_much(row, gold):
            yield (
                f"prompt {row.prompt.id}: the answer {row.text!r} ({row.answer}) is paid {row.reward:g}, and the gold "
                f"{gold.text!r} {gold.reward:g}: the right answer should be paid more"
            )


def _is_paid_as_much(row: DryRunRow, gold: DryRunRow) -> bool:
    return row.reward is not None and gold.reward is not None and row.reward >= gold.reward


def _ask(reward: Reward, asked: Sequence[tuple[Prompt, list[Completion]]]) -> list[Judged]:
    if getattr(reward, "concurrent", False) and len(asked) > 1:
        with ThreadPoolExecutor(min(len(asked), MAX_CONCURRENT_GROUPS)) as pool:
            return list(pool.map(lambda group: _ask_group(reward, *group), asked))
    return [_ask_group(reward, prompt, completions) for prompt, completions in asked]


def _ask_group(reward: Reward, prompt: Prompt, completions: list[Completion]) -> Judged:
    if not completions:
        return []
    try:
        judged = reward.score_group(prompt, completions)
    except ToishiError:
        raise
    except Exception as error:
        broken = Judgement(value=None, status="failed", reason=f"{type(error).__name__}: {error}")
        return [(broken,)] * len(completions)
    if not isinstance(judged, list) or len(judged) != len(completions):
        got = f"{len(judged)} entries" if isinstance(judged, list) else type(judged).__name__
        raise RewardError(
            f"reward '{reward.name}', prompt {prompt.id}: expected a list with one tuple of judgements for each of "
            f"{len(completions)} completions, got {got}"
        )
    for member, (judgements, completion) in enumerate(zip(judged, completions, strict=True)):
        problem = _contract_problem(judgements, completion.num_tokens)
        if problem:
            raise RewardError(f"reward '{reward.name}', prompt {prompt.id}, completion {member}: {problem}")
    return judged


def _contract_problem(judgements: object, num_tokens: int) -> str | None:
    if not isinstance(judgements, tuple) or not judgements or not all(isinstance(item, Judgement) for item in judgements):
        return f"expected a non-empty tuple of Judgement, got {judgements!r}"
    return next((problem for item in judgements if (problem := _judgement_problem(item, num_tokens))), None)


def _judgement_problem(judgement: Judgement, num_tokens: int) -> str | None:
    value = judgement.value
    if (judgement.status == "ok") != (value is not None):
        return f"status '{judgement.status}' with value {value!r}; a value belongs to status 'ok' and to no other"
    if value is not None and not _is_finite_number(value):
        return f"the value {value!r} is not a finite number"
    if judgement.span is not None and not 0 <= judgement.span[0] < judgement.span[1] <= num_tokens:
        return f"the span {judgement.span} is not inside the completion's {num_tokens} tokens"
    return None


def _is_finite_number(value: object) -> bool:
    return isinstance(value, Real) and math.isfinite(value)


def _scorable(group: Group) -> list[Rollout]:
    return [rollout for rollout in group.rollouts if rollout.status != "failed"]


def _scored_group(group: Group, named: Sequence[tuple[str, float]], judged: Sequence[Judged]) -> Group:
    """`judged` holds, for each reward, one tuple of judgements for each scorable rollout."""
    scores: dict[RolloutId, tuple[Score, ...]] = {}
    for member, rollout in enumerate(_scorable(group)):
        scores[rollout.id] = tuple(
            _score(name, weight, judgement)
            for (name, weight), of_reward in zip(named, judged, strict=True)
            for judgement in of_reward[member]
        )
    rollouts = (_scored(rollout, scores[rollout.id]) if rollout.id in scores else rollout for rollout in group.rollouts)
    return replace(group, rollouts=tuple(rollouts))


def _score(name: str, weight: float, judgement: Judgement) -> Score:
    return Score(
        reward=name,
        value=None if judgement.value is None else float(judgement.value),
        weight=weight,
        reason=judgement.reason,
        status=judgement.status,
        span=judgement.span,
        readable=judgement.readable,
    )


def _scored(rollout: Rollout, scores: tuple[Score, ...]) -> Rollout:
    failed = next((score for score in scores if score.status == "failed"), None)
    if failed is not None:
        failure = f"reward {failed.reward}: {failed.reason}"
        return replace(rollout, scores=scores, reward=None, status="failed", failure=failure)
    parts = [score.contribution for score in scores if score.contribution is not None]
    reward = math.fsum(parts) if parts else None
    return replace(rollout, scores=scores, reward=reward)


def _summary(name: str, completions: Sequence[Sequence[Score]]) -> Mapping[str, float | int | None]:
    whole = [scores for scores in completions if all(score.status != "failed" for score in scores)]
    values = [[score.value for score in scores if score.value is not None] for scores in whole]
    totals = [math.fsum(parts) for parts in values if parts]
    return {
        f"rewards/{name}/mean": statistics.fmean(totals) if totals else None,
        f"rewards/{name}/std": statistics.stdev(totals) if len(totals) > 1 else None,
        f"rewards/{name}/failed": len(completions) - len(whole),
        f"rewards/{name}/abstained": len(whole) - len(totals),
    }
