"""Inputs of the model for the rows of a unit: texts, pieces, or documents in windows."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, cast

import numpy as np

from sentence_beam.transforms.corpus import UnitRows
from sentence_beam.transforms.space import pieces_hashes, row_hashes
from sentence_beam.transforms.store.shards.unit_vectors import Vectors

if TYPE_CHECKING:
    from sentence_beam.transforms.encoder import (
        Embedded,
        Encoder,
        Passing,
        PiecesUnit,
        Tokenized,
        UnitBatches,
        Windows,
    )

Progress = Callable[[int, int], None]
Finish = Callable[[], "Embedded"]  # waits until the model is through, and makes the final vectors


@dataclass(frozen=True)
class Texts:
    """Rows whose whole text goes into the model; `unseen` are places of texts without a token."""

    tokenized: "Tokenized"
    batches: "UnitBatches"
    unseen: np.ndarray

    def start(
        self, encoder: "Encoder", progress: Progress, cancelled: threading.Event | None = None
    ) -> Finish:
        """Hand the texts to the model without waiting; each has a vector."""
        return partial(self._finish, encoder, encoder.start(self.batches, progress, cancelled))

    def _finish(self, encoder: "Encoder", passing: "Passing") -> "Embedded":
        from sentence_beam.transforms.pooling import Status

        embedded = encoder.finish(passing)
        status = embedded.status.copy()
        status[self.unseen] = int(Status.EMPTY)
        return replace(embedded, status=status)

    def vectors(self, embedded: "Embedded") -> Vectors:
        """Return the vectors as shards hold them."""
        return make_vectors(self.tokenized, embedded)


@dataclass(frozen=True)
class PieceMeans:
    """Documents whose vectors are means over their texts.

    Document `d` has texts `bounds[d]` to `bounds[d + 1]`, of `tokens` each.
    """

    tokenized: "Tokenized"
    batches: "UnitBatches"
    bounds: np.ndarray
    tokens: np.ndarray

    def start(
        self, encoder: "Encoder", progress: Progress, cancelled: threading.Event | None = None
    ) -> Finish:
        """Hand each document's texts to the model without waiting; average their vectors."""
        passing = encoder.start(self.batches, progress, cancelled)
        return partial(encoder.finish_means, passing, self.bounds, self.tokens)

    def vectors(self, embedded: "Embedded") -> Vectors:
        """Return the vectors as shards hold them, with the counts of a document's pieces."""
        used = np.diff(self.tokenized.offsets)
        starts = self.bounds[:-1]
        counts = np.asarray(self.tokenized.counts, np.int64)
        tokens, lost = (
            np.add.reduceat(n, starts).astype(np.int32)
            for n in (counts, np.maximum(counts - used, 0))
        )
        return Vectors(embedded.vectors, embedded.norms, tokens, lost > 0, lost, embedded.pooled)


@dataclass(frozen=True)
class Late:
    """Pieces of documents in windows: those at the places `wanted`."""

    windows: "Windows"
    wanted: np.ndarray
    planned: "PiecesUnit"

    @property
    def tokenized(self) -> "Tokenized":
        """The windows that the pieces are in."""
        return self.windows.tokenized.take(
            np.unique([part.window for place in self.wanted for part in self.windows.pieces[place]])
        )

    def start(
        self, encoder: "Encoder", progress: Progress, cancelled: threading.Event | None = None
    ) -> Finish:
        """Hand the windows to the model without waiting; each piece has a vector."""
        return partial(encoder.finish, encoder.start_pieces(self.planned, cancelled))

    def vectors(self, embedded: "Embedded") -> Vectors:
        """Return the vectors as shards hold them; windows overlap, so nothing is cut off."""
        tokens = self.windows.tokens[self.wanted].astype(np.int32)
        none = np.zeros(len(tokens), np.int32)
        return Vectors(
            embedded.vectors, embedded.norms, tokens, none.astype(bool), none, embedded.pooled
        )


Inputs = Texts | PieceMeans | Late


def hash_inputs(rows: UnitRows) -> list[bytes]:
    """Return the hash of the model's input for each row; equal hashes have equal vectors."""
    if rows.parts is not None:
        parts = zip(rows.parts.texts, rows.parts.tokens, strict=True)
        return pieces_hashes(zip(texts, tokens, strict=True) for texts, tokens in parts)
    if rows.windows is not None:
        return rows.windows.keys
    return row_hashes(rows.texts)


def make_inputs(rows: UnitRows, places: list[int], encoder: "Encoder") -> Inputs:
    """Return the model's input for the rows at these places, which ascend."""
    if rows.windows is not None:
        windows = cast("Windows", rows.windows)  # `steps.embed.cutting` had the encoder make them
        wanted = np.array(places, np.int64)
        return Late(windows, wanted, encoder.plan_pieces(windows, wanted))
    if rows.parts is None:
        tokenized = encoder.tokenize([rows.texts[i] for i in places])
        unseen = np.empty(0, np.int64)
        if rows.pieces is None:  # a cutter makes no document of such pieces alone
            unseen = encoder.text_tokenizer.find_unseen(tokenized)
        return Texts(tokenized, encoder.plan(tokenized), unseen)
    texts = [rows.parts.texts[i] for i in places]
    tokens = [rows.parts.tokens[i] for i in places]
    bounds = np.concatenate([[0], np.cumsum([len(texts_of_group) for texts_of_group in texts])])
    tokenized = encoder.tokenize(list(chain(*texts)))
    return PieceMeans(
        tokenized, encoder.plan(tokenized), bounds, np.array(list(chain(*tokens)), np.int64)
    )


def make_vectors(tokenized: "Tokenized", embedded: "Embedded") -> Vectors:
    """Return the vectors of tokenized texts as shards hold them."""
    used = np.diff(tokenized.offsets)
    return Vectors(
        embedding=embedded.vectors,
        norm=embedded.norms,
        tokens=np.asarray(tokenized.counts, np.int32),
        truncated=np.asarray(tokenized.truncated, bool),
        lost=np.maximum(np.asarray(tokenized.counts) - used, 0).astype(np.int32),
        pooled=embedded.pooled,
    )
