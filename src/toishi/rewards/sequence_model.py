"""Sequence-classification models that give a text one number: loading, encoding, scoring in batches.

Decisions:
1. Rows are padded on the right with the id that the model looks for when it finds a row's last token (config.pad_token_id),
   which need not be the tokenizer's. A model and tokenizer without one score row by row.
2. Rows of like length share a batch, and a batch is as large as its padded tokens allow. The order of the answers does not
   matter.
3. A weight that the folder does not hold would be random, so it is an error: a causal language model has no scoring head.
4. A text that is longer than the model was made for is refused. Cut off, its score would be of another text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from toishi.errors import ConfigError, ModelError
from toishi.policy.chat import Renderer
from toishi.policy.score_head import AS_ASKED, READS
from toishi.quiet import quiet_transformers
from toishi.types import Message, Prompt

Form = Literal["chat", "pair", "text", "as_asked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceModel:
    """A loaded model with its tokenizer. `label` is the logit that is the score; `max_tokens` the longest text."""

    module: Any
    tokenizer: Any
    label: int
    max_tokens: int | None

    @property
    def has_template(self) -> bool:
        """Whether the tokenizer has a chat template."""
        return bool(self.tokenizer.chat_template)

    @property
    def own_form(self) -> Form:
        """The form that the model says it was trained with; without a word of it, chat where there is a template, else pair."""
        if getattr(self.module.config, READS, None) == AS_ASKED:
            return "as_asked"
        return "chat" if self.has_template else "pair"

    def encode(self, prompt: Prompt, answer: str, form: Form) -> dict[str, list[int]]:
        """Token ids of a question and its answer (with token types, where the tokenizer makes them).

        chat  the turns and the answer as an assistant turn, through the tokenizer's own template; a plain prompt is one turn
        pair  the last turn and the answer as two segments
        text  both as one text, one right after the other
        as_asked  as the training of a reward model reads its pairs: chat for a conversation, plain text for a plain prompt
        """
        turns: Sequence[Message] = prompt.messages or ({"role": "user", "content": prompt.text or ""},)
        if form == "as_asked":
            renderer = Renderer(self.tokenizer, self.module)
            return {"input_ids": list(renderer.whole(renderer.render(prompt), answer))}
        if form == "chat":
            messages = [*map(dict, turns), {"role": "assistant", "content": answer}]
            encoded = self.tokenizer.apply_chat_template(messages, tokenize=True, return_dict=True)
        elif form == "pair":
            encoded = self.tokenizer(turns[-1]["content"], answer)
        else:
            encoded = self.tokenizer(turns[-1]["content"] + answer)
        return {name: list(encoded[name]) for name in ("input_ids", "token_type_ids") if name in encoded}

    @torch.inference_mode()
    def score(self, rows: Sequence[dict[str, list[int]]], *, batch_tokens: int) -> list[float]:
        """The chosen logit of each row, in order. `batch_tokens` is how many tokens a padded batch may have."""
        scores = [0.0] * len(rows)
        for batch in self._batches(rows, batch_tokens):
            logits_BC = self.module(**self._padded([rows[index] for index in batch])).logits
            for index, value in zip(batch, logits_BC[:, self.label].float().tolist(), strict=True):
                scores[index] = value
        return scores

    def _batches(self, rows: Sequence[dict[str, list[int]]], batch_tokens: int) -> list[list[int]]:
        by_length = sorted(range(len(rows)), key=lambda index: len(rows[index]["input_ids"]))
        batches: list[list[int]] = []
        for index in by_length:  # ascending, so the new row is the longest of its batch
            length = len(rows[index]["input_ids"])
            fits = batches and (len(batches[-1]) + 1) * length <= batch_tokens and self.module.config.pad_token_id is not None
            if fits:
                batches[-1].append(index)
            else:
                batches.append([index])
        return batches

    def _padded(self, rows: Sequence[dict[str, list[int]]]) -> dict[str, Tensor]:
        longest = max(len(row["input_ids"]) for row in rows)
        pads = {"input_ids": self.module.config.pad_token_id or 0, "token_type_ids": 0}
        device = self.module.device
        padded = {
            name: torch.tensor([row[name] + [pads[name]] * (longest - len(row[name])) for row in rows], device=device)
            for name in rows[0]
        }
        mask = [[1] * len(row["input_ids"]) + [0] * (longest - len(row["input_ids"])) for row in rows]
        return padded | {"attention_mask": torch.tensor(mask, device=device)}


def load_sequence_model(
    model: str,
    *,
    where: str,
    revision: str | None,
    label: str | int | None,
    device: str,
    dtype: str,
    max_tokens: int | None,
) -> SequenceModel:
    """The model, in eval mode. Raises ModelError (not loadable, weights missing) and ConfigError (no such label or device)."""
    from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

    location = str(Path(model).expanduser()) if Path(model).expanduser().is_dir() else model
    options = {"revision": revision or "main"}
    try:
        config = AutoConfig.from_pretrained(location, **options)
        chosen = choose_label(config, label, where)
        tokenizer = AutoTokenizer.from_pretrained(location, **options)
        config.pad_token_id = config.get_text_config().pad_token_id = _pad_id(config, tokenizer)
        with quiet_transformers():
            module, report = AutoModelForSequenceClassification.from_pretrained(
                location, config=config, dtype=_dtype(dtype, device), output_loading_info=True, **options
            )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        if isinstance(error, ConfigError):
            raise
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise ModelError(
            f"{where}.model: {model} cannot be loaded as a sequence-classification model: {first} Expected a folder made by "
            "save_pretrained, with its tokenizer, or a hub id"
        ) from error
    missing = sorted(report["missing_keys"])
    if missing:
        raise ModelError(
            f"{where}.model: {model} does not hold {len(missing)} weights ({', '.join(missing[:3])}), which would be random "
            "numbers; it is no trained sequence-classification model"
        )
    placed = module.to(_device(device, where)).eval()
    return SequenceModel(module=placed, tokenizer=tokenizer, label=chosen, max_tokens=max_tokens or _longest(config, tokenizer))


def choose_label(config: Any, label: str | int | None, where: str) -> int:
    """Which logit is the score. Raises ConfigError when there are several and none is named, or the named one is not there."""
    names = {int(number): str(name) for number, name in config.id2label.items()}
    if label is None:
        if len(names) == 1:
            return 0
        raise ConfigError(f"{where}.label: the model has {len(names)} labels; say which one is the reward: {names}")
    found = [number for number, name in names.items() if label in (number, name) and not isinstance(label, bool)]
    if not found:
        raise ConfigError(f"{where}.label: the model has no label {label!r}; it has {names}")
    return found[0]


def _pad_id(config: Any, tokenizer: Any) -> int | None:
    text_config = config.get_text_config()
    known = getattr(text_config, "pad_token_id", None)
    found: int | None = known if known is not None else tokenizer.pad_token_id
    return found


def _longest(config: Any, tokenizer: Any) -> int | None:
    limits = [getattr(config.get_text_config(), "max_position_embeddings", None), tokenizer.model_max_length]
    known = [int(limit) for limit in limits if limit is not None and 0 < limit < 10**9]
    return min(known) if known else None


def _device(device: str, where: str) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"{where}.device: {device} was asked for, but torch sees no GPU here; use auto or cpu")
    return torch.device(device)


def _dtype(dtype: str, device: str) -> torch.dtype:
    if dtype != "auto":
        return getattr(torch, dtype)  # type: ignore[no-any-return]
    on_gpu = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
    return torch.bfloat16 if on_gpu else torch.float32
