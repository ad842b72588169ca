"""Prints what `toishi compare` found: token counts prompt by prompt, means with intervals, answers side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

from toishi.consoles import visible
from toishi.display_tables import counted
from toishi.evaluate import MIN_PROMPTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from toishi.comparison import Answers, Comparison
    from toishi.ops.stats import Interval


_NAME, _PROMPT, _GAP = 14, (12, 36), 3
"""Signs of a model's name, of a prompt (fewest, most), and between columns."""


def print_comparison(found: Comparison, console: Console, *, texts: int = 0) -> None:
    """A row a prompt, then a row a model; `texts`: of so many prompts the answers as well."""
    titles = prompt_titles([prompt.shown for prompt in found.prompts])
    for number in range(min(texts, len(titles))):
        _print_texts(found, number, console)
    console.print(_counts(found, titles, console.width), highlight=False)
    console.print(_means(found), highlight=False)


def prompt_titles(texts: Sequence[str]) -> tuple[str, ...]:
    """What tells prompts apart, each in one line: the words between those with which all of them begin and end.

    >>> prompt_titles(["Describe a\\npeach in a word.", "Describe a red train in a word."])
    ('peach', 'red train')
    >>> prompt_titles(["Describe a peach.", "Describe a peach. Why?"]), prompt_titles(["Describe a peach."])
    (('peach.', 'peach. Why?'), ('Describe a peach.',))
    """
    words = [text.split() for text in texts]
    if len(words) > 1:
        for end in (0, -1):
            while all(len(each) > 1 for each in words) and len({each[end] for each in words}) == 1:
                words = [each[1:] if end == 0 else each[:-1] for each in words]
    return tuple(" ".join(each) for each in words)


def _counts(found: Comparison, titles: Sequence[str], width: int) -> Table:
    title = f"Tokens of an answer, prompt by prompt ({counted(len(titles), 'prompt')})"
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("prompt", no_wrap=True)
    room = width - len(str(len(titles))) - _GAP
    for answers in found.answers:
        name = _end(visible(answers.model), _NAME)
        table.add_column(Text(f"{name}\n{answers.mode}"), justify="right", no_wrap=True)
        room -= max(len(name), len(answers.mode)) + _GAP
    lengths = [answers.lengths for answers in found.answers]
    for number, text in enumerate(titles):
        cells = (f"{of_model[number]:.{0 if answers.mode == 'greedy' else 1}f}"
                 for answers, of_model in zip(found.answers, lengths, strict=True))  # fmt: skip
        table.add_row(str(number + 1), Text(_cut(visible(text), max(_PROMPT[0], min(_PROMPT[1], room)))), *cells)
    return table


def _cut(text: str, most: int) -> str:
    """
    >>> _cut("A peach", 12), _cut("A peach on a tree", 12)
    ('A peach', 'A peach on …')
    """
    return text if len(text) <= most else text[: most - 1] + "…"


def _end(text: str, most: int) -> str:
    """The end of a path tells runs apart.

    >>> _end("runs/short", 12), _end("experiments/short", 12)
    ('runs/short', '…ments/short')
    """
    return text if len(text) <= most else "…" + text[1 - most :]


def _means(found: Comparison) -> Table:
    few = len(found.prompts) < MIN_PROMPTS
    title = "Mean over prompts" + ("; too few prompts for intervals" if few else ", with 95% intervals")
    title += "; cut: answers that the limit ended"
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    first = _end(visible(found.answers[0].model), _NAME)
    for name in ("", "model", "tokens", f"minus {first}", "cut"):
        table.add_column(Text(name), no_wrap=True)
    for mode in found.modes:
        of_mode = found.of_mode(mode)
        for place, answers in enumerate(of_mode):
            apart = _span(answers.difference(of_mode[0]), few, signed=True) if place else "-"
            table.add_row(
                _mode(answers) if not place else "", Text(_end(visible(answers.model), _NAME)), _span(answers.mean, few), apart,
                f"{answers.truncated:.1%}", end_section=place == len(of_mode) - 1,
            )  # fmt: skip
    return table


def _print_texts(found: Comparison, number: int, console: Console) -> None:
    console.print(Text(f"prompt {number + 1}: {visible(found.prompts[number].shown)}", style="bold"), soft_wrap=True)
    for answers in found.answers:
        answer = answers.completions[number][0]
        console.print(Text(f"\n{visible(answers.model)}, {_mode(answers)}:", style="dim"))
        console.print(Text(visible(answer.text.strip())), soft_wrap=True)
    console.print()


def _mode(answers: Answers) -> str:
    return answers.mode if answers.mode == "greedy" else f"sampled × {len(answers.completions[0])}"


def _span(found: Interval, few: bool, *, signed: bool = False) -> str:
    form = "+.1f" if signed else ".1f"
    return f"{found.value:{form}}" + ("" if few else f" [{found.low:{form}}, {found.high:{form}}]")
