"""Hooks that read the states of chosen layers and heads, and stop the model after the deepest."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from sentence_beam.transforms.base.errors import (
    SentenceBeamError,
    UnfitModelError,
    cite,
    first_line,
)
from sentence_beam.transforms.encoder.own_attention import listen
from sentence_beam.transforms.pooling.pooler import Needs

TIME_FIRST = frozenset(("xlnet",))  # families whose states are [T, B, H] inside


class _DeepestReached(Exception):
    """Raised inside a forward pass to end it when no further block is needed."""


@dataclass(frozen=True)
class LayerStates:
    """States of layers by number, and each token's attention to itself by (block, head), from 1."""

    layers: dict[int, Tensor] = field(default_factory=dict)
    heads: dict[tuple[int, int], Tensor] = field(default_factory=dict)

    def map(self, change: Callable[[Tensor], Tensor]) -> "LayerStates":
        """Return the results of a function of each tensor."""
        layers = {layer: change(state) for layer, state in self.layers.items()}
        return LayerStates(layers, {head: change(own) for head, own in self.heads.items()})


class _Pass(threading.local):
    """The states that a thread's forward pass has read, and the number of blocks it has run."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.states = LayerStates()
        self.block = 0

    def end(self) -> LayerStates:
        states = self.states
        self.states = LayerStates()
        return states


class LayerHooks:
    """Hooks on the blocks of a model: layer 0 enters block 1, layer l leaves block l.

    The model's last layer is its `last_hidden_state`, so that a final norm is included. Nothing
    above the deepest needed layer or head is run. Threads may run passes at the same time.
    """

    def __init__(self, models: Sequence[nn.Module], needs: Needs, layers: int) -> None:
        self._needs = needs
        self._layers = layers
        # order in a pass: the attention of block l is between layers l - 1 and l
        places = [2 * layer for layer in needs.layers]
        places += [2 * block - 1 for block, _ in needs.heads]
        self._deepest = max(places)
        self.running = _Pass()
        model: Any = models[-1]
        self._time_first = model.config.model_type in TIME_FIRST
        if needs.layers != {layers} or needs.heads:
            self._hook_and_check(models)

    def run(self, model: nn.Module, inputs: dict[str, Tensor]) -> LayerStates:
        """Return the states [B, T, H] of needed layers, own attention [B, T] float32 of heads."""
        self.running.start()
        try:
            last = model(**inputs).last_hidden_state
        except _DeepestReached:
            last = None
        finally:
            states = self.running.end()  # a pass that fails must not keep a GPU's memory
        layers = states.layers
        if self._time_first:
            layers = {layer: state.transpose(0, 1) for layer, state in layers.items()}
        # Longformer and BigBird pad texts to whole windows
        width = inputs["input_ids"].shape[1]
        states = LayerStates(layers, states.heads).map(lambda state: state[:, :width])
        if last is not None:
            states.layers[self._layers] = last
        return states

    def _hook_and_check(self, models: Sequence[nn.Module]) -> None:
        """Raise `OptionError` if a model's blocks cannot be read."""
        model = models[-1]
        name = type(model).__name__
        try:
            expected = _compute_heads(model, self._needs)
            for each in models:
                self._hook(_find_blocks(each, self._layers))
            self._check(model, expected)
        except SentenceBeamError:
            raise
        except Exception as error:  # models raise any type for what they do not have
            reason = first_line(error)
            raise UnfitModelError(
                f"{name}: its blocks cannot be read ({reason}); use mean or another pooler"
            ) from None

    def _hook(self, blocks: nn.ModuleList) -> None:
        wanted = {block for block, _ in self._needs.heads}
        is_shared = len(blocks) < self._layers  # a block of several layers has no number
        for number, block in enumerate(blocks, start=1):
            block.register_forward_pre_hook(self._keep_input, with_kwargs=True)
            block.register_forward_hook(self._keep_output)
            if number in wanted or (wanted and is_shared):
                listen(block, self._keep_own_attention, self._time_first)

    def _keep_input(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.running.block == 0:
            state = args[0] if args else kwargs["hidden_states"]
            self._keep(0, state)

    def _keep_output(self, _: nn.Module, __: Any, output: Any) -> None:
        self.running.block += 1
        if self.running.block < self._layers:
            state = output[0] if isinstance(output, tuple) else output
            self._keep(self.running.block, state)

    def _keep(self, layer: int, state: Tensor) -> None:
        if layer in self._needs.layers:
            self.running.states.layers[layer] = state
        if 2 * layer == self._deepest:
            raise _DeepestReached

    def _keep_own_attention(self, of_head: Callable[[int], Tensor]) -> None:
        number = self.running.block + 1
        for block, head in self._needs.heads:
            if block == number:
                self.running.states.heads[block, head] = of_head(head)
        if 2 * number - 1 == self._deepest:
            raise _DeepestReached

    @torch.inference_mode()
    def _check(self, model: nn.Module, heads: dict[tuple[int, int], Tensor]) -> None:
        """Raise UnfitModelError if the hooks do not read the model's own states and attention."""
        inputs = _probe(model)
        deepest = self._deepest
        self._deepest = -1
        self.running.start()
        layers = model(**inputs, output_hidden_states=True).hidden_states
        self._deepest = deepest
        _check_finite(model, [*layers, *heads.values()])
        states = self.run(model, inputs)
        name = type(model).__name__
        for layer in self._needs.layers:
            has_all = len(layers) == self._layers + 1
            if not has_all or not torch.allclose(states.layers[layer], layers[layer], atol=1e-3):
                raise UnfitModelError(
                    f"{name}: no layer {layer} to read; use a pooler of the last layer"
                )
        for (block, head), expected in heads.items():
            # bfloat16 rounds scores to 3 digits; another head or a missing bias differs far more
            if not torch.allclose(states.heads[block, head], expected, rtol=0.05, atol=5e-3):
                raise UnfitModelError(
                    f"{name}: head {block}-{head} cannot be read; use another pooler"
                )


def _check_finite(model: Any, states: list[Tensor]) -> None:
    if all(bool(torch.isfinite(state).all()) for state in states):
        return
    mend = "; use another model"
    if model.dtype != torch.float32:
        mend = f" in {model.dtype}; say {cite('dtype')} float32"
    raise UnfitModelError(f"{model.name_or_path}: its states are not finite{mend}")


def _probe(model: Any) -> dict[str, Tensor]:
    vocabulary = model.get_input_embeddings().weight.shape[0]
    ids = torch.arange(6, device=next(model.parameters()).device).view(2, 3) % vocabulary
    return {"input_ids": ids}


@torch.inference_mode()
def _compute_heads(model: Any, needs: Needs) -> dict[tuple[int, int], Tensor]:
    """Compute the own attention of the needed heads by eager attention, [2, 3] float32 each."""
    if not needs.heads:
        return {}
    usual = model.config._attn_implementation
    model.set_attn_implementation("eager")
    attention = model(**_probe(model), output_attentions=True).attentions
    model.set_attn_implementation(usual)
    maps = {(block, head): attention[block - 1][:, head - 1] for block, head in needs.heads}
    return {key: scores.diagonal(dim1=1, dim2=2).float() for key, scores in maps.items()}


def _find_blocks(model: nn.Module, layers: int) -> nn.ModuleList:
    """Return the model's list of blocks; ALBERT calls each of its few blocks for several layers."""
    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and name.endswith("albert_layer_groups"):
            return module
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == layers:
            return module
    raise UnfitModelError(
        f"{type(model).__name__}: its blocks were not found; use a pooler of the last layer"
    )
