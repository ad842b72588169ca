"""A recorded step whose judge is asked again: which advantages would have had another sign, and how many were to be expected.

Decisions:
1. Nothing but answers is needed: no policy is loaded. Rewards are built from run.json; those that came as Python objects have
   to be given again.
2. Signs are compared with the recorded advantage, asking by asking. An advantage of 0 has no sign; where asking again gives
   one, that is counted apart.
3. The expectation (`ops.noise.expected_sign_change`) takes the noise to be normal and equal for all answers. Its two numbers,
   the noise and each answer's distance from its baseline, come from the new askings alone, so it does not depend on the
   recorded score that it is held against. It needs at least two askings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from toishi.algorithms.apply import assign_advantages
from toishi.algorithms.rows import Algorithm
from toishi.config import Config
from toishi.errors import ConfigError, nearest
from toishi.given import NOTHING_GIVEN, PYTHON, Given, the_rewards
from toishi.ops.noise import expected_sign_change, repeat_noise
from toishi.provenance import changed_rewards
from toishi.record import Run
from toishi.recorded import recorded_config
from toishi.rejudging.asking import score_again, value_of
from toishi.rewards import Reward
from toishi.rewards.base import Repeatable
from toishi.rewards.hooks import closing
from toishi.scoring import Progress
from toishi.types import Group, Rollout, RolloutId

_FACTOR = {"identity": 1.0, "plus_minus": 2.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerAgain:
    """One answer before and after.

    reward, advantage    on record; an advantage per token is shown as its mean
    rewards, advantages  one for each new asking; None where there was no score
    sd                   standard deviation of the rewards of the new askings; None with fewer than two
    changed, compared    askings with another sign than the record (0 included), of so many with a score; compared is 0 for an
                         answer whose recorded advantage is 0
    expected             share of other signs to be expected from the noise; None where it cannot be said
    """

    group: int
    member: int
    answer: str
    reward: float | None
    advantage: float
    rewards: tuple[float | None, ...]
    advantages: tuple[float | None, ...]
    sd: float | None
    changed: int
    compared: int
    expected: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejudged:
    """A step judged `times` times more.

    asked_again  the rewards that were asked
    noise        for each of them, the standard deviation of its value in the new askings; None with fewer than two
    reward_noise the same of the whole reward
    changed, compared, expected  sums over answers; `expected` is a share, over the answers where it can be said
    gained       askings that gave an advantage to an answer that had none
    no_score     askings without a score
    notes        what a reader has to know before believing it
    """

    folder: str
    step: int
    times: int
    algorithm: str
    asked_again: tuple[str, ...]
    noise: Mapping[str, float | None]
    reward_noise: float | None
    changed: int
    compared: int
    share: float | None
    expected: float | None
    gained: int
    no_score: int
    sentence: str
    notes: tuple[str, ...]
    answers: tuple[AnswerAgain, ...]

    def as_record(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def rejudge(
    run: Run,
    step: int,
    times: int,
    *,
    reward: str | None = None,
    given: Given = NOTHING_GIVEN,
    on_progress: Progress | None = None,
) -> Rejudged:
    """Asks a step's rewards `times` times more and compares the advantages that come of it.

    reward  which one to ask; by default those that may say something else, and all if there is none
    Raises RecordError for a step that is not on record, ConfigError for an unknown reward and for rewards that cannot be built.
    """
    if times < 1:
        raise ConfigError(f"--rejudge {times}: expected at least 1 asking more")
    config, groups = recorded_config(run), run.step(step).groups
    rewards = _rewards(run, config, given, groups)
    names = asked_names(rewards, reward)
    with closing(rewards):
        again = [score_again(groups, rewards, config.rewards, names, repeat, on_progress) for repeat in range(1, times + 1)]
    row, limit = config.algorithm, config.sampling.max_new_tokens
    askings = [_by_id(assign_advantages(asking, row, max_new_tokens=limit)) for asking in again]
    centred = [_by_id(assign_advantages(asking, _uncut(row), max_new_tokens=limit)) for asking in again]
    before = [rollout for group in groups for rollout in group.rollouts]
    noise = _noise([_rewards_of(rollout.id, askings) for rollout in before])
    sizes = _sizes(groups, row)
    answers = tuple(_answer(rollout, askings, centred, noise, sizes[rollout.id], row) for rollout in before)
    values = {name: _noise([_values_of(rollout.id, askings, name) for rollout in before]) for name in names}
    notes = tuple(
        f"reward '{name}' has another source than when the run was started: differences may be that"
        for name in changed_rewards(run.run, rewards)
    )
    return _summed(run, step, times, row, answers, values, noise, notes)


def asked_names(rewards: Sequence[Reward], reward: str | None) -> tuple[str, ...]:
    """The rewards to ask. Raises ConfigError for a name that none of them has.

    >>> from toishi.rewards.scripted import ScriptedReward
    >>> asked_names([ScriptedReward(name="a", values=(1.0,)), ScriptedReward(name="b", values=(1.0,))], None)
    ('a', 'b')
    """
    known = [one.name for one in rewards]
    if reward is not None:
        if reward not in known:
            raise ConfigError(f"--reward: there is no reward '{reward}'; {nearest(reward, known)}")
        return (reward,)
    return tuple(one.name for one in rewards if isinstance(one, Repeatable)) or tuple(known)


def _rewards(run: Run, config: Config, given: Given, groups: Sequence[Group]) -> tuple[Reward, ...]:
    objects = [reward.name for reward in config.rewards if PYTHON in reward.options]
    if objects and given.rewards is None:
        raise ConfigError(
            f"{run.folder}: the rewards {', '.join(map(repr, objects))} came as Python objects, which a run folder cannot "
            "hold, so they cannot be asked again from here. Use a reward that a recipe can name, or call "
            "toishi.rejudging.rejudge(run, step, times, given=...) with the same objects"
        )
    columns = [frozenset(group.prompt.columns) for group in groups]
    return the_rewards(config, given, frozenset.intersection(*columns) if columns else frozenset())


def _uncut(row: Algorithm) -> Algorithm:
    """The row without what keeps an advantage's sign (division, leaving oneself out of the mean) and without filters."""
    baseline = "group_mean" if row.baseline == "leave_one_out" else row.baseline
    return row.model_copy(update={"scale": "none", "filter": "none", "baseline": baseline, "whiten": False})


