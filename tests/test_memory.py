"""The estimate, against bytes counted by hand (135 million weights; GiB as in the literature)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tiny import tiny_model
from toishi.config import Config, load_config
from toishi.memory import (
    MemoryEstimate,
    ModelShape,
    Part,
    _available,
    _left_in_control_group,
    estimate_memory,
    free_memory,
)

GIB = 2**30
SMALL = ModelShape(
    parameters=134_515_008,
    trained=134_515_008,
    vocabulary=49_152,
    hidden=576,
    intermediate=1536,
    layers=30,
    key_value_width=192,
)


def parts(estimate: MemoryEstimate) -> dict[str, int]:
    return {part.name: part.num_bytes for part in (*estimate.always, *(part for phase in estimate.phases for part in phase))}


def estimated(shape: ModelShape = SMALL, *, compute_bytes: int = 4, **overrides: object) -> MemoryEstimate:
    config = load_config({}, {key.replace("__", "."): value for key, value in overrides.items()})
    return estimate_memory(config, shape, compute_bytes=compute_bytes, prompt_tokens=45, free=None)


def of_weights(found: dict[str, int]) -> float:
    names = ("weights", "compute copy", "gradients", "optimizer", "reference model")
    return sum(found.get(name, 0) for name in names) / GIB


def test_full_training_takes_16_bytes_a_weight() -> None:
    assert of_weights(parts(estimated())) == pytest.approx(2.004, abs=1e-3)


def test_a_reference_model_takes_4_more() -> None:
    assert of_weights(parts(estimated(algorithm={"kl": "k3", "kl_coef": 0.1}))) == pytest.approx(2.505, abs=1e-3)


def test_half_precision_adds_a_copy() -> None:
    found = parts(estimated(compute_bytes=2))
    assert found["compute copy"] == 2 * 134_515_008
    assert of_weights(found) == pytest.approx(18 / 16 * 2.0045, abs=1e-3)


def test_adapters_take_4_bytes_a_frozen_weight_and_16_a_trained_one() -> None:
    shape = ModelShape(
        parameters=139_399_488,
        trained=4_884_480,
        vocabulary=49_152,
        hidden=576,
        intermediate=1536,
        layers=30,
        key_value_width=192,
    )
    assert of_weights(parts(estimated(shape))) == pytest.approx((4 * 134_515_008 + 16 * 4_884_480) / GIB)


@pytest.mark.parametrize(("momentum", "num_bytes"), [(0.0, None), (0.9, 4)])
def test_sgd_keeps_less(momentum: float, num_bytes: int | None) -> None:
    found = parts(estimated(optimizer={"name": "sgd", "momentum": momentum}))
    assert found.get("optimizer") == (None if num_bytes is None else num_bytes * 134_515_008)


def test_logits_and_cache() -> None:
    found = parts(estimated(sampling__max_new_tokens=128))
    # 8 answers of 128 tokens behind one prompt; three copies of 1024 x 49,152 x 4 bytes = 0.1875 GiB each
    assert found["logits"] / GIB == pytest.approx(3 * 0.1875)
    # keys and values, twice while the cache grows: 32 answers x 173 tokens x 30 layers x 192 numbers x 4 bytes
    assert found["key-value cache"] == 4 * 32 * 173 * 30 * 192 * 4


def test_a_micro_batch_is_never_larger_than_its_budget() -> None:
    small, large = parts(estimated(train__micro_batch_tokens=100)), parts(estimated(train__micro_batch_tokens=10_000))
    assert small["activations"] < large["activations"]
    assert small["logits"] == 3 * 100 * 49_152 * 4


def test_only_the_larger_peak_counts() -> None:
    estimate = MemoryEstimate(
        always=(Part("weights", 10, ""),),
        phases=((Part("cache", 5, ""),), (Part("logits", 2, ""), Part("more", 2, ""))),
        free=14,
    )
    assert (estimate.needed, estimate.fits) == (15, False)
    assert [part.name for part in estimate.peak] == ["cache"]


def test_unknown_free_memory_is_not_judged() -> None:
    assert estimated().fits is None


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma"])
def test_shapes_are_read_from_any_family(family: str) -> None:
    model = tiny_model(family)
    shape = ModelShape.of(model)
    assert (shape.hidden, shape.layers, shape.vocabulary) == (32, 2, 128)
    assert shape.parameters == shape.trained == sum(weight.numel() for weight in model.parameters())
    assert shape.key_value_width == {"llama": 16, "gpt2": 32, "gemma": 8}[family]


def test_available_memory_is_read_in_kibibytes(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal:       16000000 kB\nMemAvailable:    8000000 kB\n", encoding="ascii")
    assert _available(tmp_path / "meminfo") == 8_000_000 * 1024
    assert _available(tmp_path / "none") is None


def test_a_containers_limit_counts_and_its_file_pages_do_not(tmp_path: Path) -> None:
    for name, text in {
        "memory.max": "1000\n",
        "memory.current": "700\n",
        "memory.stat": "anon 400\ninactive_file 250\n",
    }.items():
        (tmp_path / name).write_text(text, encoding="ascii")
    assert _left_in_control_group(tmp_path) == 1000 - 700 + 250
    (tmp_path / "memory.max").write_text("max\n", encoding="ascii")
    assert _left_in_control_group(tmp_path) is None
    assert _left_in_control_group(tmp_path / "none") is None


def test_free_memory_is_a_sensible_number_or_unknown() -> None:
    free = free_memory()
    assert free is None or 10**6 < free < 10**15


def test_the_default_recipe_fits_a_laptop() -> None:
    config = Config.model_validate({"sampling": {"max_new_tokens": 24}})
    estimate = estimate_memory(config, SMALL, compute_bytes=2, prompt_tokens=45, free=8 * GIB)
    assert estimate.fits is True
    assert estimate.needed == pytest.approx(3.62e9, rel=0.1)  # measured: peak resident size of two steps of the demo
