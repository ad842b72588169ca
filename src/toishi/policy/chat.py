"""From rows to token ids and back: chat templates, beginning-of-text, stop ids, padding.

Decisions:
1. Chat rows are tokenised *through* the template, never rendered and then tokenised with special tokens again, which
   would put a second beginning-of-text token (BOS) in front. Plain rows get BOS exactly when the tokenizer normally adds it.
2. The stop ids are the union of what the tokenizer, the model's config, its generation config and the chat template say: a
   model that ends its turns with a token missing from one of these lists would otherwise never stop.
3. What is padding is known from lengths alone, never from token values, so pad = eos is harmless.
4. Text that the template writes for the assistant after the turn's header ("<think>") is the prompt's `prefill`.
   Rewards that look for tags need it.
5. A template that cannot do what a row asks, a model without a stop id, two BOS tokens: refused here, before training.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from jinja2.exceptions import TemplateError

from toishi.errors import DataError, ModelError
from toishi.policy.conversation import rendered, spoken
from toishi.types import Completion, Message, Prompt

_MARK = "toishimark"
_SYSTEM: Message = {"role": "system", "content": "Be brief."}
_ASK: Message = {"role": "user", "content": "Hello"}
_ANSWER: Message = {"role": "assistant", "content": _MARK}


class Renderer:
    """Renders prompts and reads completions for one tokenizer and model.

    stop_ids  token ids that end a completion, ascending
    pad_id    a valid token id to fill rows with; it never carries meaning
    prefill   text that the chat template writes for the assistant beyond the turn's header, or ""

    Raises ModelError when nothing would ever end a completion.
    """

    def __init__(self, tokenizer: Any, model: Any) -> None:
        self._tokenizer = tokenizer
        self._num_embeddings = int(model.get_input_embeddings().num_embeddings)
        self._bos_id: int | None = tokenizer.bos_token_id
        self._adds_bos = _adds_bos(tokenizer)
        self.stop_ids = _stop_ids(tokenizer, model)
        self.pad_id = self._choose_pad_id(model.config)
        self.prefill = _template_prefill(tokenizer)

    def render(self, prompt: Prompt) -> Prompt:
        """The prompt with `token_ids` and `prefill` filled in.

        Raises ModelError when the chat template is missing or refuses the row, or when the ids do not fit the model;
        DataError for an empty row and for text that is no Unicode.
        """
        _require_unicode(prompt)
        if prompt.messages is None:
            rendered = replace(prompt, token_ids=self._encode_plain(prompt.text or ""))
        else:
            rendered = self._render_chat(prompt, list(prompt.messages))
        self._check(rendered)
        return rendered

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text before the first stop id, without special tokens."""
        end = next((place for place, token in enumerate(token_ids) if token in self.stop_ids), len(token_ids))
        return str(self._tokenizer.decode(list(token_ids[:end]), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def pieces(self, token_ids: Sequence[int]) -> list[str]:
        """One readable text per token, special tokens included; a token that is part of a character shows as its fragment."""
        return [self._text([token]) for token in token_ids]

    def answer_ids(self, text: str) -> tuple[int, ...]:
        """A written answer as the model would have sampled it: its tokens and the one that ends a turn."""
        ends = (_turn_end_id(self._tokenizer), self._tokenizer.eos_token_id, self.stop_ids[0])
        return (*_encode(self._tokenizer, text), next(int(token) for token in ends if token is not None))

    def written(self, prompt: Prompt, answer: str | Sequence[Message]) -> Completion:
        """An answer that someone wrote to a rendered prompt: text, or the turns that follow the prompt, of which the
        assistant's have loss. It ends with the token that ends a turn, which has loss too.

        Raises DataError for an empty answer, ModelError when the template does not tell which tokens the assistant said.
        """
        turns: Sequence[Message] = [{"role": "assistant", "content": answer}] if isinstance(answer, str) else answer
        text = next((turn["content"] for turn in reversed(turns) if turn["role"] == "assistant"), "")
        if not text.strip():
            raise DataError(f"row {prompt.id}: its written answer is empty. Fill it or remove the row")
        if prompt.messages is None:
            token_ids = self.answer_ids(text)
            mask = (1,) * len(token_ids)
        else:
            token_ids, mask = spoken(
                self._tokenizer, prompt.messages, turns, prompt_ids=prompt.token_ids, stop_ids=self.stop_ids, name=prompt.id
            )
            ending = () if token_ids[-1] in self.stop_ids else self.answer_ids("")
            token_ids, mask = token_ids + ending, mask + (1,) * len(ending)
        return Completion(
            token_ids=token_ids, loss_mask=mask, sampled_logprobs=(), entropies=(), text=text, finish_reason="stop"
        )

    def whole(self, prompt: Prompt, answer: str | Sequence[Message]) -> tuple[int, ...]:
        """A rendered prompt and its answer as a reward model reads them: a conversation as its template writes it, to the end;
        plain text with the token that ends an answer."""
        turns: Sequence[Message] = [{"role": "assistant", "content": answer}] if isinstance(answer, str) else answer
        if prompt.messages is None:
            return (*prompt.token_ids, *self.answer_ids(turns[-1]["content"]))
        return rendered(self._tokenizer, [*prompt.messages, *turns], prompt.id)

    def bos_count(self, token_ids: Sequence[int]) -> int:
        """How many BOS tokens stand at the very front. (Some models use the same token inside, to open every turn.)"""
        return next((place for place, token in enumerate(token_ids) if token != self._bos_id), len(token_ids))

    def describe(self, prompt: Prompt) -> dict[str, Any]:
        """How a rendered prompt reaches the model, as plain values for a report."""
        return {
            "prompt_id": prompt.id,
            "text": self._text(prompt.token_ids),
            "token_ids": list(prompt.token_ids),
            "num_tokens": len(prompt.token_ids),
            "bos_id": self._bos_id,
            "bos_count": self.bos_count(prompt.token_ids),
            "stop_ids": {token: self._text([token]) for token in self.stop_ids},
            "pad_id": self.pad_id,
            "pad_text": self._text([self.pad_id]),
            "prefill": prompt.prefill,
        }

    def _text(self, token_ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(token_ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def _encode_plain(self, text: str) -> tuple[int, ...]:
        ids = _encode(self._tokenizer, text)
        needs_bos = self._adds_bos and ids[:1] != [self._bos_id]
        return (self._bos_id, *ids) if needs_bos and self._bos_id is not None else tuple(ids)

    def _render_chat(self, prompt: Prompt, messages: list[Message]) -> Prompt:
        if not self._tokenizer.chat_template:
            raise ModelError(
                f"row {prompt.id} is a conversation, but the tokenizer has no chat template. Set model.chat_template to "
                "the template that the model was trained with, use the instruct version of the model, or give plain text"
            )
        is_continued = bool(messages) and messages[-1]["role"] == "assistant"
        ending = {"continue_final_message": True} if is_continued else {"add_generation_prompt": True}
        try:
            ids = self._tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False, **ending)
        except (TemplateError, ValueError, TypeError, KeyError, AttributeError) as error:
            roles = ", ".join(message["role"] for message in messages)
            raise ModelError(
                f"the chat template refuses row {prompt.id} (roles: {roles}): {error}. Change the row, or set "
                "model.chat_template"
            ) from error
        prefill = messages[-1]["content"] if is_continued else self.prefill
        return replace(prompt, token_ids=tuple(ids), prefill=prefill)

    def _check(self, prompt: Prompt) -> None:
        if not prompt.token_ids:
            raise DataError(f"row {prompt.id} renders to no token at all: give it a text")
        if self.bos_count(prompt.token_ids) > 1:
            raise ModelError(
                f"row {prompt.id} begins with {self.bos_count(prompt.token_ids)} beginning-of-text tokens, expected one: "
                f"{self._text(prompt.token_ids[:8])!r}. The chat template, or the row, writes it twice: remove one"
            )
        if max(prompt.token_ids) >= self._num_embeddings:
            raise ModelError(
                f"row {prompt.id} contains token id {max(prompt.token_ids)}, but the model has {self._num_embeddings} "
                "embeddings: tokenizer and model do not belong together"
            )

    def _choose_pad_id(self, config: Any) -> int:
        """A pad token that was added to the tokenizer alone has no embedding; a stop id always has one."""
        candidates = (self._tokenizer.pad_token_id, getattr(config, "pad_token_id", None), self.stop_ids[0])
        return next(int(token) for token in candidates if token is not None and 0 <= token < self._num_embeddings)


def too_long(prompts: Iterable[Prompt], limit: int) -> list[tuple[str, int]]:
    """Id and token count of each rendered prompt that is longer than `limit` tokens.

    >>> too_long([Prompt(id="a", token_ids=(1, 2)), Prompt(id="b", token_ids=(1, 2, 3))], limit=2)
    [('b', 3)]
    """
    return [(prompt.id, len(prompt.token_ids)) for prompt in prompts if len(prompt.token_ids) > limit]


def _require_unicode(prompt: Prompt) -> None:
    texts = [prompt.text or ""] if prompt.messages is None else [message["content"] for message in prompt.messages]
    for text in texts:
        place = next((place for place, sign in enumerate(text) if "\ud800" <= sign <= "\udfff"), None)
        if place is not None:
            raise DataError(
                f"row {prompt.id}: character {place} of its text, {text[place]!r}, is half of a character (a lone surrogate), "
                "which no tokenizer reads. Mend the row or remove it"
            )


def _encode(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _adds_bos(tokenizer: Any) -> bool:
    if tokenizer.bos_token_id is None:
        return False
    return list(tokenizer("a")["input_ids"])[:1] == [tokenizer.bos_token_id] != _encode(tokenizer, "a")[:1]


def _stop_ids(tokenizer: Any, model: Any) -> tuple[int, ...]:
    generation_config = getattr(model, "generation_config", None)
    sources = (
        tokenizer.eos_token_id,
        getattr(model.config, "eos_token_id", None),
        getattr(generation_config, "eos_token_id", None),
        _turn_end_id(tokenizer),
    )
    stop_ids = {token for source in sources for token in _as_ids(source)}
    if any(token < 0 for token in stop_ids):
        raise ModelError(
            f"eos_token_id {min(stop_ids)} is no token id; look in the model folder's config.json and generation_config.json, "
            "and set it to the id of the token that ends an answer"
        )
    if not stop_ids:
        raise ModelError(
            "no stop id: tokenizer.eos_token, config.eos_token_id, generation_config.eos_token_id are all empty, and the chat "
            "template ends no turn with a special token, so every answer would run into the token limit. Set eos_token in the "
            "model folder's tokenizer_config.json"
        )
    return tuple(sorted(stop_ids))


def _as_ids(source: int | Sequence[int] | None) -> tuple[int, ...]:
    if source is None:
        return ()
    return (source,) if isinstance(source, int) else tuple(source)


def _turn_end_id(tokenizer: Any) -> int | None:
    """The special token that the chat template puts right after an assistant turn, if there is one."""
    text = _render_dummy(tokenizer, [_ASK, _ANSWER])
    if text is None or _MARK not in text:
        return None
    tail = _encode(tokenizer, text.rpartition(_MARK)[2])
    added = tokenizer.added_tokens_decoder
    for place, token in enumerate(tail):
        if token in added:
            before = tokenizer.decode(tail[:place], clean_up_tokenization_spaces=False)
            return token if not before.strip() else None
    return None


def _template_prefill(tokenizer: Any) -> str:
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
