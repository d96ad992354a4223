"""Reading the hidden states of chosen layers, and stopping when the deepest of them is there."""

from typing import Any

import torch
from torch import Tensor, nn

from transforms.errors import OptionError


class _Enough(Exception):
    """Raised inside a forward pass when no further block is needed."""


class LayerTaps:
    """Hooks on the blocks of one model: layer 0 is what enters block 1, layer l what leaves block l.

    The model's last layer is its `last_hidden_state`, so that a final norm is included. Blocks above the deepest
    layer asked for are not run. One forward pass at a time.
    """

    def __init__(self, model: nn.Module, wanted: frozenset[int], layers: int) -> None:
        self._wanted, self._layers, self._deepest = wanted, layers, max(wanted)
        self._found: dict[int, Tensor] = {}
        self._block = 0
        self._time_first = False
        if wanted != {layers}:
            for block in _find_blocks(model, layers):
                block.register_forward_pre_hook(self._before, with_kwargs=True)
                block.register_forward_hook(self._after)
        self._check(model)

    def run(self, model: nn.Module, inputs: dict[str, Tensor]) -> dict[int, Tensor]:
        """The wanted layers' states, each [B, T, H]."""
        self._found, self._block = {}, 0
        try:
            last = model(**inputs).last_hidden_state
        except _Enough:
            last = None
        found, self._found = self._found, {}
        if self._time_first:
            found = {layer: state.transpose(0, 1) for layer, state in found.items()}
        return found if last is None else {**found, self._layers: last}

    def _before(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._block == 0:
            self._keep(0, args[0] if args else kwargs["hidden_states"])

    def _after(self, _: nn.Module, __: Any, output: Any) -> None:
        self._block += 1
        if self._block < self._layers:
            self._keep(self._block, output[0] if isinstance(output, tuple) else output)

    def _keep(self, layer: int, state: Tensor) -> None:
        if layer in self._wanted:
            self._found[layer] = state
        if layer == self._deepest:
            raise _Enough

    @torch.inference_mode()
    def _check(self, model: nn.Module) -> None:
        """Compare with the library's own hidden states on two texts of three tokens."""
        ids = torch.arange(6, device=next(model.parameters()).device).view(2, 3) % _vocabulary(model)
        inputs = {"input_ids": ids}
        deepest, self._deepest = self._deepest, -1
        self._block = 0
        expected = model(**inputs, output_hidden_states=True).hidden_states
        self._deepest = deepest
        first = next(iter(self.run(model, inputs).values()))
        self._time_first = first.shape[:2] == (3, 2)
        found = self.run(model, inputs)
        for layer in self._wanted:
            if len(expected) != self._layers + 1 or not torch.allclose(found[layer], expected[layer], atol=1e-3):
                raise OptionError(f"{type(model).__name__}: no layer {layer} to read; use a pooler of the last layer")


def _vocabulary(model: nn.Module) -> int:
    embeddings: Any = model.get_input_embeddings()  # type: ignore[operator]
    return embeddings.num_embeddings


def _find_blocks(model: nn.Module, layers: int) -> nn.ModuleList:
    """The list of blocks; ALBERT's is shorter, as its blocks are called again and again."""
    lists = {name: module for name, module in model.named_modules() if isinstance(module, nn.ModuleList)}
    shared = [module for name, module in lists.items() if name.endswith("albert_layer_groups")]
    found = shared or [module for module in lists.values() if len(module) == layers]
    if not found:
        raise OptionError(f"{type(model).__name__}: its blocks were not found; use a pooler of the last layer")
    return found[0]
