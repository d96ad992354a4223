"""Poolers: packed token states of a transformer -> one vector a sentence. Pure torch."""

from sentence_beam.transforms.pooling.build_pooler import Lexicon, build_pooler
from sentence_beam.transforms.pooling.pooler import Needs, Pooler
from sentence_beam.transforms.pooling.states import (
    BareMask,
    ModelShape,
    Pooled,
    Status,
    TokenStates,
)
from sentence_beam.transforms.pooling.token_statistics import TokenStatistics

__all__ = [
    "BareMask",
    "Lexicon",
    "ModelShape",
    "Needs",
    "Pooled",
    "Pooler",
    "Status",
    "TokenStates",
    "TokenStatistics",
    "build_pooler",
]
