"""Turn the ends of a text into atoms that fit into a budget: cut parts that are too long."""

import re
from dataclasses import dataclass

import numpy as np
from tokenizers import Encoding

from sentence_beam.transforms.corpus.chunks.ends import Ends, Level
from sentence_beam.transforms.corpus.chunks.pack import Atoms
from sentence_beam.transforms.corpus.chunks.token_counting import TokenCounter

UNKNOWN = -1  # the tokens of a part that is too long for any budget
# A text counts as at least one token per so many characters, because a word that the model does
# not know is a single token of any length.
_PER_TOKEN = 64
# blanks that BERT's tokenizer drops, so that words join
_DROPPED_BLANK = re.compile(r"[\x0b\x0c\x1c-\x1f\x85]")
_LONGEST_ATOM = 1024  # characters
_CLAUSE_MARKS = frozenset(".,;:!?…–—，、；：)]}»”")


def make_atoms(
    text: str, ends: Ends, tokens: np.ndarray, budget: int, counter: TokenCounter
) -> Atoms:
    """Return the atoms of a text: the parts between its ends, cut at words if over the budget.

    `tokens` [n] int64 in each part. If sums of tokens are not exact, a part that only just fits is
    cut too, so that pieces can be made smaller.
    """
    starts = ends.begins
    counts = np.maximum(tokens, (ends.places - starts) // _PER_TOKEN)
    most = budget if counter.adds_up else budget - budget // 8 - 1
    long = np.flatnonzero((tokens == UNKNOWN) | (counts > most))
    places: list[np.ndarray] = []
    levels: list[np.ndarray] = []
    sizes: list[np.ndarray] = []
    done = 0
    parts = (text[starts[number] : ends.places[number]] for number in long)
    for number, encoding in zip(long.tolist(), counter.tokens(parts), strict=True):
        inner = _cut_words(text, int(starts[number]), int(ends.places[number]), encoding)
        inner.levels[-1] = ends.levels[number]
        places += [ends.places[done:number], inner.places]
        levels += [ends.levels[done:number], inner.levels]
        sizes += [counts[done:number], inner.tokens]
        done = number + 1
    places.append(ends.places[done:])
    levels.append(ends.levels[done:])
    sizes.append(counts[done:])
    total = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
    adds_up = counter.adds_up and not _DROPPED_BLANK.search(text)
    return Atoms(text, np.concatenate(places), np.concatenate(levels), total, adds_up)


@dataclass(frozen=True)
class WordEnds:
    """Parts of a text between tokens: `places` [n] the end of each, `levels` [n], `tokens` [n]."""

    places: np.ndarray
    levels: np.ndarray
    tokens: np.ndarray


def _cut_words(text: str, start: int, stop: int, encoding: Encoding) -> WordEnds:
    """Return the parts of `text[start:stop]` between neighbouring tokens.

    The last part ends at `stop`; the caller sets its level.
    """
    offsets = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
    before = offsets[:-1, 1]
    after = offsets[1:, 0]
    # tokens for the bytes of one character all have the offsets of the character
    last = np.flatnonzero((after >= before) & (np.diff(before, append=stop) > 0) & (before > 0))
    words = encoding.word_ids
    places = (start + before[last]).tolist()
    rows: list[tuple[int, int, int]] = []  # place, level, tokens before it
    for token, place in zip(last.tolist(), places, strict=True):
        if place < stop and not text[place - 1].isspace():
            level = _choose_level(text, place, words[token] != words[token + 1])
            rows.append((place, level, token + 1))
    rows.append((stop, Level.INSIDE, len(words)))
    ends = np.array(rows, dtype=np.int64)
    sizes = np.diff(ends[:, 2], prepend=0)
    lengths = np.diff(ends[:, 0], prepend=start)
    if lengths.max(initial=0) > _LONGEST_ATOM:
        return _split_long(ends, sizes, lengths)
    return WordEnds(
        ends[:, 0], ends[:, 1].astype(np.int8), np.maximum(sizes, lengths // _PER_TOKEN)
    )


def _split_long(ends: np.ndarray, sizes: np.ndarray, lengths: np.ndarray) -> WordEnds:
    """Add an end every `_LONGEST_ATOM` characters inside longer parts."""
    places: list[int] = []
    levels: list[int] = []
    tokens: list[int] = []
    for (place, level, _), size, length in zip(
        ends.tolist(), sizes.tolist(), lengths.tolist(), strict=True
    ):
        inner = list(range(place - length + _LONGEST_ATOM, place, _LONGEST_ATOM))
        places += [*inner, place]
        levels += [Level.INSIDE] * len(inner) + [level]
        each = max(size, length // _PER_TOKEN) // (len(inner) + 1)
        tokens += [each] * len(inner) + [max(size, length // _PER_TOKEN) - each * len(inner)]
    return WordEnds(np.array(places), np.array(levels, dtype=np.int8), np.array(tokens))


def _choose_level(text: str, place: int, between_words: bool) -> Level:
    """Return the level of an end between two tokens that has no blank before it."""
    last = text[place - 1]
    following = text[place]
    if following.isspace():
        ends_clause = last in _CLAUSE_MARKS or following in "\r\n"
        return Level.CLAUSE if ends_clause else Level.BLANK
    if between_words:
        ends_clause = last in _CLAUSE_MARKS and last > "\x7f"
        return Level.CLAUSE if ends_clause else Level.WORD
    return Level.INSIDE
