"""Poolers: packed token states of a transformer -> one vector a sentence. Pure torch."""

from transforms.pooling.build import Lexicon, build_pooler
from transforms.pooling.pooler import Needs, Pooler
from transforms.pooling.states import BareMask, ModelShape, Pooled, Status, TokenStates
from transforms.pooling.token_statistics import TokenStatistics

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
