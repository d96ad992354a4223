"""From the ends of a text to atoms that fit into a budget: what is too long between two ends is cut
at its words.
"""

import re
from dataclasses import dataclass

import numpy as np
from tokenizers import Encoding

from transforms.corpus.chunks.counting import TokenCounter
from transforms.corpus.chunks.ends import Ends, Level
from transforms.corpus.chunks.pack import Atoms

UNKNOWN = -1  # the tokens of a part that is too long for any budget
# characters that count as a token at least: a word that the model does not know is one, however
# long
_PER_TOKEN = 64
# blanks that BERT's tokenizer drops, so that words join
_DROPPED_BLANK = re.compile(r"[\x0b\x0c\x1c-\x1f\x85]")
_LONGEST_ATOM = 1024  # characters
_CLAUSE_MARKS = frozenset(".,;:!?…–—，、；：)]}»”")


def refined(text: str, ends: Ends, tokens: np.ndarray, budget: int, counter: TokenCounter) -> Atoms:
    """The atoms of a text: the parts between its ends, `tokens` [n] in each, with those over the
    budget cut at words.

    Where sums of tokens are not exact, a part that only just fits is cut too, so that pieces can be
    made smaller.
    """
    starts, lengths = ends.begins, ends.places - ends.begins
    counts = np.maximum(tokens, lengths // _PER_TOKEN)
    most = budget if counter.adds_up else budget - budget // 8 - 1
    long = np.flatnonzero((tokens == UNKNOWN) | (counts > most))
    places, levels, sizes, done = [], [], [], 0
    parts = (text[starts[number] : ends.places[number]] for number in long)
    for number, encoding in zip(long.tolist(), counter.tokens(parts), strict=True):
        inner = _words(text, int(starts[number]), int(ends.places[number]), encoding)
        inner.levels[-1] = ends.levels[number]
        places += [ends.places[done:number], inner.places]
        levels += [ends.levels[done:number], inner.levels]
        sizes += [counts[done:number], inner.tokens]
        done = number + 1
    places, levels, sizes = (
        [*places, ends.places[done:]],
        [*levels, ends.levels[done:]],
        [*sizes, counts[done:]],
    )
    total = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
    adds_up = counter.adds_up and not _DROPPED_BLANK.search(text)
    return Atoms(text, np.concatenate(places), np.concatenate(levels), total, adds_up)


@dataclass(frozen=True)
class WordEnds:
    """The parts of a text between tokens that may be parted: `places` [n] where each ends,
    `levels`, `tokens` in it.
    """

    places: np.ndarray
    levels: np.ndarray
    tokens: np.ndarray


def _words(text: str, start: int, stop: int, encoding: Encoding) -> WordEnds:
    """The parts of `text[start:stop]` between neighbouring tokens; the last ends at `stop`, its
    level is left open.
    """
    offsets = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
    before, after = offsets[:-1, 1], offsets[1:, 0]
    # of the tokens that are bytes of one character each has the whole character's place
    last = np.flatnonzero((after >= before) & (np.diff(before, append=stop) > 0) & (before > 0))
    words = encoding.word_ids
    places = (start + before[last]).tolist()
    kept: list[tuple[int, int, int]] = []  # place, level, tokens before it
    for token, place in zip(last.tolist(), places, strict=True):
        if place < stop and not text[place - 1].isspace():
            kept.append((place, _level(text, place, words[token] != words[token + 1]), token + 1))
    kept.append((stop, Level.INSIDE, len(words)))
    found = np.array(kept, dtype=np.int64)
    sizes = np.diff(found[:, 2], prepend=0)
    lengths = np.diff(found[:, 0], prepend=start)
    if lengths.max(initial=0) > _LONGEST_ATOM:
        return _stepped(found, sizes, lengths)
    return WordEnds(
        found[:, 0], found[:, 1].astype(np.int8), np.maximum(sizes, lengths // _PER_TOKEN)
    )


def _stepped(found: np.ndarray, sizes: np.ndarray, lengths: np.ndarray) -> WordEnds:
    """The same with ends every so often in what has none."""
    places, levels, tokens = [], [], []
    for (place, level, _), size, length in zip(
        found.tolist(), sizes.tolist(), lengths.tolist(), strict=True
    ):
        inner = list(range(place - length + _LONGEST_ATOM, place, _LONGEST_ATOM))
        places += [*inner, place]
        levels += [Level.INSIDE] * len(inner) + [level]
        each = max(size, length // _PER_TOKEN) // (len(inner) + 1)
        tokens += [each] * len(inner) + [max(size, length // _PER_TOKEN) - each * len(inner)]
    return WordEnds(np.array(places), np.array(levels, dtype=np.int8), np.array(tokens))


def _level(text: str, place: int, between_words: bool) -> Level:
    """How good an end is that lies between two tokens, no blank before it."""
    last, following = text[place - 1], text[place]
    if following.isspace():
        return Level.CLAUSE if last in _CLAUSE_MARKS or following in "\r\n" else Level.BLANK
    if between_words:
        return Level.CLAUSE if last in _CLAUSE_MARKS and last > "\x7f" else Level.WORD
    return Level.INSIDE
