"""What a page answers beforehand: the same as the command says, whole where it can be, and small."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.cli.conftest import run_command
from toishi.counterfactual.grid import MOST_CASES, MOST_LINES, scores_between, whatifs_of
from toishi.explanation.chain.build import explain_chain
from toishi.explanation.chain.model import Chain
from toishi.explanation.chain.model_whatif import WhatIfs
from toishi.explanation.chain.story import page
from toishi.explanation.chain.voice import Voice
from toishi.explanation.page.render_html import html_page
from toishi.record import Run
from toishi.record.trace_files import trace_folder

MEGABYTE = 1e6


@pytest.fixture(scope="module")
def text(run: Run, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page as the command writes it."""
    path = tmp_path_factory.mktemp("page") / "page.html"
    assert run_command("explain", run.folder, "--step", "1", "--group", "0", "--member", "1", "--html", path).code == 0
    return path.read_text(encoding="utf-8")


def root_of(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text.replace("<!DOCTYPE html>", ""))


def data_of(text: str) -> dict[str, Any]:
    """The cases that a page holds."""
    (script,) = (script for script in root_of(text).iter("script") if script.get("type") == "application/json")
    found: dict[str, Any] = json.loads("".join(script.itertext()))
    return found


def section_of(text: str) -> str:
    return " ".join(
        " ".join(part.strip() for part in section.itertext() if not part.startswith("{"))
        for section in root_of(text).iter("section")
        if section.get("id") == "whatif"
    )


def told(chain: Chain, asked: WhatIfs, language: str = "en") -> str:
    return html_page(page(chain, language, asked=asked))


@pytest.mark.parametrize("option", ["--score judge:0=0.1", "--score judge:2=1", "--score style:3=0", "--drop 1"])
def test_a_case_is_what_the_command_says(option: str, text: str, run: Run) -> None:
    data = data_of(text)
    case = next(case for case in data["cases"] if case["option"] == option)
    ended = run_command("whatif", run.folder, "--step", "1", "--group", "0", *option.split(), "--json")
    wanted = json.loads(ended.out)["answers"]
    assert data["numbers"] == ["score", "reward", "advantage", "change_nats", "half_width_nats"]
    for numbers, tone, each in zip(case["numbers"], case["tones"], wanted, strict=True):
        moved = each["moved"]
        exact = (each["reward_after"], each["advantage_after"], moved["forecast"], moved["half_width"])
        for shown, value in zip(numbers[1:], exact, strict=True):
            assert shown == (None if value is None else pytest.approx(value, rel=1e-5, abs=1e-12))
        assert tone == {"up": "up", "down": "down", "direction not determined": "against"}[moved["verdict"]]
    assert data["command"][0] + option == f"toishi whatif {run.folder} --step 1 --group 0 {option}"


def test_every_answer_and_reward_has_a_slider_over_its_range(text: str) -> None:
    data = data_of(text)
    assert len(data["choices"]) == 4 * 2
    for choice in data["choices"]:
        values = [data["cases"][place]["value"] for place in choice["cases"]]
        assert values[-1] == "1"
        assert sum("as it really was" in value for value in values) == 1
        assert "as it really was" in values[choice["start"]]
        assert "--drop" in data["cases"][choice["apart"]]["option"]


def test_the_real_step_is_measured_and_not_forecast(run: Run) -> None:
    found = whatifs_of(run, 1, 0)
    measured = {each["member"]: each["moved"]["measured"] for each in json.loads(_asked(run).out)["answers"]}
    for slider in found.sliders:
        (real,) = (case for case in slider.cases if not case.option)
        assert {each.member: each.forecast for each in real.answers} == measured
        assert {each.half_width for each in real.answers} == {0.0}
        assert real.score == slider.recorded


def _asked(run: Run) -> Any:
    return run_command("whatif", run.folder, "--step", "1", "--group", "0", "--score", "judge:0=0.1", "--json")


def test_without_a_script_one_worked_example_stands_there(text: str) -> None:
    """#1 got 0.5 of a reward that reaches 1, so the example gives it 1."""
    root = root_of(text)
    (controls,) = (one for one in root.iter("div") if one.get("data-part") == "controls")
    assert controls.get("hidden") == "hidden"
    said = section_of(text)
    assert "If #1 had got 1 instead of 0.5, its advantage would be" in said
    assert "--score judge:1=1 --real" in said
    assert "0.5\n→ 1" in said


def test_words_say_what_is_exact_and_what_is_estimated(text: str) -> None:
    said = section_of(text)
    for words in ("Exact:", "Measured:", "Estimated:", "no guarantee", "can still become less likely", "How far to trust it"):
        assert words in said
    influence = " ".join(root_of(text).itertext())
    assert "how an answer with a positive advantage can still become less likely" in influence


