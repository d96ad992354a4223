"""Linear layers with weights laid out once."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sentence_beam.transforms.encoder.bert import PackedLinear


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [1, 7, 512, 600])
@pytest.mark.parametrize("packed", [True, False])
def test_the_same_as_the_plain_layer(dtype, rows, packed):
    torch.manual_seed(0)
    layer, x, residual = (
        nn.Linear(24, 40).to(dtype),
        torch.randn(rows, 24).to(dtype),
        torch.randn(rows, 40).to(dtype),
    )
    linear = PackedLinear.from_layers(layer)
    if not packed:
        linear = PackedLinear(layer.weight, layer.bias, packed=False)
    close = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 0.02, "atol": 0.02}
    with torch.inference_mode():
        torch.testing.assert_close(linear(x), layer(x), **close)
        torch.testing.assert_close(linear.gelu(x), F.gelu(layer(x)), **close)
        torch.testing.assert_close(linear.add(x, residual), layer(x) + residual, **close)


def test_layers_of_one_input_run_side_by_side():
    layers, x = [nn.Linear(8, width) for width in (3, 5)], torch.randn(4, 8)
    with torch.inference_mode():
        torch.testing.assert_close(
            PackedLinear.from_layers(*layers)(x), torch.cat([layer(x) for layer in layers], 1)
        )