def _by_id(groups: Sequence[Group]) -> dict[RolloutId, Rollout]:
    return {rollout.id: rollout for group in groups for rollout in group.rollouts}


def _rewards_of(id_: RolloutId, askings: Sequence[Mapping[RolloutId, Rollout]]) -> list[float]:
    return [reward for asking in askings if (reward := asking[id_].reward) is not None]


def _values_of(id_: RolloutId, askings: Sequence[Mapping[RolloutId, Rollout]], name: str) -> list[float]:
    return [value for asking in askings if (value := value_of(asking[id_], name)) is not None]


def _noise(values: Sequence[Sequence[float]]) -> float | None:
    found = repeat_noise([values])
    return None if found is None else found.noise_sd


def _sizes(groups: Sequence[Group], row: Algorithm) -> dict[RolloutId, float]:
    """How many noisy rewards the baseline of each rollout averages; infinity where it subtracts none."""
    everyone = sum(rollout.reward is not None for group in groups for rollout in group.rollouts)
    sizes: dict[RolloutId, float] = {}
    for group in groups:
        own = sum(rollout.reward is not None for rollout in group.rollouts)
        size = {"none": math.inf, "critic": math.inf, "batch_mean": float(everyone)}.get(row.baseline, float(own))
        sizes.update({rollout.id: size for rollout in group.rollouts})
    return sizes


def _answer(
    before: Rollout,
    askings: Sequence[Mapping[RolloutId, Rollout]],
    centred: Sequence[Mapping[RolloutId, Rollout]],
    noise: float | None,
    size: float,
    row: Algorithm,
) -> AnswerAgain:
    scored = [asking[before.id].reward is not None for asking in askings]
    after = [_mean(asking[before.id]) if known else None for asking, known in zip(askings, scored, strict=True)]
    sign = math.copysign(1.0, _mean(before)) if _mean(before) else 0.0
    known_after = [advantage for advantage in after if advantage is not None]
    distances = [_mean(one[before.id]) for one, known in zip(centred, scored, strict=True) if known]
    rewards = _rewards_of(before.id, askings)
    expected = None
    if sign and noise is not None and len(distances) > 1 and size >= 2 and row.filter != "keep_best":
        expected = expected_sign_change(sign, fmean(distances), noise * _FACTOR[row.reward_map], size, len(distances))
    return AnswerAgain(
        group=before.id.group,
        member=before.id.member,
        answer=before.completion.text,
        reward=before.reward,
        advantage=_mean(before),
        rewards=tuple(asking[before.id].reward for asking in askings),
        advantages=tuple(after),
        sd=_noise([rewards]),
        changed=sum(advantage * sign <= 0 for advantage in known_after) if sign else 0,
        compared=len(known_after) if sign else 0,
        expected=expected,
    )


def _mean(rollout: Rollout) -> float:
    """The advantage as one number."""
    advantage = rollout.advantage
    if isinstance(advantage, tuple):
        return fmean(advantage) if advantage else 0.0
    return advantage or 0.0


def _summed(
    run: Run,
    step: int,
    times: int,
    row: Algorithm,
    answers: Sequence[AnswerAgain],
    values: Mapping[str, float | None],
    noise: float | None,
    notes: tuple[str, ...],
) -> Rejudged:
    changed, compared = sum(one.changed for one in answers), sum(one.compared for one in answers)
    no_score = sum(reward is None for one in answers for reward in one.rewards)
    gained = sum(bool(advantage) for one in answers if one.advantage == 0 for advantage in one.advantages)
    moved = any(reward != one.reward for one in answers for reward in one.rewards)
    expectations = [(one.expected, one.compared) for one in answers if one.expected is not None]
    weight = sum(count for _, count in expectations)
    expected = sum(share * count for share, count in expectations) / weight if weight else None
    share = changed / compared if compared else None
    return Rejudged(
        folder=str(run.folder),
        step=step,
        times=times,
        algorithm=row.name,
        asked_again=tuple(values),
        noise=dict(values),
        reward_noise=noise,
        changed=changed,
        compared=compared,
        share=share,
        expected=expected,
        gained=gained,
        no_score=no_score,
        sentence=_sentence(times, share, expected, gained, moved),
        notes=notes,
        answers=tuple(answers),
    )


def _sentence(times: int, share: float | None, expected: float | None, gained: int, moved: bool) -> str:
    asked = f"asked {times} time{'s' * (times != 1)} more"
    if not moved:
        return f"no noise: {asked}, nothing changes"
    extra = f"; {gained} advantages came where there was none" if gained else ""
    if share is None:
        return f"{asked}: no advantage had a sign to lose{extra}"
    if expected is None:
        why = "one asking more gives no expectation" if times == 1 else "no expectation for this algorithm"
        return f"{asked}: {share:.0%} of advantage signs change ({why}){extra}"
    return f"{asked}: {share:.0%} of advantage signs change, {expected:.0%} were to be expected from the noise{extra}"
