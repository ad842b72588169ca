"""The section on who moved what: numbers that add up, words that follow from them, and the record it is read from."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from tests.explanation.chain.runs import make
from toishi.cli.app import app
from toishi.errors import RecordError
from toishi.explanation.chain.build import explain_chain
from toishi.explanation.chain.model_influence import InfluenceLink
from toishi.explanation.chain.story import page
from toishi.explanation.chain.story_influence import influence
from toishi.explanation.chain.voice import Voice
from toishi.explanation.page.blocks import Folded, Heat, Paragraph, Section, Signed, Verdict
from toishi.explanation.page.render_html import html_page
from toishi.explanation.page.render_terminal import render_section
from toishi.record import Run
from toishi.record.influence_files import has_influence, read_arrays, read_influence
from toishi.record.trace_files import trace_folder

QUIET = {"record.trace_when": [], "optimizer": {"lr": 1e-4, "weight_decay": 0.1}}


@pytest.fixture(scope="module")
def moved(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A step whose influence was measured while it ran."""
    settings = QUIET | {"record.trace_when": ["first_step"], "record.trace_influence": True}
    return make(tiny, tmp_path_factory.mktemp("moved") / "run", **settings)


def link_of(run: Run) -> InfluenceLink:
    link = explain_chain(run, 1, group=0).influence
    assert link is not None
    return link


def section_of(run: Run, **changes: Any) -> Section:
    chain = explain_chain(run, 1, group=0)
    assert chain.influence is not None
    found = influence(replace(chain, influence=replace(chain.influence, **changes)), Voice.of("en"))
    assert found is not None
    return found


def test_parts_shares_and_effects_add_up(moved: Run) -> None:
    link = link_of(moved)
    assert link.sums_off < 1e-9
    assert math.fsum(effect.share for effect in link.effects) == pytest.approx(1.0)
    assert link.norm_from_products == pytest.approx(link.gradient_norm, rel=1e-5)
    assert link.sum_error < 1e-5
    for each in link.moved:
        own = [pull.nats for pull in each.pulls if (pull.group, pull.member) == (each.text.group, each.text.member)]
        others = [pull.nats for pull in each.pulls if (pull.group, pull.member) != (each.text.group, each.text.member)]
        assert math.fsum(own) == pytest.approx(each.text.own, abs=1e-12)
        assert math.fsum(others) == pytest.approx(each.text.others, abs=1e-12)


def test_the_answer_that_was_not_scored_pushes_nothing(moved: Run) -> None:
    third = next(each.text for each in link_of(moved).moved if each.text.member == 2)
    assert third.share == 0.0
    assert third.own == 0.0


def test_cosines_are_those_of_the_stored_products(moved: Run) -> None:
    link, arrays = link_of(moved), read_arrays(moved.folder, 1)
    rows = {each.text.member: each.text.row for each in link.moved if each.text.member is not None}
    one, two = link.members[0], link.members[1]
    products = arrays["products"]
    wanted = products[rows[one], rows[two]] / math.sqrt(products[rows[one], rows[one]] * products[rows[two], rows[two]])
    assert link.cosines[0][1] == pytest.approx(wanted)
    assert [row[place] for place, row in enumerate(link.cosines)] == pytest.approx([1.0] * len(link.members))


@pytest.mark.parametrize("language", ["en", "ja"])
def test_the_page_has_the_section_after_the_effect(language: str, moved: Run) -> None:
    chain = explain_chain(moved, 1, group=0, language=language)
    keys = [section.key for section in page(chain, language).sections]
    assert keys.index("influence") == keys.index("effect") + 1
    found = html_page(page(chain, language))
    assert '<table class="heat">' in found


def test_a_waterfall_ends_at_the_measured_change(moved: Run) -> None:
    chain = explain_chain(moved, 1, group=0, member=0)
    found = influence(chain, Voice.of("en"))
    assert found is not None
    waterfall = [block for block in found.blocks if isinstance(block, Signed)][1]
    values = [value for _, value, _ in waterfall.items]
    own = next(each.text for each in link_of(moved).moved if each.text.member == 0)
    assert values[-1] == own.measured
    hidden = 5 * 1e-4 * link_of(moved).largest
    assert math.fsum(values[:-1]) == pytest.approx(own.measured, abs=hidden)


