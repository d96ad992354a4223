"""Token ids of ASCII texts from a table of known words: the tokenizer reads each word once.

The ids of a text are those of its words, one after the other (`split_texts`). A text with other
characters, or with the tokenizer's special tokens in it, goes the tokenizer's own way.

Nearly all of it is done by numpy on whole arrays, outside Python's lock, so that threads work side
by side.
"""

import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import Tokenizer

from sentence_beam.transforms.base.arrow_arrays import as_mask, make_mask_array, make_string_array
from sentence_beam.transforms.base.gather import list_places
from sentence_beam.transforms.tokens.split_texts import (
    SplitTexts,
    choose_splitter,
    find_unusual_texts,
)
from sentence_beam.transforms.tokens.word_table import (
    EMPTY_TABLE,
    WordKeys,
    WordTable,
    find_first_of_each,
)

# Most words that are known, about 30 MB: text of random letters would fill it without end.
MOST_WORDS = 500_000
_MANY_WORDS = 1000  # of texts that are tokenized together


@dataclass(frozen=True)
class OwnTokens:
    """The token ids of `B` texts, joined in order: `ids` [N] int32, `offsets` [B + 1] int64."""

    ids: np.ndarray
    offsets: np.ndarray


@dataclass(frozen=True)
class KnownWords:
    """Words with the ids of their pieces; it does not change, so that threads may read it.

    Word w of `table` has the `lengths[w]` ids from `starts[w]` on; word 0 stands for none.
    """

    table: WordTable
    starts: np.ndarray
    lengths: np.ndarray
    ids: np.ndarray

    def add_words(self, keys: WordKeys, pieces: OwnTokens) -> "KnownWords":
        """Add distinct words and their pieces, without those that are known."""
        new = np.flatnonzero(self.table.find(keys) == 0)
        starts = len(self.ids) + pieces.offsets[:-1]
        return KnownWords(
            self.table.add_words(keys.take(new)),
            np.concatenate([self.starts, starts[new]]),
            np.concatenate([self.lengths, np.diff(pieces.offsets)[new]]),
            np.concatenate([self.ids, pieces.ids]),
        )


_NO_PIECES = np.zeros(1, np.int64)
NO_WORDS = KnownWords(EMPTY_TABLE, _NO_PIECES, _NO_PIECES, np.zeros(0, np.int32))


class WordPieces:
    """A tokenizer with a table of words, for tokenizers that pass `is_split_at_words`.

    Threads may share it. It adds no special tokens and truncates nothing.
    """

    def __init__(self, tokenizer: Tokenizer, most_words: int = MOST_WORDS) -> None:
        self._tokenizer = Tokenizer.from_str(tokenizer.to_str())
        self._tokenizer.no_truncation()
        split = choose_splitter(tokenizer)
        assert split is not None, "a tokenizer whose ids are not those of words"
        self._split = split
        self._most_words = most_words
        added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
        self._added = "|".join(re.escape(content) for content in added if content)
        self._lock = threading.Lock()
        self.known = NO_WORDS

    def has_words_of(self, texts: pa.StringArray) -> np.ndarray:
        """Return which texts can be tokenized by their words, [B] bool.

        These have only printable ASCII characters, tabs and line ends, and no special or added
        token.
        """
        is_whole = np.ones(len(texts), bool)
        if self._added:
            is_whole = ~as_mask(pc.match_substring_regex(texts, self._added, ignore_case=True))
        is_whole[find_unusual_texts(texts)] = False
        return is_whole

    def __call__(self, texts: pa.StringArray) -> OwnTokens:
        """The ids of texts for which `has_words_of` holds."""
        split = self._split(texts)
        keys = WordKeys.from_split(split)
        words = self.known
        numbers = words.table.find(keys)
        while not numbers.all():  # another thread may begin again with no words
            new = find_first_of_each(keys, np.flatnonzero(numbers == 0))
            if _are_mostly_new(len(new), len(numbers)):
                return self._tokenize(texts.to_pylist())
            words = self._learn(split, keys, new)
            numbers = words.table.find(keys)
        lengths = words.lengths.take(numbers)
        ends = np.concatenate([[0], np.cumsum(lengths)])
        tokens = list_places(words.starts.take(numbers), lengths)
        return OwnTokens(words.ids.take(tokens), ends[split.offsets])

    def count(self, texts: Sequence[str]) -> np.ndarray:
        """Count the tokens of each text, which may have any characters, [B] int64."""
        array = make_string_array(texts)
        has_words = self.has_words_of(array)
        counts = np.empty(len(texts), np.int64)
        counts[has_words] = np.diff(self(array.filter(make_mask_array(has_words))).offsets)
        others = [texts[row] for row in np.flatnonzero(~has_words).tolist()]
        encodings = self._tokenizer.encode_batch_fast(others, add_special_tokens=False)
        counts[~has_words] = np.fromiter(map(len, encodings), np.int64, len(others))
        return counts

    def _tokenize(self, texts: list[str]) -> OwnTokens:
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        lengths = np.fromiter(map(len, encodings), np.int64, len(encodings))
        ids = chain.from_iterable(encoding.ids for encoding in encodings)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        return OwnTokens(np.fromiter(ids, np.int32, int(offsets[-1])), offsets)

    def _learn(self, split: SplitTexts, keys: WordKeys, new: np.ndarray) -> KnownWords:
        """Return known words with the new ones, or with all words of these texts and no others."""
        begins_again = self.known.table.count + len(new) > self._most_words
        if begins_again:
            new = find_first_of_each(keys, np.arange(len(keys)))
        pieces = self._tokenize(split.words(new))
        with self._lock:
            words = NO_WORDS if begins_again else self.known
            self.known = words.add_words(keys.take(new), pieces)
            return self.known


