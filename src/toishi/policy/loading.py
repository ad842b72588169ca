"""Loads a causal language model and its tokenizer, ready to be trained and sampled, or its trunk with a score for its head.

Decisions:
1. Weights are loaded in float32 (float64 when asked for): these are the masters. Lower compute precision is the policy's.
2. Dropout is off for ever and the module stays in eval mode: sampler and trainer must see the same distribution.
3. A weight that the folder does not hold would be random, so it is an error, never a log line.
4. `fingerprint` names the base weights by content: equal for the same weights under another path or load precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from toishi.config import ModelConfig
from toishi.errors import ConfigError, ModelError
from toishi.policy.adapters import with_adapters
from toishi.policy.bundled import bundled_model_folder, recorded_fingerprint
from toishi.policy.fingerprint import weights_fingerprint
from toishi.policy.score_head import has_score, require_one_number, with_score
from toishi.quiet import quiet_transformers

_KINDS: dict[str, Any] = {"tokens": AutoModelForCausalLM, "score": AutoModelForSequenceClassification}
"""What a model predicts -> the family of transformers' classes that does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model and what it is.

    module       transformers model, or PeftModel around it, on the CPU, in eval mode without dropout
    tokenizer    its tokenizer, with the chat template of the configuration where one was given
    source       'bundled', a folder or a hub id
    fingerprint  sha256 over name, shape and float32 bytes of every base weight, sorted by name (adapters are not in it)
    """

    module: Any
    tokenizer: Any
    source: str
    fingerprint: str


def load_model(config: ModelConfig, *, seed: int, predicts: str = "tokens") -> LoadedModel:
    """Model, tokenizer and adapters as the configuration says; `seed` alone determines fresh adapter weights.

    predicts  "tokens", or "score": the same trunk with one number as its head, drawn from the seed where there is none yet
    Raises ModelError (not found, no network, not a causal LM, incomplete weights, no tokenizer), ConfigError (both
    `lora` and `adapter`), MissingExtraError (adapters without peft).
    """
    location, source = _locate(config.name)
    with quiet_transformers():
        model_config = _load_config(location, config, predicts)
        tokenizer = _load_tokenizer(location, config)
        has_head = predicts == "tokens" or has_score(model_config)
        base = _load_weights(location, model_config, config, predicts, without=() if has_head else ("score.",))
    if predicts == "score":
        base = with_score(base, tokenizer, fresh=not has_head, seed=seed)
    fingerprint = weights_fingerprint(base)
    if predicts == "tokens":
        _require_recorded(fingerprint, Path(location))
    _forget_padding_index(base)
    module = with_adapters(base, config, seed=seed)
    _disable_dropout(module)
    return LoadedModel(module=module.eval(), tokenizer=tokenizer, source=source, fingerprint=fingerprint)


def _locate(name: str) -> tuple[str, str]:
    """Where to load from, and how the run calls it."""
    if name == "bundled":
        return str(bundled_model_folder()), name
    folder = Path(name).expanduser()
    if _is_folder(folder):
        return str(folder), str(folder)
    if name.startswith((".", "~", "/")) or name.count("/") > 1 or "\\" in name:
        raise ModelError(
            f"model.name: folder {folder.absolute()} does not exist. Give a folder made by save_pretrained, a hub id such as "
            "'HuggingFaceTB/SmolLM2-135M-Instruct', or 'bundled'"
        )
    return name, name


def _is_folder(location: Path | str) -> bool:
    try:
        return Path(location).is_dir()
    except OSError:  # a name longer than any file's
        return False


def _hub_options(config: ModelConfig) -> dict[str, Any]:
    return {"revision": config.revision or "main", "trust_remote_code": config.trust_remote_code}


def _load_config(location: str, config: ModelConfig, predicts: str) -> Any:
    try:
        if not _is_folder(location):
            # One question to the hub, so that a missing name or network is met once and not again for every file.
            hf_hub_download(location, "config.json", revision=config.revision)
        model_config = AutoConfig.from_pretrained(location, **_hub_options(config))
    except (OSError, ValueError) as error:
        raise _load_error(location, error) from error
    except (StrictDataclassError, TypeError, KeyError, AttributeError) as error:
        why = " ".join(str(error).split()).rstrip(".")
        raise ModelError(
            f"{location}: its config.json cannot be used: {why}. Mend that entry, or download or save the model again"
        ) from error
    if predicts == "score":
        require_one_number(location, model_config)
    if predicts == "tokens" or not has_score(model_config):
        _require_causal_lm(location, model_config, config)
    return model_config


def _load_weights(
    location: str, model_config: Any, config: ModelConfig, predicts: str, *, without: tuple[str, ...] = ()
) -> Any:
    dtype = torch.float64 if config.dtype == "float64" else torch.float32
    try:
        # Mismatched sizes are let through only to be named below.
        model, report = _KINDS[predicts].from_pretrained(
            location,
            config=model_config,
            dtype=dtype,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            **_hub_options(config),
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ModelError(
            f"the weights of {location} cannot be loaded: {_first_line(error)}. Expected the files of a causal language model "
            "that this version of transformers knows; if a file is damaged, download or save it again"
        ) from error
    _require_complete(location, report, without)
    return _in_own_memory(model.to(dtype))


def _in_own_memory(model: Any) -> Any:
    """Weights copied out of the memory-mapped file. There they lie at odd addresses, and matrix kernels give other bits for
    other alignments: a resumed run would differ from an uninterrupted one in the last place.
    """
    for weight in (*model.parameters(), *model.buffers()):
        weight.data = weight.data.clone()
    return model


def _require_causal_lm(location: str, model_config: Any, config: ModelConfig) -> None:
    architectures = model_config.architectures or []
    known = set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values())
    if not architectures or config.trust_remote_code:
        return
    if not any(name in known or name.endswith(("ForCausalLM", "LMHeadModel")) for name in architectures):
        raise ModelError(
            f"{location} holds a {', '.join(architectures)}, expected a causal language model (…ForCausalLM): its head does "
            "not predict the next token. Choose a generating model"
        )


def _require_complete(location: str, report: dict[str, Any], without: tuple[str, ...]) -> None:
    """`without`: how the names of weights begin that the folder need not hold."""
    missing = sorted(name for name in report["missing_keys"] if not name.startswith(without))
    problems = {"missing": missing, "of another shape": [str(key) for key in report["mismatched_keys"]]}
    for problem, keys in problems.items():
        if keys:
            shown = ", ".join(keys[:5]) + (f" and {len(keys) - 5} more" if len(keys) > 5 else "")
            raise ModelError(
                f"{location}: {len(keys)} weights are {problem} ({shown}); they would be random numbers. The weight files are "
                "incomplete or belong to another architecture: download or save the model again"
            )


def _require_recorded(fingerprint: str, folder: Path) -> None:
    """A cache folder can be damaged or changed after it was made; toishi.json in it says what was made."""
    recorded = recorded_fingerprint(folder)
    if recorded not in (None, fingerprint):
        raise ModelError(
            f"the weights in {folder} are not those that were written there (fingerprint {fingerprint[:12]}, recorded "
            f"{str(recorded)[:12]}). Remove the folder and run `toishi fetch`"
        )


def _load_error(location: str, error: Exception) -> ModelError:
    if _is_folder(location):
        return ModelError(f"{location} is not a causal language model that transformers loads: {error}")
    return ModelError(
        f"{location} is no folder here, and it could not be loaded from the hub (nor from its cache on this machine): "
        f"{_first_line(error)}. Check the name and the network; without a network give the folder of a model, or "
        "'bundled', which `toishi fetch` makes"
    )


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")


def _load_tokenizer(location: str, config: ModelConfig) -> Any:
    try:
        tokenizer = AutoTokenizer.from_pretrained(location, **_hub_options(config))
    except (OSError, ValueError, KeyError, ImportError) as error:
        if not _is_folder(location):
            raise _load_error(location, error) from error
        raise _no_tokenizer(location, _first_line(error)) from error
    if len(tokenizer.get_vocab()) <= len(tokenizer.added_tokens_decoder):
        # Without files, transformers builds the family's tokenizer with special tokens only, and says nothing.
        raise _no_tokenizer(location, "the tokenizer is empty")
    if config.chat_template is not None:
        tokenizer.chat_template = _read_template(config.chat_template)
    return tokenizer


def _no_tokenizer(location: str, reason: str) -> ModelError:
    return ModelError(
        f"{location} has no usable tokenizer ({reason}). Expected tokenizer.json and tokenizer_config.json beside the weights: "
        "save it there with tokenizer.save_pretrained(folder)"
    )


def _read_template(template: str) -> str:
    """The template itself, or the file that holds it (Jinja always has a brace, a file name hardly ever)."""
    if "{" in template:
        return template
    try:
        return Path(template).expanduser().read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"model.chat_template: neither Jinja text nor a readable file: {error}") from None


def _forget_padding_index(model: Any) -> None:
    """`nn.Embedding(padding_idx=...)` drops the gradient of that row without a word; where pad = eos, that is a real token."""
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            module.padding_idx = None


def _disable_dropout(module: nn.Module) -> None:
    for part in module.modules():
        if isinstance(part, nn.modules.dropout._DropoutNd):
            part.p = 0.0
        for name in ("attention_dropout", "attn_dropout", "dropout"):
            if isinstance(getattr(part, name, None), float):
                setattr(part, name, 0.0)
