"""A random language model of some thousand weights that reads and writes single characters: made in a moment, no download.

The loops of 02 and 03 start from the folder that this writes, so that their numbers can be compared. It is a GPT-2, whose
layers compute in float64 when they are asked to; Llama's norms drop to float32 inside, too coarse for such a comparison.
"""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
from transformers.utils.logging import disable_progress_bar

SPECIAL = ("<pad>", "<end>")
CHARACTERS = "0123456789+-=abcdefgh ?."


def save_tiny_model(folder: Path, seed: int = 0) -> Path:
    """A GPT-2 of two layers and its tokenizer as an ordinary transformers folder."""
    disable_progress_bar()
    vocabulary = {token: number for number, token in enumerate((*SPECIAL, *CHARACTERS))}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    core.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    core.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<end>")
    config = GPT2Config(
        vocab_size=len(vocabulary),
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=64,
        initializer_range=0.15,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=1,
    )
    torch.manual_seed(seed)
    model = GPT2LMHeadModel(config)
    model.generation_config = GenerationConfig(eos_token_id=1, pad_token_id=0)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
