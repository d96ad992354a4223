"""Make probing tasks from the sentences of any text: can a vector tell a surface property?

They are like SentEval's files of these names (arXiv:1805.01070), with words as they are between
blanks.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Sequence

from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.evaluation import classifier as classifiers
from sentence_beam.transforms.evaluation import task_files
from sentence_beam.transforms.evaluation.kinds.classification import (
    WORD_CONTENT,
    Classification,
    LabelledTexts,
    check_labels,
    choose_classifier,
)

LENGTHS = ((5, 8), (9, 12), (13, 16), (17, 20), (21, 25), (26, 28))
# the targets of word content have the ranks 2,001 to 3,000, if these words are frequent enough
WORDS = 1000
MIDDLE = 2000
FEWEST = 10  # rows of a label; labels with fewer are left out
MOST = 120_000  # rows of a task, as SentEval has them

Labelled = list[tuple[str, str]]


def make(name: str, path: str, classifier: str) -> Classification:
    """Make the probing task of this name from a text file with a sentence a line.

    80 % of the rows are for training, 10 % each for dev and test. Labels are equally frequent.
    Raises OptionError for an unknown name and for a text with too few sentences.
    """
    if name not in MAKERS:
        raise OptionError(
            f"{cite('make')} {name}={path}: {name} is not known; say {', '.join(MAKERS)}"
        )
    classifiers.check_installed()
    sentences = list(dict.fromkeys(" ".join(line.split()) for line in task_files.read_lines(path)))
    rows = _balance(MAKERS[name]([sentence for sentence in sentences if sentence]))
    parts = [LabelledTexts([], []) for _ in range(3)]
    for place, (label, text) in enumerate(rows):
        part = parts[{8: 1, 9: 2}.get(place % 10, 0)]
        part.labels.append(label)
        part.texts.append(text)
    if len(rows) < 2 * FEWEST:
        raise OptionError(
            f"{cite('make')} {name}={path}: {len(rows)} sentences can be used, at least"
            f" {2 * FEWEST} are needed"
        )
    check_labels(f"probing:{name}", [part.labels for part in parts])
    return Classification(name, tuple(parts), choose_classifier(name, classifier), "probing")


def label_lengths(sentences: Sequence[str]) -> Labelled:
    """Return sentences of 5 to 28 words, labelled by one of six ranges of their length."""
    labelled = []
    for sentence in sentences:
        words = len(sentence.split())
        label = next((f"{low}-{high}" for low, high in LENGTHS if low <= words <= high), None)
        if label is not None:
            labelled.append((label, sentence))
    return labelled


def label_words(sentences: Sequence[str]) -> Labelled:
    """Return sentences with exactly one of 1,000 words of middling frequency, their label.

    A short text has fewer such words.
    """
    counts = Counter(word for sentence in sentences for word in sentence.split() if word.isalpha())
    ranked = [
        word
        for word, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        if count >= FEWEST
    ]
    first = MIDDLE
    number = WORDS
    if len(ranked) < MIDDLE + WORDS:
        first = len(ranked) // 2
        number = max(2, len(ranked) // FEWEST)
    targets = set(ranked[first : first + number])
    labelled = []
    for sentence in sentences:
        inside = [word for word in sentence.split() if word in targets]
        if len(inside) == 1:
            labelled.append((inside[0], sentence))
    return labelled


def shift_bigrams(sentences: Sequence[str]) -> Labelled:
    """Return sentences of which about half (I) have two different neighbouring words swapped.

    The others are labelled O.
    """
    labelled = []
    for sentence in sentences:
        words = sentence.split()
        places = [at for at in range(len(words) - 1) if words[at] != words[at + 1]]
        if len(words) < LENGTHS[0][0] or not places:
            continue
        chance = random.Random(_hash(sentence))
        if chance.random() < 0.5:
            at = chance.choice(places)
            words[at], words[at + 1] = words[at + 1], words[at]
            labelled.append(("I", " ".join(words)))
        else:
            labelled.append(("O", sentence))
    return labelled


MAKERS: dict[str, Callable[[Sequence[str]], Labelled]] = {
    "sentence-length": label_lengths,
    WORD_CONTENT: label_words,
    "bigram-shift": shift_bigrams,
}


def _balance(rows: Labelled) -> Labelled:
    """Return as many rows of each label, chosen and ordered by the hash of their texts.

    The labels take turns, ten rows each. Eight of ten consecutive rows are for training, so that
    each label is in all three parts.
    """
    by_label: dict[str, list[str]] = {}
    for label, text in sorted(rows, key=lambda row: _hash(row[1])):
        by_label.setdefault(label, []).append(text)
    by_label = {label: texts for label, texts in sorted(by_label.items()) if len(texts) >= FEWEST}
    size = min([len(texts) for texts in by_label.values()], default=0)
    size = min(size, MOST // max(1, len(by_label))) // FEWEST * FEWEST
    return [
        (label, text)
        for start in range(0, size, FEWEST)
        for label, texts in by_label.items()
        for text in texts[start : start + FEWEST]
    ]


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
