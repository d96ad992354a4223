"""Load a copy of the model onto a device, with its pooler and the layers after the pooling."""

from collections.abc import Mapping
from contextlib import nullcontext

import torch

from sentence_beam.transforms.base.cores import Cores
from sentence_beam.transforms.encoder.forward import Forward
from sentence_beam.transforms.encoder.load import (
    load_cnn,
    load_layers,
    load_mix,
    load_model,
    load_token_layers,
)
from sentence_beam.transforms.encoder.openvino_pass import OpenVinoForward
from sentence_beam.transforms.encoder.replica import Replica
from sentence_beam.transforms.encoder.tokenize import TextTokenizer
from sentence_beam.transforms.pooling.build_pooler import Lexicon, build_pooler
from sentence_beam.transforms.pooling.pooler import MixedLayers, Needs, OverTokenLayers, Pooler
from sentence_beam.transforms.pooling.states import ModelShape
from sentence_beam.transforms.pooling.token_statistics import TokenStatistics
from sentence_beam.transforms.space.identity import Space
from sentence_beam.transforms.space.int8_model import Int8Model
from sentence_beam.transforms.space.model_files import ModelFiles
from sentence_beam.transforms.space.pooler_spec import PoolerSpec
from sentence_beam.transforms.space.st_layers import StLayer


def load_replica(
    files: ModelFiles,
    space: Space,
    tokenizer: TextTokenizer,
    tables: Mapping[str, TokenStatistics],
    device: torch.device,
    int8: Int8Model | None = None,
) -> Replica:
    """Load the model of a space; `tables` are token statistics by digest.

    `int8` is the quantised model of a space of that dtype.

    Raises OptionError if its files are damaged, UnfitModelError if it cannot run so.
    """
    context = torch.cuda.device(device) if device.type == "cuda" else nullcontext()
    with context:
        layers: tuple[StLayer, ...] = ()
        if "then" in space.pooler:
            layers = files.modules.layers
        pooler = load_pooler(files, space, tokenizer, tables, device)
        if int8 is not None:
            quantised = OpenVinoForward(int8, tokenizer, pooler.needs)
            return Replica(device, quantised, pooler, load_layers(layers, device))
        forward = _load_forward(files, space, tokenizer, pooler.needs, device)
        return Replica(device, forward, pooler, load_layers(layers, device))


def _load_forward(
    files: ModelFiles, space: Space, tokenizer: TextTokenizer, needs: Needs, device: torch.device
) -> Forward:
    """Load the model, and test how it takes short texts."""
    states_alone = not needs.heads and not needs.bare_mask

    def load() -> Forward:
        model = load_model(files, space.dtype, device, states_alone)
        return Forward(files, model, tokenizer, needs)

    if device.type == "cpu" and files.is_small:
        # several cores would mostly wait for each other, which takes seconds on a busy machine
        return Cores().run(load)
    return load()


def load_pooler(
    files: ModelFiles,
    space: Space,
    tokenizer: TextTokenizer,
    tables: Mapping[str, TokenStatistics],
    device: torch.device,
) -> Pooler:
    """Build the pooler of a space on a device, with the layers below it that the model trained."""
    spec = PoolerSpec.from_json(space.pooler)
    modules = files.modules
    tokens: tuple[StLayer, ...] = ()
    if "tokens" in space.pooler:
        tokens = modules.tokens
    lexicon = _make_lexicon(files, spec, space, tokenizer, tables, device)
    pooler = build_pooler(spec, _make_shape(files, tokens), lexicon)
    if tokens:
        pooler = OverTokenLayers(pooler, files.layers, load_token_layers(tokens, device))
    if "mix" in space.pooler and modules.mix is not None:
        start = modules.mix.parameters["start"]
        pooler = MixedLayers(pooler, start, files.layers, load_mix(modules.mix))
    return pooler


def _make_shape(files: ModelFiles, tokens: tuple[StLayer, ...]) -> ModelShape:
    """Return the shape of the states that the pooler reads, after the `tokens` layers."""
    hidden = tokens[-1].parameters["dim"] if tokens else files.hidden
    return ModelShape(
        layers=files.layers,
        hidden=hidden,
        embedding=files.embedding,
        has_pooler_head=files.has_pooler_head,
        heads=files.heads,
        has_cnn_head=files.has_cnn_head,
    )


def _make_lexicon(
    files: ModelFiles,
    spec: PoolerSpec,
    space: Space,
    tokenizer: TextTokenizer,
    tables: Mapping[str, TokenStatistics],
    device: torch.device,
) -> Lexicon:
    pieces: tuple[str, ...] = ()
    if any(part.name == "remove-biases" for part in spec.parts):
        pieces = tokenizer.pieces
    cnn = None
    if "cnn" in space.pooler and files.modules.cnn is not None:
        cnn = load_cnn(files.modules.cnn, device)
    return Lexicon(pieces=pieces, around=tokenizer.around, tables=tables, cnn=cnn)
