"""What can be found wrong with a recipe without loading a model: packages, data, rewards on real rows.

Decisions:
1. Problems are collected, so that all of them can be mended at once. `toishi check` prints them; `train` refuses to start on
   errors.
2. Rewards are asked about the gold of every row (up to a stated number) and tried on a few rows with made-up answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from toishi.config import Config
from toishi.errors import ConfigError, MissingExtraError, RewardError, ToishiError
from toishi.given import NOTHING_GIVEN, Given, the_rewards, the_task
from toishi.health import check_settings
from toishi.packages import missing_packages
from toishi.rewards import check_prompts
from toishi.rewards.base import Reward
from toishi.rewards.hooks import prepare_rewards
from toishi.scoring import DryRun, dry_run
from toishi.tasks.base import Task
from toishi.types import Prompt

Level = Literal["error", "warning"]
MAX_ROWS = 2000
ENDLESS_ROWS = 100
DRY_RUN_ROWS = 4
MAX_DOUBTS = 2
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong. An error forbids to start; a warning says that training may disappoint.

    part   packages, health, data, rewards, attacks, model, prompts, sampling, memory or disk
    cause  the exception behind an error, where there is one
    """

    level: Level
    part: str
    message: str
    cause: ToishiError | None = None


@dataclass(kw_only=True)
class Preflight:
    """What was built and what was found; a part that could not be built is None. `notes` is what rewards say of themselves."""

    task: Task | None = None
    rewards: tuple[Reward, ...] | None = None
    rows: tuple[Prompt, ...] = ()
    dry_run: DryRun | None = None
    findings: list[Finding] = field(default_factory=list)
    notes: tuple[str, ...] = ()

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.level == "error"]

    def require(self) -> tuple[Task, tuple[Reward, ...]]:
        """Task and rewards. Raises the error if there was one, or one ConfigError that lists all of them."""
        if len(self.errors) == 1 and self.errors[0].cause is not None:
            raise self.errors[0].cause
        if self.errors:
            listed = "\n".join(f"{number}. {finding.message}" for number, finding in enumerate(self.errors, start=1))
            raise ConfigError(f"{len(self.errors)} things to mend before training can start:\n{listed}")
        assert self.task is not None
        assert self.rewards is not None
        return self.task, self.rewards


def preflight(config: Config, given: Given = NOTHING_GIVEN) -> Preflight:
    """Builds task and rewards and tries them. Raises nothing: what is wrong is in the findings.

    >>> found = preflight(Config())
    >>> found.task.name, [reward.name for reward in found.rewards], found.errors
    ('sums', ['number'], [])
    """
    found = Preflight()
    for missing in missing_packages(config):
        found.findings.append(Finding("error", "packages", str(missing), missing))
    _attempt(found, "health", lambda: check_settings(config.health))
    found.task = _attempt(found, "data", lambda: the_task(config, given))
    if found.task is None:  # the rewards' own options can be wrong all the same
        found.rewards = _attempt(found, "rewards", lambda: the_rewards(config, given, None))
        return found
    _check_amount(found, found.task, config)
    _check_refill(found, config)
    found.rows = some_rows(found.task)
    columns = found.task.columns
    found.rewards = _attempt(found, "rewards", lambda: the_rewards(config, given, columns))
    if found.rewards:
        _check_rewards(found, found.rewards, config)
    return found


def some_rows(task: Task) -> tuple[Prompt, ...]:
    """All held-out prompts and the first training prompts: at most 2000, of an endless task 100."""
    count = ENDLESS_ROWS if task.num_train is None else min(MAX_ROWS, task.num_train)
    return (*task.heldout_prompts(), *(task.train_prompt(index) for index in range(count)))


def _attempt(found: Preflight, part: str, build: Callable[[], T]) -> T | None:
    try:
        return build()
    except MissingExtraError as error:
        if not found.errors:  # else it is the package that was missed first
            found.findings.append(Finding("error", "packages", str(error), error))
    except ToishiError as error:
        found.findings.append(Finding("error", part, str(error), error))
    return None


def _check_amount(found: Preflight, task: Task, config: Config) -> None:
    if not task.heldout_prompts() and config.evaluation.prompts > 0:
        message = "no prompt is held out, so nothing will be measured on prompts that are not trained on; set task.heldout"
        found.findings.append(Finding("warning", "data", message))
    used = config.train.prompts_per_step * config.train.steps
    if task.num_train is not None and used > 10 * task.num_train:
        times = used / task.num_train
        message = f"training prompts: {task.num_train}, each used about {times:.0f} times: more rows are safer"
        found.findings.append(Finding("warning", "data", message))


def _check_refill(found: Preflight, config: Config) -> None:
    """Refilling looks for groups whose rewards differ; where none can, it only costs time."""
    why = ""
    if config.train.group_size == 1:
        why = "a group of one answer (train.group_size=1) is never mixed"
    elif all(reward.weight == 0 for reward in config.rewards):
        why = "every reward has weight 0, so all answers are worth the same"
    if why and config.train.refill_rounds > 0:
        message = f"train.refill_rounds={config.train.refill_rounds} looks for mixed groups, but {why}; set it to 0"
        found.findings.append(Finding("warning", "health", message))


def _scorable(rewards: tuple[Reward, ...], rows: tuple[Prompt, ...]) -> bool:
    """True, or the DataError that lists the rows which no answer could be scored on."""
    check_prompts(rewards, rows)
    return True


def _check_rewards(found: Preflight, rewards: tuple[Reward, ...], config: Config) -> None:
    if _attempt(found, "rewards", lambda: _scorable(rewards, found.rows)) is None:
        return
    notes = _attempt(found, "rewards", lambda: prepare_rewards(rewards, found.rows))
    if notes is None:
        return
    found.notes = tuple(notes)
    found.dry_run = _attempt(found, "rewards", lambda: dry_run(rewards, config.rewards, found.rows[-DRY_RUN_ROWS:]))
    if found.dry_run is not None:
        errors = (Finding("error", "rewards", text, RewardError(text)) for text in found.dry_run.errors)
        warnings = [Finding("warning", "rewards", text) for text in found.dry_run.warnings[:MAX_DOUBTS]]
        more = len(found.dry_run.warnings) - len(warnings)
        if more > 0:
            warnings.append(Finding("warning", "rewards", f"{more} more like the last one"))
        found.findings.extend((*errors, *warnings))
