"""The pages: catalogues that match, HTML that any parser reads and that needs nothing, and numbers where readers look."""

from __future__ import annotations

import re
from dataclasses import replace
from string import Formatter
from xml.etree import ElementTree

import pytest
from rich.console import Console

from toishi.algorithms.rows import ROWS
from toishi.errors import ConfigError
from toishi.explanation.page.blocks import Bars, Signed, Table, unfolded
from toishi.explanation.page.render_html import html_page
from toishi.explanation.page.render_terminal import render
from toishi.explanation.toy.compute import paper_row, row_with, walk
from toishi.explanation.toy.messages import Catalogue, languages, texts
from toishi.explanation.toy.model import World
from toishi.explanation.toy.story import page
from toishi.explanation.toy.walk import Walk

LANGUAGES = languages()
WORKED = walk(World(comments=("<b>fine</b> & good", "so so", "no", "nothing")))


def placeholders(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name is not None}


@pytest.mark.parametrize("language", LANGUAGES)
def test_catalogues_have_the_same_keys_and_placeholders(language: str) -> None:
    english, other = texts("en"), texts(language)
    assert set(other) == set(english)
    assert [key for key in english if placeholders(english[key]) != placeholders(other[key])] == []
    assert [key for key in english if bool(english[key]) != bool(other[key])] == []


def test_an_unknown_language_is_refused() -> None:
    with pytest.raises(ConfigError, match="no texts in language 'jp'; known: en, ja"):
        Catalogue("jp")


def parsed(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text.replace("<!DOCTYPE html>", ""))


@pytest.mark.parametrize("language", LANGUAGES)
def test_html_is_one_well_formed_file_that_asks_for_nothing(language: str) -> None:
    text = html_page(page(WORKED, language))
    root = parsed(text)
    assert root.get("lang") == language
    tags = {element.tag for element in root.iter()}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "base", "form"}
    assert not re.search(r"https?:|//[a-z]|@import|url\(|javascript:| on[a-z]+=", text)
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    links = {element.get("href", "") for element in root.iter("a")}
    assert links == {f"#{name}" for name in ids}
    for svg in root.iter("svg"):
        assert svg.get("aria-label")
    assert "<b>fine" not in text
    assert "&lt;b&gt;fine&lt;/b&gt; &amp; good" in text


HEADLINE_NUMBERS = (
    *("+1.4142", "+0.4714", "−0.9428", "0.2121"),  # advantages and spread
    *("−0.2239", "−0.0943", "+0.2239", "+0.0118", "−0.0471"),  # gradient
    *("0.5140", "0.2975", "0.1360", "0.0525", "51.4%", "29.7%", "5.2%"),  # after the step
    *("0.6463", "1.2799", "1.1287", "0.0401"),  # effect
    *("1.2851", "0.6801", "0.5247", "−0.1116", "−0.0410"),  # clipping
    *("0.7136", "0.4144", "0.6577", "60.5%"),  # SFT
    *("−0.1084", "−0.1097", "−0.0003", "−0.0721", "−0.1347", "−0.1166"),  # KL and other rows
    *("0.2950", "0.7950", "7.7368", "0.7139"),  # relatives
)


@pytest.mark.parametrize("language", LANGUAGES)
def test_html_and_terminal_hold_the_headline_numbers(language: str) -> None:
    told = page(WORKED, language)
    for text in (" ".join(parsed(html_page(told)).itertext()), drawn(WORKED, language, 200)):
        assert [number for number in HEADLINE_NUMBERS if number not in text] == []


def drawn(walked: Walk, language: str, width: int, digits: int = 4) -> str:
    console = Console(width=width, no_color=True)
    with console.capture() as capture:
        render(page(walked, language, digits), console)
    return capture.get()


@pytest.mark.parametrize("language", LANGUAGES)
def test_terminal_shows_all_sections_at_80_columns(language: str) -> None:
    text = drawn(WORKED, language, 80)
    told = page(WORKED, language)
    for number, section in enumerate(told.sections, start=1):
        assert f"{number}. {section.title}" in text
    assert "`" not in text.replace("`*`", "")
    assert "**" not in text


