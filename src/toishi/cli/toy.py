"""`toishi explain toy`: one step on a model that fits on a page, with one's own numbers if wanted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toishi.cli.common import AsJson, print_json, write_page
from toishi.errors import ConfigError

if TYPE_CHECKING:
    from toishi.algorithms.rows import Algorithm
    from toishi.explanation.toy.messages import Catalogue
    from toishi.explanation.toy.model import World

NAME = "explain toy"
COMMENT_KEYS = ("good", "ok", "bad", "end")


def is_toy(arguments: list[str]) -> bool:
    """Whether a command line asks for the toy: its RUN is "toy", and no folder of that name lies here.

    >>> is_toy(["explain", "toy", "--lang", "ja"]), is_toy(["explain", "--json", "toy"]), is_toy(["explain", "runs/toy"])
    (True, True, False)
    """
    words = [word for word in arguments if word != "--json"]
    return words[:2] == ["explain", "toy"] and not Path("toy").exists()


def without_name(arguments: list[str]) -> list[str]:
    """The options that follow "explain toy".

    >>> without_name(["explain", "--json", "toy", "--lang", "ja"])
    ['--json', '--lang', 'ja']
    """
    place = arguments.index("toy")
    return [*arguments[1:place], *arguments[place + 1 :]]


def _option(name: str, metavar: str, words: str, short: str = "") -> typer.models.OptionInfo:
    names = (name, short) if short else (name,)
    info: typer.models.OptionInfo = typer.Option(*names, metavar=metavar, help=words, show_default=False)
    return info


Text = str | None


def explain_toy(
    scores: Annotated[
        Text, _option("--scores", "A,B,...", "The judge's points for answers that begin with each word; - for a failed call.")
    ] = None,
    points: Annotated[float, _option("--points", "N", "The judge's maximum: reward = score / N (10).")] = 10.0,
    comments: Annotated[Text, _option("--comments", "A|B|...", "What the judge says about each.")] = None,
    words: Annotated[Text, _option("--words", "A,B,...", "The vocabulary; its last word ends an answer.")] = None,
    first: Annotated[Text, _option("--first", "P,Q,...", "Probabilities of an answer's first word.")] = None,
    second: Annotated[Text, _option("--second", "P,Q,...", "Probabilities of its second word.")] = None,
    answers: Annotated[Text, _option("--answers", "A,B,...", "First words of the answers (each word once).")] = None,
    group_size: Annotated[int | None, _option("--group-size", "G", "Draw G answers from the model instead.", "-G")] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Which answers are drawn.")] = 0,
    target: Annotated[Text, _option("--target", "WORD", "First word of SFT's right answer (the best score's).")] = None,
    values: Annotated[
        Text, _option("--values", "V,W,...", "A critic's guesses: before the first word, and after each but the last.")
    ] = None,
    row: Annotated[str, typer.Option("--row", metavar="NAME", help="A row of `toishi algorithms`, or trl.")] = "grpo",
    settings: Annotated[list[str] | None, _option("--set", "KEY=VALUE", "Change one choice of the row. Repeatable.")] = None,
    clip_low: Annotated[float | None, _option("--clip-low", "EPS", "Ratios are held below 1 - EPS.")] = None,
    clip_high: Annotated[float | None, _option("--clip-high", "EPS", "Ratios are held above 1 + EPS.")] = None,
    kl: Annotated[Text, _option("--kl", "NAME", "Walk with a KL term: k2, k3 or ratio_k3.")] = None,
    beta: Annotated[float, typer.Option("--beta", metavar="B", help="Strength of the KL term.")] = 0.04,
    optimizer: Annotated[str, typer.Option("--optimizer", metavar="NAME", help="sgd or adam; the other is shown too.")] = "sgd",
    lr: Annotated[float | None, _option("--lr", "LR", "Its learning rate (sgd: 2, adam: 0.1).")] = None,
    inner_steps: Annotated[int, typer.Option("--inner", metavar="N", help="Updates on the same answers.")] = 2,
    language: Annotated[str, typer.Option("--lang", metavar="en|ja", help="The language of the page.")] = "en",
    digits: Annotated[int, typer.Option("--digits", metavar="N", min=1, max=12, help="Digits after the point.")] = 4,
    html: Annotated[Path | None, _option("--html", "FILE", "Write the page as one HTML file instead.")] = None,
    as_json: AsJson = False,
) -> None:
    """Walk through one step in numbers, on a model that fits on a page.

    SFT first, then a judge's scores, step by step, up to the changed probabilities. Every number is computed from the ones
    above it. Rows that divide by the group's spread use the population's, as the papers do; --set std_ddof=1 changes it.
    --row a2c and --row ppo put a critic in place of the comparison, --row dpo a pair of answers.

    Example:  toishi explain toy --scores 2,9,3,3 --html toy.html
    """
    from toishi.explanation.toy.compute import walk
    from toishi.explanation.toy.messages import Catalogue
    from toishi.explanation.toy.story import page

    say = Catalogue(language)
    world = _world(say, words, first, second, scores, points, comments, target, answers, group_size, seed, values)
    chosen = _row(row, settings, {"clip_low": clip_low, "clip_high": clip_high, "kl": kl, "kl_coef": beta if kl else None})
    found = walk(world, chosen, optimizer=optimizer, lr=lr, beta=beta, inner_steps=inner_steps)
    if html is not None:
        from toishi.explanation.page.render_html import html_page

        write_page(html, html_page(page(found, language, digits)))
    if as_json:
        from dataclasses import asdict

        print_json(asdict(found))
    elif html is None:
        from toishi.consoles import make_console
        from toishi.explanation.page.render_terminal import render

        render(page(found, language, digits), make_console())


def _world(
    say: Catalogue,
    words: Text,
    first: Text,
    second: Text,
    scores: Text,
    points: float,
    comments: Text,
    target: Text,
    answers: Text,
    group_size: int | None,
    seed: int,
    values: Text,
) -> World:
    from toishi.explanation.toy.model import WORDS, World, drawn, written

    if answers is not None and group_size is not None:
        raise ConfigError("--answers names the answers and --group-size draws them; give one of the two")
    vocabulary = _names(words) if words is not None else WORDS
    plain = World()
    judged = _scores(scores) if scores is not None else plain.scores
    own_words = () if (words, scores) != (None, None) else tuple(say(f"said.{key}") for key in COMMENT_KEYS)
    world = World(
        words=vocabulary,
        first=_numbers("--first", first) if first is not None else _row_for(vocabulary, plain.first),
        second=_numbers("--second", second) if second is not None else _row_for(vocabulary, plain.second),
        scores=judged,
        points=points,
        comments=tuple(text.strip() for text in comments.split("|")) if comments is not None else own_words,
        answers=tuple(written(word, vocabulary) for word in (_names(answers) if answers is not None else vocabulary)),
        target=written(target if target is not None else _best(vocabulary, judged), vocabulary),
        values=_numbers("--values", values) if values is not None else (),
    )
    if group_size is None:
        return world
    from dataclasses import replace

    return replace(world, answers=drawn(world, group_size, seed))


def _row(name: str, settings: list[str] | None, options: dict[str, object]) -> Algorithm:
    from toishi.config import parse_override
    from toishi.explanation.toy.compute import paper_row, row_with

    given = {key: value for key, value in options.items() if value is not None}
    return row_with(paper_row(name), dict(parse_override(text) for text in settings or ()) | given)


def _row_for(vocabulary: tuple[str, ...], plain: tuple[float, ...]) -> tuple[float, ...]:
    """The usual row if the vocabulary has as many words, else all words alike."""
    return plain if len(vocabulary) == len(plain) else (1 / len(vocabulary),) * len(vocabulary)


def _best(vocabulary: tuple[str, ...], scores: tuple[float | None, ...]) -> str:
    known = [(score, -index) for index, score in enumerate(scores[: len(vocabulary)]) if score is not None]
    return vocabulary[-max(known)[1]] if known else vocabulary[0]


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))


def _scores(text: str) -> tuple[float | None, ...]:
    return tuple(None if part == "-" else _number("--scores", part) for part in _names(text))


def _numbers(option: str, text: str) -> tuple[float, ...]:
    return tuple(_number(option, part) for part in _names(text))


def _number(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{option}: '{text}' is not a number; give numbers with commas between them") from None
