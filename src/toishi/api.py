"""toishi from Python: `toishi.train`, `toishi.resume`, `toishi.explain`, `toishi.whatif`.

Decisions:
1. The same functions as the command line's, with the same recipes; only task and rewards may be Python objects instead.
2. They print what the commands print; `quiet=True` prints nothing. What they return is plain data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from toishi import loop
from toishi.config import Config, load_config
from toishi.consoles import make_console
from toishi.counterfactual.answering import answer, with_real
from toishi.counterfactual.change import Scores, change_of
from toishi.counterfactual.model import WhatIf
from toishi.counterfactual.recorded import read_step
from toishi.counterfactual.redo import redo_changed, redone
from toishi.counterfactual.render import render_whatif
from toishi.display import Display
from toishi.errors import ConfigError
from toishi.explanation.chain.build import explain_chain
from toishi.explanation.chain.model import Chain
from toishi.explanation.chain.story import TERMINAL_ROWS, page
from toishi.explanation.overview import OverviewView, overview, render_overview
from toishi.explanation.page.render_terminal import render
from toishi.explanation.render import render_step
from toishi.explanation.step import StepView, step_report
from toishi.given import given_objects, with_given
from toishi.loop import Result
from toishi.recipes import load_recipe
from toishi.record.reader import Run
from toishi.replay.plan import plan_replay
from toishi.rewards import Reward
from toishi.tasks import Task

AnyRecipe = Config | Mapping[str, Any] | str | Path
AnyReward = Reward | Callable[..., Any]


def train(
    recipe: AnyRecipe,
    *,
    task: Task | None = None,
    rewards: AnyReward | Sequence[AnyReward] | None = None,
    weights: Sequence[float] | None = None,
    overrides: Mapping[str, Any] | None = None,
    folder: str | Path | None = None,
    quiet: bool = False,
) -> Result:
    """Train a model; everything is in the returned `Result.folder`.

    recipe     name of a built-in recipe, path of a YAML file, a mapping of the same form, or a `Config`
    task       replaces the recipe's task
    rewards    replace the recipe's rewards: functions `fn(prompts, completions, completion_ids, **columns)`, or `Reward`s;
               one alone need not be a list
    weights    factor of each of `rewards` in the sum (1 by default)
    overrides  dotted keys, as `--set` on the command line: {"train.steps": 5}
    folder     the run folder to make; by default a new one inside `record.folder`

    Raises ConfigError, DataError, RewardError, ModelError before a weight changes; HealthStop, NumericsError when training
    goes wrong.

        toishi.train("sums", overrides={"train.steps": 5})
    """
    given = given_objects(task, rewards)
    config = with_given(read_recipe(recipe, overrides), given, weights)
    return loop.train(config, _folder(folder) if folder is not None else None, _display(quiet), given)


def resume(
    folder: str | Path,
    *,
    task: Task | None = None,
    rewards: AnyReward | Sequence[AnyReward] | None = None,
    quiet: bool = False,
) -> Result:
    """Go on with an interrupted run. Python objects that it was started with are given again.

    Raises ConfigError when they are not the same by name, RecordError when there is nothing whole to go on from.
    """
    return loop.resume(_folder(folder), _display(quiet), given_objects(task, rewards))


def explain(
    folder: str | Path, step: int | None = None, *, group: int | None = None, member: int | None = None, quiet: bool = False
) -> OverviewView | StepView | Chain:
    """A run step by step, one of its steps in full, or one group or answer of it followed through every link.

    step            scores, rewards, baselines, advantages and token weights of this step
    group, member   the chain from the scores to the changed probabilities; `Chain.broken` names the first link that does not
                    follow from those before it
    Raises RecordError when the folder is no run or has no such step, ConfigError when the step has no such group or member.
    """
    for name, value in (("step", step), ("group", group), ("member", member)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise ConfigError(f"{name}: expected a whole number, got {value!r:.80} (a {type(value).__name__})")
    if step is None and (group, member) != (None, None):
        raise ConfigError("group and member belong to a step; give step= as well")
    run, console = Run.open(_folder(folder)), make_console(quiet=quiet)
    if step is None:
        whole = overview(run)
        render_overview(whole, console)
        return whole
    if (group, member) != (None, None):
        chain = explain_chain(run, step, group=group, member=member)
        render(page(chain, "en", TERMINAL_ROWS), console)
        return chain
    view = step_report(run, step)
    render_step(view, console)
    return view


def whatif(
    folder: str | Path,
    *,
    step: int,
    group: int,
    scores: Scores | None = None,
    drop: Iterable[int] = (),
    set: Mapping[str, Any] | None = None,
    update: int = 0,
    real: bool = False,
    quiet: bool = False,
) -> WhatIf:
    """A recorded step with other scores, fewer answers or another rule: exact advantages, forecast probabilities.

    scores  answer -> score on the reward's own scale; with several rewards ("name", answer) or "name:answer" -> score
    drop    answers that would have been left out
    set     dotted keys of the rule: {"algorithm.scale": "none"}
    real    also does the step again with the change, from its checkpoint (loads the model)
    Raises ConfigError for a question that cannot be put, RecordError when the step is not on record.

        toishi.whatif(result.folder, step=5, group=0, scores={3: 9})
    """
    change = change_of(scores, drop, set)
    recorded = read_step(Run.open(_folder(folder)), step, group)
    found = answer(recorded, group, change, update=update)
    if real:
        (done,), report = redo_changed(recorded, plan_replay(recorded.run, step), [(group, change)])
        found = with_real(found, done.changes, redone=redone(done, report))
    render_whatif(found, make_console(quiet=quiet))
    return found


def read_recipe(recipe: AnyRecipe, overrides: Mapping[str, Any] | None = None) -> Config:
    """The configuration, whichever way it was given.

    >>> read_recipe("sums", {"train.steps": 5}).train.steps, read_recipe({"seed": 3}).seed, read_recipe(Config(seed=4)).seed
    (5, 3, 4)
    """
    if isinstance(recipe, Config):
        return load_config(recipe.model_dump(mode="json"), overrides) if overrides else recipe
    if isinstance(recipe, Mapping):
        return load_config(recipe, overrides)
    if not isinstance(recipe, str | Path):
        raise ConfigError(
            f"recipe: expected a name, a path, a mapping or a Config, got {recipe!r:.80} (a {type(recipe).__name__})"
        )
    return load_recipe(str(recipe), overrides)


def _folder(folder: str | Path) -> Path:
    if not isinstance(folder, str | Path):
        raise ConfigError(f"folder: expected a path, got {folder!r:.80} (a {type(folder).__name__})")
    return Path(folder)


def _display(quiet: bool) -> Display:
    return Display.silent() if quiet else Display(make_console(lasting=True))
