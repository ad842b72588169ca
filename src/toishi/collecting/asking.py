"""Every training prompt of a recipe asked several times and scored, answer by answer into the samples file.

Decisions:
1. Prompt number i is group i of a stream of its own: its answers are a function of (seed, i, member), and none of them is one
   that training or evaluation draws.
2. Prompts are asked a chunk at a time, in chunks that depend on the number of answers alone. After a kill the chunk that was
   cut is asked again in the same batch; only what is missing of it is written.
3. The precision that was measured to be the faster one is stored, and used when going on.
4. A chunk in which no answer at all could be scored stops everything: that is a broken reward, not a hard prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from toishi import __version__
from toishi.collecting.journal import JournalWriter
from toishi.collecting.samples import Asked, Header, append_header, read_samples, sha256_of
from toishi.collecting.shots import Shot, ShownTask, without_shots
from toishi.config import Config
from toishi.errors import ConfigError, RecordError, RewardError
from toishi.given import NOTHING_GIVEN, Given, the_task
from toishi.provenance import data_fingerprints
from toishi.record.files import sha256_file
from toishi.record.reader import Run
from toishi.rendering import render_all
from toishi.rewards.hooks import closing
from toishi.rewards.tokens import with_decode
from toishi.rollout import COLLECTING_STREAM, sample_groups
from toishi.sampler import Sampler
from toishi.scoring import Scoring
from toishi.session import gather, sampling_of
from toishi.tasks import Task
from toishi.types import Group

ANSWERS_PER_CHUNK = 256

Progress = Callable[[int, int], None]
"""(prompts done, prompts in all)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskPlan:
    """What is to be asked of whom.

    recipe   how it was named, for the record
    config   with the model that answers in it
    samples  answers to each prompt
    prompts  the first so many of the task's stream; None = every training prompt once
    shots    worked examples before every prompt
    run      the run whose checkpoint answers, and `step`, how many steps its weights have seen
    """

    recipe: str
    config: Config
    samples: int
    prompts: int | None = None
    shots: tuple[Shot, ...] = ()
    run: Run | None = None
    step: int = 0
    given: Given = NOTHING_GIVEN