@pytest.mark.parametrize("language", ["en", "ja"])
def test_the_page_stays_well_formed_and_asks_for_nothing(language: str, run: Run) -> None:
    found = told(explain_chain(run, 1, group=0, language=language), whatifs_of(run, 1, 0), language)
    root = root_of(found)
    assert not {element.tag for element in root.iter()} & {"link", "img", "iframe", "object", "embed", "base", "form"}
    assert not any(script.get("src") for script in root.iter("script"))
    assert len(list(root.iter("script"))) == 2


def test_steps_with_several_updates_say_why_and_show_the_whole_step(twice: Run) -> None:
    for update in (0, 1):
        chain = explain_chain(twice, 1, group=0, update=update)
        asked = whatifs_of(twice, 1, 0, update=update)
        found = told(chain, asked)
        assert "the step made 2 optimizer updates" in asked.refused
        assert "Why no probabilities are estimated" in section_of(found)
        assert "what all of them together did" in section_of(found)
        assert chain.effect is not None
        shown = ["".join(line.findall("td")[5].itertext()) for line in _lines(found)]
        changes = [answer.change for answer in chain.effect.answers if answer.kind == "rollout"]
        assert shown == [Voice.of("en").times(change) for change in changes]
        assert ("--update 1" in section_of(found)) == (update == 1)
        (case,) = (case for case in data_of(found)["cases"] if case["option"] == "--score judge:3=1")
        assert case["numbers"][3][2] > 0
        assert case["numbers"][3][3] is None


def _lines(text: str) -> list[ElementTree.Element]:
    (lookup,) = (one for one in root_of(text).iter("div") if one.get("class") == "lookup")
    return [line for body in lookup.iter("tbody") for line in body]


def test_without_an_account_the_remedy_is_said(run: Run, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(run.folder, tmp_path / "copy"))
    (trace_folder(folder, 1) / "influence.json").unlink()
    (trace_folder(folder, 1) / "influence.safetensors").unlink()
    copy = Run.open(folder)
    asked = whatifs_of(copy, 1, 0)
    said = section_of(told(explain_chain(copy, 1, group=0), asked))
    assert "who moved what in step 1 is not on record" in said
    assert "--influence" in said
    case = next(case for slider in asked.sliders for case in slider.cases if case.option == "--score judge:0=0.1")
    before = next(each for each in asked.before if each.member == 0)
    assert case.answers[0].advantage != before.advantage
    assert case.answers[0].forecast is None


def test_a_record_of_which_nothing_can_be_asked_says_so(run: Run, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(run.folder, tmp_path / "copy"))
    kept = folder / "run.json"
    value = json.loads(kept.read_text())
    value["config"]["algorithm"] = {"name": "nothing_known"}
    kept.write_text(json.dumps(value))
    asked = whatifs_of(Run.open(folder), 1, 0)
    assert "algorithm" in asked.impossible
    said = section_of(told(explain_chain(run, 1, group=0), asked))
    assert "No other score can be tried on this step" in said
    assert asked.impossible[:40] in said


def test_large_groups_stay_below_a_megabyte(run: Run) -> None:
    """The largest page that the limits allow: 13 answers of 400 cases, here from one case with long numbers."""
    asked = whatifs_of(run, 1, 0)
    slider = asked.sliders[0]
    case = next(case for case in slider.cases if case.option)
    size = MOST_LINES // MOST_CASES
    answers = tuple(
        replace(
            case.answers[0],
            member=member,
            reward=-123.456789,
            advantage=-1.23456789,
            forecast=-0.0123456789,
            half_width=0.0123456,
        )
        for member in range(size)
    )
    before = tuple(replace(asked.before[0], member=member) for member in range(size))
    cases = tuple(
        replace(case, option=f"--score judge:0={place / 7:.12g}", score=place / 7, answers=answers)
        for place in range(MOST_CASES)
    )
    real = replace(case, option="", score=slider.recorded, answers=before)
    largest = replace(asked, before=before, sliders=(replace(slider, cases=(real, *cases)),), left_out=())
    chain = explain_chain(run, 1, group=0)
    for language in ("en", "ja"):
        without, found = html_page(page(chain, language)), told(chain, largest, language)
        assert 0.2 * MEGABYTE < len(found.encode()) - len(without.encode()) < MEGABYTE


@pytest.mark.parametrize("most", [5, 8, 11])
@pytest.mark.parametrize(
    "ends", [(0.0, 1.0), (1.0, 10.0), (-1.0, 1.0), (-120.0, -5.5), (0.0, 100.0), (0.0, 0.003), (0.0, 25.0)]
)
def test_scores_are_even_and_few(ends: tuple[float, float], most: int) -> None:
    found = scores_between(*ends, most)
    assert (found[0], found[-1]) == ends
    assert 3 <= len(found) <= most
    steps = [round(b - a, 9) for a, b in pairwise(found[1:-1])]
    assert len(set(steps)) <= 1
