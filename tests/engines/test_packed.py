"""Linear layers with rearranged weights against the plain ones."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from toishi.engines.packed import LEAST_STEPS, packed_weights


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("rows", [1, 7, 32, 65])
def test_products_are_those_of_the_plain_layer(dtype: torch.dtype, rows: int, bias: bool) -> None:
    generator = torch.Generator().manual_seed(rows)
    layer = nn.Sequential(nn.Linear(288, 320, bias=bias), nn.Linear(320, 40)).to(dtype)
    inputs = torch.randn(rows, 1, 288, generator=generator).to(dtype)
    with torch.inference_mode():
        plain = layer(inputs)
        with packed_weights(layer, steps=LEAST_STEPS):
            assert ("forward" in vars(layer[0])) == (dtype != torch.float64)
            assert "forward" not in vars(layer[1])  # too small
            packed = layer(inputs)
    torch.testing.assert_close(packed, plain, rtol=0, atol=0 if dtype == torch.bfloat16 else 1e-5)


def test_layers_are_plain_again_afterwards_and_see_new_weights() -> None:
    layer = nn.Linear(300, 300)
    inputs = torch.ones(1, 300)
    with pytest.raises(RuntimeError, match="interrupted"), packed_weights(layer, steps=LEAST_STEPS):
        raise RuntimeError("interrupted")
    with torch.no_grad():
        layer.weight.zero_()
        assert torch.equal(layer(inputs)[0], layer.bias)
        with packed_weights(layer, steps=LEAST_STEPS):
            assert torch.equal(layer(inputs)[0], layer.bias)
    layer(inputs).sum().backward()
    assert layer.weight.grad is not None


def test_short_answers_do_not_pay_for_it() -> None:
    layer = nn.Linear(300, 300)
    with packed_weights(layer, steps=LEAST_STEPS - 1):
        assert "forward" not in vars(layer)
