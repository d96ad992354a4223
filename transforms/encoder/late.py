"""Late chunking: a whole window goes through the model, and pieces are pooled from its token
states.

So a piece's vector knows what stands around it. Windows of a long document overlap; a token's state
is taken from the window in which it lies farthest from an edge.
"""

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transforms.base.errors import OptionError
from transforms.encoder.batches import Batch, UnitBatches
from transforms.encoder.tokenize import TextTokenizer, Tokenized
from transforms.pooling.states import TokenStates

Span = tuple[int, int]
_BLOCK = 16_384  # characters that are tokenized at once to find where windows end


@dataclass(frozen=True)
class WindowPart:
    """Tokens `first` to before `stop` of a window."""

    window: int
    first: int
    stop: int


@dataclass(frozen=True)
class Windows:
    """Documents in windows: `tokenized` [W] windows, each with prompt and special tokens.

    `pieces` [P] the parts of windows that each piece has, in order, document after document; `keys`
    [P] 16 bytes over the windows' text and the parts: pieces with equal keys have equal vectors.
    `tokens` [P] a piece's own tokens. `whole` [P] bool: the piece is its document, which is one
    window, so that special tokens are counted too.
    """

    tokenized: Tokenized
    pieces: list[list[WindowPart]]
    keys: list[bytes]
    tokens: np.ndarray
    whole: np.ndarray


def make_windows(
    tokenizer: TextTokenizer,
    texts: Sequence[str],
    spans: Sequence[Sequence[Span]],
    window: int | None = None,
    overlap: int | None = None,
) -> Windows:
    """The windows of documents whose pieces are `spans`, in characters.

    `window` most tokens of one, special tokens and prompt included (None: what the model takes);
    `overlap` those that neighbours share (None: an eighth of the window). Raises `OptionError` for
    windows without room.
    """
    room = _room(tokenizer, window)
    shared = _shared(room, overlap)
    planned = [_plan(tokenizer, text, room, shared) for text in texts]
    cut = [
        text[start:stop]
        for text, plan in zip(texts, planned, strict=True)
        for start, stop in plan.spans
    ]
    tokenized, places = tokenizer.with_places(cut)
    digests = [hashlib.blake2b(text.encode(), digest_size=16).digest() for text in cut]
    pieces: list[list[WindowPart]] = []
    whole: list[bool] = []
    first = 0
    for plan, each in zip(planned, spans, strict=True):
        owned = [_owned(plan, number, places[first + number]) for number in range(len(plan.spans))]
        alone = len(each) == 1 and len(plan.spans) == 1
        for start, stop in each:
            all_of_it = [WindowPart(first, 0, int(tokenized.lengths[first]))]
            pieces.append(all_of_it if alone else _parts(plan, owned, first, (start, stop)))
            whole.append(alone)
        first += len(plan.spans)
    keys = [_key(parts, digests) for parts in pieces]
    tokens = np.array(
        [sum(part.stop - part.first for part in parts) for parts in pieces], dtype=np.int64
    )
    return Windows(tokenized, pieces, keys, tokens, np.array(whole, dtype=bool))


@dataclass(frozen=True)
class Tiling:
    """One document's windows: their `spans` in characters, and the `bounds` between what neighbours
    own.
    """

    spans: list[Span]
    bounds: list[int]


def _room(tokenizer: TextTokenizer, window: int | None) -> int:
    """The tokens of its own that a window has room for."""
    if not tokenizer.has_places:
        raise OptionError(
            "chunks late: this pooler changes the text before it is encoded; use chunks budget"
        )
    if tokenizer.limit is None and window is None:
        raise OptionError(
            "chunks late: this model takes any number of tokens; say how many, as in window=8192"
        )
    if window is not None and tokenizer.limit is not None and window > tokenizer.limit:
        raise OptionError(
            f"chunks late: window={window} is more than the {tokenizer.limit} tokens of this model"
        )
    room = (window or tokenizer.limit or 0) - tokenizer.around_text
    if room < 1:
        raise OptionError(
            f"chunks late: window={window} has no room beside special tokens and prompt; give more"
        )
    return room


