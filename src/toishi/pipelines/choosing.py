"""Stages that make and choose data with a model: what `toishi collect`, `select` and `pairs` do, in the stage's folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from toishi.collecting.asking import AskPlan, ask_all, number_of_prompts
from toishi.collecting.evaluated import evaluation_sets
from toishi.collecting.keeping import KeepPlan
from toishi.collecting.keeping import keep as keep_answers
from toishi.collecting.pairing import PairPlan, candidates, pair_up
from toishi.collecting.right import right_among
from toishi.collecting.samples import Asked, Header, samples_path, write_rows
from toishi.collecting.selecting import SelectPlan, read_band
from toishi.collecting.selecting import select as select_prompts
from toishi.collecting.shots import read_shots
from toishi.collecting.verdicts import judge_of, judged_by, verdicts_path
from toishi.config import Config
from toishi.counting import counting
from toishi.errors import DataError, ToishiError
from toishi.given import NOTHING_GIVEN, the_task
from toishi.pipelines.references import references
from toishi.pipelines.sections import Asking, CollectStage, PairsStage, SelectStage
from toishi.pipelines.store import Made
from toishi.pipelines.work import Work
from toishi.rewards.language import LanguageReward

DATA = "data.jsonl"


def collect(work: Work) -> Made:
    """Answers that are good enough to be learnt from."""
    stage: CollectStage = work.stage
    header, asked = _answers(work, shots=stage.shots)
    report, rows = keep_answers(header, asked, _keep_plan(stage, work.recipe))
    return _written(work, rows, report.as_record(), f"no answer is left ({report.why_dropped})")


def select(work: Work) -> Made:
    """Prompts that teach by comparison."""
    stage: SelectStage = work.stage
    header, asked = _answers(work)
    plan = SelectPlan(
        right=right_among(_names(work.recipe), stage.reward, stage.threshold),
        band=None if stage.band is None else read_band(stage.band),
        drop_duplicates=stage.drop_duplicates,
        drop_overlap=stage.drop_overlap,
    )
    evaluated = evaluation_sets(the_task(work.recipe, NOTHING_GIVEN), [Path(one) for one in stage.against], work.recipe.task)
    report, rows = select_prompts(header, asked, plan, evaluated)
    return _written(work, rows, report.as_record(), f"no prompt is left ({report.why_dropped})")


def pairs(work: Work) -> Made:
    """Preference pairs."""
    stage: PairsStage = work.stage
    header, asked = _answers(work)
    plan = PairPlan(per_prompt=stage.per_prompt, min_margin=_margin(stage), balance=stage.balance)
    verdicts = None
    if stage.judge is not None:
        path = verdicts_path(work.folder / DATA)
        with counting(work.console, "pairs") as told:
            found = candidates(asked, plan)[0]
            verdicts, _ = judged_by(
                work.recipe, stage.judge, found, path, calls=stage.calls, go_on=path.exists(), on_progress=told
            )
    report, rows = pair_up(header, asked, plan, by=stage.judge or "reward", verdicts=verdicts)
    return _written(work, rows, report.as_record(), f"no pair is left ({report.why_dropped})")


def problems_of_collect(stage: CollectStage, config: Config | None) -> Iterator[str]:
    """What is wrong with it before anything is sampled."""
    assert config is not None
    yield from _problems(stage, config)
    yield from _raised(lambda: _keep_plan(stage, config))
    if stage.language is not None:
        yield from _raised(lambda: LanguageReward(language=stage.language or ""))
    if stage.shots is not None and "${" not in stage.shots:
        yield from _raised(lambda: read_shots(Path(stage.shots or "")))


def problems_of_select(stage: SelectStage, config: Config | None) -> Iterator[str]:
    """What is wrong with it before anything is sampled."""
    assert config is not None
    yield from _problems(stage, config)
    yield from _raised(lambda: right_among(_names(config), stage.reward, stage.threshold))
    if stage.band is not None:
        yield from _raised(lambda: read_band(stage.band or ""))


def problems_of_pairs(stage: PairsStage, config: Config | None) -> Iterator[str]:
    """What is wrong with it before anything is sampled."""
    assert config is not None
    yield from _problems(stage, config)
    if stage.judge is not None:
        yield from _raised(lambda: judge_of(config, stage.judge or "", stage.calls))


def _problems(stage: Asking, config: Config) -> Iterator[str]:
    if config.algorithm.predicts != "tokens":
        yield f"algorithm '{config.algorithm.name}' trains a score, which answers no prompts; leave it out of the recipe"
    if not config.rewards:
        yield "rewards is []: nothing tells answers apart; give the recipe a reward"
    if stage.prompts is None and not any(references(config.task.model_dump())):
        yield from _raised(lambda: number_of_prompts(the_task(config, NOTHING_GIVEN), None))


def _raised(build: Any) -> Iterator[str]:
    try:
        build()
    except ToishiError as error:
        yield str(error)


def _answers(work: Work, shots: str | None = None) -> tuple[Header, tuple[Asked, ...]]:
    """All answers, out of the samples file as far as an interrupted stage has written it."""
    path = samples_path(work.folder / DATA)
    plan = AskPlan(
        recipe=work.name, config=work.recipe, samples=work.stage.samples, prompts=work.stage.prompts,
        shots=() if shots is None else read_shots(Path(shots)),
    )  # fmt: skip
    with counting(work.console) as told:
        return ask_all(plan, path, go_on=path.exists(), on_progress=told)


def _keep_plan(stage: CollectStage, config: Config) -> KeepPlan:
    names = _names(config)
    return KeepPlan(
        keep=stage.keep, right=right_among(names, stage.reward, stage.threshold) if stage.keep == "right" else None,
        top=stage.top, min_reward=stage.min_reward, min_tokens=stage.min_tokens, max_tokens=stage.max_tokens,
        truncated=stage.keep_truncated, unreadable=stage.keep_unreadable, dedup=stage.dedup, language=stage.language,
    )  # fmt: skip


def _margin(stage: PairsStage) -> float:
    return stage.min_margin if stage.min_margin is not None else 0.0 if stage.judge is None else 0.5


def _names(config: Config) -> list[str]:
    return [reward.name for reward in config.rewards]


def _written(work: Work, rows: Sequence[dict[str, Any]], report: dict[str, Any], nothing: str) -> Made:
    """The rows as the stage's data. Raises DataError where there is none: the stages after it would have nothing to learn."""
    path = work.folder / DATA
    if not rows:
        raise DataError(
            f"{nothing}, so the pipeline cannot go on. All answers are in {samples_path(path)}; change "
            "what the stage keeps, its prompts or its model, and run the pipeline again"
        )
    write_rows(path, rows)
    plain = {key: value for key, value in report.items() if isinstance(value, int | float | str | dict)}
    return Made(paths={"data": path}, facts={"rows": len(rows), **plain})
