"""Read pairs of sentences with scores or labels, in the layouts they are published in."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.evaluation import task_files

SIDES = ("sentence1", "sentence2")
SIDES_ALSO = (  # of NLI, QNLI and QQP on the hub, and of MRPC's own files
    SIDES,
    ("premise", "hypothesis"),
    ("question", "sentence"),
    ("question1", "question2"),
    ("#1 String", "#2 String"),
)
LABELS = ("label", "is_duplicate", "Quality")  # the last two are QQP's and MRPC's
YES = ("1", "true", "yes")
NO = ("0", "false", "no")
# pairs of NLI whose annotators disagreed, and hidden labels of the hub's test sets
UNLABELLED = ("-", "-1")
SICK_SIDES = ("sentence_A", "sentence_B")
SICK_LABELS = ("entailment_label", "entailment_judgment")
SICK_SETS = ("TRAIN", "TRIAL", "TEST")
INPUT = "STS.input."
GOLD = "STS.gs."

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
    """Pairs of sentences with a label each.

    `unlabelled` counts the pairs of the file that have none and are left out.
    """

    labels: list[str]
    first: list[str]
    second: list[str]
    unlabelled: int = 0


def read_subsets(path: str) -> list[ScoredPairs]:
    """Read the subsets that a path names; lines with an empty score are skipped.

    A file with the columns score, sentence1, sentence2; a folder with STS.input.NAME.txt and
    STS.gs.NAME.txt; an sts-*.csv of the STS benchmark; SICK.txt (its test pairs) or one of its
    parts. Raises `OptionError`, which names file and line.
    """
    official = [
        name
        for name in task_files.list_folder(path)
        if name.startswith(INPUT) and name.endswith(".txt")
    ]
    if official:
        return [_read_official(path, name) for name in official]
    return [read_pairs(path, "TEST")]


def read_pairs(path: str, part: str | None = None) -> ScoredPairs:
    """Read the scored pairs of a file.

    `part` (TRAIN, TRIAL or TEST) selects pairs of a SICK.txt that has all its parts; None selects
    all.
    """
    gold = []
    first = []
    second = []
    for line, (text, text_a, text_b) in _read_rows(path, "score", ("relatedness_score",), part):
        if text.strip():
            gold.append(task_files.parse_number(path, line, text))
            first.append(text_a)
            second.append(text_b)
    return _check_some(path, ScoredPairs(task_files.stem(path), np.array(gold), first, second))


def read_labelled(path: str, part: str | None = None) -> LabelledPairs:
    """Read labelled pairs from a file with the columns label, sentence1, sentence2, or from SICK.

    The columns may have the names of NLI, QNLI, QQP or MRPC (`SIDES_ALSO`, `LABELS`). `part` is as
    for `read_pairs`. Pairs with the label - or -1 are left out.
    """
    labels = []
    first = []
    second = []
    unlabelled = 0
    value = find_label_column(task_files.read_header(path))
    for line, (text, text_a, text_b) in _read_rows(path, value, SICK_LABELS, part):
        label = task_files.parse_label(path, line, text)
        if label in UNLABELLED:
            unlabelled += 1
            continue
        labels.append(label)
        first.append(text_a)
        second.append(text_b)
    if not labels:
        raise OptionError(f"{cite('task')} {path} holds no labelled pair; check the file")
    return LabelledPairs(labels, first, second, unlabelled)


def read_splits(paths: Sequence[str], read: Callable[[str, str | None], Pairs]) -> list[Pairs]:
    """Read training, development and test pairs from files, or from one SICK.txt with all three."""
    if len(paths) == 1 and "SemEval_set" in task_files.read_header(paths[0]):
        return [read(paths[0], part) for part in SICK_SETS]
    return [read(path, None) for path in paths]


def number_names(subsets: Sequence[ScoredPairs]) -> tuple[ScoredPairs, ...]:
    """Return the subsets with a number after a name that an earlier one has."""
    seen: Counter[str] = Counter()
    renamed = []
    for subset in subsets:
        seen[subset.name] += 1
        number = seen[subset.name]
        name = f"{subset.name} ({number})" if number > 1 else subset.name
        renamed.append(replace(subset, name=name))
    return tuple(renamed)


def _read_rows(
    path: str, value: str, sick_values: Sequence[str], part: str | None
) -> list[task_files.Row]:
    """Read a file in any layout as rows of a value and two sentences."""
    header = task_files.read_header(path)
    if value not in header and SICK_SIDES[0] in header:
        named = next((name for name in sick_values if name in header), sick_values[0])
        if "SemEval_set" in header and part is not None:
            rows = task_files.read_table(path, (named, *SICK_SIDES, "SemEval_set"))
            return [(line, row[:3]) for line, row in rows if row[3].strip() == part]
        return list(task_files.read_table(path, (named, *SICK_SIDES)))
    may_be_benchmark = value == "score" and "score" not in header and path.endswith(".csv")
    if may_be_benchmark and _is_sts_benchmark(path):
        return _read_sts_benchmark(path)
    return list(task_files.read_table(path, (value, *find_sides(header))))


def _read_sts_benchmark(path: str) -> list[task_files.Row]:
    """Read score and sentences from the fifth to the seventh column."""
    rows: list[task_files.Row] = []
    columns = ("score", *SIDES)
    for line, text in enumerate(task_files.read_lines(path), 1):
        if text:
            cells = text.split("\t")
            values = [
                task_files.read_cell(path, line, cells, place, columns) for place in (4, 5, 6)
            ]
            rows.append((line, values))
    return rows


def find_label_column(header: Sequence[str]) -> str:
    """Return the name of the column of labels in a header."""
    return next((name for name in LABELS if name in header), LABELS[0])


def find_sides(header: Sequence[str]) -> tuple[str, str]:
    """Return the names of the columns of both sentences in a header."""
    return next((sides for sides in SIDES_ALSO if set(sides) <= set(header)), SIDES)


def _is_sts_benchmark(path: str) -> bool:
    """Whether a file belongs to the STS benchmark.

    Its files have tabs in spite of their names, and no header.
    """
    lines = task_files.read_lines(path)
    return bool(lines) and lines[0].count("\t") >= 6


def _read_official(folder: str, name: str) -> ScoredPairs:
    """Read one subset of an official STS folder.

    One file has the sentences, the other the gold scores, line by line.
    """
    path = storage.join(folder, name)
    gold_path = storage.join(folder, GOLD + name.removeprefix(INPUT))
    texts = task_files.read_lines(path)
    scores = task_files.read_lines(gold_path)
    if len(texts) != len(scores):
        raise OptionError(
            f"{cite('task')} {path} has {len(texts)} lines and {gold_path} {len(scores)}; check"
            " both files"
        )
    gold = []
    first = []
    second = []
    for line, (text, score) in enumerate(zip(texts, scores, strict=True), 1):
        if score.strip():
            row = text.split("\t")
            gold.append(task_files.parse_number(gold_path, line, score))
            first.append(task_files.read_cell(path, line, row, 0, SIDES))
            second.append(task_files.read_cell(path, line, row, 1, SIDES))
    subset = name.removeprefix(INPUT).removesuffix(".txt")
    return _check_some(path, ScoredPairs(subset, np.array(gold), first, second))


def _check_some(path: str, pairs: ScoredPairs) -> ScoredPairs:
    if not len(pairs.gold):
        raise OptionError(f"{cite('task')} {path} holds no scored pair; check the file")
    return pairs
