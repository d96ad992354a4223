"""A tiny model, and the commands to make stores with it."""

from helpers.fixtures import model, one_model, run

__all__ = ["model", "one_model", "run"]
