"""Device and compute precision; the measurement's verdict is checked with planted speeds, never with a clock."""

from __future__ import annotations

import pytest
import torch

from toishi.errors import ConfigError
from toishi.policy import precision
from toishi.policy.precision import bfloat16_speedup, choose_device, choose_dtype

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float64"])
def test_named_precision_is_taken(name: str) -> None:
    assert choose_dtype(name, CPU) == getattr(torch, name)


@pytest.mark.parametrize(("speedup", "expected"), [(1.31, torch.bfloat16), (1.29, torch.float32), (0.1, torch.float32)])
def test_auto_asks_for_a_clear_win(speedup: float, expected: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "bfloat16_speedup", lambda: speedup)
    assert choose_dtype("auto", CPU) == expected


@pytest.mark.parametrize(("supported", "expected"), [(True, torch.bfloat16), (False, torch.float32)])
def test_auto_on_cuda_asks_the_card(supported: bool, expected: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: supported)
    assert choose_dtype("auto", torch.device("cuda")) == expected


def test_auto_on_other_devices_is_float32() -> None:
    assert choose_dtype("auto", torch.device("mps")) == torch.float32


def test_measurement_is_made_once() -> None:
    assert bfloat16_speedup() > 0
    assert bfloat16_speedup() == bfloat16_speedup()


@pytest.mark.parametrize(("cuda", "mps", "expected"), [(True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")])
def test_auto_device_order(cuda: bool, mps: bool, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert choose_device("auto").type == expected


@pytest.mark.parametrize("name", ["gpu", "cuda:x"])
def test_unknown_device_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"model\.device: expected"):
        choose_device(name)


@pytest.mark.parametrize("name", ["cuda", "cuda:1", "mps"])
def test_absent_device_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=f"model.device: {name} is not available here"):
        choose_device(name)


def test_second_card_is_refused_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert choose_device("cuda:0") == torch.device("cuda:0")
    with pytest.raises(ConfigError, match="cuda:1 is not available"):
        choose_device("cuda:1")
