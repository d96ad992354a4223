"""The pooler of a space: what its SPEC describes, with the trained layers that the model's folder
has for it.
"""

from collections.abc import Mapping

import torch

from transforms.encoder.load import load_cnn, load_mix, load_token_layers
from transforms.encoder.tokenize import TextTokenizer
from transforms.pooling.build import Lexicon, build_pooler
from transforms.pooling.pooler import MixedLayers, OverTokenLayers, Pooler
from transforms.pooling.states import ModelShape
from transforms.pooling.token_statistics import TokenStatistics
from transforms.space.identity import Space
from transforms.space.model_files import ModelFiles
from transforms.space.spec import PoolerSpec


def load_pooler(
    files: ModelFiles,
    space: Space,
    tokenizer: TextTokenizer,
    tables: Mapping[str, TokenStatistics],
    device: torch.device,
) -> Pooler:
    """The pooler on a device; `tables` are token statistics by digest."""
    spec, modules, described = PoolerSpec.from_json(space.pooler), files.modules, space.pooler
    tokens = modules.tokens if "tokens" in described else ()
    shape = ModelShape(
        layers=files.layers,
        hidden=tokens[-1].parameters["dim"] if tokens else files.hidden,
        embedding=files.embedding,
        has_pooler_head=files.has_pooler_head,
        heads=files.heads,
        has_cnn_head=files.has_cnn_head,
    )
    lexicon = Lexicon(
        pieces=tokenizer.pieces if any(part.name == "remove-biases" for part in spec.parts) else (),
        around=tokenizer.around,
        tables=tables,
        cnn=load_cnn(modules.cnn, device)
        if "cnn" in described and modules.cnn is not None
        else None,
    )
    pooler = build_pooler(spec, shape, lexicon)
    if tokens:
        pooler = OverTokenLayers(pooler, files.layers, load_token_layers(tokens, device))
    if "mix" in described and modules.mix is not None:
        pooler = MixedLayers(
            pooler, modules.mix.parameters["start"], files.layers, load_mix(modules.mix)
        )
    return pooler
