"""What a chat template writes around an answer, found by rendering made-up turns: the token that ends one, words before one."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from jinja2.exceptions import TemplateError

from toishi.types import Message

_MARK = "toishimark"
_SYSTEM: Message = {"role": "system", "content": "Be brief."}
_ASK: Message = {"role": "user", "content": "Hello"}
_ANSWER: Message = {"role": "assistant", "content": _MARK}


def encode(tokenizer: Any, text: str) -> list[int]:
    """Token ids of a text, without any that the tokenizer puts around it."""
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def turn_end_id(tokenizer: Any) -> int | None:
    """The special token that the chat template puts right after an assistant turn, if there is one."""
    text = _render_dummy(tokenizer, [_ASK, _ANSWER])
    if text is None or _MARK not in text:
        return None
    tail = encode(tokenizer, text.rpartition(_MARK)[2])
    added = tokenizer.added_tokens_decoder
    for place, token in enumerate(tail):
        if token in added:
            before = tokenizer.decode(tail[:place], clean_up_tokenization_spaces=False)
            return token if not before.strip() else None
    return None


def template_prefill(tokenizer: Any) -> str:
    """What the generation prompt holds beyond the header of an earlier assistant turn.

    An *earlier* turn, since templates of thinking models write an empty thought into the last one.
    """
    asked = _render_dummy(tokenizer, [_ASK])
    opened = _render_dummy(tokenizer, [_ASK], add_generation_prompt=True)
    answered = _render_dummy(tokenizer, [_ASK, _ANSWER, _ASK])
    if asked is None or opened is None or answered is None or _MARK not in answered:
        return ""
    if not (opened.startswith(asked) and answered.startswith(asked)):
        return ""
    return _beyond_header(opened[len(asked) :], answered[len(asked) :].partition(_MARK)[0])


def _beyond_header(opening: str, header: str) -> str:
    """The part of `opening` after the header; where the two part inside a tag, the whole tag belongs to the rest.

    >>> _beyond_header("<|assistant|>\\n<think>\\n", "<|assistant|>\\n")
    '<think>\\n'
    >>> _beyond_header("<|assistant|><think>", "<|assistant|></think>")
    '<think>'
    """
    pairs = zip(opening, header, strict=False)
    common = "".join(first for first, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    if common not in (opening, header):
        common = common[: max(common.rfind(">"), common.rfind("\n")) + 1]
    rest = opening[len(common) :]
    return rest if rest.strip() else ""


def _render_dummy(tokenizer: Any, messages: list[Message], *, add_generation_prompt: bool = False) -> str | None:
    """The rendered text, with a system turn first if the template demands one; None where it is missing or refuses both."""
    if not tokenizer.chat_template:
        return None
    for opening in ([], [_SYSTEM]):
        try:
            conversation = [*opening, *messages]
            return str(tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=add_generation_prompt))
        except (TemplateError, ValueError):
            continue
    return None
