"""Linear layers, on a CPU with their weights laid out once for the processor's matrix kernels.

Laying them out anew for every product costs a tenth of it, and the activation goes into the same pass over the output.
Kernels are compiled per shape and kept, so that callers should use few numbers of rows.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ROWS_HINT = 512


@dataclass(frozen=True)
class PackedLinear:
    """x -> x weight' + bias; `packed` is the weight in oneDNN's layout, None where this build or dtype has none."""

    weight: Tensor
    bias: Tensor
    packed: Tensor | None

    @classmethod
    def of(cls, *layers: nn.Linear) -> "PackedLinear":
        """One layer, or several that see the same input, side by side."""
        return cls.pack(torch.cat([layer.weight for layer in layers]), torch.cat([layer.bias for layer in layers]))

    @classmethod
    def pack(cls, weight: Tensor, bias: Tensor) -> "PackedLinear":
        """A layer with this weight [out, in] and bias [out]."""
        weight = weight.contiguous()
        return cls(weight, bias.contiguous(), _pack(weight))

    def __call__(self, x: Tensor) -> Tensor:
        """[n, in] -> [n, out]."""
        return self._run(x, "none")

    def gelu(self, x: Tensor) -> Tensor:
        """The exact GELU of the result."""
        return F.gelu(F.linear(x, self.weight, self.bias)) if self.packed is None else self._run(x, "gelu")

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        """The result plus `residual` [n, out]."""
        return self._run(x, "none").add_(residual)  # as a step of the kernel's own this takes longer

    def _run(self, x: Tensor, activation: str) -> Tensor:
        if self.packed is None:
            return F.linear(x, self.weight, self.bias)
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, activation, [], "none")


def _pack(weight: Tensor) -> Tensor | None:
    """The weight in oneDNN's own layout. The operators are the ones that torch's compiler emits for a CPU."""
    if weight.device.type != "cpu":
        return None
    if weight.dtype not in (torch.float32, torch.bfloat16) or not torch.backends.mkldnn.is_available():
        return None
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return None
    return torch.ops.mkldnn._reorder_linear_weight(weight, ROWS_HINT)
