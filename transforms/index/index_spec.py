"""The index that a person or a manifest names; the only reader of factory strings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.index.faiss_module import load_faiss, shorten_reason

RANGE_BYTES = 1_000_000_000  # most bytes of a range of lists, if it has more than one list
AUTO = "auto"
COMPACT = "compact"
FACTORIES = "Flat, SQ4|SQ6|SQ8|SQfp16|SQbf16, or IVF<n>[_HNSW<m>],<Flat|SQ...|RaBitQ[2-8]|PQ<m>>"
_FACTORY = re.compile(
    r"(?:IVF(?P<lists>[1-9]\d*)(?P<graph>_HNSW\d+)?,)?(?P<codec>Flat|SQ(?:4|6|8|fp16|bf16)|RaBitQ[2-8]?|PQ[1-9]\d*(?:x\d+)?)"
)
_LISTED = ("RaBitQ", "PQ")  # codecs that need lists


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
        if match is None or (match["lists"] is None and match["codec"].startswith(_LISTED)):
            if not text.isprintable():
                text = repr(text)
            raise OptionError(
                f"{cite('index')} {text}: cannot be built in segments that share one quantizer; use"
                f" auto, compact, {FACTORIES}"
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
        return int(self.codec[2:].partition("x")[0]) if self.codec.startswith("PQ") else 1

    @property
    def rows_needed(self) -> int:
        """The fewest rows that the index can be trained on."""
        if not self.codec.startswith("PQ"):
            return self.lists
        return max(self.lists, 2 ** int(self.codec.partition("x")[2] or 8))

    def code_bytes(self, dim: int) -> int:
        """Return the bytes of the code of a vector, which faiss knows.

        Raises OptionError if faiss has no such code of `dim` components.
        """
        try:
            return _measure_code(f"IVF1,{self.codec}" if self.lists else self.codec, dim)
        except RuntimeError as error:
            reason = shorten_reason(error)
            raise OptionError(
                f"{cite('index')} {self}: faiss refuses it for {dim} components ({reason})"
            ) from error

    def row_bytes(self, dim: int) -> int:
        """Return the bytes of a row in a segment: its code, 8 for the id, and a kept vector."""
        return self.code_bytes(dim) + 8 + (count_refine_bytes(dim) if self.is_rough else 0)

    def lack_of_rows(self, rows: int) -> str | None:
        """Return why the index cannot be trained on so many rows; None if it can."""
        if rows >= self.rows_needed:
            return None
        return (
            f"{self} has to be trained on {self.rows_needed:,} rows or more, and there are {rows:,}"
        )


@lru_cache(64)
def _measure_code(factory: str, dim: int) -> int:
    return int(load_faiss().index_factory(dim, factory).code_size)


def count_refine_bytes(dim: int) -> int:
    """Bytes of a row's vector in the file with which candidates are scored again."""
    return 2 * dim + 8


AUTOMATIC = IndexSpec(AUTO)
FLAT = IndexSpec.parse("Flat")
