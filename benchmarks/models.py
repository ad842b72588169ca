"""Random models as ordinary folders, for quick trials and for growth with vocabulary and size. Weights teach nothing; the work
of a step depends on shapes only."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, GenerationConfig, LlamaConfig, PreTrainedTokenizerFast

PAD, BOS, START, END = "<pad>", "<s>", "<|im_start|>", "<|im_end|>"
_CHAT = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def save_random(
    folder: Path, *, vocab_size: int = 256, hidden: int = 64, layers: int = 2, intermediate: int | None = None
) -> Path:
    """A Llama with heads of 64 (16 when narrow), grouped keys and a tied head; its tokenizer knows printable ASCII."""
    head = 64 if hidden % 192 == 0 else 16
    heads = hidden // head
    config = LlamaConfig(
        vocab_size=vocab_size, hidden_size=hidden, num_hidden_layers=layers, intermediate_size=intermediate or hidden * 8 // 3,
        num_attention_heads=heads, num_key_value_heads=heads // 3 if heads % 3 == 0 else heads, max_position_embeddings=4096,
        tie_word_embeddings=True, pad_token_id=0, bos_token_id=1, eos_token_id=3,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config)
    model.generation_config = GenerationConfig(pad_token_id=0, bos_token_id=1, eos_token_id=3)
    model.save_pretrained(folder)
    _tokenizer().save_pretrained(folder)
    return folder


def _tokenizer() -> PreTrainedTokenizerFast:
    core = Tokenizer(models.BPE(unk_token=PAD))
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    core.decoder = decoders.ByteLevel()
    printable = [chr(code) for code in range(33, 127)] + ["Ġ", "Ċ"]
    trainer = trainers.BpeTrainer(
        vocab_size=128, special_tokens=[PAD, BOS, START, END], initial_alphabet=printable, show_progress=False
    )
    core.train_from_iterator(["What is the sum of these numbers?"], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token=BOS, eos_token=END, pad_token=PAD, chat_template=_CHAT,
        extra_special_tokens=[START],
    )  # fmt: skip
