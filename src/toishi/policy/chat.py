"""From rows to token ids and back: chat templates, beginning-of-text, stop ids, padding.

Decisions:
1. Chat rows are tokenised *through* the template, never rendered and then tokenised with special tokens again, which
   would put a second beginning-of-text token (BOS) in front. Plain rows get BOS exactly when the tokenizer normally adds it.
2. The stop ids are the union of what the tokenizer, the model's config, its generation config and the chat template say: a
   model that ends its turns with a token missing from one of these lists would otherwise never stop.
3. What is padding is known from lengths alone, never from token values, so pad = eos is harmless.
4. Text that the template writes for the assistant after the turn's header ("<think>") is the prompt's `prefill`.
   Rewards that look for tags need it.
5. A written answer that ends with a stop token in its text has that token once. Special tokens elsewhere in texts are found
   here and told before training; they stay what the tokenizer reads them as.
6. A template that cannot do what a row asks, a model without a stop id, two BOS tokens: refused here, before training.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from jinja2.exceptions import TemplateError

from toishi.errors import DataError, ModelError
from toishi.policy.conversation import rendered, spoken
from toishi.policy.template import encode, template_prefill, turn_end_id
from toishi.types import Completion, Message, Prompt


class Renderer:
    """Renders prompts and reads completions for one tokenizer and model.

    stop_ids  token ids that end a completion, ascending
    pad_id    a valid token id to fill rows with; it never carries meaning
    prefill   text that the chat template writes for the assistant beyond the turn's header, or ""

    Raises ModelError when nothing would ever end a completion.
    """

    def __init__(self, tokenizer: Any, model: Any) -> None:
        self._tokenizer = tokenizer
        self._special_texts = _special_texts(tokenizer)
        self._num_embeddings = int(model.get_input_embeddings().num_embeddings)
        self._bos_id: int | None = tokenizer.bos_token_id
        self._adds_bos = _adds_bos(tokenizer)
        self.stop_ids = _stop_ids(tokenizer, model)
        self.pad_id = self._choose_pad_id(model.config)
        self.prefill = template_prefill(tokenizer)

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
        """A written answer as the model would have sampled it: its tokens and the one that ends a turn. A stop token that the
        text ends with already is that one."""
        bare, end = self._without_end(text)
        ends = (end, turn_end_id(self._tokenizer), self._tokenizer.eos_token_id, self.stop_ids[0])
        return (*encode(self._tokenizer, bare), next(int(token) for token in ends if token is not None))

    def control_tokens(self, texts: Sequence[str]) -> tuple[str, ...]:
        """The special tokens that stand in any of the texts, where they are read as tokens."""
        return tuple(token for token in self._special_texts if any(token in text for text in texts))

    def words_of(self, answer: str | Sequence[Message]) -> list[str]:
        """The texts of an answer's turns, each without the stop token that it may end with."""
        return [turn["content"] for turn in self._turns(answer)]

    def _turns(self, said: str | Sequence[Message]) -> list[Message]:
        """Turns, those of the assistant without a stop token at their end: templates write one."""
        turns: Sequence[Message] = [{"role": "assistant", "content": said}] if isinstance(said, str) else said
        return [
            {"role": turn["role"], "content": self._without_end(turn["content"])[0]} if turn["role"] == "assistant" else turn
            for turn in turns
        ]

    def _without_end(self, text: str) -> tuple[str, int | None]:
        """The text without the special stop token that it may end with, and that token."""
        bare = text.rstrip()
        for token in self.stop_ids:
            written = self._text([token])
            if written in self._special_texts and bare.endswith(written):
                return bare.removesuffix(written), token
        return text, None

    def written(self, prompt: Prompt, answer: str | Sequence[Message]) -> Completion:
        """An answer that someone wrote to a rendered prompt: text, or the turns that follow the prompt, of which the
        assistant's have loss. It ends with the token that ends a turn, which has loss too.

        Raises DataError for an empty answer, ModelError when the template does not tell which tokens the assistant said.
        """
        turns = self._turns(answer)
        text = next((turn["content"] for turn in reversed(turns) if turn["role"] == "assistant"), "")
        if not text.strip():
            raise DataError(f"row {prompt.id}: its written answer is empty. Fill it or remove the row")
        if prompt.messages is None:
            token_ids = self.answer_ids(answer if isinstance(answer, str) else text)
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
        if prompt.messages is None:
            return (*prompt.token_ids, *self.answer_ids(answer if isinstance(answer, str) else answer[-1]["content"]))
        return rendered(self._tokenizer, [*prompt.messages, *self._turns(answer)], prompt.id)

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
        ids = encode(self._tokenizer, text)
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


def _special_texts(tokenizer: Any) -> tuple[str, ...]:
    """How the tokenizer's special tokens are written; such a text is read as that token wherever it stands."""
    added = (str(token) for token in tokenizer.added_tokens_decoder.values() if token.special)
    return tuple(dict.fromkeys(text for text in (*tokenizer.all_special_tokens, *added) if text.strip()))


def _adds_bos(tokenizer: Any) -> bool:
    if tokenizer.bos_token_id is None:
        return False
    return list(tokenizer("a")["input_ids"])[:1] == [tokenizer.bos_token_id] != encode(tokenizer, "a")[:1]


def _stop_ids(tokenizer: Any, model: Any) -> tuple[int, ...]:
    generation_config = getattr(model, "generation_config", None)
    sources = (
        tokenizer.eos_token_id,
        getattr(model.config, "eos_token_id", None),
        getattr(generation_config, "eos_token_id", None),
        turn_end_id(tokenizer),
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
