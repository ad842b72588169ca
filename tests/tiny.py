"""Small random models with a real tokenizer, saved to disk like any model: under a second each, no network.

Decisions:
1. Every family has the parts that differ in the wild: grouped-query attention (llama, qwen2, qwen3, mistral), one key head
   and scaled tied embeddings (gemma), per-head norms (qwen3), learned absolute positions (gpt2), a sliding window (mistral).
2. The tokenizer is byte-pair encoding trained on a few lines: printable ASCII, one token per digit, a ChatML template.
3. Weights are a function of (family, seed), drawn wide enough (std 0.3) that distributions are far from uniform.
4. Many families compute norms and softmaxes in float32 whatever the model's precision is. Where a float64 model is compared to
   the last digits, `InFloat64` keeps it in float64 throughout.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch.overrides import TorchFunctionMode
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

Family = Literal["llama", "qwen2", "qwen3", "gemma", "gpt2", "mistral"]
FAMILIES: tuple[Family, ...] = ("llama", "qwen2", "qwen3", "gemma", "gpt2", "mistral")

PAD, BOS, EOS, START, END = "<pad>", "<s>", "<|endoftext|>", "<|im_start|>", "<|im_end|>"
VOCAB_SIZE = 128

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

_CORPUS = ("What is the sum of these numbers? The answer is", "system user assistant", "hello there, the cat is on the mat")
_PRINTABLE = [chr(code) for code in range(33, 127)] + ["Ġ", "Ċ"]
_ATTENTION = {"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48, "head_dim": 8}
_FAMILY_OPTIONS: dict[str, dict[str, Any]] = {
    "llama": _ATTENTION,
    "qwen2": _ATTENTION,
    "qwen3": _ATTENTION,
    "mistral": _ATTENTION | {"sliding_window": 16},
    "gemma": _ATTENTION | {"num_key_value_heads": 1},
    "gpt2": {"n_head": 4},
}


class InFloat64(TorchFunctionMode):
    """Inside, what is float64 stays float64, whoever asks for float32."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        is_double = bool(args) and isinstance(args[0], torch.Tensor) and args[0].dtype == torch.float64
        if is_double and func is torch.Tensor.float:
            return args[0]
        if (
            is_double
            and func is torch.Tensor.to
            and torch.float32 in [each for each in args[1:] if isinstance(each, torch.dtype)]
        ):
            return args[0]
        if is_double and kwargs.get("dtype") is torch.float32:
            kwargs["dtype"] = torch.float64
        return func(*args, **kwargs)


def tiny_tokenizer(*, chat_template: str | None = CHATML, add_bos: bool = False, pad: str = PAD) -> PreTrainedTokenizerFast:
    """A tokenizer of 128 tokens: `add_bos` puts `<s>` in front of every encoded text; `pad=END` is the pad = eos trap."""
    core = Tokenizer(models.BPE(unk_token=PAD))
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[PAD, BOS, EOS, START, END],
        initial_alphabet=_PRINTABLE,
        show_progress=False,
    )
    core.train_from_iterator(_CORPUS, trainer)
    if add_bos:
        core.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token=BOS,
        eos_token=END,
        pad_token=pad,
        chat_template=chat_template,
        extra_special_tokens=[EOS, START],
    )


def tiny_config(family: str, **options: Any) -> Any:
    """The configuration of a two-layer model of hidden size 32; `options` override single entries."""
    sizes = {"vocab_size": VOCAB_SIZE, "hidden_size": 32, "num_hidden_layers": 2, "max_position_embeddings": 256}
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 4}
    family_options = _FAMILY_OPTIONS.get(family, _ATTENTION)
    return AutoConfig.for_model(family, **(sizes | tokens | {"initializer_range": 0.3} | family_options | options))


def tiny_model(family: str, *, seed: int = 0, dtype: torch.dtype = torch.float32, **options: Any) -> PreTrainedModel:
    """A random model in eval mode; equal arguments give equal weights, and the global random state is left alone."""
    attention = options.pop("attn_implementation", "sdpa")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(tiny_config(family, **options), attn_implementation=attention)
    model.generation_config = GenerationConfig(eos_token_id=4, bos_token_id=1, pad_token_id=0)
    return model.to(dtype).eval()


def save_tiny(folder: Path, family: str = "llama", *, seed: int = 0, **options: Any) -> Path:
    """A tiny model and its tokenizer as a normal transformers folder."""
    tiny_model(family, seed=seed, **options).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder
