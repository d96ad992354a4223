"""The databases that are pushed into."""

from helpers.push_fixtures import quick, shared, store, to

__all__ = ["quick", "shared", "store", "to"]
