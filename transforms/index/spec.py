"""The index that a person or a manifest names; the only reader of factory strings."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sentence_beam.transforms.base.errors import OptionError

RANGE_BYTES = 1_000_000_000  # most bytes of a range of lists, if it has more than one list
AUTO = "auto"
COMPACT = "compact"
FACTORIES = "Flat, SQ4|SQ6|SQ8|SQfp16|SQbf16, or IVF<n>[_HNSW<m>],<Flat|SQ...|RaBitQ[2-8]|PQ<m>>"
_FACTORY = re.compile(
    r"(?:IVF(?P<lists>[1-9]\d*)(?P<graph>_HNSW\d+)?,)?(?P<codec>Flat|SQ(?:4|6|8|fp16|bf16)|RaBitQ[2-8]?|PQ[1-9]\d*(?:x(?P<bits>\d+))?)"
)
_LISTED = ("RaBitQ", "PQ")  # codecs that need lists
_CODEC_BITS = {"Flat": 32, "SQ4": 4, "SQ6": 6, "SQ8": 8, "SQfp16": 16, "SQbf16": 16, "RaBitQ": 1}
_CODEC_BITS |= {f"RaBitQ{bits}": bits for bits in range(2, 9)}


@dataclass(frozen=True)
class IndexSpec:
    """An index by its name: `auto`, `compact` or a factory string of faiss.

    `lists` is the number of coarse lists (0: none), `graph` whether a graph finds them, `codec` the
    kind of codes. An index that is chosen by the number of rows has the empty codec.
    """

    text: str
    lists: int = 0
    graph: bool = False
    codec: str = ""

    @classmethod
    def parse(cls, text: str) -> IndexSpec:
        """Return the index of a name. Raises OptionError, in one line with the allowed names.

        This needs no faiss.
        """
        if text in (AUTO, COMPACT):
            return cls(text)
        match = _FACTORY.fullmatch(text)
        if match is None or (
            match["lists"] is None and match["codec"].startswith(("RaBitQ", "PQ"))
        ):
            if not text.isprintable():
                text = repr(text)
            raise OptionError(
                f"--index {text}: cannot be built in segments that share one quantizer; use auto,"
                f" compact, {FACTORIES}"
            )
        return cls(text, int(match["lists"] or 0), match["graph"] is not None, match["codec"])

    def __str__(self) -> str:
        return self.text

    @property
    def is_automatic(self) -> bool:
        """Whether the number of rows decides the factory string."""
        return not self.codec

    @property
    def is_trained(self) -> bool:
        """Whether the index learns anything from rows."""
        return self.codec != "Flat" or self.lists > 0

    @property
    def is_rough(self) -> bool:
        """Whether these codes rank so roughly that the vectors are kept in a second file."""
        return self.codec == "RaBitQ" or self.codec.startswith("PQ")

    @property
    def is_rotated(self) -> bool:
        """Whether vectors are rotated before they are coded, as for few bits a component."""
        return self.codec.startswith("RaBitQ")

    @property
    def parts(self) -> int:
        """The number of equal parts into which the codec cuts a vector; 1 unless it is PQ."""
        if not self.codec.startswith("PQ"):
            return 1
        return int(self.codec[2:].partition("x")[0])

    @property
    def rows_needed(self) -> int:
        """The fewest rows that the index can be trained on."""
        centroids = 2**self._part_bits if self.codec.startswith("PQ") else 0
        return max(self.lists, centroids)

    @property
    def _part_bits(self) -> int:
        """The bits of the code of each part of a vector."""
        return int(self.codec.partition("x")[2] or 8)

    def code_bytes(self, dim: int) -> int:
        """Return the bytes of the code of a vector, with the factors of RaBitQ."""
        if self.codec.startswith("PQ"):
            return -(-self.parts * self._part_bits // 8)
        factors = 0
        if self.is_rotated:
            factors = 8 if self.codec == "RaBitQ" else 20
        return -(-dim * _CODEC_BITS[self.codec] // 8) + factors

    def row_bytes(self, dim: int) -> int:
        """Return the bytes of a row in a segment: its code, 8 for the id, and a kept vector."""
        size = self.code_bytes(dim) + 8
        if self.is_rough:
            size += refine_bytes(dim)
        return size

    def lack_of_rows(self, rows: int) -> str | None:
        """Return why the index cannot be trained on so many rows; None if it can."""
        if rows >= self.rows_needed:
            return None
        return (
            f"{self} has to be trained on {self.rows_needed:,} rows or more, and there are {rows:,}"
        )


def refine_bytes(dim: int) -> int:
    """Bytes of a row's vector in the file with which candidates are scored again."""
    return 2 * dim + 8


AUTOMATIC = IndexSpec(AUTO)
FLAT = IndexSpec.parse("Flat")
