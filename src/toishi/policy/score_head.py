"""A language model's trunk with one number as its head: what a reward model is to transformers.

Decisions:
1. It is transformers' own sequence classifier with one label, so what is saved loads there (and in TRL) as it is.
2. A trunk that comes from a language model gets a fresh head: normal, of the spread that the model's own layers were drawn
   with, from the seed alone.
3. transformers reads the score at a row's last token that is no padding. Where the padding token can end a text (pad = eos), it
   would read one token too early: another special token is the padding then, or none (rows are scored one by one).
4. The configuration says how texts were read in training (`toishi_reads`), so that the reward `reward_model` reads them alike.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
)

from toishi.errors import ModelError
from toishi.policy.chat import Renderer
from toishi.policy.head import score_layer

READS = "toishi_reads"
AS_ASKED = "as_asked"
"""Conversations through the chat template, plain prompts as plain text with the token that ends an answer behind it."""


def has_score(model_config: Any) -> bool:
    """Whether a configuration is that of a sequence classifier, and not of a language model."""
    known = set(MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES.values())
    return any(name in known for name in model_config.architectures or [])


def require_one_number(location: str, model_config: Any) -> None:
    """Sets a language model's configuration to one label. Raises ModelError where no such model can be made of it."""
    if type(model_config) not in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING:
        raise ModelError(
            f"{location}: transformers has no sequence classifier of type '{model_config.model_type}', so its trunk cannot "
            "carry a score. Choose another model to train a reward model from"
        )
    if not has_score(model_config):
        model_config.num_labels = 1
    if model_config.num_labels != 1:
        raise ModelError(
            f"{location} is a classifier with {model_config.num_labels} labels; a reward model has one number. Give a language "
            "model, or a classifier with num_labels=1"
        )


@torch.no_grad()
def with_score(model: Any, tokenizer: Any, *, fresh: bool, seed: int) -> Any:
    """The classifier made ready: a fresh head where it has none yet, and a padding token that ends no text.

    Raises ModelError for one whose number does not come from the last token by a linear layer called `score`.
    """
    layer = score_layer(model)
    if layer is None:
        raise ModelError(
            f"{type(model).__name__} does not read one number off the last token of a decoder (a linear layer `score`), so it "
            "cannot be trained here; choose a decoder such as Llama, Qwen or Mistral"
        )
    text_config = model.config.get_text_config()
    if fresh:
        drawn = torch.randn(layer.weight.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        layer.weight.copy_(drawn * (getattr(text_config, "initializer_range", None) or 0.02))
        if layer.bias is not None:
            layer.bias.zero_()
    _choose_padding(model, tokenizer)
    setattr(model.config, READS, AS_ASKED)
    return model


def _choose_padding(model: Any, tokenizer: Any) -> None:
    ends = Renderer(tokenizer, model).stop_ids
    rows = model.get_input_embeddings().num_embeddings
    candidates = (tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.bos_token_id)
    pad_id = next((one for one in candidates if one is not None and one not in ends and 0 <= one < rows), None)
    model.config.pad_token_id = model.config.get_text_config().pad_token_id = pad_id
    if pad_id != tokenizer.pad_token_id:
        tokenizer.pad_token = None if pad_id is None else tokenizer.convert_ids_to_tokens(pad_id)