def _are_mostly_new(new: int, words: int) -> bool:
    """Return whether most of many words are new: numbers and hashes, which do not come again.

    To learn a word takes up to three times as long as to encode it in its text.
    """
    return words >= _MANY_WORDS and 2 * new > words


@dataclass(frozen=True)
class TokenFrame:
    """The ids of special tokens `before` and `after` each text, and how texts are truncated.

    A text keeps at most `room` tokens of its own (None: all), the last ones if `keeps_end`.
    """

    before: Sequence[int]
    after: Sequence[int]
    room: int | None
    keeps_end: bool

    def around(self, own: OwnTokens) -> OwnTokens:
        """Truncate each text to its room and put the special tokens around it."""
        kept = self._truncate(own)
        framed = np.diff(kept.offsets) + (len(self.before) + len(self.after))
        offsets = np.concatenate([[0], np.cumsum(framed)])
        ids = np.empty(int(offsets[-1]), np.int32)
        is_own = np.ones(len(ids), bool)
        special = [(offsets[:-1] + place, token) for place, token in enumerate(self.before)]
        end = offsets[1:] - len(self.after)
        special += [(end + place, token) for place, token in enumerate(self.after)]
        for places, token in special:
            ids[places] = token
            is_own[places] = False
        ids[np.flatnonzero(is_own)] = kept.ids
        return OwnTokens(ids, offsets)

    def _truncate(self, own: OwnTokens) -> OwnTokens:
        lengths = np.diff(own.offsets)
        if self.room is None or lengths.max(initial=0) <= self.room:
            return own
        kept = np.minimum(lengths, self.room)
        first = own.offsets[1:] - kept if self.keeps_end else own.offsets[:-1]
        offsets = np.concatenate([[0], np.cumsum(kept)])
        return OwnTokens(own.ids[list_places(first, kept)], offsets)


def read_frame(tokenizer: Tokenizer) -> TokenFrame:
    """Return the special tokens that a tokenizer puts around a text, and its truncation.

    Raises ValueError if it makes no token of a text.
    """
    encoding = tokenizer.encode("a")
    is_special = np.array(encoding.special_tokens_mask) == 1
    ids = np.array(encoding.ids)
    own = np.flatnonzero(~is_special)
    if not len(own):
        raise ValueError("it makes no token of a text")
    room = None
    keeps_end = False
    if tokenizer.truncation is not None:
        room = tokenizer.truncation["max_length"] - int(is_special.sum())
        keeps_end = tokenizer.truncation["direction"] == "left"
    return TokenFrame(ids[: own[0]].tolist(), ids[own[-1] + 1 :].tolist(), room, keeps_end)
