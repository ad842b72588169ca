"""Written answers as tokens with a loss mask: which tokens of a conversation the assistant said.

Decisions:
1. An assistant's turn is what its rendering adds: the conversation up to it (with the header that opens an answer) and the
   conversation with it are both rendered, and both must be beginnings of the whole. No marker is searched for in the text.
2. Templates that write earlier turns otherwise once later ones follow (thoughts that are dropped) break that. They are used if
   they mark the assistant's words themselves ({% generation %}), and refused otherwise: a wrong mask trains on wrong tokens.
3. The token that ends a turn is trained, or the model would never stop. What the template writes after it is not.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from jinja2.exceptions import TemplateError

from toishi.errors import ModelError
from toishi.types import Message

Tokens = tuple[int, ...]
GENERATION = "{% generation %}"


def spoken(
    tokenizer: Any,
    asked: Sequence[Message],
    said: Sequence[Message],
    *,
    prompt_ids: Tokens,
    stop_ids: Collection[int],
    name: str,
) -> tuple[Tokens, Tokens]:
    """(token ids, loss mask) of the turns `said` that follow `asked`: 1 on the assistant's words and the token that ends them.

    prompt_ids  `asked` as rendered, with the header that opens an answer
    name        of the row, for messages
    The ids end with the last token that has loss. Raises ModelError when the template does not tell the assistant's words.
    """
    messages = [*asked, *said]
    whole = rendered(tokenizer, messages, name)
    if whole[: len(prompt_ids)] != prompt_ids:
        raise _not_told(name, "the prompt as it is asked is no beginning of the whole conversation")
    mask_T = _by_beginnings(tokenizer, messages, len(asked), whole, stop_ids, name)
    if mask_T is None:
        mask_T = _by_marks(tokenizer, messages, len(prompt_ids), name)
    if mask_T is None or not any(mask_T):
        raise _not_told(name, "an earlier turn is written otherwise once later ones follow it")
    end = max(place for place, trained in enumerate(mask_T) if trained) + 1
    return whole[len(prompt_ids) : end], tuple(mask_T[len(prompt_ids) : end])


def _by_beginnings(
    tokenizer: Any, messages: Sequence[Message], first: int, whole: Tokens, stop_ids: Collection[int], name: str
) -> list[int] | None:
    """None where a part of the conversation is no beginning of the whole."""
    mask_T = [0] * len(whole)
    for place in range(first, len(messages)):
        if messages[place]["role"] != "assistant":
            continue
        before = rendered(tokenizer, messages[:place], name, add_generation_prompt=True)
        after = rendered(tokenizer, messages[: place + 1], name)
        if whole[: len(before)] != before or whole[: len(after)] != after:
            return None
        words = whole[len(before) : len(after)]
        length = next((count for count, token in enumerate(words, start=1) if token in stop_ids), len(words))
        mask_T[len(before) : len(before) + length] = [1] * length
    return mask_T


def _by_marks(tokenizer: Any, messages: Sequence[Message], start: int, name: str) -> list[int] | None:
    """What the template itself marks, behind the prompt; None where it marks nothing."""
    if "generation %}" not in str(tokenizer.chat_template).replace("-%}", " %}"):
        return None
    found = _applied(tokenizer, messages, name, return_dict=True, return_assistant_tokens_mask=True)
    return [0] * start + [int(trained) for trained in found["assistant_masks"][start:]]


def rendered(tokenizer: Any, messages: Sequence[Message], name: str, *, add_generation_prompt: bool = False) -> Tokens:
    """A conversation through the chat template; `name` is the row's, for messages. Raises ModelError where it is refused."""
    return tuple(_applied(tokenizer, messages, name, return_dict=False, add_generation_prompt=add_generation_prompt))


def _applied(tokenizer: Any, messages: Sequence[Message], name: str, **options: Any) -> Any:
    try:
        return tokenizer.apply_chat_template(list(messages), tokenize=True, **options)
    except (TemplateError, ValueError, TypeError, KeyError, AttributeError) as error:
        roles = ", ".join(message["role"] for message in messages)
        raise ModelError(
            f"the chat template refuses row {name} (roles: {roles}): {error}. Change the row, or the template"
        ) from (error)


def _not_told(name: str, why: str) -> ModelError:
    return ModelError(
        f"row {name}: the chat template does not tell which tokens the assistant said: {why}. Set model.chat_template to a "
        f"template that marks them ({GENERATION}), or give single answers (columns prompt and completion)"
    )
