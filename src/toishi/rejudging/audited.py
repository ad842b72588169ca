"""`toishi judge audit`: asks a recipe's judge about answers of which something is known, and measures what it says.

Decisions:
1. The judge is asked as in training, about whole groups, one asking after the other; only its own value is looked at, without
   weight, gate, cap or noise floor.
2. On a run, the recorded score is the first asking: it is what training used, and costs nothing.
3. A checker of the same recipe may stand for labels. What it could not decide has no label.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from toishi.algorithms.terms import Term
from toishi.config import Config, RewardConfig
from toishi.errors import ConfigError, DataError, nearest
from toishi.judging.audit import AuditSettings, audit
from toishi.judging.audit_parts import AuditItem, AuditReport, PairVerdict
from toishi.rejudging.asking import Again, said, unscored, value_of
from toishi.rejudging.items import AuditAnswers
from toishi.rewards import REWARDS, Reward, build_rewards, check_prompts
from toishi.rewards.base import ComparesPairs, Comparison, HasUsage
from toishi.rewards.hooks import closing
from toishi.scoring import Progress, score_groups
from toishi.types import Group, Rollout, RolloutId

MAX_THREADS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPlan:
    """What is audited, and how.

    reward      the judge's name in the recipe; None = the only one that is a judge
    against     name of a reward of the recipe that knows the truth; None = labels of the answers, if any
    askings     how often each answer is judged
    group_size  None = the recipe's
    """

    reward: str | None = None
    against: str | None = None
    askings: int = 3
    group_size: int | None = None
    threshold: float = 0.5


def audit_judge(config: Config, answers: AuditAnswers, plan: AuditPlan, on_progress: Progress | None = None) -> AuditReport:
    """Asks and measures.

    Raises ConfigError for unknown rewards and when there is no judge, DataError for prompts that cannot be judged and labels
    given twice, JudgeRefused when the judge cannot answer at all.
    """
    name = plan.reward or the_judge(config)
    chosen = [_config_of(config, name, "--reward")]
    if plan.against is not None:
        if plan.against == name:
            raise ConfigError(f"--against {name}: a judge cannot be its own truth; name a checker of the recipe")
        if answers.labels:
            raise DataError("the answers have labels already; leave --against out, or the labels")
        chosen.append(_config_of(config, plan.against, "--against"))
    judge, *checkers = build_rewards(chosen, columns=answers.columns)
    check_prompts([judge, *checkers], [group.prompt for group in answers.groups])
    before = _usage(judge)
    with closing([judge, *checkers]):
        askings = [_asked(answers, judge, repeat, on_progress) for repeat in range(plan.askings)]
        pairs = _pairs(judge, answers.groups)
        labels = _labels(answers, checkers)
    items = [
        _item(rollout, judge.name, askings, labels.get(rollout.id), answers.sources.get(rollout.id, ""))
        for group in answers.groups
        for rollout in group.rollouts
        if rollout.id in askings[0]
    ]
    if not items:
        raise DataError("no answer could be audited: all of them failed before they were judged")
    settings = AuditSettings(
        group_size=plan.group_size or config.train.group_size,
        threshold=plan.threshold,
        divided_by_std=config.algorithm.scale == "group_std",
    )
    used = {key: value - before.get(key, 0.0) for key, value in _usage(judge).items()}
    return audit(items, settings, reward=judge.name, pairs=pairs, used=used)


def the_judge(config: Config) -> str:
    """The name of the recipe's only judge. Raises ConfigError when it has none or several.

    >>> from toishi.config import Config
    >>> the_judge(Config())  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    toishi.errors.ConfigError: no reward of the recipe is a judge...
    """
    judges = [reward.name for reward in config.rewards if hasattr(REWARDS.get(_kind(reward)), "score_group_again")]
    if len(judges) == 1:
        return judges[0]
    what = f"the recipe has {len(judges)} judges: {', '.join(judges)}" if judges else "no reward of the recipe is a judge"
    raise ConfigError(f"{what}; say which reward to audit: --reward {' or --reward '.join(judges) or 'NAME'}")


def _kind(reward: RewardConfig) -> str:
    return str(reward.options.get("kind", reward.name))


def _config_of(config: Config, name: str, option: str) -> RewardConfig:
    found = next((reward for reward in config.rewards if reward.name == name), None)
    if found is None:
        raise ConfigError(f"{option}: the recipe has no reward '{name}'; {nearest(name, [one.name for one in config.rewards])}")
    return found


Asking = Mapping[RolloutId, Rollout]


def _asked(answers: AuditAnswers, judge: Reward, repeat: int, on_progress: Progress | None) -> Asking:
    """Every answer with what the judge said; a recorded score serves as the first asking."""
    if repeat == 0 and answers.recorded and all(said(rollout, judge.name) for rollout in _scorable(answers.groups)):
        return {rollout.id: rollout for rollout in _scorable(answers.groups)}
    return _scores(answers.groups, Again(judge, repeat), on_progress)


def _scorable(groups: Sequence[Group]) -> list[Rollout]:
    """All but what failed before anything was judged."""
    return [rollout for group in groups for rollout in group.rollouts if rollout.scores or rollout.status != "failed"]


def _scores(groups: Sequence[Group], reward: Reward, on_progress: Progress | None = None) -> Asking:
    fresh = [unscored(group) for group in groups]
    scored = score_groups(fresh, [reward], [Term(name=reward.name)], on_progress=on_progress)
    return {rollout.id: rollout for group in scored for rollout in group.rollouts if rollout.scores}


def _labels(answers: AuditAnswers, checkers: Sequence[Reward]) -> Mapping[RolloutId, float]:
    if not checkers:
        return answers.labels
    (checker,) = checkers
    found = _asked(answers, checker, 0, None)
    return {id_: value for id_, rollout in found.items() if (value := value_of(rollout, checker.name)) is not None}


def _item(rollout: Rollout, judge: str, askings: Sequence[Asking], label: float | None, source: str) -> AuditItem:
    scores = [value_of(asking[rollout.id], judge) for asking in askings]
    failures = [_failure(asking[rollout.id], judge) for asking, score in zip(askings, scores, strict=True) if score is None]
    return AuditItem(
        prompt=f"{rollout.id.step}/{rollout.id.group}",
        length=len(rollout.completion.text),
        scores=tuple(scores),
        failures=tuple(failures),
        label=label,
        source=source,
    )


def _failure(rollout: Rollout, judge: str) -> str:
    return next((score.kind or score.status for score in said(rollout, judge) if score.status != "ok"), "failed")


def _usage(reward: Reward) -> dict[str, float]:
    return dict(reward.usage()) if isinstance(reward, HasUsage) else {}


def _pairs(judge: Reward, groups: Sequence[Group]) -> list[PairVerdict]:
    """What a judge of pairs said of each pair in both orders; empty for other judges."""
    if not isinstance(judge, ComparesPairs):
        return []
    asked = [group for group in groups if any(rollout.status != "failed" or rollout.scores for rollout in group.rollouts)]

    def compare(group: Group) -> list[PairVerdict]:
        completions = [rollout.completion for rollout in _scorable([group])]
        return _matched(group.prompt.id, judge.comparisons(group.prompt, completions, 0))

    with ThreadPoolExecutor(MAX_THREADS if getattr(judge, "concurrent", False) else 1) as pool:
        return [pair for pairs in pool.map(compare, asked) for pair in pairs]


def _matched(prompt: str, comparisons: Sequence[Comparison]) -> list[PairVerdict]:
    """The n-th verdict of each order of a pair belong together: the same judge, the same time of asking."""
    orders: dict[tuple[int, int], tuple[list[str | None], list[str | None]]] = {}
    for one in comparisons:
        pair = (min(one.first, one.second), max(one.first, one.second))
        orders.setdefault(pair, ([], []))[one.first > one.second].append(one.preferred)
    return [
        PairVerdict(prompt=prompt, forward=forward, backward=backward)
        for there, back in orders.values()
        for forward, backward in zip(there, back, strict=True)
    ]
