"""Ranges of keys: input files, their units and their shards, in the order of a hash of their names.

Units and shards of a file begin with its key, so that one listing has the shards of a range.
"""

from dataclasses import dataclass

from sentence_beam.transforms.corpus.files import key_of

AFTER = "\x7f"  # comes after every character of a unit's name


@dataclass(frozen=True)
class KeyRange:
    """Keys from `low` up to, but not including, `high`; "" is no bound."""

    low: str = ""
    high: str = ""

    def has(self, name: str) -> bool:
        """Return whether a key, or the name of a unit or shard that begins with one, lies in it.

        >>> KeyRange("2a", "4").has("2a00000000000000-000000000007"), KeyRange("2a", "4").has("4")
        (True, False)
        """
        return self.low <= name and not (self.high and name >= self.high)

    def has_file(self, relative: str) -> bool:
        """Return whether the key of an input file lies in it."""
        return self.has(key_of(relative))

    def meets(self, first: str, last: str) -> bool:
        """Return whether names from `first` to `last` may lie in it.

        >>> KeyRange("2a", "4").meets("1", "2b"), KeyRange("2a", "4").meets("4", "5")
        (True, False)
        """
        return self.low <= last and not (self.high and first >= self.high)

    @property
    def is_all(self) -> bool:
        """Whether it has no bound."""
        return not (self.low or self.high)

    @property
    def is_empty(self) -> bool:
        """Whether no key lies in it."""
        return bool(self.high) and self.low >= self.high


ALL_KEYS = KeyRange()
NO_KEYS = KeyRange("0", "0")
