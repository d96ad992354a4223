"""Late chunking: whole windows go through the model, and pieces are pooled from token states.

So a piece's vector depends on the text around it (arXiv:2409.04701).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from sentence_beam.transforms.encoder.batches import Batch, UnitBatches
from sentence_beam.transforms.encoder.tokenize import Tokenized
from sentence_beam.transforms.encoder.windows import WindowPart, Windows, count_tokens
from sentence_beam.transforms.pooling.states import TokenStates

_Key = TypeVar("_Key")


@dataclass(frozen=True)
class WindowRun:
    """Windows whose token states are in memory together.

    `windows` are their numbers, ascending, and the rows of `batches`.
    """

    windows: np.ndarray
    batches: list[Batch]


@dataclass(frozen=True)
class PiecesJob:
    """Pieces that one device pools, one run of windows after the other.

    `rows` [n] are their places among all wanted pieces.
    """

    rows: np.ndarray
    pieces: list[list[WindowPart]]
    runs: list[WindowRun]


@dataclass(frozen=True)
class PiecesUnit:
    """The work for `rows` pieces: `whole` those that are their document, `jobs` the others."""

    rows: int
    whole: UnitBatches
    jobs: list[PiecesJob]


def plan_pieces(
    windows: Windows,
    wanted: np.ndarray,
    plan: Callable[[Tokenized], Iterator[Batch]],
    tokens_at_once: int,
    apart: bool,
) -> PiecesUnit:
    """Plan the work for the pieces at the places `wanted`, ascending.

    `plan` cuts windows into batches. The windows of a run have together about `tokens_at_once`,
    at least one window. `apart`: jobs of about as many tokens, so that several devices can share
    them; pieces that share a window, or lie between such, stay together.
    """

    def batches(numbers: np.ndarray, rows: np.ndarray) -> list[Batch]:
        planned = plan(windows.tokenized.take(numbers))
        return [replace(batch, rows=rows[batch.rows]) for batch in planned]

    is_whole = windows.whole[wanted]
    alone = np.flatnonzero(is_whole)
    others = np.flatnonzero(~is_whole)
    only = np.array([windows.pieces[place][0].window for place in wanted[alone]], dtype=np.int64)
    whole = UnitBatches(len(wanted), batches(only, alone))
    groups = [others] if len(others) else []
    if apart:
        groups = _split_rows(windows, wanted, others, tokens_at_once)
    jobs = []
    for rows in groups:
        pieces = [windows.pieces[place] for place in wanted[rows]]
        numbers = {part.window for piece in pieces for part in piece}
        needed = np.array(sorted(numbers), dtype=np.int64)
        runs = [
            WindowRun(run, batches(run, run))
            for run in _split_windows(needed, windows.tokenized.lengths, tokens_at_once)
        ]
        jobs.append(PiecesJob(rows, pieces, runs))
    return PiecesUnit(len(wanted), whole, jobs)


def _split_rows(
    windows: Windows, wanted: np.ndarray, rows: np.ndarray, tokens_at_once: int
) -> list[np.ndarray]:
    """Split the rows into groups of about so many tokens that share no window."""
    if not len(rows):
        return []
    starts = []
    tokens = tokens_at_once
    last = -1
    for number, row in enumerate(rows):
        first = windows.pieces[wanted[row]][0].window
        stop = windows.pieces[wanted[row]][-1].window + 1
        if first > last and tokens >= tokens_at_once:
            starts.append(number)
            tokens = 0
        tokens += int(windows.tokenized.lengths[max(first, last + 1) : stop].sum())
        last = max(last, stop - 1)
    return np.split(rows, starts[1:])


def _split_windows(
    windows: np.ndarray, lengths: np.ndarray, tokens_at_once: int
) -> Iterator[np.ndarray]:
    """Yield runs of windows that have together about so many tokens, at least one window."""
    groups = np.cumsum(lengths[windows]) // tokens_at_once
    for group in np.unique(groups):
        yield windows[groups == group]


@dataclass(frozen=True)
class ReadyPieces:
    """Pieces that can be pooled: their `rows` [n] and parts, and token states by window."""

    rows: np.ndarray
    pieces: Sequence[Sequence[WindowPart]]
    by_window: dict[int, TokenStates]

    @property
    def tokens(self) -> int:
        """Number of tokens of all pieces."""
        return sum(map(count_tokens, self.pieces))

    def halves(self) -> tuple["ReadyPieces", "ReadyPieces"]:
        """Split into the first (n + 1) // 2 pieces and the others."""
        middle = (len(self.rows) + 1) // 2
        return (
            replace(self, rows=self.rows[:middle], pieces=self.pieces[:middle]),
            replace(self, rows=self.rows[middle:], pieces=self.pieces[middle:]),
        )

    def states(self) -> TokenStates:
        """Pack the token states of the pieces from those of their windows."""
        parts = list(chain.from_iterable(self.pieces))
        states = [self.by_window[part.window] for part in parts]
        first = states[0]
        raw = None if first.raw is None else _join(parts, [each.raw for each in states])
        special = None if first.special is None else _join(parts, [each.special for each in states])
        return replace(
            first,
            hidden=_join_each(parts, [each.hidden for each in states]),
            token_ids=_join(parts, [each.token_ids for each in states]),
            offsets=torch.tensor([0, *map(count_tokens, self.pieces)]).cumsum(0),
            keep=_join(parts, [each.keep for each in states]),
            raw=raw,
            special=special,
            prompt_tokens=0,
            own_attention=_join_each(parts, [each.own_attention for each in states]),
            mask=None,
        )


