"""Probing tasks made from the sentences of any text: is a surface property still to be read off a
vector?

As SentEval's files of these names (arXiv:1805.01070), with the words as they stand between blanks.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Sequence

from transforms.base.errors import OptionError
from transforms.evaluation import classifier as classifiers
from transforms.evaluation import tables
from transforms.evaluation.kinds.classification import (
    WORD_CONTENT,
    Classification,
    LabelledTexts,
    check_labels,
    of_probe,
)

LENGTHS = ((5, 8), (9, 12), (13, 16), (17, 20), (21, 25), (26, 28))
# targets of word content, the words of rank 2,001 to 3,000 where these are frequent enough
WORDS = 1000
MIDDLE = 2000
FEWEST = 10  # rows of a label; labels with fewer are left out
MOST = 120_000  # rows of a task, as SentEval has them

Labelled = list[tuple[str, str]]


def make(name: str, path: str, classifier: str) -> Classification:
    """The probing task of this name from a text file with a sentence a line: 80 % training, 10 %
    dev and test each.

    Labels are equally frequent. Raises OptionError for an unknown name and for a text that has too
    few sentences.
    """
    if name not in MAKERS:
        raise OptionError(f"--make {name}={path}: {name} is not known; say {', '.join(MAKERS)}")
    classifiers.check_installed()
    sentences = list(dict.fromkeys(" ".join(line.split()) for line in tables.read_lines(path)))
    rows = _balanced(MAKERS[name]([sentence for sentence in sentences if sentence]))
    parts = [LabelledTexts([], []) for _ in range(3)]
    for place, (label, text) in enumerate(rows):
        part = parts[{8: 1, 9: 2}.get(place % 10, 0)]
        part.labels.append(label)
        part.texts.append(text)
    if len(rows) < 2 * FEWEST:
        raise OptionError(
            f"--make {name}={path}: {len(rows)} sentences can be used, at least {2 * FEWEST} are"
            " needed"
        )
    check_labels(f"probing:{name}", [part.labels for part in parts])
    return Classification(name, tuple(parts), of_probe(name, classifier), "probing")


def sentence_lengths(sentences: Sequence[str]) -> Labelled:
    """Sentences of 5 to 28 words, labelled by one of six ranges of their length."""
    found = []
    for sentence in sentences:
        words = len(sentence.split())
        label = next((f"{low}-{high}" for low, high in LENGTHS if low <= words <= high), None)
        if label is not None:
            found.append((label, sentence))
    return found


def word_contents(sentences: Sequence[str]) -> Labelled:
    """Sentences with exactly one of 1,000 words of middling frequency, of fewer in a short text,
    labelled by it.
    """
    counts = Counter(word for sentence in sentences for word in sentence.split() if word.isalpha())
    ranked = [
        word
        for word, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        if count >= FEWEST
    ]
    enough = len(ranked) >= MIDDLE + WORDS
    first, number = (MIDDLE, WORDS) if enough else (len(ranked) // 2, max(2, len(ranked) // FEWEST))
    targets = set(ranked[first : first + number])
    found = []
    for sentence in sentences:
        inside = [word for word in sentence.split() if word in targets]
        if len(inside) == 1:
            found.append((inside[0], sentence))
    return found


def bigram_shifts(sentences: Sequence[str]) -> Labelled:
    """Sentences of which half (I) have two neighbouring words, that differ, in each other's place;
    the rest is O.
    """
    found = []
    for sentence in sentences:
        words = sentence.split()
        places = [at for at in range(len(words) - 1) if words[at] != words[at + 1]]
        if len(words) < LENGTHS[0][0] or not places:
            continue
        chance = random.Random(_key(sentence))
        if chance.random() < 0.5:
            at = chance.choice(places)
            words[at], words[at + 1] = words[at + 1], words[at]
            found.append(("I", " ".join(words)))
        else:
            found.append(("O", sentence))
    return found


MAKERS: dict[str, Callable[[Sequence[str]], Labelled]] = {
    "sentence-length": sentence_lengths,
    WORD_CONTENT: word_contents,
    "bigram-shift": bigram_shifts,
}


def _balanced(rows: Labelled) -> Labelled:
    """As many rows of each label, chosen and ordered by the hash of their texts, the labels taking
    turns.

    Of ten rows of a label that follow each other eight go to the training part: a label is in all
    three parts.
    """
    by: dict[str, list[str]] = {}
    for label, text in sorted(rows, key=lambda row: _key(row[1])):
        by.setdefault(label, []).append(text)
    by = {label: texts for label, texts in sorted(by.items()) if len(texts) >= FEWEST}
    size = min([len(texts) for texts in by.values()], default=0)
    size = min(size, MOST // max(1, len(by))) // FEWEST * FEWEST
    return [
        (label, text)
        for start in range(0, size, FEWEST)
        for label, texts in by.items()
        for text in texts[start : start + FEWEST]
    ]


def _key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
