"""How records of units are written where they travel: packed, since a large run has a million of
them.
"""

import apache_beam as beam

from transforms.store.records import UnitRecord
from transforms.store.runs.packed import pack, unpack


class UnitRecordCoder(beam.coders.Coder):
    """A UnitRecord as `pack` writes it."""

    def encode(self, value: UnitRecord) -> bytes:
        return pack(value)

    def decode(self, encoded: bytes) -> UnitRecord:
        return unpack(encoded)

    def is_deterministic(self) -> bool:
        return True


def register() -> None:
    """Have Beam write UnitRecords so."""
    beam.coders.registry.register_coder(UnitRecord, UnitRecordCoder)
