"""Cut documents into windows for late chunking, and give each piece its tokens in them.

Windows of a long document overlap. A token's state is taken from the window in which the token is
farthest from an edge: each window owns its tokens from the middle of one overlap to the middle of
the next.
"""

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.encoder.tokenize import TextTokenizer, Tokenized

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


@dataclass(frozen=True)
class Tiling:
    """The windows of a document: their `spans` in characters, and the `bounds` of what they own."""

    spans: list[Span]
    bounds: list[int]


@dataclass(frozen=True)
class Owned:
    """The tokens that a window owns: `first` to before `stop`.

    `ends` [n]: the character of the document at which each token of the window ends.
    """

    ends: np.ndarray
    first: int
    stop: int


def make_windows(
    tokenizer: TextTokenizer,
    texts: Sequence[str],
    spans: Sequence[Sequence[Span]],
    window: int | None = None,
    overlap: int | None = None,
) -> Windows:
    """Cut documents whose pieces are `spans`, in characters, into windows.

    `window`: most tokens of one, special tokens and prompt included (None: the model's limit).
    `overlap`: tokens that neighbours share (None: an eighth of the window). Raises `OptionError`
    for windows without room.
    """
    room = _find_room(tokenizer, window)
    shared = _resolve_overlap(room, overlap)
    tilings = [_plan(tokenizer, text, room, shared) for text in texts]
    cut = []
    for text, tiling in zip(texts, tilings, strict=True):
        cut += [text[start:stop] for start, stop in tiling.spans]
    tokenized, places = tokenizer.with_places(cut)
    pieces: list[list[WindowPart]] = []
    whole: list[bool] = []
    first = 0
    for tiling, each in zip(tilings, spans, strict=True):
        count = len(tiling.spans)
        if len(each) == 1 and count == 1:
            pieces.append([WindowPart(first, 0, int(tokenized.lengths[first]))])
            whole.append(True)
        else:
            owned = [_find_owned(tiling, number, places[first + number]) for number in range(count)]
            pieces += [_find_parts(tiling, owned, first, span) for span in each]
            whole += [False] * len(each)
        first += count
    keys = _hash_pieces(pieces, cut)
    tokens = np.array([count_tokens(parts) for parts in pieces], dtype=np.int64)
    return Windows(tokenized, pieces, keys, tokens, np.array(whole, dtype=bool))


def _find_room(tokenizer: TextTokenizer, window: int | None) -> int:
    """Return the most tokens of a text's own in a window; raise OptionError if there is no room."""
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


def _resolve_overlap(room: int, overlap: int | None) -> int:
    shared = room // 8 if overlap is None else overlap
    if shared >= room:
        raise OptionError(
            f"chunks late: an overlap of {overlap} leaves no room in windows of {room} tokens; "
            "give less"
        )
    return shared


def _plan(tokenizer: TextTokenizer, text: str, room: int, shared: int) -> Tiling:
    """Cut a document into windows; shrink them until each, tokenized alone, fits."""
    places = _find_places(tokenizer, text)
    if len(places) <= room and (len(text) <= _BLOCK or tokenizer.count(text) <= room):
        return Tiling([(0, len(text))], [])
    width = room
    while True:
        tiling = _tile(text, places, width, min(shared, width - 1))
        most = max(tokenizer.count(text[start:stop]) for start, stop in tiling.spans)
        if most <= room or width == 1:
            return tiling
        width = max(1, width - (most - room))


