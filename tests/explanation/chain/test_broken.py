"""A planted alteration of any link's number makes exactly that link fail, and is named first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from toishi.explanation.chain.build import build_chain
from toishi.explanation.chain.evidence import Evidence, read_step
from toishi.explanation.chain.story import page
from toishi.explanation.chain.voice import Voice
from toishi.explanation.page.render_html import html_page
from toishi.record import Run
from toishi.record.trace import Trace
from toishi.types import Rollout, TokenStreams

Alter = Callable[[Evidence], Evidence]


def with_group(evidence: Evidence, change: Callable[[Any], Any]) -> Evidence:
    groups = tuple(change(g) if g.rollouts[0].id.group == 0 else g for g in evidence.report.groups)
    return replace(evidence, report=replace(evidence.report, groups=groups))


def with_member(evidence: Evidence, change: Callable[[Rollout], Rollout]) -> Evidence:
    """Member 1 of group 0 altered."""
    return with_group(
        evidence, lambda group: replace(group, rollouts=tuple(change(r) if r.id.member == 1 else r for r in group.rollouts))
    )


def baseline(**changes: Any) -> Alter:
    def alter(evidence: Evidence) -> Evidence:
        found = evidence.group.baseline
        assert found is not None
        return with_group(evidence, lambda group: replace(group, baseline=replace(found, **changes)))

    return alter


def stream(name: str, offset: float) -> Alter:
    """The first token of member 3 in the first update."""

    def change(found: TokenStreams) -> TokenStreams:
        values = getattr(found, name)
        changes: dict[str, Any] = {name: (values[0] + offset, *values[1:])}
        return replace(found, **changes)

    def alter(evidence: Evidence) -> Evidence:
        first, *others = evidence.report.updates
        streams = tuple(change(s) if (s.rollout.group, s.rollout.member) == (0, 3) else s for s in first.streams)
        return replace(evidence, report=replace(evidence.report, updates=(replace(first, streams=streams), *others)))

    return alter


def scalar(name: str, factor: float) -> Alter:
    def alter(evidence: Evidence) -> Evidence:
        first, *others = evidence.report.updates
        scalars = {**first.scalars, name: first.scalars[name] * factor + 0.01}
        return replace(evidence, report=replace(evidence.report, updates=(replace(first, scalars=scalars), *others)))

    return alter


def traced(change: Callable[[Trace], Trace]) -> Alter:
    def alter(evidence: Evidence) -> Evidence:
        assert evidence.trace is not None
        return replace(evidence, trace=change(evidence.trace))

    return alter


def matrix(name: str) -> Alter:
    return traced(
        lambda trace: replace(
            trace, matrices=(replace(trace.matrices[0], **{name: getattr(trace.matrices[0], name) * 1.5}), *trace.matrices[1:])
        )
    )


def total(name: str) -> Alter:
    return traced(
        lambda trace: replace(
            trace, updates=(replace(trace.updates[0], **{name: getattr(trace.updates[0], name) * 1.5}), *trace.updates[1:])
        )
    )


def before(trace: Trace) -> Trace:
    place = next(i for i, text in enumerate(trace.texts) if (text.group, text.member) == (0, 1))
    text = trace.texts[place]
    texts = (*trace.texts[:place], replace(text, before=(text.before[0] - 0.1, *text.before[1:])), *trace.texts[place + 1 :])
    return replace(trace, texts=texts)


def after(trace: Trace) -> Trace:
    """The probability after the step at a chosen position."""
    place = next(i for i, found in enumerate(trace.positions) if found.group == 0)
    position = trace.positions[place]
    own, *others = position.alternatives
    changed = replace(position, alternatives=(replace(own, after=own.after * 0.9), *others))
    return replace(trace, positions=(*trace.positions[:place], changed, *trace.positions[place + 1 :]))


def direction(trace: Trace) -> Trace:
    assert trace.contrast is not None
    sft, grpo, negative = trace.contrast.directions
    changed = replace(grpo, cosine_with_sft=(grpo.cosine_with_sft or 0.0) + 0.01)
    return replace(trace, contrast=replace(trace.contrast, directions=(sft, changed, negative)))


def step_length(trace: Trace) -> Trace:
    assert trace.contrast is not None
    return replace(trace, contrast=replace(trace.contrast, step_norm=trace.contrast.step_norm * 1.1))


def contribution(evidence: Evidence) -> Evidence:
    row = evidence.rows[0, 1]
    first, *others = row["scores"]
    altered = {**row, "scores": [{**first, "contribution": first["contribution"] + 1e-6}, *others]}
    return replace(evidence, rows={**evidence.rows, (0, 1): altered})


def larger_mean(evidence: Evidence) -> Evidence:
    assert evidence.group.baseline is not None
    return baseline(mean=(evidence.group.baseline.mean or 0.0) + 1e-6)(evidence)


ALTERED: dict[str, tuple[str, Alter]] = {
    "a contribution": ("scores", contribution),
    "a reward": ("reward", lambda e: with_member(e, lambda r: replace(r, reward=(r.reward or 0.0) + 1e-6))),
    "a reward taken away": ("reward", lambda e: with_member(e, lambda r: replace(r, reward=None))),
    "the mean": ("baseline", larger_mean),
    "the spread": ("baseline", baseline(std=0.123)),
    "the count": ("baseline", baseline(count=4)),
    "whether it teaches": ("baseline", baseline(kept=False)),
    "an advantage": ("advantage", lambda e: with_member(e, lambda r: replace(r, advantage=0.5))),
    "no advantage": ("advantage", lambda e: with_member(e, lambda r: replace(r, advantage=None))),
    "a token weight": ("weights", stream("token_weight", 1e-6)),
    "a token's advantage": ("weights", stream("advantage", 1e-3)),
    "a ratio": ("weights", stream("ratio", 1e-4)),
    "a clip branch": ("weights", stream("clip", 1)),
    "the loss": ("weights", scalar("update/loss", 1.5)),
    "the number of tokens": ("weights", scalar("update/tokens", 2.0)),
    "the gradient's length": ("gradient", scalar("update/grad_norm", 1.5)),
    "its length after cutting": ("gradient", scalar("update/grad_norm_clipped", 1.5)),
    "a matrix's gradient": ("gradient", matrix("gradient_norm")),
    "the factor of cutting": ("gradient", total("clip_factor")),
    "a matrix's change": ("change", matrix("change_norm")),
    "a matrix's decay": ("change", matrix("decay_norm")),
    "a matrix's step": ("change", matrix("step_norm")),
    "the learning rate": ("change", total("lr")),
    "the share of changed weights": ("change", total("changed_share")),
    "a log-prob before": ("effect", traced(before)),
    "a probability after": ("effect", traced(after)),
    "the cosine": ("sft", traced(direction)),
    "the length of SFT's step": ("sft", traced(step_length)),
}  # fmt: skip


@pytest.fixture(scope="module")
def evidence(run: Run) -> Evidence:
    return replace(read_step(run, 1), number=0)


@pytest.mark.parametrize("name", ALTERED)
def test_an_alteration_breaks_its_own_link_and_no_other(name: str, evidence: Evidence) -> None:
    link, alter = ALTERED[name]
    chain = build_chain(alter(evidence), member=1, update=None, voice=Voice.of("en"))
    assert [check.name for check in chain.checks if not check.ok] == [link]
    assert chain.broken == link
    text = html_page(page(chain))
    assert "A link is broken" in text
    assert "This link is broken" in text


def test_an_altered_score_breaks_everything_that_follows_from_it(evidence: Evidence) -> None:
    def better(rollout: Rollout) -> Rollout:
        judge, *others = rollout.scores
        return replace(rollout, scores=(replace(judge, value=1.0), *others))

    chain = build_chain(with_member(evidence, better), member=1, update=None, voice=Voice.of("en"))
    assert [check.name for check in chain.checks if not check.ok] == ["scores", "reward", "baseline", "advantage", "weights"]
    assert chain.broken == "scores"


def test_a_failed_score_that_was_given_a_value_is_found(evidence: Evidence) -> None:
    def healed(group: Any) -> Any:
        rollouts = list(group.rollouts)
        judge, *others = rollouts[2].scores
        rollouts[2] = replace(rollouts[2], scores=(replace(judge, value=0.0), *others))
        return replace(group, rollouts=tuple(rollouts))

    chain = build_chain(with_group(evidence, healed), member=None, update=None, voice=Voice.of("en"))
    assert chain.broken == "scores"
