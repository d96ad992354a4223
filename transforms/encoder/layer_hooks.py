"""Hooks that read the hidden states of chosen layers and heads, and stop the model after the
deepest of them.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from transforms.base.errors import SentenceBeamError, UnfitModelError, first_line
from transforms.encoder.own_attention import listen
from transforms.pooling.pooler import Needs

TIME_FIRST = frozenset(("xlnet",))  # families whose states are [T, B, H] inside


class _DeepestReached(Exception):
    """Raised inside a forward pass to end it, when no further block is needed."""


@dataclass(frozen=True)
class LayerStates:
    """The states of layers by number, and each token's attention to itself by (block, head), both
    from 1.
    """

    layers: dict[int, Tensor] = field(default_factory=dict)
    heads: dict[tuple[int, int], Tensor] = field(default_factory=dict)


class _Pass(threading.local):
    """The states that one thread's forward pass has found, and the number of blocks it has run."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.found, self.block = LayerStates(), 0

    def end(self) -> LayerStates:
        found, self.found = self.found, LayerStates()
        return found


class LayerHooks:
    """Hooks on the blocks of one model: layer 0 is what enters block 1, layer l what leaves block
    l.

    The model's last layer is its `last_hidden_state`, so that a final norm is included. Nothing
    above the deepest layer or head asked for is run. Threads may pass at the same time.
    """

    def __init__(self, models: Sequence[nn.Module], needs: Needs, layers: int) -> None:
        self._needs, self._layers = needs, layers
        # where each is found: attention of block l comes between layers l - 1 and l
        places = [2 * layer for layer in needs.layers] + [2 * block - 1 for block, _ in needs.heads]
        self._deepest = max(places)
        self._pass = _Pass()
        model: Any = models[-1]
        self._time_first = model.config.model_type in TIME_FIRST
        if needs.layers != {layers} or needs.heads:
            self._hook_and_check(models)

    def run(self, model: nn.Module, inputs: dict[str, Tensor]) -> LayerStates:
        """The states [B, T, H] of each needed layer, and the own attention [B, T] float32 of each
        needed head.
        """
        self._pass.start()
        try:
            last = model(**inputs).last_hidden_state
        except _DeepestReached:
            last = None
        found = self._pass.end()
        if self._time_first:
            found = LayerStates(
                {layer: state.transpose(0, 1) for layer, state in found.layers.items()}, found.heads
            )
        # Longformer and BigBird fill texts up inside to whole windows
        width = inputs["input_ids"].shape[1]
        layers = {layer: state[:, :width] for layer, state in found.layers.items()}
        heads = {head: own[:, :width] for head, own in found.heads.items()}
        return LayerStates(layers if last is None else {**layers, self._layers: last}, heads)

    def _hook_and_check(self, models: Sequence[nn.Module]) -> None:
        """Raises `OptionError` where a model's blocks cannot be read."""
        model = models[-1]
        name = type(model).__name__
        try:
            expected = _expected_heads(model, self._needs)
            for each in models:
                self._hook(_find_blocks(each, self._layers))
            self._check(model, expected)
        except SentenceBeamError:
            raise
        except Exception as error:  # models raise every kind for what they do not have
            reason = first_line(error)
            raise UnfitModelError(
                f"{name}: its blocks cannot be read ({reason}); use mean or another pooler"
            ) from None

    def _hook(self, blocks: nn.ModuleList) -> None:
        wanted = {block for block, _ in self._needs.heads}
        for number, block in enumerate(blocks, start=1):
            block.register_forward_pre_hook(self._before, with_kwargs=True)
            block.register_forward_hook(self._after)
            # where blocks are shared between layers, a block's number says nothing
            if number in wanted or (wanted and len(blocks) < self._layers):
                listen(block, self._attending, self._time_first)

    def _before(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._pass.block == 0:
            self._keep(0, args[0] if args else kwargs["hidden_states"])

    def _after(self, _: nn.Module, __: Any, output: Any) -> None:
        self._pass.block += 1
        if self._pass.block < self._layers:
            self._keep(self._pass.block, output[0] if isinstance(output, tuple) else output)

    def _keep(self, layer: int, state: Tensor) -> None:
        if layer in self._needs.layers:
            self._pass.found.layers[layer] = state
        if 2 * layer == self._deepest:
            raise _DeepestReached

    def _attending(self, of_head: Callable[[int], Tensor]) -> None:
        number = self._pass.block + 1
        for block, head in self._needs.heads:
            if block == number:
                self._pass.found.heads[block, head] = of_head(head)
        if 2 * number - 1 == self._deepest:
            raise _DeepestReached

    @torch.inference_mode()
    def _check(self, model: nn.Module, heads: dict[tuple[int, int], Tensor]) -> None:
        """Refuse a model whose hooks do not give its hidden states and eager attention for two
        probe texts.
        """
        inputs = _probe(model)
        deepest, self._deepest = self._deepest, -1
        self._pass.start()
        layers = model(**inputs, output_hidden_states=True).hidden_states
        self._deepest = deepest
        _check_finite(model, [*layers, *heads.values()])
        found = self.run(model, inputs)
        for layer in self._needs.layers:
            if len(layers) != self._layers + 1 or not torch.allclose(
                found.layers[layer], layers[layer], atol=1e-3
            ):
                raise UnfitModelError(
                    f"{type(model).__name__}: no layer {layer} to read; use a pooler of the last"
                    " layer"
                )
        for (block, head), expected in heads.items():
            # bfloat16 rounds scores to 3 digits; another head or a missing bias is off by far more
            if not torch.allclose(found.heads[block, head], expected, rtol=0.05, atol=5e-3):
                raise UnfitModelError(
                    f"{type(model).__name__}: head {block}-{head} cannot be read; use another"
                    " pooler"
                )


def _check_finite(model: Any, states: list[Tensor]) -> None:
    if not all(bool(torch.isfinite(state).all()) for state in states):
        mend = (
            "; use another model"
            if model.dtype == torch.float32
            else f" in {model.dtype}; say --dtype float32"
        )
        raise UnfitModelError(f"{model.name_or_path}: its states are not finite{mend}")


def _probe(model: nn.Module) -> dict[str, Tensor]:
    ids = torch.arange(6, device=next(model.parameters()).device).view(2, 3) % _vocabulary(model)
    return {"input_ids": ids}


@torch.inference_mode()
def _expected_heads(model: Any, needs: Needs) -> dict[tuple[int, int], Tensor]:
    """The own attention of the needed heads, [2, 3] float32 each, by the library's eager
    attention.
    """
    if not needs.heads:
        return {}
    usual = model.config._attn_implementation
    model.set_attn_implementation("eager")
    attention = model(**_probe(model), output_attentions=True).attentions
    model.set_attn_implementation(usual)
    maps = {(block, head): attention[block - 1][:, head - 1] for block, head in needs.heads}
    return {key: found.diagonal(dim1=1, dim2=2).float() for key, found in maps.items()}


def _vocabulary(model: nn.Module) -> int:
    return model.get_input_embeddings().weight.shape[0]  # type: ignore[operator]


def _find_blocks(model: nn.Module, layers: int) -> nn.ModuleList:
    """The model's list of blocks; ALBERT's has fewer than `layers`, as its blocks are called
    repeatedly.
    """
    lists = {
        name: module for name, module in model.named_modules() if isinstance(module, nn.ModuleList)
    }
    shared = [module for name, module in lists.items() if name.endswith("albert_layer_groups")]
    found = shared or [module for module in lists.values() if len(module) == layers]
    if not found:
        raise UnfitModelError(
            f"{type(model).__name__}: its blocks were not found; use a pooler of the last layer"
        )
    return found[0]
