"""A tiny model."""

from helpers.fixtures import model

__all__ = ["model"]
