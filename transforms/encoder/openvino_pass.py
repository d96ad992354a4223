"""The forward pass of a quantised model in OpenVINO: padded batches on the cores of a CPU."""

import threading
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sentence_beam.transforms.base.errors import OptionError, cite, first_line
from sentence_beam.transforms.base.extras import require_package
from sentence_beam.transforms.encoder.batches import Batch
from sentence_beam.transforms.encoder.padded import pad_inputs
from sentence_beam.transforms.encoder.probe import BatchSharing
from sentence_beam.transforms.encoder.tokenize import TextTokenizer
from sentence_beam.transforms.pooling.pooler import Needs
from sentence_beam.transforms.pooling.states import TokenStates
from sentence_beam.transforms.space.int8_model import Int8Model

INPUTS = ("input_ids", "attention_mask")


class OpenVinoForward:
    """A quantised model's pass up to the layers that a pooler needs, as `Forward` has it.

    Each thread has a request of its own, so that batches run side by side, one a core. Raises
    `OptionError` if the model was made for other layers or OpenVINO cannot read it.
    """

    together = BatchSharing.PADDED
    objection = ""
    is_causal = False
    token_bytes = 0

    def __init__(self, model: Int8Model, tokenizer: TextTokenizer, needs: Needs) -> None:
        if not needs.layers <= frozenset(model.facts.layers):
            raise OptionError(
                f"the quantised model returns the layers {model.facts.layers}, the pooler needs"
                f" {sorted(needs.layers)}; embed everything again with {cite('reembed=True')}"
            )
        self._layers = model.facts.layers
        self._tokenizer = tokenizer
        self._compiled = _compile(model)
        self._requests = threading.local()
        self._special = tokenizer.special_ids

    def __call__(self, batch: Batch) -> TokenStates:
        """Return the token states of the batch's texts, in its order."""
        inputs, real = pad_inputs(batch, self._tokenizer)
        named = dict(zip(INPUTS, inputs, strict=True))
        results = self._get_request().infer(named, share_outputs=True)
        hidden = {
            layer: _pack(torch.from_numpy(results[place]), real)
            for place, layer in enumerate(self._layers)
        }
        return TokenStates(
            hidden=hidden,
            token_ids=torch.from_numpy(batch.ids),
            offsets=torch.from_numpy(batch.offsets),
            keep=torch.ones(len(batch.ids), dtype=torch.bool),
            special=torch.from_numpy(np.isin(batch.ids, self._special)),
            prompt_tokens=self._tokenizer.prompt_tokens,
        )

    def _get_request(self) -> Any:
        request = getattr(self._requests, "request", None)
        if request is None:
            request = self._compiled.create_infer_request()
            self._requests.request = request
        return request


def _pack(states: Tensor, real: np.ndarray | None) -> Tensor:
    """Return the states [N, H] of real tokens, of padded ones [B, T, H]; a copy."""
    flat = states.flatten(0, 1)
    return flat.clone() if real is None else flat.index_select(0, torch.from_numpy(real))


def _compile(model: Int8Model) -> Any:
    """Compile a model for as many streams, of one core each, as torch may use cores."""
    openvino = import_openvino()
    core = openvino.Core()
    cores = torch.get_num_threads()
    # pinned threads of several workers on one machine would share the first cores
    settings = {
        "NUM_STREAMS": str(cores),
        "INFERENCE_NUM_THREADS": str(cores),
        "ENABLE_CPU_PINNING": "NO",
    }
    try:
        graph = core.read_model(model=model.graph, weights=model.weights)
        return core.compile_model(graph, "CPU", settings)
    except RuntimeError as error:
        raise OptionError(
            f"OpenVINO cannot run the quantised model ({first_line(error)}); install the version"
            f" that made it ({dict(model.facts.versions)}), or embed again with"
            f" {cite('reembed=True')}"
        ) from None


def import_openvino() -> Any:
    """Return OpenVINO. Raises MissingExtraError without it."""
    require_package("openvino", "openvino", f"{cite('dtype')} int8")
    import openvino

    return openvino