def _find_places(tokenizer: TextTokenizer, text: str) -> np.ndarray:
    """Return the first character of each token of a text, and the one after it, [N, 2] int64."""
    starts = [0]
    while starts[-1] + _BLOCK < len(text):
        end = starts[-1] + _BLOCK
        blank = text.rfind(" ", end - _BLOCK // 4, end)
        starts.append(blank if blank > 0 else end)
    blocks = [np.zeros((0, 2), dtype=np.int64)]
    for start, stop in zip(starts, [*starts[1:], len(text)], strict=True):
        offsets = tokenizer.whole.encode(text[start:stop], add_special_tokens=False).offsets
        blocks.append(np.array(offsets, dtype=np.int64).reshape(-1, 2) + start)
    return np.concatenate(blocks)


def _tile(text: str, places: np.ndarray, width: int, shared: int) -> Tiling:
    """Cut a text into windows of at most `width` tokens that share about `shared` with the next.

    The last window is as long as the others.
    """
    count = len(places)
    slack = shared // 4
    regular = range(0, max(1, count - width), width - shared)
    firsts = {_find_word_start(text, places, first, slack) for first in regular}
    firsts.add(max(0, count - width))
    ordered = sorted(firsts)
    stops = [min(count, first + width) for first in ordered]
    spans = []
    for first, stop in zip(ordered, stops, strict=True):
        start = int(places[first, 0]) if first else 0
        end = int(places[stop - 1, 1]) if stop < count else len(text)
        spans.append((start, end))
    middles = [(first + stop) // 2 for first, stop in zip(ordered[1:], stops[:-1], strict=True)]
    return Tiling(spans, [int(places[middle, 0]) for middle in middles])


def _find_word_start(text: str, places: np.ndarray, token: int, slack: int) -> int:
    """Return the last token of `token - slack` to `token` that begins a word, else `token`."""
    for number in range(token, max(0, token - slack), -1):
        place = int(places[number, 0])
        if text[place].isspace() or text[place - 1].isspace():
            return number
    return token


def _find_owned(tiling: Tiling, number: int, places: np.ndarray) -> Owned:
    """Return the tokens that a window owns.

    `places` [n, 2] of its tokens in its text are negative for special tokens and prompt.
    """
    offset = tiling.spans[number][0]
    inner = np.flatnonzero(places[:, 1] >= 0)
    first = 0
    stop = len(places)
    if len(inner):
        first = int(inner[0])
        stop = int(inner[-1]) + 1
    starts = places[:, 0] + offset
    ends = places[:, 1] + offset
    ends[:first] = -1
    ends[stop:] = np.iinfo(np.int64).max
    if number:
        first += int(np.searchsorted(starts[first:stop], tiling.bounds[number - 1], "left"))
    if number < len(tiling.bounds):
        stop = first + int(np.searchsorted(starts[first:stop], tiling.bounds[number], "left"))
    return Owned(ends, first, stop)


def _find_parts(
    tiling: Tiling, owned: Sequence[Owned], window: int, span: Span
) -> list[WindowPart]:
    """Return the owned tokens that end in a piece of a document whose first window is `window`.

    A piece of only characters that the tokenizer drops gets the token after it, or the last.
    """
    start, stop = span
    first_window = max(0, bisect_right(tiling.bounds, start) - 1)
    numbers = range(first_window, min(len(owned), bisect_left(tiling.bounds, stop) + 2))
    parts = []
    nearest = WindowPart(window, 0, len(owned[0].ends))
    for number in numbers:
        each = owned[number]
        low = max(int(np.searchsorted(each.ends, start, "right")), each.first)
        high = min(int(np.searchsorted(each.ends, stop, "right")), each.stop)
        if low < high:
            parts.append(WindowPart(window + number, low, high))
        elif each.first < each.stop and not parts:
            token = min(low, each.stop - 1)
            nearest = WindowPart(window + number, token, token + 1)
    return parts or [nearest]


def count_tokens(parts: Sequence[WindowPart]) -> int:
    """Count the tokens of a piece."""
    return sum(part.stop - part.first for part in parts)


def _hash_pieces(pieces: Sequence[Sequence[WindowPart]], texts: Sequence[str]) -> list[bytes]:
    """Hash the windows of each piece, and which of their tokens it has; `texts` are the windows."""
    digests = [hashlib.blake2b(text.encode(), digest_size=16).digest() for text in texts]
    keys = []
    for parts in pieces:
        named = [digests[part.window] + f"{part.first}-{part.stop};".encode() for part in parts]
        keys.append(hashlib.blake2b(b"".join(named), digest_size=16).digest())
    return keys
