"""A table in which a reader chooses: the same without a script, and in a browser by mouse and keyboard."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from toishi.explanation.page.blocks import Case, Choice, Column, Lookup, LookupWords, Page, Section
from toishi.explanation.page.render_html import html_page
from toishi.explanation.page.render_terminal import render

CHROMIUM = Path("/usr/bin/chromium")
WORDS = LookupWords("Answer", "Score", "leave it out", "as it was", "Others: `--real`", "less ← → more")


def case(value: str, change: float | None, tone: Any, said: str) -> Case:
    cells = (f"got {value}", "–" if change is None else f"{change:+}")
    reach = None if change is None else 0.125
    return Case(value, f"--score {value}", (said,), (cells, ("<b>&amp;", "same")), (tone, ""), ((change, reach), (0.25, 0.0)))


LOOKUP = Lookup(
    columns=((Column("#"), False), (Column("score"), True), (Column("real"), False), (Column("new", numeric=False), True)),
    lines=(("**#0**", "+0.5"), ("#1", "–")),
    marks=(0.5, None),
    cases=(
        case("1", -1.0, "down", "It would fall."),
        case("2", 0.5, "up", "As it was."),
        case("3", 1.0, "up", "It would rise </script> & more."),
        case("out", None, "", "Left out."),
        case("7", 0.75, "up", "The other answer."),
    ),
    choices=(Choice("#0 six", 0, (0, 1, 2), 1, 3), Choice("#1 seven", 1, (4,), 0, None, "it cannot be left out")),
    chosen=(0, 2),
    command=("ask RUN ", " --real"),
    numbers=("change", "reach"),
    drawn=(0, 1),
    words=WORDS,
    caption="a caption",
)
PAGE = Page("en", "t", "l", "c", "g", "f", (Section("s", "title", "headline", (LOOKUP,)),))


def test_the_first_case_stands_in_the_file() -> None:
    text = html_page(PAGE)
    root = ElementTree.fromstring(text.replace("<!DOCTYPE html>", ""))
    words = " ".join(root.find(".//section").itertext())  # type: ignore[union-attr]
    assert "It would rise </script> & more." in words
    assert "ask RUN --score 3 --real" in words
    cells = [["".join(cell.itertext()) for cell in line] for line in root.findall(".//tbody/tr")]
    assert cells == [["#0", "got 3", "+0.5", "+1.0", ""], ["#1", "<b>&amp;", "–", "same", ""]]
    (data,) = (script for script in root.iter("script") if script.get("type"))
    assert json.loads("".join(data.itertext()))["texts"][2] == "It would rise </script> & more."


def test_a_script_comes_only_with_something_to_look_up() -> None:
    assert "<script" not in html_page(Page("en", "t", "l", "c", "g", "f", (Section("s", "title", "headline", ()),)))


def test_the_terminal_prints_the_first_case_and_the_command() -> None:
    shown = StringIO()
    render(PAGE, Console(width=80, file=shown))
    assert "It would rise </script> & more." in shown.getvalue()
    assert "ask RUN --score 3 --real" in shown.getvalue()
    assert "got 3" in shown.getvalue()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM.exists():
        pytest.skip(f"there is no browser at {CHROMIUM}")
    with playwright.sync_playwright() as running:
        started = running.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield started
        started.close()


def opened(browser: Any, folder: Path, **options: Any) -> Any:
    """The page from its file; whatever it asks for beside itself, and every error, is a failure."""
    path = folder / "page.html"
    path.write_text(html_page(PAGE), encoding="utf-8")
    shown = browser.new_page(**options)
    shown.on("pageerror", lambda error: pytest.fail(str(error)))
    shown.on("request", lambda asked: asked.url == path.as_uri() or pytest.fail(asked.url))
    shown.goto(path.as_uri())
    return shown


def seen(shown: Any) -> tuple[str, list[str], str]:
    """What is said, the cells of the first line, the command."""
    cells = shown.locator("tbody tr").first.locator("td div:not(.track)").all_inner_texts()
    return shown.locator(".said").inner_text(), cells, shown.locator(".command").inner_text()


def test_a_slider_moves_all_that_varies(browser: Any, tmp_path: Path) -> None:
    shown = opened(browser, tmp_path)
    assert seen(shown)[1] == ["#0", "got 3", "+0.5", "+1.0"]
    slider = shown.get_by_role("slider")
    slider.fill("0")
    assert seen(shown) == ("It would fall.", ["#0", "got 1", "+0.5", "-1.0"], "ask RUN --score 1 --real")
    assert slider.get_attribute("aria-valuetext") == "1"
    track = shown.locator(".track").first.bounding_box()
    dot = shown.locator(".dot").first.bounding_box()
    middle = (dot["x"] + dot["width"] / 2 - track["x"]) / track["width"]
    assert middle == pytest.approx(0.5 - 0.5 / 1.15, abs=0.01)
    assert shown.locator("tbody tr").first.get_attribute("class") == "down chosen"


def test_the_keyboard_is_enough(browser: Any, tmp_path: Path) -> None:
    shown = opened(browser, tmp_path)
    shown.get_by_role("slider").focus()
    shown.keyboard.press("ArrowLeft")
    assert seen(shown)[0] == "As it was."
    shown.keyboard.press("Tab")
    shown.keyboard.press("Space")
    assert seen(shown)[:2] == ("Left out.", ["#0", "got out", "+0.5", "–"])
    assert shown.get_by_role("slider").is_disabled()
    assert shown.locator(".dot").first.is_hidden()
    shown.keyboard.press("Tab")
    shown.keyboard.press("Enter")
    assert seen(shown)[0] == "As it was."
    assert not shown.get_by_role("slider").is_disabled()


def test_another_answer_brings_its_own_cases(browser: Any, tmp_path: Path) -> None:
    shown = opened(browser, tmp_path)
    shown.get_by_role("combobox").select_option(label="#1 seven")
    assert seen(shown)[0] == "The other answer."
    assert shown.get_by_role("checkbox").is_disabled()
    assert shown.get_by_role("slider").is_disabled()
    assert shown.locator(".why").inner_text() == "it cannot be left out"
    assert shown.locator("tbody tr.chosen td").first.inner_text() == "#1"


def test_without_a_script_there_is_nothing_to_press(browser: Any, tmp_path: Path) -> None:
    shown = opened(browser, tmp_path, java_script_enabled=False)
    assert shown.locator(".controls").is_hidden()
    assert "It would rise" in shown.locator(".said").inner_text()


def test_a_telephone_scrolls_one_way_only(browser: Any, tmp_path: Path) -> None:
    shown = opened(browser, tmp_path, viewport={"width": 360, "height": 740})
    assert shown.evaluate("document.documentElement.scrollWidth") <= 360
    assert shown.get_by_role("slider").is_visible()
