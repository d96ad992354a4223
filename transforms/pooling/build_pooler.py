"""Building the pooler that a SPEC describes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.pooling.cnn import Cnn, CnnNetwork
from sentence_beam.transforms.pooling.ditto import Ditto
from sentence_beam.transforms.pooling.pooler import Concat, Pooler
from sentence_beam.transforms.pooling.remove_biases import (
    NOTHING_LEFT,
    ReferenceRemoveBiases,
    RemoveBiases,
    has_capitals,
    is_sign,
    mark_most_frequent,
    mark_word_insides,
)
from sentence_beam.transforms.pooling.sbert_wk import SbertWk
from sentence_beam.transforms.pooling.sif import Sif, smooth_inverse_frequencies
from sentence_beam.transforms.pooling.simple import (
    FirstToken,
    LastToken,
    Max,
    Mean,
    MeanSqrtLen,
    Prompt,
    StaticMean,
    TanhHead,
    TwoLayerMean,
    WeightedMean,
)
from sentence_beam.transforms.pooling.states import ModelShape
from sentence_beam.transforms.pooling.tfidf import TfIdf, inverse_frequencies
from sentence_beam.transforms.pooling.token_statistics import TokenStatistics
from sentence_beam.transforms.space.pooler_spec import PoolerPart, PoolerSpec
from sentence_beam.transforms.space.poolers import fit_part, read_attention_head


@dataclass(frozen=True)
class Lexicon:
    """The data from which some poolers are built, besides the sizes of the model.

    `pieces`: the vocabulary by id; `around`: ids that the tokenizer puts around a text; `tables`:
    token statistics by digest; `cnn`: the trained network of the model's CNN head.
    """

    pieces: tuple[str, ...] = ()
    around: frozenset[int] = frozenset()
    tables: Mapping[str, TokenStatistics] = field(default_factory=dict)
    cnn: CnnNetwork | None = None


def build_pooler(spec: PoolerSpec, shape: ModelShape, lexicon: Lexicon | None = None) -> Pooler:
    """Return the pooler of a resolved SPEC for a model of this shape.

    Raises OptionError if the model cannot serve it.
    """
    if spec.is_auto:
        raise OptionError(
            "pooler auto means the model's own modules; resolve it to a pooler by name first"
        )
    lexicon = lexicon or Lexicon()
    built = tuple(_build_part(part, shape, lexicon) for part in spec.parts)
    return built[0] if len(built) == 1 else Concat(built, spec.dim(shape.hidden, shape.embedding))


def _build_part(part: PoolerPart, shape: ModelShape, lexicon: Lexicon) -> Pooler:
    part = fit_part(part, shape, "the model")
    if part.name in _WITH_LEXICON:
        return _WITH_LEXICON[part.name](part, shape, lexicon)
    return _BUILDERS[part.name](part, shape)


def _read_layer(part: PoolerPart, shape: ModelShape) -> int:
    layer = dict(part.options).get("layer", "last")
    return shape.layers if layer == "last" else int(layer)


def _read_count(part: PoolerPart) -> str:
    return str(part.option("count"))


def _build_one_layer(kind: Callable[..., Pooler]) -> Callable[[PoolerPart, ModelShape], Pooler]:
    return lambda part, shape: kind(_read_layer(part, shape), shape.hidden, _read_count(part))


def _build_weighted_mean(part: PoolerPart, shape: ModelShape) -> Pooler:
    rank = str(part.option("rank"))
    return WeightedMean(_read_layer(part, shape), shape.hidden, _read_count(part), rank)


def _build_static(part: PoolerPart, shape: ModelShape) -> Pooler:
    if part.option("from") == "raw":
        return StaticMean(shape.embedding, _read_count(part))
    return Mean(0, shape.hidden, _read_count(part))


def _build_first_last(part: PoolerPart, shape: ModelShape) -> Pooler:
    first = 0 if part.option("first") == "embeddings" else 1
    return TwoLayerMean(first, shape.layers, shape.hidden, _read_count(part))


def _build_last2(part: PoolerPart, shape: ModelShape) -> Pooler:
    return TwoLayerMean(shape.layers - 1, shape.layers, shape.hidden, _read_count(part))


def _build_ditto(part: PoolerPart, shape: ModelShape) -> Pooler:
    choices = {"first-last": (0, shape.layers), "last": (shape.layers,), "static": ()}
    layers = choices[str(part.option("states"))]
    width = shape.hidden if layers else shape.embedding
    return Ditto(
        read_attention_head(part), layers, width, str(part.option("scale")), _read_count(part)
    )


def _build_sbert_wk(part: PoolerPart, shape: ModelShape) -> Pooler:
    return SbertWk(
        start=int(part.option("start")),
        last=shape.layers,
        dim=shape.hidden,
        window=int(part.option("window")),
        weights=str(part.option("weights")),
        variant=str(part.option("variant")),
        importance=str(part.option("importance")),
        count=_read_count(part),
        mix=float(part.option("mix")),
        tokens=str(part.option("tokens")),
    )


def _build_prompt(part: PoolerPart, shape: ModelShape) -> Pooler:
    return Prompt(shape.layers, shape.hidden, part.option("denoise") == "yes")


def _build_tfidf(part: PoolerPart, shape: ModelShape, lexicon: Lexicon) -> Pooler:
    table = _find_table(part, lexicon)
    idf = inverse_frequencies(table, str(part.option("idf")), str(part.option("unseen")))
    return TfIdf(
        idf,
        (0, shape.layers),
        shape.hidden,
        scale=str(part.option("scale")),
        count=_read_count(part),
        weight=str(part.option("weight")),
    )


def _build_sif(part: PoolerPart, shape: ModelShape, lexicon: Lexicon) -> Pooler:
    weights = smooth_inverse_frequencies(_find_table(part, lexicon), float(part.option("a")))
    if part.option("states") == "last":
        return Sif(weights, (shape.layers,), shape.hidden, _read_count(part))
    return Sif(weights, (), shape.embedding, _read_count(part))


def _build_remove_biases(part: PoolerPart, shape: ModelShape, lexicon: Lexicon) -> Pooler:
    if part.option("variant") == "reference":
        if NOTHING_LEFT not in lexicon.pieces:
            raise OptionError(
                f"pooler 'remove-biases': the tokenizer has no {NOTHING_LEFT}; give a PATH of "
                "token counts"
            )
        padding = lexicon.pieces.index(NOTHING_LEFT)
        return ReferenceRemoveBiases(lexicon.around, padding, shape.embedding)
    pieces = lexicon.pieces
    dropped = np.zeros(len(pieces), dtype=bool)
    if part.table is not None:
        dropped |= mark_most_frequent(_find_table(part, lexicon).counts, int(part.option("top")))
    if part.option("punctuation") == "remove":
        dropped |= np.array([is_sign(piece) for piece in pieces], dtype=bool)
    if part.option("case") == "drop":
        dropped |= np.array([has_capitals(piece) for piece in pieces], dtype=bool)
    removes_insides = part.option("subwords") == "remove"
    inside = mark_word_insides(pieces) if removes_insides else np.zeros(len(pieces), dtype=bool)
    return RemoveBiases(torch.from_numpy(dropped), torch.from_numpy(inside), shape.embedding)


def _build_cnn(part: PoolerPart, shape: ModelShape, lexicon: Lexicon) -> Pooler:
    if lexicon.cnn is None:
        raise OptionError(f"pooler '{part}': the trained network was not given")
    return Cnn(shape.layers, shape.hidden, network=lexicon.cnn)


def _find_table(part: PoolerPart, lexicon: Lexicon) -> TokenStatistics:
    if part.table is None or part.table not in lexicon.tables:
        raise OptionError(
            f"pooler '{part}': its token statistics were not given; name the folder they are in"
        )
    return lexicon.tables[part.table]


_WITH_LEXICON: dict[str, Callable[[PoolerPart, ModelShape, Lexicon], Pooler]] = {
    "tfidf": _build_tfidf,
    "sif": _build_sif,
    "remove-biases": _build_remove_biases,
    "cnn": _build_cnn,
}
_BUILDERS: dict[str, Callable[[PoolerPart, ModelShape], Pooler]] = {
    "mean": _build_one_layer(Mean),
    "cls": _build_one_layer(FirstToken),
    "cls-tanh": _build_one_layer(TanhHead),
    "max": _build_one_layer(Max),
    "mean-sqrt-len": _build_one_layer(MeanSqrtLen),
    "last-token": _build_one_layer(LastToken),
    "weighted-mean": _build_weighted_mean,
    "static": _build_static,
    "first-last": _build_first_last,
    "last2": _build_last2,
    "ditto": _build_ditto,
    "sbert-wk": _build_sbert_wk,
    "prompt": _build_prompt,
}
