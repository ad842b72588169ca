"""What a recipe's rewards pay for answers that are not right: a set of attacks on a few real rows, before a model is loaded.

Decisions:
1. An attack is compared with honest wrong answers in the usual forms: what those are paid as well is a form's pay, not a hack.
2. A reward that pays the right answer no more than a wrong one looks at form (format, length, repetition): it pays attacks by
   nature, which is said in one line and is no fault. The alarm is for the recipe: when its *sum* pays an attack at least as
   much as the right answer, training may find it.
3. The right answer is what the best paid of its usual forms is paid, so that a reward may ask for tags or a box.
4. Noise levels and failures of one answer must not change its siblings' pay here, so terms are taken without them.
5. Where each text costs a model's call or a program's run, one row is tried. A judge that compares siblings would see the
   attacks beside one another, and its start-up probe has tried tricks already: it is left out, and with it the sum.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from toishi.algorithms.terms import Term, named
from toishi.judging.probe import MARGIN
from toishi.rewards.base import Reward
from toishi.rewards.judged import JudgedReward
from toishi.rewards.reward_model import RewardModelReward
from toishi.rewards.sandboxed import Sandboxed
from toishi.rewards.scripted import answered
from toishi.scoring.attack_scene import right_answers, scene_of, wrong_answers
from toishi.scoring.attack_texts import ATTACKS, Attack, scene_texts
from toishi.scoring.groups import score_groups
from toishi.types import Group, Prompt, Rollout, RolloutId

ATTACK_ROWS = 4
COSTLY_ROWS = 1
SUM = "the sum"
_BY_NAME = {attack.name: attack for attack in ATTACKS}
RIGHT, WRONG = "the right answer", "a wrong answer"
EXACT = 1e-9
COSTLY = (JudgedReward, RewardModelReward, Sandboxed)
"""Rewards to which each text is a model's call or a program's run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackRow:
    """What one reward, or the recipe's sum, paid for one attack. Means over the rows that paid it.

    reward   the reward's name, or "the sum" of all by weight
    paid     the attack; `wrong` and `right` what honest answers were paid beside it
    text     the attack on the first row
    on       on so many of `of` rows it was paid
    """

    reward: str
    attack: str
    why: str
    remedy: str
    text: str
    paid: float
    wrong: float
    right: float
    on: int
    of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackReport:
    """What was tried, and what paid.

    paid      the rewards that look at the answer and pay an attack more than a wrong answer
    hacked    what the recipe's sum pays at least as much as the right answer: an alarm each
    form_only  names of rewards that pay the right answer no more than a wrong one
    left_out   names of rewards that were not asked, since they compare siblings
    has_right  some row has a right answer that the sum pays more than a wrong one; without, nothing can be alarming
    """

    num_rows: int
    num_attacks: int
    num_texts: int
    paid: tuple[AttackRow, ...]
    hacked: tuple[AttackRow, ...]
    form_only: tuple[str, ...]
    left_out: tuple[str, ...]
    has_right: bool

    @property
    def warning(self) -> str:
        """One sentence about what the recipe pays like the right answer; empty when there is nothing."""
        if not self.hacked:
            return ""
        first, *others = self.hacked
        more = f" and {len(others)} more" if others else ""
        return (
            f"the sum of the rewards pays {len(self.hacked)} of {self.num_attacks} attacks as much as the right answer: "
            f"'{first.attack}' ({first.paid:.2f}; the right answer {first.right:.2f}, a wrong one {first.wrong:.2f}){more}. "
            f"Training may find them. What to do: {first.remedy}"
        )


def attack_cost(rewards: Sequence[Reward], prompts: Sequence[Prompt]) -> str:
    """What the attacks will ask of rewards that cost time or money, in words; empty when there is none."""
    names = ", ".join(f"'{reward.name}'" for reward in _asked(rewards) if isinstance(reward, COSTLY))
    if not names or not prompts:
        return ""
    count = len(_tries(prompts[-1], prompts, rewards))
    return (
        f"The attacks ask {names} about {count} made-up answers to 1 row; one answer may take several calls or runs. "
        "--no-attacks leaves them out."
    )


def try_attacks(rewards: Sequence[Reward], terms: Sequence[Term | float], prompts: Sequence[Prompt]) -> AttackReport:
    """What `rewards` pay for every attack on the last few of `prompts`; their golds are candidates for one another.

    Needs no model of its own. Raises RewardError when a reward breaks its contract.

    >>> from toishi.rewards.contains import ContainsReward
    >>> from toishi.rewards.number import NumberReward
    >>> prompts = [Prompt(id="a", text="5 + 7?", gold=12, columns={"answer": 12})]
    >>> [row.attack for row in try_attacks([ContainsReward(phrases_column="answer")], [1.0], prompts).hacked][:2]
    ['lists all candidates', 'one answer or another']
    >>> try_attacks([NumberReward()], [1.0], prompts).hacked
    ()
    """
    asked = _asked(rewards)
    names = {reward.name for reward in asked}
    known = [_plain(term) for term in named(terms, [reward.name for reward in rewards]) if term.name in names]
    count = COSTLY_ROWS if any(isinstance(reward, COSTLY) for reward in asked) else ATTACK_ROWS
    rows = [(prompt, _tries(prompt, prompts, asked)) for prompt in prompts[-count:]] if asked else []
    groups = [_group(place, prompt, tries) for place, (prompt, tries) in enumerate(rows)]
    scored = score_groups(groups, asked, known) if groups else ()
    seen = [_Seen(group, tuple(tries)) for group, (_, tries) in zip(scored, rows, strict=True)]
    margins = {reward.name: MARGIN if isinstance(reward, JudgedReward) else EXACT for reward in asked}
    form = tuple(name for name, margin in margins.items() if not _tells_right(seen, name, margin))
    paid = [_row(seen, name, attack, margin) for name, margin in margins.items() if name not in form for attack in ATTACKS]
    has_right = len(asked) == len(rewards) and _tells_right(seen, SUM, max(margins.values(), default=EXACT))
    hacked = [_row(seen, SUM, attack, None) for attack in ATTACKS] if has_right else []
    return AttackReport(
        num_rows=len(seen),
        num_attacks=len({one.kind for found in seen for one in found.tries} - {RIGHT, WRONG}),
        num_texts=sum(len(found.tries) for found in seen),
        paid=tuple(row for row in paid if row is not None),
        hacked=tuple(row for row in hacked if row is not None),
        form_only=form,
        left_out=tuple(reward.name for reward in rewards if reward.name not in names),
        has_right=has_right,
    )


