"""Counts of each token of a vocabulary in a corpus: exact integers that merge and serialise."""

import contextlib
import hashlib
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.space.token_table import FORMAT, METHODS, TABLE, TokenTable


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
                f"token statistics: method {self.method!r} is not known; allowed: "
                f"{', '.join(METHODS)}"
            )
        if self.counts.dtype != np.int64 or self.counts.ndim != 1:
            raise OptionError("token statistics: counts must be a vector of int64")

    @classmethod
    def count(
        cls, method: str, tokenizer: str, ids: np.ndarray, offsets: np.ndarray, size: int
    ) -> "TokenStatistics":
        """Count the token ids `ids` [N] of texts cut by `offsets` [B + 1].

        `size` is that of the vocabulary.
        """
        if method == "tfidf":
            text = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
            # np.unique takes several times as long.
            pairs = np.sort(text * size + ids.astype(np.int64))
            ids = pairs[np.diff(pairs, prepend=-1) != 0] % size
        counts = np.bincount(ids, minlength=size).astype(np.int64)
        return cls(method, tokenizer, len(offsets) - 1, counts)

    def __add__(self, other: "TokenStatistics") -> "TokenStatistics":
        """Return the statistics of both corpora.

        Raises OptionError if method, tokenizer or vocabulary differ.
        """
        mine = (self.method, self.tokenizer, len(self.counts))
        others = (other.method, other.tokenizer, len(other.counts))
        if mine != others:
            raise OptionError(
                "token statistics of another method, tokenizer or vocabulary cannot be added; fit "
                "them again"
            )
        documents = self.documents + other.documents
        return TokenStatistics(self.method, self.tokenizer, documents, self.counts + other.counts)

    @property
    def digest(self) -> str:
        """The sha256, in hex, over all fields."""
        return TokenTable(self._describe()).digest

    def to_files(self) -> dict[str, bytes]:
        """Return names and contents of the files of a folder, in the order to write them.

        The last file names the first.
        """
        described = self._describe()
        table = (json.dumps(described, indent=1, sort_keys=True) + "\n").encode()
        return {described["counts"]: self._save_counts(), TABLE: table}

    @classmethod
    def from_files(cls, table: TokenTable, counts: bytes) -> "TokenStatistics":
        """Read the statistics that `to_files` wrote.

        Raises OptionError if the two files do not belong together.
        """
        described = table.described
        tensors: dict[str, np.ndarray] = {}
        if hashlib.sha256(counts).hexdigest() == described["sha256"]:
            with contextlib.suppress(SafetensorError):
                tensors = load(counts)
        if "counts" not in tensors or len(tensors["counts"]) != described["vocabulary"]:
            raise OptionError(
                f"{described['counts']} is not the file that {TABLE} describes; fit the statistics "
                "again"
            )
        method, tokenizer = described["method"], described["tokenizer"]
        return cls(method, tokenizer, described["documents"], tensors["counts"])

    def _save_counts(self) -> bytes:
        return save({"counts": self.counts})

    def _describe(self) -> dict[str, Any]:
        sha256 = hashlib.sha256(self._save_counts()).hexdigest()
        return {
            "format": FORMAT,
            "method": self.method,
            "tokenizer": self.tokenizer,
            "documents": self.documents,
            "vocabulary": len(self.counts),
            "counts": f"counts-{sha256[:16]}.safetensors",
            "sha256": sha256,
        }
