"""The rewards on made-up answers to real prompts: what can be found out about them before a model is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from toishi.algorithms.terms import Term
from toishi.rewards.base import Repeatable, Reward
from toishi.scoring.groups import score_groups
from toishi.types import Completion, Group, Prompt, Rollout, RolloutId, Score


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


def dry_run(rewards: Sequence[Reward], terms: Sequence[Term | float], prompts: Sequence[Prompt]) -> DryRun:
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
        for group, answers in zip(score_groups(groups, rewards, terms), fakes, strict=True)
        for rollout, (answer, text) in zip(group.rollouts, answers.items(), strict=True)
    )
    unsteady = {reward.name for reward in rewards if isinstance(reward, Repeatable)}
    failures, fatal = _failures(rows), _never_worked(rows)
    errors = tuple(text for name, text in failures.items() if name not in unsteady or name in fatal)
    doubts = (text for text in failures.values() if text not in errors)
    return DryRun(rows=rows, errors=errors, warnings=(*doubts, *_doubts(rows)))


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


def _failures(rows: Sequence[DryRunRow]) -> dict[str, str]:
    """For each reward that failed, a line with the first row it failed on."""
    first: dict[str, str] = {}
    for row in rows:
        for score in row.scores:
            if score.status == "failed":
                first.setdefault(score.reward, f"reward '{score.reward}' failed on prompt {row.prompt.id}: {score.reason}")
    return first


def _never_worked(rows: Sequence[DryRunRow]) -> set[str]:
    """The rewards that failed on every made-up answer with some text: an empty one may be settled without asking."""
    scores = [score for row in rows if row.text for score in row.scores]
    return {score.reward for score in scores} - {score.reward for score in scores if score.status != "failed"}


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