def _shared(room: int, overlap: int | None) -> int:
    shared = room // 8 if overlap is None else overlap
    if shared >= room:
        raise OptionError(
            f"chunks late: an overlap of {overlap} leaves no room in windows of {room} tokens; give"
            " less"
        )
    return shared


def _plan(tokenizer: TextTokenizer, text: str, room: int, shared: int) -> Tiling:
    """The windows of one document; fewer tokens in each where what they hold has more when it is
    tokenized alone.
    """
    found = _places(tokenizer, text)
    if len(found) <= room and (len(text) <= _BLOCK or tokenizer.count(text) <= room):
        return Tiling([(0, len(text))], [])
    lower = room
    while True:
        plan = _tiled(text, found, lower, min(shared, lower - 1))
        most = max(tokenizer.count(text[start:stop]) for start, stop in plan.spans)
        if most <= room or lower == 1:
            return plan
        lower = max(1, lower - (most - room))


def _places(tokenizer: TextTokenizer, text: str) -> np.ndarray:
    """The first character of each token of a text, and the one after it, [N, 2] int64."""
    starts = [0]
    while starts[-1] + _BLOCK < len(text):
        far = starts[-1] + _BLOCK
        blank = text.rfind(" ", far - _BLOCK // 4, far)
        starts.append(blank if blank > 0 else far)
    found = [np.zeros((0, 2), dtype=np.int64)]
    for start, stop in zip(starts, [*starts[1:], len(text)], strict=True):
        offsets = tokenizer.whole.encode(text[start:stop], add_special_tokens=False).offsets
        found.append(np.array(offsets, dtype=np.int64).reshape(-1, 2) + start)
    return np.concatenate(found)


def _tiled(text: str, places: np.ndarray, room: int, shared: int) -> Tiling:
    """Windows of at most `room` tokens that share about `shared`; the last is as long as the
    others.
    """
    count, slack = len(places), shared // 4
    regular = range(0, max(1, count - room), room - shared)
    firsts = sorted(
        {*(_word_before(text, places, first, slack) for first in regular), max(0, count - room)}
    )
    stops = [min(count, first + room) for first in firsts]
    spans = [
        (
            int(places[first, 0]) if first else 0,
            int(places[stop - 1, 1]) if stop < count else len(text),
        )
        for first, stop in zip(firsts, stops, strict=True)
    ]
    middles = [(first + stop) // 2 for first, stop in zip(firsts[1:], stops[:-1], strict=True)]
    return Tiling(spans, [int(places[middle, 0]) for middle in middles])


def _word_before(text: str, places: np.ndarray, token: int, slack: int) -> int:
    """The last token from `token - slack` to `token` that follows a blank, or begins with one; else
    `token`.
    """
    for number in range(token, max(0, token - slack), -1):
        place = int(places[number, 0])
        if text[place].isspace() or text[place - 1].isspace():
            return number
    return token


@dataclass(frozen=True)
class Owned:
    """A window's tokens: `ends` [n] where each ends in the document, the owned ones being `first`
    to before `stop`.
    """

    ends: np.ndarray
    first: int
    stop: int


def _owned(plan: Tiling, number: int, places: np.ndarray) -> Owned:
    """What a window owns; `places` [n, 2] of its tokens in its text, negative for what stands
    around the text.
    """
    offset = plan.spans[number][0]
    inner = np.flatnonzero(places[:, 1] >= 0)
    first, stop = (int(inner[0]), int(inner[-1]) + 1) if len(inner) else (0, len(places))
    starts, ends = places[:, 0] + offset, places[:, 1] + offset
    ends[:first], ends[stop:] = -1, np.iinfo(np.int64).max
    if number:
        first += int(np.searchsorted(starts[first:stop], plan.bounds[number - 1], "left"))
    if number < len(plan.bounds):
        stop = first + int(np.searchsorted(starts[first:stop], plan.bounds[number], "left"))
    return Owned(ends, first, stop)


def _parts(plan: Tiling, owned: Sequence[Owned], window: int, span: Span) -> list[WindowPart]:
    """The owned tokens that end in a piece of a document whose windows are numbered from `window`
    on.

    A piece of nothing but signs that the tokenizer drops has the token after it, or the last.
    """
    start, stop = span
    first_window = max(0, bisect_right(plan.bounds, start) - 1)
    numbers = range(first_window, min(len(owned), bisect_left(plan.bounds, stop) + 2))
    found, nearest = [], WindowPart(window, 0, len(owned[0].ends))
    for number in numbers:
        each = owned[number]
        low = max(int(np.searchsorted(each.ends, start, "right")), each.first)
        high = min(int(np.searchsorted(each.ends, stop, "right")), each.stop)
        if low < high:
            found.append(WindowPart(window + number, low, high))
        elif each.first < each.stop and not found:
            token = min(low, each.stop - 1)
            nearest = WindowPart(window + number, token, token + 1)
    return found or [nearest]


def _key(parts: Sequence[WindowPart], digests: Sequence[bytes]) -> bytes:
    """The key of a piece: its windows' text, and which of their tokens it has."""
    text = b"".join(digests[part.window] + f"{part.first}-{part.stop};".encode() for part in parts)
    return hashlib.blake2b(text, digest_size=16).digest()


@dataclass(frozen=True)
class WindowRun:
    """Windows whose token states are in memory together: their numbers, ascending; rows of
    `batches` are these.
    """

    windows: np.ndarray
    batches: list[Batch]


@dataclass(frozen=True)
class PiecesJob:
    """Pieces that one device pools, a run of their windows after the other; `rows` [n] are theirs
    among all wanted.
    """

    rows: np.ndarray
    pieces: list[list[WindowPart]]
    runs: list[WindowRun]


@dataclass(frozen=True)
class PiecesUnit:
    """Pieces of documents cut into work, `rows` of them: `whole` those that are their document,
    `jobs` the others.
    """

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
    """The work for the pieces at the places `wanted`, ascending; `plan` cuts windows into batches.

    The windows of a run have together about `tokens_at_once`, at least one window. `apart`: a job
    for about as many tokens, so that several devices can share them; pieces that share a window, or
    lie between such, stay together.
    """
    alone, others = np.flatnonzero(windows.whole[wanted]), np.flatnonzero(~windows.whole[wanted])

    def batches(some: np.ndarray, rows: np.ndarray) -> list[Batch]:
        return [
            replace(batch, rows=rows[batch.rows]) for batch in plan(windows.tokenized.take(some))
        ]

    whole = batches(
        np.array([windows.pieces[place][0].window for place in wanted[alone]], dtype=np.int64),
        alone,
    )
    jobs = []
    for rows in (
        _shares(windows, wanted, others, tokens_at_once)
        if apart
        else [others]
        if len(others)
        else []
    ):
        pieces = [windows.pieces[place] for place in wanted[rows]]
        needed = np.array(
            sorted({part.window for piece in pieces for part in piece}), dtype=np.int64
        )
        runs = _runs(needed, windows.tokenized.lengths, tokens_at_once)
        jobs.append(PiecesJob(rows, pieces, [WindowRun(run, batches(run, run)) for run in runs]))
    return PiecesUnit(len(wanted), UnitBatches(len(wanted), whole), jobs)


def _shares(
    windows: Windows, wanted: np.ndarray, rows: np.ndarray, tokens_at_once: int
) -> list[np.ndarray]:
    """The rows in groups that share no window, of about so many tokens."""
    starts, tokens, last = [], tokens_at_once, -1
    for number, row in enumerate(rows):
        first, stop = (
            windows.pieces[wanted[row]][0].window,
            windows.pieces[wanted[row]][-1].window + 1,
        )
        if first > last and tokens >= tokens_at_once:
            starts.append(number)
            tokens = 0
        tokens += int(windows.tokenized.lengths[max(first, last + 1) : stop].sum())
        last = max(last, stop - 1)
    return np.split(rows, starts[1:]) if len(rows) else []


def _runs(windows: np.ndarray, lengths: np.ndarray, tokens_at_once: int) -> Iterator[np.ndarray]:
    """Runs of windows that have together about so many tokens, at least one window."""
    groups = np.cumsum(lengths[windows]) // tokens_at_once
    for group in np.unique(groups):
        yield windows[groups == group]


@dataclass(frozen=True)
class ReadyPieces:
    """Pieces that can be pooled: their `rows` [n], their parts, and the token states of windows by
    number.
    """

    rows: np.ndarray
    pieces: Sequence[Sequence[WindowPart]]
    known: dict[int, TokenStates]

    @property
    def tokens(self) -> int:
        """The number of tokens of all pieces."""
        return sum(part.stop - part.first for piece in self.pieces for part in piece)

    def halves(self) -> tuple["ReadyPieces", "ReadyPieces"]:
        """The first (n + 1) // 2 pieces, and the others."""
        middle = (len(self.rows) + 1) // 2
        return (
            replace(self, rows=self.rows[:middle], pieces=self.pieces[:middle]),
            replace(self, rows=self.rows[middle:], pieces=self.pieces[middle:]),
        )

    def states(self) -> TokenStates:
        """The token states of the pieces, packed."""
        return _of_pieces(self.pieces, self.known)


def ready_pieces(
    job: PiecesJob, states_of: Callable[[WindowRun], Iterator[tuple[int, TokenStates]]]
) -> Iterator[ReadyPieces]:
    """The pieces of a job, some after the other, as the windows that they need have been through
    the model.

    `states_of` gives the token states of a run's windows by their numbers, in any order, each
    alone.
    """
    known: dict[int, TokenStates] = {}
    done = 0
    for run in job.runs:
        known.update(states_of(run))
        ready = done
        while ready < len(job.pieces) and job.pieces[ready][-1].window <= run.windows[-1]:
            ready += 1
        if ready > done:
            yield ReadyPieces(job.rows[done:ready], job.pieces[done:ready], known)
        done = ready
        oldest = job.pieces[done][0].window if done < len(job.pieces) else None
        known = {
            window: states
            for window, states in known.items()
            if oldest is not None and window >= oldest
        }


def _of_pieces(
    pieces: Sequence[Sequence[WindowPart]], known: dict[int, TokenStates]
) -> TokenStates:
    """The token states of pieces, packed, from those of their windows."""
    parts = [part for piece in pieces for part in piece]
    lengths = [sum(part.stop - part.first for part in piece) for piece in pieces]
    one = known[parts[0].window]

    def joined(of: Callable[[TokenStates], Tensor]) -> Tensor:
        return torch.cat([of(known[part.window])[part.first : part.stop] for part in parts])

    return replace(
        one,
        hidden={layer: joined(_item("hidden", layer)) for layer in one.hidden},
        token_ids=joined(attrgetter("token_ids")),
        offsets=torch.tensor([0, *lengths]).cumsum(0),
        keep=joined(attrgetter("keep")),
        raw=None if one.raw is None else joined(attrgetter("raw")),
        special=None if one.special is None else joined(attrgetter("special")),
        prompt_tokens=0,
        own_attention={head: joined(_item("own_attention", head)) for head in one.own_attention},
        mask=None,
    )


def _item(name: str, key: Any) -> Callable[[TokenStates], Tensor]:
    return lambda states: getattr(states, name)[key]


def text_states(states: TokenStates, row: int) -> TokenStates:
    """The states of one text of a batch, alone."""
    first, stop = int(states.offsets[row]), int(states.offsets[row + 1])
    return replace(
        states,
        hidden={layer: each[first:stop] for layer, each in states.hidden.items()},
        token_ids=states.token_ids[first:stop],
        offsets=states.offsets[:1] * 0,
        keep=states.keep[first:stop],
        raw=None if states.raw is None else states.raw[first:stop],
        special=None if states.special is None else states.special[first:stop],
        own_attention={head: each[first:stop] for head, each in states.own_attention.items()},
    )
