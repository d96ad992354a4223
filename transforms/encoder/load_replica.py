"""Load a copy of the model onto each device, with its pooler and the layers after the pooling."""

import logging
from collections.abc import Mapping, Sequence
from contextlib import nullcontext

import torch

from sentence_beam.transforms.base.cores import Cores
from sentence_beam.transforms.encoder.batch_memory import find_capability
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
from sentence_beam.transforms.space.dtypes import describe_slow_dtype
from sentence_beam.transforms.space.identity import Space
from sentence_beam.transforms.space.int8_model import Int8Model
from sentence_beam.transforms.space.model_files import ModelFiles
from sentence_beam.transforms.space.pooler_spec import PoolerSpec
from sentence_beam.transforms.space.st_layers import StLayer

_LOGGER = logging.getLogger(__name__)


def load_replicas(
    files: ModelFiles,
    space: Space,
    tokenizer: TextTokenizer,
    tables: Mapping[str, TokenStatistics],
    devices: Sequence[torch.device],
    int8: Int8Model | None,
) -> list[Replica]:
    """Load the model of a space on each device; `tables` are token statistics by digest.

    `int8` is the quantised model of a space of that dtype. Logs why a pass is slower than it could
    be. Raises OptionError if its files are damaged, UnfitModelError if it cannot run so.
    """
    replicas = [_load_replica(files, space, tokenizer, tables, device, int8) for device in devices]
    _warn_of_slow_passes(files, space.dtype, replicas)
    return replicas


def _warn_of_slow_passes(files: ModelFiles, dtype: str, replicas: Sequence[Replica]) -> None:
    """Log once, for all devices, why texts are padded or the dtype is a slow one."""
    objections: list[str | None] = []
    for replica in replicas:
        if replica.forward.objection:
            objections.append(f"texts of a batch are padded: {replica.forward.objection}")
        capability = find_capability(replica.device)
        if capability is not None:
            objections.append(describe_slow_dtype(dtype, files.family, capability))
    for warning in dict.fromkeys(filter(None, objections)):
        _LOGGER.warning("%s: %s: %s", files.folder, files.family, warning)


def _load_replica(
    files: ModelFiles,
    space: Space,
    tokenizer: TextTokenizer,
    tables: Mapping[str, TokenStatistics],
    device: torch.device,
    int8: Int8Model | None,
) -> Replica:
    context = torch.cuda.device(device) if device.type == "cuda" else nullcontext()
    with context:
        layers = files.modules.layers if "then" in space.pooler else ()
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
    tokens = modules.tokens if "tokens" in space.pooler else ()
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
    reads_pieces = any(part.name == "remove-biases" for part in spec.parts)
    pieces = tokenizer.pieces if reads_pieces else ()
    cnn = None
    if "cnn" in space.pooler and files.modules.cnn is not None:
        cnn = load_cnn(files.modules.cnn, device)
    return Lexicon(pieces=pieces, around=tokenizer.around, tables=tables, cnn=cnn)
