"""What a completion says aloud: its text without reasoning and without what a reader would never see.

Decisions:
1. One list of marks for everything that reads model text. Spaces in a mark and its case do not count.
2. A block from an opening mark to the next closing one is reasoning wherever it stands. What stands before a closing mark that
   was never opened is reasoning too (the chat template wrote the opening one); after an opening mark that is never closed,
   everything is.
3. Comments of LaTeX and HTML are hidden. A `%` is one only where a line or a word could begin, so not in `50% of` or `\\%`.
"""

from __future__ import annotations

import re

_NAMES = (
    r"(?:[\w.-]+:)?(?:(?:chain[_-]of[_-])?(?:think(?:ing)?|thoughts?|reason(?:ing)?)|reflect(?:ion)?|analysis|scratch_?pad|cot|"
    r"cot_budget_reflect|rationale|deliberation|(?:inner|internal)[_-]monologue|antthinking)"
)
_CAPITALS = r"(?:THINK|THINKING|REASONING|ANALYSIS|SCRATCHPAD)"
_OPENING = rf"""
    <\s*{_NAMES}(?:\s[^<>]{{0,200}})?\s*> | \[\s*{_CAPITALS}\s*\] | ◁\s*think\s*▷
    | <\|begin_of_thought\|> | <\|start_thinking\|>
    | <\|channel\|>\s*(?:analysis|commentary)\b[^<]{{0,80}}<\|message\|>
"""
_CLOSING = rf"""
    <\s*/\s*{_NAMES}\s*> | \[\s*/\s*{_CAPITALS}\s*\] | ◁\s*/\s*think\s*▷ | <\|end_of_thought\|> | <\|end_thinking\|>
    | <\|channel\|>\s*final\b[^<]{{0,80}}<\|message\|> | <\|end\|>
"""
REASONING_MARK = re.compile(rf"(?P<opening>{_OPENING})|(?P<closing>{_CLOSING})", re.IGNORECASE | re.VERBOSE)
_END = re.compile(r"<\|end\|>", re.IGNORECASE)
_HIDDEN = re.compile(
    r"<!--.*?(?:-->|\Z)|\\iffalse(?![A-Za-z]).*?(?:\\fi(?![A-Za-z])|\Z)|\\begin\{comment\}.*?(?:\\end\{comment\}|\Z)",
    re.DOTALL,
)
_COMMENT = re.compile(r"^[ \t]*%[^\n]*|(?<=[^\d\s}\\)][ \t])%[^\n]*", re.MULTILINE)


def without_reasoning(text: str) -> str:
    """What stands outside the reasoning; nothing where the reasoning never ends.

    >>> without_reasoning("<think>a</think> b"), without_reasoning("a</think> b"), without_reasoning("<think>a")
    (' b', ' b', '')
    >>> without_reasoning("5 [THINK] is it? [/THINK]")
    '5 '
    """
    kept: list[str] = []
    begin, inside = 0, False
    for mark in REASONING_MARK.finditer(text):
        if mark["opening"] is not None:
            if not inside:
                kept.append(text[begin : mark.start()])
            inside = True
        elif inside:
            inside = False
        elif _END.fullmatch(mark[0]):  # it ends every message, the last one too
            kept.append(text[begin : mark.start()])
        else:
            kept.clear()
        begin = mark.end()
    if not inside:
        kept.append(text[begin:])
    return "".join(kept)


def visible(text: str) -> str:
    """The text without reasoning, and without comments of LaTeX and HTML.

    >>> visible("<!-- 5 --> It is 6, 50% of 12.\\n% or 5")
    ' It is 6, 50% of 12.\\n'
    """
    text = without_reasoning(text)
    if "<!--" in text or "\\iffalse" in text or "{comment}" in text:
        text = _HIDDEN.sub("", text)
    return _COMMENT.sub("", text) if "%" in text else text
