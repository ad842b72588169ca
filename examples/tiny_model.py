"""A random language model of 24 thousand weights that reads and writes single characters: made in a moment, no download.

Both loops below start from the folder that this writes, so that their numbers can be compared.
"""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SPECIAL = ("<pad>", "<end>")
CHARACTERS = "0123456789+-=abcdefgh ?."


def save_tiny_model(folder: Path, seed: int = 0) -> Path:
    """A Llama of two layers and its tokenizer as an ordinary transformers folder."""
    vocabulary = {token: number for number, token in enumerate((*SPECIAL, *CHARACTERS))}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    core.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    core.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<end>")
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        initializer_range=0.15,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=1,
    )
    torch.manual_seed(seed)
    model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(eos_token_id=1, pad_token_id=0)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
