"""Counts of each token of a vocabulary in a corpus: integers, merged exactly, turned into bytes and
back.
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from transforms.base.errors import OptionError
from transforms.space.token_table import FORMAT, METHODS, TABLE, TokenTable


@dataclass(frozen=True, eq=False)
class TokenStatistics:
    """Counts over `documents` texts, each without its special tokens.

    `method` says what `counts` [V] int64 holds for a token id: `tfidf` the documents that hold it
    (df), `token-counts` its occurrences. `tokenizer` is the digest of the tokenizer that made the
    ids.
    """

    method: str
    tokenizer: str
    documents: int
    counts: np.ndarray

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise OptionError(
                f"token statistics: method {self.method!r} is not known; allowed:"
                f" {', '.join(METHODS)}"
            )
        if self.counts.dtype != np.int64 or self.counts.ndim != 1:
            raise OptionError("token statistics: counts must be a vector of int64")

    @classmethod
    def count(
        cls, method: str, tokenizer: str, ids: np.ndarray, offsets: np.ndarray, size: int
    ) -> "TokenStatistics":
        """The statistics of texts whose token ids `ids` [N] `offsets` [B + 1] cuts, for a
        vocabulary of `size`.
        """
        if method == "tfidf":
            text = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
            # np.unique takes several times as long
            pairs = np.sort(text * size + ids.astype(np.int64))
            ids = pairs[np.diff(pairs, prepend=-1) != 0] % size
        return cls(
            method, tokenizer, len(offsets) - 1, np.bincount(ids, minlength=size).astype(np.int64)
        )

    def __add__(self, other: "TokenStatistics") -> "TokenStatistics":
        """The statistics of both corpora; `OptionError` where method, tokenizer or vocabulary
        differ.
        """
        if (self.method, self.tokenizer, len(self.counts)) != (
            other.method,
            other.tokenizer,
            len(other.counts),
        ):
            raise OptionError(
                "token statistics of another method, tokenizer or vocabulary cannot be added; fit"
                " anew"
            )
        return TokenStatistics(
            self.method,
            self.tokenizer,
            self.documents + other.documents,
            self.counts + other.counts,
        )

    @property
    def digest(self) -> str:
        """The sha256, in hex, over all fields."""
        return TokenTable(self._describe()).digest

    def to_files(self) -> dict[str, bytes]:
        """The names and contents of the files of a folder, in the order to write them: the last one
        names the first.
        """
        described = self._describe()
        table = (json.dumps(described, indent=1, sort_keys=True) + "\n").encode()
        return {described["counts"]: self._counts_file(), TABLE: table}

    @classmethod
    def from_files(cls, table: TokenTable, counts: bytes) -> "TokenStatistics":
        """The statistics that `to_files` wrote; `OptionError` where the two files do not belong
        together.
        """
        said = table.described
        try:
            tensors = load(counts) if hashlib.sha256(counts).hexdigest() == said["sha256"] else {}
        except SafetensorError:
            tensors = {}
        if "counts" not in tensors or len(tensors["counts"]) != said["vocabulary"]:
            raise OptionError(
                f"{said['counts']} is not the file that {TABLE} describes; fit the statistics again"
            )
        return cls(said["method"], said["tokenizer"], said["documents"], tensors["counts"])

    def _counts_file(self) -> bytes:
        return save({"counts": self.counts})

    def _describe(self) -> dict[str, Any]:
        sha256 = hashlib.sha256(self._counts_file()).hexdigest()
        return {
            "format": FORMAT,
            "method": self.method,
            "tokenizer": self.tokenizer,
            "documents": self.documents,
            "vocabulary": len(self.counts),
            "counts": f"counts-{sha256[:16]}.safetensors",
            "sha256": sha256,
        }
