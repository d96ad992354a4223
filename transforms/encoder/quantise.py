"""Quantise a model to int8 with OpenVINO's own library, on a sample of texts."""

import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sentence_beam.transforms.base.errors import OptionError, cite, first_line
from sentence_beam.transforms.base.extras import require_package
from sentence_beam.transforms.encoder.batches import plan_batches
from sentence_beam.transforms.encoder.encoder import Encoder
from sentence_beam.transforms.encoder.load import load_model, quiet_transformers
from sentence_beam.transforms.encoder.openvino_pass import INPUTS, import_openvino
from sentence_beam.transforms.encoder.padded import pad_inputs
from sentence_beam.transforms.encoder.tokenize import TextTokenizer
from sentence_beam.transforms.space.int8_model import GRAPH, WEIGHTS, Int8Facts, Int8Model
from sentence_beam.transforms.space.model_files import ModelFiles

TOKENS_PER_BATCH = 512  # of the sample
LIBRARIES = ("openvino", "nncf")


class _States(nn.Module):
    """A model that returns the states of some layers for ids and mask."""

    def __init__(self, model: nn.Module, layers: Sequence[int]) -> None:
        super().__init__()
        self.model = model
        self.layers = layers

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, ...]:
        states = self.model(
            input_ids=input_ids, attention_mask=attention_mask, output_hidden_states=True
        )
        return tuple(states.hidden_states[layer] for layer in self.layers)


def quantise(files: ModelFiles, encoder: Encoder, source: str, texts: Sequence[str]) -> Int8Model:
    """Return an encoder's model with weights and activations in int8, ranges fitted on `texts`.

    `source` is the digest of its float weights. The cosine with float32 is not known yet. Raises
    `MissingExtraError` without OpenVINO, `OptionError` if OpenVINO cannot trace the model.
    """
    openvino = import_openvino()
    nncf = _import_nncf()
    space = encoder.space
    tokenizer = TextTokenizer(files, space.prompt, space.max_tokens, space.pooler["parts"][0])
    layers = tuple(sorted(encoder.replicas[0].pooler.needs.layers))
    batches = list(_make_inputs(tokenizer, texts))
    with _quiet():
        model = load_model(files, "float32", torch.device("cpu"))
        quantised = nncf.quantize(
            _trace(openvino, model, layers, files),
            nncf.Dataset(batches),
            model_type=nncf.ModelType.TRANSFORMER,
            subset_size=len(batches),
        )
    versions = {name: metadata.version(name) for name in LIBRARIES}
    facts = Int8Facts(source, layers, 0.0, 0.0, len(texts), versions)
    return Int8Model(*_save(openvino, quantised), facts)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the warnings of a trace and NNCF's bars, which it draws on standard output."""
    with quiet_transformers(), warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def _import_nncf() -> Any:
    require_package("nncf", "openvino", f"{cite('dtype')} int8")
    import nncf

    logging.getLogger("nncf").setLevel(logging.ERROR)
    return nncf


def _trace(openvino: Any, model: nn.Module, layers: Sequence[int], files: ModelFiles) -> Any:
    ids = torch.ones(2, 8, dtype=torch.long)
    mask = ids.clone()
    mask[1, 5:] = 0  # so that the trace holds the code for padding
    try:
        return openvino.convert_model(
            _States(model, layers), example_input=dict(zip(INPUTS, (ids, mask), strict=True))
        )
    except Exception as error:  # a trace raises whatever the model's code does
        raise OptionError(
            f"{files.folder}: OpenVINO cannot trace {files.family} ({first_line(error)}); say"
            f" {cite('dtype')} float32"
        ) from None


def _make_inputs(tokenizer: TextTokenizer, texts: Sequence[str]) -> Iterator[dict[str, np.ndarray]]:
    for batch in plan_batches(tokenizer(texts), TOKENS_PER_BATCH):
        inputs, _ = pad_inputs(batch, tokenizer)
        yield dict(zip(INPUTS, inputs, strict=True))


def _save(openvino: Any, model: Any) -> tuple[bytes, bytes]:
    """Return the bytes of a model's graph and weights."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / GRAPH
        openvino.save_model(model, path, compress_to_fp16=False)
        return path.read_bytes(), (Path(folder) / WEIGHTS).read_bytes()
