"""Poolers: packed token states of a transformer -> one vector a sentence. Pure torch."""

from transforms.pooling.build import build_pooler
from transforms.pooling.needs import Needs
from transforms.pooling.pooler import Pooler
from transforms.pooling.states import ModelShape, Pooled, Status, TokenStates

__all__ = ["ModelShape", "Needs", "Pooled", "Pooler", "Status", "TokenStates", "build_pooler"]
