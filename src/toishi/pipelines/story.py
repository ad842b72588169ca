"""The page that tells a pipeline: which stages helped, which did not, and which cannot be told."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from toishi.display_tables import counted, duration, mode_in_words, span
from toishi.explanation.page.blocks import Block, Column, Folded, Line, Page, Paragraph, Section, Signed, Table, Tone
from toishi.explanation.page.markup import code, literal
from toishi.pipelines.gains import WORDS, Gain, deciding, gains_of
from toishi.pipelines.running import STATES, PipelineView, StageView

TONES: dict[str, Tone] = {"helped": "up", "harmed": "down", "no_help": "held", "unclear": ""}


def page(view: PipelineView) -> Page:
    """The whole page."""
    gains = gains_of(view)
    sections = [_stages(view, gains), *(_measure(view, gains, name) for name in view.pipeline.file.measure), _made(view)]
    file = view.pipeline.file
    return Page(
        language="en",
        title=f"Pipeline {file.name}",
        lead=literal(file.description) or f"{len(view.stages)} stages",
        contents="Contents",
        legend="95% intervals over prompts",
        footer=f"Everything is in {code(str(view.folder))}. Run again: {code(f'toishi pipeline {view.pipeline.source}')}. What "
        "was finished and depends on nothing that changed is kept.",
        sections=tuple(sections),
    )


def headline(view: PipelineView, gains: Sequence[Gain]) -> str:
    """Which stages did what they were meant to."""
    aimed = [gain for gain in deciding(gains) if gain.is_aim]
    if not aimed:
        return "Nothing was measured that a stage is meant to raise (`measure`, `aim`), so no stage can be judged."
    return _by_verdict([(gain, f"{gain.stage} ({gain.measure})") for gain in aimed])


def _by_verdict(named: Sequence[tuple[Gain, str]]) -> str:
    """Each verdict with those that it was passed on."""
    parts = []
    for kind, words in WORDS.items():
        names = [name for gain, name in named if gain.outcome == kind]
        if names:
            parts.append(f"{words[0].upper()}{words[1:]}: {', '.join(names)}.")
    return " ".join(parts)


def _stages(view: PipelineView, gains: Sequence[Gain]) -> Section:
    decided = deciding(gains)
    lines = [_stage_line(place, stage, decided) for place, stage in enumerate(view.stages, start=1)]
    columns = (Column("#"), Column("stage", False), Column("kind", False), Column("what came of it", False), Column("time"))
    blocks: list[Block] = [Table(columns=columns, lines=tuple(lines))]
    if decided:
        chance = 0.05 * len(decided)
        blocks.append(
            Paragraph(
                "A stage is compared with the model that it started from, on the same held-out prompts, and judged by what it "
                f"is meant to raise. {counted(len(decided), 'difference')} were looked at on this page: by chance alone about "
                f"{chance:.1f} of them would exclude 0. One run with one seed: another seed can move a stage from one verdict "
                "to its neighbour."
            )
        )
    return Section(key="stages", title="Stages", headline=headline(view, gains), blocks=tuple(blocks))


def _stage_line(place: int, stage: StageView, gains: Sequence[Gain]) -> Line:
    mine = [gain for gain in gains if gain.stage == stage.name and gain.is_aim]
    told = "; ".join(f"{gain.measure}: {WORDS[gain.outcome]} {span(gain.change, gain.interval, signed=True)}" for gain in mine)
    text = told or facts_in_words(stage.facts) or STATES[stage.state]
    time = "-" if stage.seconds is None else duration(stage.seconds)
    again = f" (begun {stage.sittings} times)" if stage.sittings > 1 else ""
    tone = TONES[mine[0].outcome] if mine else ""
    return Line(cells=(str(place), code(stage.name), stage.kind, literal(text + again), time), tone=tone)


def facts_in_words(facts: dict[str, Any] | Any) -> str:
    """What a stage says of itself, in a line.

    >>> facts_in_words({"rows": 12, "answers": 40, "dropped": {"wrong": 28}})
    '12 rows of 40 answers; dropped: wrong 28'
    """
    parts = []
    if "rows" in facts:
        of = f" of {facts['answers']} answers" if "answers" in facts else ""
        parts.append(f"{facts['rows']} rows{of}")
    for key, word in (("dropped", "dropped"), ("of", "from")):
        if facts.get(key):
            parts.append(f"{word}: {', '.join(f'{name} {count}' for name, count in facts[key].items())}")
    if "layers" in facts:
        kept, before = len(facts["layers"]), facts["layers_before"]
        parts.append(
            f"{kept} of {before} layers, {facts['parameters'] / 1e6:.3g} of {facts['parameters_before'] / 1e6:.3g} M weights"
        )
    if "steps" in facts:
        parts.append(f"{counted(facts['steps'], 'step')} of {facts['algorithm']}")
        own = [one for one in facts["own"] if one["mode"] == "pairs"]
        if len(own) > 1:
            ends = (span(one["value"], one["interval"]) for one in (own[0], own[-1]))
            parts.append(f"held-out pairs ranked right {' → '.join(ends)}")
    return "; ".join(parts)


def _measure(view: PipelineView, gains: Sequence[Gain], name: str) -> Section:
    asked = view.pipeline.file.measure[name]
    mine = [gain for gain in gains if gain.measure == name]
    mode = mine[0].mode if mine else "greedy"
    first = [gain for gain in mine if gain.mode == mode]
    columns = (
        Column("stage", False), Column("before"), Column("after"), Column("change [95% interval]"), Column("verdict", False),
    )  # fmt: skip
    table = Table(columns=columns, lines=tuple(map(_gain_line, first)), caption=_caption(view, name, mode))
    worth = f" A gain below {asked.worth:g} would not matter." if asked.worth else ""
    said = Paragraph(f"Measured: {literal(asked.about)}.{worth}" if asked.about else worth.strip())
    blocks: list[Block] = [*([said] if said.text else []), table]
    if first:
        items = tuple((gain.stage, gain.change, f"{gain.change:+.3f}") for gain in first if math.isfinite(gain.change))
        blocks.append(Signed(caption="change by stage; how sure it is, the table says", items=items))
    rest = [gain for gain in mine if gain.mode != mode]
    if rest:
        more = Table(columns=columns, lines=tuple(map(_gain_line, rest)), caption=_caption(view, name, rest[0].mode))
        blocks.append(Folded(title="the same with sampled answers", blocks=(more,)))
    words = _by_verdict([(gain, gain.stage) for gain in first]) or "No stage made a model that was measured."
    return Section(key=f"measure-{name}", title=f"Held out: {name}", headline=words, blocks=tuple(blocks))


def _caption(view: PipelineView, name: str, mode: str) -> str:
    found = next((one for one in view.base.get(name, []) if one.mode == mode), None)
    if found is None:
        return mode
    start = span(found.value, found.interval)
    return f"{counted(found.num_prompts, 'held-out prompt')}, {mode_in_words(found)}; at the start {start}"


def _gain_line(gain: Gain) -> Line:
    verdict = WORDS[gain.outcome] + (" (its aim)" if gain.is_aim else "")
    cells = (
        code(gain.stage), span(gain.before, gain.before_interval), span(gain.after, gain.after_interval),
        span(gain.change, gain.interval, signed=True), verdict,
    )  # fmt: skip
    return Line(cells=cells, tone=TONES[gain.outcome])


def _made(view: PipelineView) -> Section:
    lines = [
        Line(cells=(code(stage.name), literal(stage.about), code(output), code(_inside(path, view.folder))))
        for stage in view.stages
        for output, path in stage.paths.items()
    ]
    columns = (Column("stage", False), Column("what it is for", False), Column("output", False), Column("path", False))
    folded: Iterable[Block] = (Table(columns=columns, lines=tuple(lines)),)
    total = sum(stage.seconds or 0.0 for stage in view.stages)
    text = (
        f"The stages took {duration(total)} by the clock, without the measurements between them; one that was begun again "
        f"counts from its last beginning. Precision: {view.dtype}."
    )
    return Section(key="made", title="What was made", headline=text, blocks=tuple(folded))


def _inside(path: Path, folder: Path) -> str:
    """A path as it stands in the pipeline's folder."""
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else str(path)


def as_record(view: PipelineView) -> dict[str, Any]:
    """The same as plain values, for `--json`."""
    gains = gains_of(view)
    return {
        "pipeline": view.pipeline.name,
        "folder": str(view.folder),
        "finished": view.finished,
        "dtype": view.dtype,
        "headline": headline(view, gains),
        "stages": [_stage_record(stage) for stage in view.stages],
        "gains": [gain.as_record() for gain in gains],
        "base": {name: [one.as_record() for one in found] for name, found in view.base.items()},
    }


def _stage_record(stage: StageView) -> dict[str, Any]:
    return {
        "name": stage.name, "kind": stage.kind, "state": stage.state, "key": stage.key, "seconds": stage.seconds,
        "sittings": stage.sittings, "outputs": {output: str(path) for output, path in stage.paths.items()},
        "facts": dict(stage.facts), "aim": list(stage.aim),
    }  # fmt: skip
