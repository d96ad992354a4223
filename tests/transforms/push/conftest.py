"""Commands, and the databases that are pushed into."""

from helpers.fixtures import run
from helpers.push_fixtures import quick, shared, store, to

__all__ = ["quick", "run", "shared", "store", "to"]
