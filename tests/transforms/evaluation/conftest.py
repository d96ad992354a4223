"""The commands to make stores and calibrations with."""

from helpers.fixtures import run

__all__ = ["run"]
