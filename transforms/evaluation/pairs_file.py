"""Sentence pairs with human scores: tab-separated files with a header line `score sentence1 sentence2`."""

import csv
import io
import os
from dataclasses import dataclass

import numpy as np

from transforms import storage
from transforms.errors import OptionError

COLUMNS = ("score", "sentence1", "sentence2")


@dataclass(frozen=True)
class ScoredPairs:
    """The pairs of one file: its stem, gold scores float64 [n], first and second sentences."""

    name: str
    gold: np.ndarray
    first: list[str]
    second: list[str]


def read_pairs(path: str) -> ScoredPairs:
    """The pairs of a file; lines with an empty score are skipped. Raises `OptionError`, which names file and line."""
    try:
        text = storage.read_bytes(storage.absolute(path)).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"--task {path} cannot be read as UTF-8 text ({error}); check the path") from error
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter="\t", quoting=csv.QUOTE_NONE)
    missing = set(COLUMNS) - set(reader.fieldnames or ())
    if missing:
        raise OptionError(f"--task {path}: no column {min(missing)} in its header; it needs {', '.join(COLUMNS)}")
    gold, first, second = [], [], []
    for row in reader:
        if (row["score"] or "").strip():
            gold.append(_score(path, reader.line_num, row))
            first.append(row["sentence1"])
            second.append(row["sentence2"])
    if not gold:
        raise OptionError(f"--task {path} holds no scored pair; check the file")
    return ScoredPairs(os.path.splitext(os.path.basename(path))[0], np.array(gold), first, second)


def _score(path: str, line: int, row: dict[str, str | None]) -> float:
    try:
        value = float(row["score"] or "")
    except ValueError:
        value = float("nan")
    if not np.isfinite(value) or row["sentence1"] is None or row["sentence2"] is None:
        raise OptionError(f"--task {path}, line {line}: not a score and two sentences, tab-separated; mend the line")
    return value