def test_answers_of_the_questions_a_reader_has() -> None:
    """What is the baseline, why is #3 negative, which word was pushed most and why, did it work, what would SFT have done."""
    text = re.sub(r"\s+", " ", drawn(WORKED, "en", 400))
    for said in (
        "The baseline is the group's mean reward: (0.8 + 0.6 + 0.3 + 0.3) / 4 = 0.5",
        "Why is the advantage of #3 negative?",
        "It is 0.2 below the baseline, 0.5.",
        "Pushed hardest is <end> of #4: −0.2357.",
        "Here the share decides, not the advantage",
        "What the model really earns here on average, over all answers it could write, is 0.59",
        "The whole answer ok <end> went from 0.3 × 0.6 = 0.1800 to 0.2975 × 0.6307 = 0.1876",
        "−0.3979 −0.1204 +0.2182 +0.1886 = −0.1116",
        "Why the reward falls here: good (reward 0.8) is held and only loses its part of the cake; ok (reward 0.6) still pulls",
        "loss = − Σ share × min(ratio × advantage, clip(ratio, 0.8, 1.2) × advantage)",
        "Mostly: 3 of 4 sampled first words moved the way their advantage asked, ok did not.",
        "The expected reward rose from 0.59 to 0.6463.",
        "It also moved 2.1 times as far (KL 0.0861 against 0.0401).",
        "it cut ok, which earns 0.6, from 30.0% to 18.4%.",
        "Next come, alike, good of #1, <end> of #1: +1.4142 × 0.125 = +0.1768.",
        "As a first word it is pushed down by #4: together −0.2357. As a second word it is pushed up by #1, #2, down by #3: "
        "together +0.1179.",
        "In their plain sum they do, 0.0000, and the loss is minus that sum.",
        "ok: one optimizer raises it, the other lowers it",
        "A word gains only if its growth is above the average growth",
        "At learning rate 1.5872 it would stay as it was; below that it gains, above it loses. Here the learning rate is 2.",
        "min(1.2851 × +1.4142, 1.2 × +1.4142) = min(+1.8174, +1.6971) = +1.6971.",
        "A free word: ok of #2, min(0.9916 × +0.4714, 0.9916 × +0.4714) = +0.4674.",
        "For good that is (+0.0584) × its probability 0.5140 = +0.0300.",
        "good, bad lost; <end> gained.",
        "There is no difference between the two, not in the last digit.",
        "And SFT on good <end>, with the same optimizer? It would have moved good 40.0% → 60.5%",
        "The loss is 0.0000. The gradient is not: its length is 0.348.",
        "ok scored above average, and still fell from 30.0% to 29.7%.",
        "3 of the 7 written words are held. Of the first words, only ok still pulls.",
        'There is no place in this loss for "this one is bad".',
    ):
        assert said in text


ODD_WORLDS = {
    "tied": World(scores=(5.0, 5.0, 5.0, 5.0)),
    "nobody scored": World(scores=(None, None, None, None)),
    "one failed": World(scores=(8.0, None, 3.0, 3.0)),
    "nothing earned": World(scores=(0.0, 0.0, 0.0, 0.0)),
    "one answer": World(answers=((0, 3),)),
    "cut answers": World(answers=((0, 1), (1, 2), (3,))),
    "two words": World(
        words=("yes", "."),
        first=(0.5, 0.5),
        second=(0.2, 0.8),
        scores=(1.0, 0.0),
        points=1,
        answers=((0, 1), (1,)),
        target=(1,),
    ),
}


WALKED = [
    name
    for name, row in ROWS.items()
    if row.source in ("sampled", "written_pairs")
    and row.predicts == "tokens"
    and row.credit in ("sequence", "reward_to_go", "gae", "preference")
    and not row.needs_teacher
]
"""The others are refused, which tests/explanation/toy/test_closed_form.py holds."""


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", ODD_WORLDS)
@pytest.mark.parametrize("row", [*WALKED, "trl"])
def test_every_row_can_be_told_of_every_world(name: str, row: str, language: str) -> None:
    told = page(walk(ODD_WORLDS[name], paper_row(row), inner_steps=3), language)
    parsed(html_page(told))
    for section in told.sections:
        assert "{" not in section.headline
        for block in unfolded(section.blocks):
            if isinstance(block, Table):
                assert all(len(line.cells) == len(block.columns) for line in block.lines)


def test_changed_rows_are_told_too() -> None:
    for changes in ({"kl": "k3", "kl_coef": 0.1}, {"entropy_coef": 0.1}, {"filter": "keep_positive"}, {"truncation": "mask"}):
        told = page(walk(World(), row_with(paper_row("grpo"), changes)), "en")
        rows = next(section for section in told.sections if section.key == "rows")
        assert any("grpo*" in str(block) for block in rows.blocks)


def test_a_step_without_a_direction_says_so() -> None:
    told = {section.key: section for section in page(walk(replace(World(), scores=(5.0,) * 4)), "en").sections}
    assert told["overview"].headline.startswith("The step changed nothing")
    assert told["advantages"].headline == "All advantages are 0: there is nothing to compare."
    assert told["effect"].headline == "The expected reward did not move: 0.5."


def test_a_step_that_no_word_goes_against_is_a_plain_yes() -> None:
    told = {section.key: section for section in page(walk(World(), lr=1.5), "en").sections}
    assert told["effect"].headline.startswith("Yes: the expected reward rose from 0.59 to")
    assert told["surprise"].headline == "Every word that was sampled moved the way its advantage asked."


def test_a_further_update_is_shown_in_the_tables_of_the_first() -> None:
    later = next(section for section in page(WORKED, "en").sections if section.key == "update_2")
    first, second = [block for block in later.blocks if isinstance(block, Table)][1:]
    assert first.lines[0].cells == ("`good`", "0.5140", "+0.0300", "−0.0601", "0.4875")
    assert [line.cells[1] for line in second.lines] == ["0.0934", "0.0934", "0.1825", "0.6307"]


def test_digits() -> None:
    six = drawn(WORKED, "en", 160, digits=6)
    assert "1.414214" in six
    assert "1.4142 " not in six


def test_charts_show_what_the_walk_holds() -> None:
    blocks = [block for section in page(WORKED, "en").sections for block in section.blocks]
    (bars,) = [block for block in blocks if isinstance(block, Bars)]
    assert [before for _, before, _ in bars.items] == [0.4, 0.3, 0.2, 0.1]
    (signed,) = [block for block in blocks if isinstance(block, Signed)]
    assert [value for _, value, _ in signed.items] == [answer.advantage for answer in WORKED.answers]
