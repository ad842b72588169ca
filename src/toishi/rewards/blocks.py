"""Fenced code blocks of an answer, read in one pass whatever the text."""

from __future__ import annotations

import re
from collections.abc import Collection

from toishi.types import Completion, Prompt

_REASONING_START = re.compile(r"\s*<(?:think|thinking|reasoning)>", re.IGNORECASE)
_REASONING_END = re.compile(r"</(?:think|thinking|reasoning)>", re.IGNORECASE)
_FENCE = re.compile(r"[ ]{0,3}(```+|~~~+)[ \t]*([^\s`]*)[^`\n]*")


def code_blocks(text: str) -> list[tuple[str, str]]:
    """(label in lower case, body) of each closed block, in order. A fence closes with at least as many of the same signs.

    >>> code_blocks("So:\\n```Python\\nx = 1\\n```\\nand\\n~~~\\n```\\n~~~\\n```py\\nnever closed")
    [('python', 'x = 1\\n'), ('', '```\\n')]
    """
    found: list[tuple[str, str]] = []
    fence, label, body = "", "", [""]
    for line in text.splitlines(keepends=True):
        match = _FENCE.fullmatch(line.rstrip())
        if not fence and match:
            fence, label, body = match[1], match[2].lower(), []
        elif fence and match and match[1].startswith(fence) and not match[2]:
            found.append((label, "".join(body)))
            fence = ""
        elif fence:
            body.append(line)
    return found


def after_reasoning(prefill: str, text: str) -> str:
    """What follows the reasoning, spaces kept; "" if the reasoning never ends.

    >>> after_reasoning("<think>", "hm</think>  x"), after_reasoning("", "  x"), after_reasoning("<think>", "  x")
    ('  x', '  x', '')
    """
    *reasoning, last = _REASONING_END.split(text)
    return "" if not reasoning and _REASONING_START.match(prefill + text) else last


def find_program(prompt: Prompt, completion: Completion, languages: Collection[str], *, whole_text: bool) -> str | None:
    """The last block with one of the labels, or the whole text, outside of the reasoning; None where there is none."""
    answer = after_reasoning(prompt.prefill, completion.text)
    if whole_text:
        return answer if answer.strip() else None
    return next((body for label, body in reversed(code_blocks(answer)) if label in languages and body.strip()), None)


def missing_program(languages: Collection[str], *, whole_text: bool) -> str:
    """What to say where `find_program` finds nothing.

    >>> missing_program(("python", "py"), whole_text=False)
    'no code block labelled python or py'
    """
    if whole_text:
        return "the answer is empty"
    *rest, last = languages
    return "no code block labelled " + (f"{', '.join(rest)} or {last}" if rest else last)