def iterate_ready_pieces(
    job: PiecesJob, states_of: Callable[[WindowRun], Iterator[tuple[int, TokenStates]]]
) -> Iterator[ReadyPieces]:
    """Yield the pieces of a job as soon as all their windows have been through the model.

    `states_of` yields the token states of a run's windows with their numbers, in any order.
    """
    by_window: dict[int, TokenStates] = {}
    done = 0
    for run in job.runs:
        by_window.update(states_of(run))
        ready = done
        while ready < len(job.pieces) and job.pieces[ready][-1].window <= run.windows[-1]:
            ready += 1
        if ready > done:
            yield ReadyPieces(job.rows[done:ready], job.pieces[done:ready], by_window)
        done = ready
        if done < len(job.pieces):
            oldest = job.pieces[done][0].window
            by_window = {window: states for window, states in by_window.items() if window >= oldest}


def _join(parts: Sequence[WindowPart], fields: Sequence[Tensor | None]) -> Tensor:
    """Join the tokens of each part, out of a field of its window's states."""
    slices = []
    for part, values in zip(parts, fields, strict=True):
        assert values is not None, "all windows have the same fields"
        slices.append(values[part.first : part.stop])
    return torch.cat(slices)


def _join_each(
    parts: Sequence[WindowPart], fields: Sequence[Mapping[_Key, Tensor]]
) -> dict[_Key, Tensor]:
    """Join, as `_join` does, the tensors of each key."""
    return {key: _join(parts, [field[key] for field in fields]) for key in fields[0]}


def select_text_states(states: TokenStates, row: int) -> TokenStates:
    """Return the states of one text of a batch."""
    part = slice(int(states.offsets[row]), int(states.offsets[row + 1]))
    raw = None if states.raw is None else states.raw[part]
    special = None if states.special is None else states.special[part]
    return replace(
        states,
        hidden={layer: each[part] for layer, each in states.hidden.items()},
        token_ids=states.token_ids[part],
        offsets=states.offsets[:1] * 0,
        keep=states.keep[part],
        raw=raw,
        special=special,
        own_attention={head: each[part] for head, each in states.own_attention.items()},
    )
