"""Pairs of sentences with scores or labels, in the layouts they are published in."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from transforms import storage
from transforms.base.errors import OptionError
from transforms.evaluation import tables

SIDES = ("sentence1", "sentence2")
SIDES_ALSO = (  # as the hub has NLI, QNLI and QQP, and as MRPC's own files have it
    SIDES,
    ("premise", "hypothesis"),
    ("question", "sentence"),
    ("question1", "question2"),
    ("#1 String", "#2 String"),
)
LABELS = ("label", "is_duplicate", "Quality")  # the last two are QQP's and MRPC's
YES, NO = ("1", "true", "yes"), ("0", "false", "no")
# NLI whose annotators did not agree, and hidden labels of the hub's test sets
UNLABELLED = ("-", "-1")
SICK_SIDES = ("sentence_A", "sentence_B")
SICK_LABELS = ("entailment_label", "entailment_judgment")
SICK_SETS = ("TRAIN", "TRIAL", "TEST")
INPUT, GOLD = "STS.input.", "STS.gs."

Pairs = TypeVar("Pairs")


@dataclass(frozen=True)
class ScoredPairs:
    """The pairs of one subset: its name, gold scores float64 [n], first and second sentences."""

    name: str
    gold: np.ndarray
    first: list[str]
    second: list[str]


@dataclass(frozen=True)
class LabelledPairs:
    """Pairs of sentences with a label each; `unlabelled` more of the file have none, and are left
    out.
    """

    labels: list[str]
    first: list[str]
    second: list[str]
    unlabelled: int = 0


def read_subsets(path: str) -> list[ScoredPairs]:
    """The subsets that a path names; lines with an empty score are skipped.

    A file with the columns score, sentence1, sentence2; a folder with STS.input.NAME.txt and
    STS.gs.NAME.txt; an sts-*.csv of the STS benchmark; SICK.txt (its test pairs) or one of its
    parts. Raises `OptionError`, which names file and line.
    """
    official = [
        name for name in tables.files_in(path) if name.startswith(INPUT) and name.endswith(".txt")
    ]
    if official:
        return [_official(path, name) for name in official]
    return [read_pairs(path, "TEST")]


def read_pairs(path: str, part: str | None = None) -> ScoredPairs:
    """The scored pairs of a file; of a SICK.txt with all its parts, those of one (TRAIN, TRIAL,
    TEST), all for None.
    """
    gold, first, second = [], [], []
    for line, (text, one, other) in _rows(path, "score", ("relatedness_score",), part):
        if text.strip():
            gold.append(tables.number(path, line, text))
            first.append(one)
            second.append(other)
    return _some(path, ScoredPairs(tables.stem(path), np.array(gold), first, second))


def read_labelled(path: str, part: str | None = None) -> LabelledPairs:
    """The labelled pairs of a file with the columns label, sentence1, sentence2, or of SICK, as
    `read_pairs`.

    The columns may have the names of NLI, QNLI, QQP or MRPC (`SIDES_ALSO`, `LABELS`). Pairs with
    the label - or -1 are left out.
    """
    labels, first, second = [], [], []
    unlabelled = 0
    value = label_column(tables.read_header(path))
    for line, (text, one, other) in _rows(path, value, SICK_LABELS, part):
        label = tables.label(path, line, text)
        if label in UNLABELLED:
            unlabelled += 1
            continue
        labels.append(label)
        first.append(one)
        second.append(other)
    if not labels:
        raise OptionError(f"--task {path} holds no labelled pair; check the file")
    return LabelledPairs(labels, first, second, unlabelled)


def read_splits(paths: Sequence[str], read: Callable[[str, str | None], Pairs]) -> list[Pairs]:
    """Training, development and test pairs of three files, or of one SICK.txt that has all of
    them.
    """
    if len(paths) == 1 and "SemEval_set" in tables.read_header(paths[0]):
        return [read(paths[0], part) for part in SICK_SETS]
    return [read(path, None) for path in paths]


def distinct(subsets: Sequence[ScoredPairs]) -> tuple[ScoredPairs, ...]:
    """The subsets with a number after a name that an earlier one has."""
    names = [subset.name for subset in subsets]
    return tuple(
        replace(subset, name=f"{subset.name} ({seen + 1})")
        if (seen := names[:place].count(subset.name))
        else subset
        for place, subset in enumerate(subsets)
    )


def _rows(path: str, value: str, of_sick: Sequence[str], part: str | None) -> list[tables.Row]:
    """The lines of a file in any layout, as value and two sentences."""
    header = tables.read_header(path)
    if value not in header and SICK_SIDES[0] in header:
        named = next((name for name in of_sick if name in header), of_sick[0])
        if "SemEval_set" in header and part is not None:
            rows = tables.read_table(path, (named, *SICK_SIDES, "SemEval_set"))
            return [(line, row[:3]) for line, row in rows if row[3].strip() == part]
        return list(tables.read_table(path, (named, *SICK_SIDES)))
    if (
        value == "score"
        and "score" not in header
        and path.endswith(".csv")
        and _is_sts_benchmark(path)
    ):
        columns = ("score", *SIDES)
        lines = [
            (line, text.split("\t")) for line, text in enumerate(tables.read_lines(path), 1) if text
        ]
        return [
            (line, [tables.cell(path, line, row, place, columns) for place in (4, 5, 6)])
            for line, row in lines
        ]
    return list(tables.read_table(path, (value, *sides_of(header))))


def label_column(header: Sequence[str]) -> str:
    """The name of the column of labels in a header."""
    return next((name for name in LABELS if name in header), LABELS[0])


def sides_of(header: Sequence[str]) -> tuple[str, str]:
    """The names of the columns of both sentences in a header."""
    return next((sides for sides in SIDES_ALSO if set(sides) <= set(header)), SIDES)


def _is_sts_benchmark(path: str) -> bool:
    """Whether a file is one of the STS benchmark, which have tabs in spite of their names, and no
    header.
    """
    lines = tables.read_lines(path)
    return bool(lines) and lines[0].count("\t") >= 6


def _official(folder: str, name: str) -> ScoredPairs:
    """One subset of an official STS folder: sentences in one file, gold scores in the other, line
    by line.
    """
    path, gold_path = (
        storage.join(folder, name),
        storage.join(folder, GOLD + name.removeprefix(INPUT)),
    )
    texts, scores = tables.read_lines(path), tables.read_lines(gold_path)
    if len(texts) != len(scores):
        raise OptionError(
            f"--task {path} has {len(texts)} lines and {gold_path} {len(scores)}; check both files"
        )
    gold, first, second = [], [], []
    for line, (text, score) in enumerate(zip(texts, scores, strict=True), 1):
        if score.strip():
            row = text.split("\t")
            gold.append(tables.number(gold_path, line, score))
            first.append(tables.cell(path, line, row, 0, SIDES))
            second.append(tables.cell(path, line, row, 1, SIDES))
    return _some(
        path,
        ScoredPairs(name.removeprefix(INPUT).removesuffix(".txt"), np.array(gold), first, second),
    )


def _some(path: str, pairs: ScoredPairs) -> ScoredPairs:
    if not len(pairs.gold):
        raise OptionError(f"--task {path} holds no scored pair; check the file")
    return pairs