def ask_all(
    plan: AskPlan, path: Path, *, go_on: bool = False, on_progress: Progress | None = None
) -> tuple[Header, tuple[Asked, ...]]:
    """All prompts with their scored answers, out of the samples file `path` as far as it goes (with `go_on`), else sampled.

    Raises ConfigError for an endless task without a number of prompts, and when the file holds answers to something else;
    RewardError when nothing can be scored; what `gather` and `Sampler.open` raise.
    """
    task = the_task(plan.config, plan.given)
    count = number_of_prompts(task, plan.prompts)
    wanted = _planned(plan, task, count)
    header, done = read_samples(path) if go_on and path.exists() and path.stat().st_size else (None, ())
    if header is not None:
        _require_same(path, header, wanted)
        wanted = replace(wanted, model=header.model)
    missing = sorted(set(range(count)) - {one.number for one in done})
    if header is not None and not missing:
        return header, done
    materials = gather(plan.config, plan.given)
    with closing(materials.rewards):
        opened = _opened(plan, wanted, task)
        found = _model_record(plan, opened)
        if header is not None and any(header.model[key] != found[key] for key in ("fingerprint", "adapter_sha256")):
            raise ConfigError(f"{path}: its answers are those of other weights than {plan.config.model.name} has now; {_ANEW}")
        wanted = replace(wanted, model=found)
        if not go_on:
            path.unlink(missing_ok=True)
        with JournalWriter(path) as journal:
            if header is None:
                append_header(journal, wanted)
            rewards = with_decode(materials.rewards, opened.renderer.decode)
            chunk = max(1, ANSWERS_PER_CHUNK // plan.samples)
            for start in sorted({number - number % chunk for number in missing}):
                numbers = range(start, min(start + chunk, count))
                groups = _scored(plan, opened, rewards, task, numbers)
                for number, group in zip(numbers, groups, strict=True):
                    if number in missing:
                        journal.append(asdict(Asked.of(number, group)))
                if on_progress is not None:
                    on_progress(numbers.stop, count)
    return read_samples(path)


_ANEW = "begin anew with --overwrite, or choose another -o"


def number_of_prompts(task: Task, prompts: int | None) -> int:
    """How many prompts are asked. Raises ConfigError where nothing says how many."""
    if prompts is None and task.num_train is None:
        raise ConfigError(f"the prompts of task '{task.name}' do not run out: say how many with --prompts N")
    if prompts is None:
        return int(task.num_train or 0)
    return prompts if task.num_train is None else min(prompts, task.num_train)


def _planned(plan: AskPlan, task: Task, count: int) -> Header:
    """The header as far as it is known without a model."""
    return Header(
        model={"name": plan.config.model.name},
        recipe=plan.recipe,
        config=plan.config.model_dump(mode="json"),
        samples=plan.samples,
        prompts=count,
        data=data_fingerprints(task)["train"],
        shots=sha256_of([asdict(shot) for shot in plan.shots]) if plan.shots else "",
        toishi=__version__,
    )


def _require_same(path: Path, header: Header, wanted: Header) -> None:
    there, here = _flat(asdict(header)), _flat(asdict(wanted))
    keys = sorted(key for key in there.keys() | here.keys() if not key.startswith(("model/", "toishi", "recipe")))
    different = [
        f"{key.replace('/', '.')}: {there.get(key)!r} there, {here.get(key)!r} now"
        for key in keys
        if there.get(key) != here.get(key)
    ]
    if different:
        raise ConfigError(f"{path} holds answers to something else ({'; '.join(different[:5])}): {_ANEW}")


def _flat(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= _flat(value, f"{before}{key}/") if isinstance(value, Mapping) and value else {f"{before}{key}": value}
    return found


def _opened(plan: AskPlan, wanted: Header, task: Task) -> Sampler:
    """The model, in the stored precision where there is one, with every prompt tried on it."""
    dtype = wanted.model.get("dtype")
    model = plan.config.model if dtype is None else plan.config.model.model_copy(update={"dtype": dtype})
    sampler = Sampler.open(model, seed=plan.config.seed, run=plan.run)
    render_all(plan.config, ShownTask(task, plan.shots), sampler.renderer, sampler.policy.module).require()
    return sampler


def _model_record(plan: AskPlan, sampler: Sampler) -> dict[str, Any]:
    adapter = plan.config.model.adapter
    parts = sorted(Path(adapter).expanduser().glob("*.safetensors")) if adapter is not None else []
    return {
        "name": sampler.loaded.source,
        "fingerprint": sampler.loaded.fingerprint,
        "dtype": sampler.machine.dtype,
        "step": plan.step,
        "run": None if plan.run is None else str(plan.run.folder),
        "adapter_sha256": [sha256_file(part) for part in parts],
    }


def _scored(plan: AskPlan, sampler: Sampler, rewards: Sequence[Any], task: Task, numbers: range) -> tuple[Group, ...]:
    plain = [task.train_prompt(number) for number in numbers]
    shown = ShownTask(task, plan.shots)
    prompts = [sampler.renderer.render(shown.train_prompt(number)) for number in numbers]
    with Scoring(rewards, plan.config.rewards, num_groups=len(prompts)) as scoring:
        sample_groups(
            prompts,
            sampler.engine,
            sampling_of(plan.config),
            seed=plan.config.seed,
            step=0,
            group_size=plan.samples,
            first_group=numbers.start,
            stream=COLLECTING_STREAM,
            on_group=lambda place, group: scoring.add(place, without_shots(group, plain[place])),
        )
        groups = scoring.finish()
    if all(reward is None for group in groups for reward in group.rewards):
        failures = (rollout.failure for group in groups for rollout in group.rollouts if rollout.failure)
        first = next(failures, "every reward abstained")
        raise RewardError(
            f"none of {len(prompts) * plan.samples} answers could be scored: {first}. Try the rewards with: toishi check"
        )
    return groups


def require_samples(header: Header, asked: Sequence[Asked], path: Path) -> None:
    """Raises RecordError when a samples file that is to be chosen from is not finished."""
    if len(asked) < header.prompts:
        raise RecordError(
            f"{path} holds {len(asked)} of {header.prompts} prompts: the command that wrote it did not finish. Run it again "
            "with --continue"
        )