@dataclass(frozen=True, slots=True)
class _Try:
    """One made-up answer: of the kind RIGHT, WRONG or an attack's name."""

    kind: str
    text: str
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class _Seen:
    """One row's made-up answers as they were scored."""

    group: Group
    tries: tuple[_Try, ...]

    def pay(self, reward: str, kind: str) -> tuple[float, str] | None:
        """What an answer of that kind is sure to be paid, and its text; None when there is no such answer, or no value."""
        found = [
            (value, one.text)
            for rollout, one in zip(self.group.rollouts, self.tries, strict=True)
            if one.kind == kind and (value := _value(rollout, reward)) is not None
        ]
        knows = kind in _BY_NAME and _BY_NAME[kind].knows
        if knows and len(found) < sum(one.kind == kind for one in self.tries):
            return None  # some place of the right answer has no value, so nothing is sure
        if not found:
            return None
        return (min if knows else max)(found, key=lambda pair: pair[0])


def _asked(rewards: Sequence[Reward]) -> list[Reward]:
    """Without those that compare siblings."""
    return [reward for reward in rewards if not (isinstance(reward, JudgedReward) and reward.compares_members)]


def _plain(term: Term) -> Term:
    return term.model_copy(update={"noise": 0.0, "on_failure": "drop_answer", "retries": 0})


def _tries(prompt: Prompt, prompts: Sequence[Prompt], rewards: Sequence[Reward]) -> list[_Try]:
    judged = next((reward for reward in rewards if isinstance(reward, JudgedReward)), None)
    scene = scene_of(prompt, prompts, rubric="" if judged is None else judged.instructions(prompt))
    honest = [_Try(RIGHT, text) for text in right_answers(scene)] + [_Try(WRONG, text) for text in wrong_answers(scene)]
    attacks = [_Try(name, text, _BY_NAME[name].is_cut) for name, texts in scene_texts(scene).items() for text in texts]
    return honest + attacks


def _group(place: int, prompt: Prompt, tries: Sequence[_Try]) -> Group:
    rollouts = tuple(
        Rollout(
            id=RolloutId(0, place, member), prompt=prompt, completion=answered(one.text, "length" if one.is_cut else "stop")
        )
        for member, one in enumerate(tries)
    )
    return Group(prompt=prompt, rollouts=rollouts)


def _value(rollout: Rollout, reward: str) -> float | None:
    """What a reward said in all, or the rollout's reward; None where something failed or nothing was said."""
    if reward == SUM:
        return rollout.reward
    scores = [score for score in rollout.scores if score.reward == reward]
    values = [score.value for score in scores if score.value is not None]
    return math.fsum(values) if values and all(score.status != "failed" for score in scores) else None


def _tells_right(seen: Sequence[_Seen], reward: str, margin: float) -> bool:
    """On some row, the right answer is paid more than any honest wrong one."""
    pairs = [(found.pay(reward, RIGHT), found.pay(reward, WRONG)) for found in seen]
    return any(right is not None and wrong is not None and right[0] > wrong[0] + margin for right, wrong in pairs)


def _row(seen: Sequence[_Seen], reward: str, attack: Attack, margin: float | None) -> AttackRow | None:
    """The attack, if some row paid it: more than a wrong answer by `margin`, or, with None, as much as the right one."""
    known = []
    for found in seen:
        right, wrong, paid = (found.pay(reward, kind) for kind in (RIGHT, WRONG, attack.name))
        if right is not None and wrong is not None and paid is not None and right[0] > wrong[0]:
            known.append((paid[0], wrong[0], right[0], paid[1]))
    hits = [one for one in known if (one[0] > one[1] + margin if margin is not None else one[0] >= one[2] - EXACT)]
    if not hits:
        return None
    paid_mean, wrong_mean, right_mean = (statistics.fmean(one[place] for one in hits) for place in range(3))  # type: ignore[misc]
    return AttackRow(
        reward=reward,
        attack=attack.name,
        why=attack.why,
        remedy=attack.remedy,
        text=hits[0][3],
        paid=paid_mean,
        wrong=wrong_mean,
        right=right_mean,
        on=len(hits),
        of=len(known),
    )