def test_a_refused_account_says_why_and_shows_no_parts(moved: Run) -> None:
    found = section_of(moved, refused="only 3% of the intended step is in the stored weights")
    assert not any(isinstance(block, Signed | Heat) for block in found.blocks)
    assert any(isinstance(block, Paragraph) and "only 3%" in block.text for block in found.blocks)


def test_too_large_a_step_is_said(moved: Run) -> None:
    texts = [block.text for block in section_of(moved, trust="too_far").blocks if isinstance(block, Paragraph)]
    assert any("Too large for a straight line" in text for text in texts)


def test_an_answer_against_its_score_names_what_outweighed_it(moved: Run) -> None:
    link = link_of(moved)
    first = next(each for each in link.moved if each.text.member == 0)
    pull = replace(first.pulls[1], nats=-0.5)
    text = replace(first.text, advantage=1.0, own=0.2, others=-0.5, measured=-0.3, rest=0.0)
    turned = replace(first, text=text, pulls=(replace(first.pulls[0], nats=0.2), pull))
    texts = [block.text for block in section_of(moved, moved=(turned,)).blocks if isinstance(block, Paragraph)]
    assert any(f"pull of #{pull.member} (−0.5)" in text and "outweighed" in text for text in texts)
    bent = replace(turned, text=replace(text, others=0.0, rest=-0.5), pulls=turned.pulls[:1])
    texts = [block.text for block in section_of(moved, moved=(bent,)).blocks if isinstance(block, Paragraph)]
    assert any("by curvature" in text for text in texts)


def test_parts_that_do_not_add_up_are_said(moved: Run) -> None:
    verdicts = [block for block in section_of(moved, sums_off=0.1).blocks if isinstance(block, Verdict)]
    assert [verdict.ok for verdict in verdicts] == [False]


def test_the_terminal_prints_it(moved: Run) -> None:
    console = Console(width=100, record=True, file=io.StringIO())
    render_section(section_of(moved), console, 9)
    printed = console.export_text()
    assert "Who moved what?" in printed
    assert "which answers move together" in printed


def test_explain_makes_it_where_it_is_not_on_record(tiny: Path, tmp_path: Path) -> None:
    run = make(tiny, tmp_path / "run", **QUIET)
    assert not has_influence(run.folder, 1)
    command = ["explain", str(run.folder), "--step", "1", "--group", "0", "--json", "--influence"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["influence"]["refused"] == ""
    assert read_influence(run.folder, 1).step == 1


def test_the_tokens_of_an_answer_are_made_where_they_are_not_on_record(moved: Run, tiny: Path, tmp_path: Path) -> None:
    run = make(tiny, tmp_path / "run", **QUIET)
    for _ in range(2):  # the second time they are read
        command = ["explain", str(run.folder), "--step", "1", "--group", "0", "--member", "0", "--tokens"]
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
        assert "#0: which of its tokens carried its share" in " ".join(done.stdout.split())
        assert "its heaviest tokens" in done.stdout
    assert read_influence(run.folder, 1).has_tokens
    for text in read_influence(run.folder, 1).texts:
        assert math.fsum(text.tokens) == pytest.approx(text.share, abs=1e-4)
    assert not read_influence(moved.folder, 1).has_tokens
    refused = CliRunner().invoke(app, ["explain", str(run.folder), "--tokens"])
    assert refused.exit_code == 2


def test_the_first_of_several_updates_is_called_so(moved: Run) -> None:
    texts = [block.text for block in section_of(moved, num_updates=3).blocks if isinstance(block, Paragraph)]
    assert any("first of the step's 3 optimizer updates" in text for text in texts)
    assert not any("optimizer updates" in block.text for block in section_of(moved).blocks if isinstance(block, Paragraph))


def test_changed_files_are_refused(moved: Run, tmp_path: Path) -> None:
    folder = trace_folder(moved.folder, 1)
    for name in ("influence.json", "influence.safetensors"):
        kept = (folder / name).read_bytes()
        (folder / name).write_bytes(kept.replace(b"own", b"OWN", 1) if name.endswith("json") else kept[:-1] + b"\x01")
        with pytest.raises(RecordError, match="was changed"):
            read_arrays(moved.folder, 1)
        (folder / name).write_bytes(kept)
    assert read_influence(moved.folder, 1).texts


def test_shares_by_reward_are_folded(moved: Run) -> None:
    folds = [block for block in section_of(moved).blocks if isinstance(block, Folded)]
    assert "The shares by reward" in [fold.title for fold in folds]
