"""The canary: texts whose pooled vectors a store keeps, to notice when its model changes them.

A library, a processor or a damaged file can change vectors without any field of the space changing.
"""

import hashlib
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.arrow_arrays import (
    as_matrix,
    make_vector_column,
    read_parquet_bytes,
    write_parquet_bytes,
)
from sentence_beam.transforms.base.errors import SentenceBeamError, cite, refuse_damage
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.entries import CanaryEntry

TEXTS = (
    "ok",
    "The ferry leaves at seven.",
    "Who told you that the museum would be closed on Monday?",
    "Nobody in the village had seen so much snow since the winter of 1963.",
    "Invoice no. 4711-B: 3 x 19.90 EUR, payable within 14 days.",
    "def mean(values): return sum(values) / len(values)",
    "Der Zug nach Lübeck fällt heute aus.",
    "猫は窓のそばで眠っている。",
    (
        "She opened the letter, read it twice, and put it back into the drawer without a word; then"
        " she went out to feed the hens, because that at least had not changed."
    ),
    "WARNING: disk /dev/sda1 is 93% full!!!",
    "a b c d e f g",
    (
        "The committee agreed that the report should be shorter, that its figures should be checked"
        " by somebody who had not drawn them, and that the chapter on costs should come first. It"
        " was then sent to the printer, where it stayed for two weeks, since nobody had said how"
        " many copies were wanted."
    ),
)


@dataclass(frozen=True)
class Canary:
    """Texts and their pooled vectors float32 [n, p]."""

    texts: tuple[str, ...]
    pooled: np.ndarray

    def measure_drift(self, pooled: np.ndarray) -> float:
        """Return the largest cosine distance between a text's vector and the given one.

        It is infinite if a vector is not finite.
        """
        a = self.pooled.astype(np.float64)
        b = pooled.astype(np.float64)
        lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
        same = ((a == b) | (np.isnan(a) & np.isnan(b))).all(axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            distance = np.where(same, 0.0, 1.0 - (a * b).sum(axis=1) / lengths)
        return float(np.where(np.isfinite(distance), distance, np.inf).max())

    def to_bytes(self) -> bytes:
        """The Parquet file of the texts and their vectors."""
        table = pa.table(
            {"text": pa.array(self.texts, pa.string()), "pooled": make_vector_column(self.pooled)}
        )
        return write_parquet_bytes(table, write_page_checksum=True)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Canary":
        """Return the canary of a file that `to_bytes` made.

        Raises SentenceBeamError for other bytes.
        """
        with refuse_damage("not a canary"):
            table = read_parquet_bytes(data).combine_chunks()
            return cls(
                tuple(table.column("text").to_pylist()), as_matrix(table.column("pooled").chunk(0))
            )


@dataclass(frozen=True)
class CanaryFile:
    """The place of a store's canary.

    `sha256` is the last snapshot's, None before the first snapshot.
    """

    root: str
    path: str
    sha256: str | None = None

    @classmethod
    def from_store(
        cls, root: str, pooled_id: str, generation: int, named: CanaryEntry | None
    ) -> "CanaryFile":
        """The file that the last snapshot names, else the one for these pooled vectors."""
        if named:
            return cls(root, named.path, named.sha256)
        return cls(root, layout.canary(pooled_id, generation))

    @property
    def full_path(self) -> str:
        """The file's path with the store's folder."""
        return storage.join(self.root, self.path)

    def read(self) -> Canary | None:
        """Return the canary; None if it does not exist yet.

        Raises SentenceBeamError if the named file is missing or changed.
        """
        stored = storage.storage_of(self.full_path).read_versioned(self.full_path)
        sha256 = hashlib.sha256(stored[0]).hexdigest() if stored else None
        if self.sha256 and sha256 != self.sha256:
            what = "was changed after it was written (sha256 differs)" if stored else "is missing"
            raise SentenceBeamError(
                f"{self.full_path} {what}; restore it, or embed everything again with"
                f" {cite('reembed=True')}"
            )
        try:
            return Canary.from_bytes(stored[0]) if stored else None
        except SentenceBeamError as error:
            raise SentenceBeamError(
                f"{self.full_path} is {error.message}; remove it, or restore it"
            ) from error

    def keep(self, canary: Canary) -> Canary:
        """Write the canary unless another worker has, and return the stored one."""
        storage.storage_of(self.full_path).put_if_absent(self.full_path, canary.to_bytes())
        return self.read() or canary

    def entry(self) -> CanaryEntry | None:
        """Return the manifest's entry, path and sha256; None if there is no file."""
        if self.sha256:
            return CanaryEntry(self.path, self.sha256)
        if storage.storage_of(self.full_path).stat(self.full_path) is None:
            return None
        return CanaryEntry(self.path, storage.sha256_of(self.full_path)[0])
