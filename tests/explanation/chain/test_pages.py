"""The chain's page: catalogues that match, one file that asks for nothing, and answers to the questions a reader has."""

from __future__ import annotations

import re
from dataclasses import replace
from string import Formatter
from xml.etree import ElementTree

import pytest
from rich.console import Console

from toishi.explanation.chain.build import explain_chain
from toishi.explanation.chain.headlines import headlines
from toishi.explanation.chain.model import Chain
from toishi.explanation.chain.story import page, summary
from toishi.explanation.chain.voice import FOLDER, Voice, known_languages
from toishi.explanation.page.blocks import Table, Tokens, unfolded
from toishi.explanation.page.catalogue import texts
from toishi.explanation.page.render_html import html_page
from toishi.explanation.page.render_terminal import render
from toishi.record import Run

LANGUAGES = known_languages()


@pytest.fixture(scope="module")
def chain(run: Run) -> Chain:
    return explain_chain(run, 1, group=0, member=3)


def placeholders(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name is not None}


@pytest.mark.parametrize("language", LANGUAGES)
def test_catalogues_have_the_same_keys_and_placeholders(language: str) -> None:
    english, other = texts(FOLDER, "en"), texts(FOLDER, language)
    assert set(other) == set(english)
    assert [key for key in english if placeholders(english[key]) != placeholders(other[key])] == []
    assert [key for key in english if bool(english[key]) != bool(other[key])] == []


def parsed(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text.replace("<!DOCTYPE html>", ""))


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("member", [None, 0, 2, 3])
def test_html_is_one_well_formed_file_that_asks_for_nothing(language: str, member: int | None, run: Run) -> None:
    text = html_page(page(explain_chain(run, 1, group=0, member=member, language=language), language))
    root = parsed(text)
    assert root.get("lang") == language
    assert not {element.tag for element in root.iter()} & {"script", "link", "img", "iframe", "object", "embed", "base", "form"}
    assert not re.search(r"https?:|@import|url\(|javascript:| on[a-z]+=", text)
    assert "{" not in text.split("</style>")[1]
    for svg in root.iter("svg"):
        assert svg.get("aria-label")
    assert all(span.get("title") for span in root.iter("span"))


def test_what_others_wrote_is_shown_as_they_wrote_it(chain: Chain) -> None:
    root = parsed(html_page(page(chain)))
    assert "worth `0.25` of **1**" in "".join(root.itertext())
    strange = replace(
        chain, scores=replace(chain.scores, members=(replace(chain.scores.members[0], answer="<b>`*x*`</b> \\"),) * 4)
    )
    assert "<b>`*x*`</b> \\" in "".join(parsed(html_page(page(strange))).itertext())


def drawn(chain: Chain, language: str, width: int) -> str:
    console = Console(width=width, no_color=True)
    with console.capture() as capture:
        render(page(chain, language, 24), console)
    return capture.get()


@pytest.mark.parametrize("language", LANGUAGES)
def test_terminal_shows_all_sections_at_80_columns(language: str, chain: Chain) -> None:
    text = drawn(chain, language, 80)
    for number, section in enumerate(page(chain, language).sections, start=1):
        assert f"{number}. {section.title}" in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_answers_of_the_questions_a_reader_has(chain: Chain) -> None:
    text = re.sub(r"\s+", " ", drawn(chain, "en", 500))
    assert chain.weights is not None
    count = len(chain.weights.members[3].tokens)
    for said in (
        f"#3 was scored 0.5 below its group's mean (1.25), so its own push is down on all its {count} tokens; after",
        "The baseline here is the group's mean reward: 1.25, over 3 of 4 answers (the others are left out).",
        "mean = (1.75 + 1.25 + 0.75) / 3 = 1.25",
        "Why is the advantage of #3 negative? Its reward is 0.75, and its group's mean is 1.25: it is 0.5 below.",
        "#2 is left out: reward judge: no answer within 30 s.",
        "Largest own push, by one answer alone",
        "SFT has no place for them",
        "A short trial step of SFT on #0 would have made that text",
        f"SFT on #0 trains its {count} tokens",
        "2 × 0.75 + 0.5 × 0.5",
        "All 9 links were recomputed",
    ):
        assert said in text
    effect = next(section for section in page(chain).sections if section.key == "effect")
    assert effect.headline.split(":")[0] in ("Yes", "Partly")


def test_a_step_that_went_against_its_score_says_so(chain: Chain) -> None:
    assert chain.effect is not None
    answers = tuple(
        replace(answer, change=0.5, agreed=False) if answer.member == 3 else answer for answer in chain.effect.answers
    )
    against = replace(chain, effect=replace(chain.effect, answers=answers))
    told = headlines(against, Voice.of("en"))[0]
    assert "and yet it is 1.6 times more likely after the step" in told
    assert "#3 shares no beginning" in told or "#3 begins like" in told


def test_lost_in_rounding_is_said(chain: Chain) -> None:
    assert chain.change is not None
    lost = replace(chain, change=replace(chain.change, totals=replace(chain.change.totals, lost_share=0.46)))
    assert any("46% of the weights should have moved and did not" in said for said in headlines(lost, Voice.of("en")))
    assert "Lost in rounding" in html_page(page(lost))


def test_tokens_are_marked_by_their_push(chain: Chain) -> None:
    strips = [
        block
        for section in page(chain).sections
        for block in unfolded(section.blocks)
        if isinstance(block, Tokens) and section.key == "weights"
    ]
    assert len(strips) == 3  # the failed answer has none
    levels = [token.level for strip in strips for token in strip.items]
    assert max(map(abs, levels)) == 1.0
    assert all(token.level < 0 for token in strips[-1].items)


def test_long_tables_are_cut_and_say_so(chain: Chain) -> None:
    short = page(chain, rows=3)
    weights = next(section for section in short.sections if section.key == "weights")
    tables = [block for block in unfolded(weights.blocks) if isinstance(block, Table)]
    assert len(tables[-1].lines) == 3
    assert any("Shown are the 3 tokens" in str(block) for block in weights.blocks)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_summary_leads_on(language: str, run: Run) -> None:
    told = summary(explain_chain(run, 1, language=language), language)
    assert "--group 0 --member" in str(told.blocks[-1])
