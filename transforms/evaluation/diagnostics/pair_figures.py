"""Figures of pairs of texts: alignment, edit distance and cosine, ROC-AUC of answers."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, TypeVar

import numpy as np

from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.calibration.quality import alignment, average_ranks, cosines, spearman
from sentence_beam.transforms.evaluation import task_files
from sentence_beam.transforms.evaluation.diagnostics.drawn_samples import Smallest, compute_keys
from sentence_beam.transforms.evaluation.diagnostics.figure_rows import PAIRS, Row, figure
from sentence_beam.transforms.evaluation.pair_files import SIDES, read_labelled, read_subsets

FORM = "[sts:]NAME=PATH[,PATH] or qa:NAME=PATH"
NEAR = 4  # edits of the pairs in BERT-flow's figure 3
SHOWN = 5  # labels in an error
ALIGNED = 4.0  # the score above which a pair counts for alignment
Value = TypeVar("Value", float, str)
ANSWERS = frozenset(("entailment", "true", "yes"))
OTHERS = frozenset(("not_entailment", "not entailment", "false", "no"))


@dataclass(frozen=True)
class Pairs:
    """The pairs drawn from `total`: two texts each, with gold scores, or with answers and others.

    `gold` float64 [n] and `answers` bool [n] are None if the data have none. If `made` is set, the
    wrong answers are answers of other questions.
    """

    name: str
    total: int
    first: list[str]
    second: list[str]
    gold: np.ndarray | None = None
    answers: np.ndarray | None = None
    made: bool = False


def read(word: str, want: int, labels: Collection[str] = ()) -> Pairs:
    """Read the pairs of one `--task` and draw `want` of them; `labels` are those of answers.

    Raises OptionError for another form, and if only a guess could tell which labels are answers.
    """
    kind, name, listed = task_files.split_word(word)
    if not name or not listed or kind not in ("sts", "qa"):
        raise OptionError(f"{cite('task')} {word}: say {FORM}")
    if kind == "sts":
        return _read_scored(name, listed.split(","), want)
    return _read_questions(name, listed, want, labels)


def _read_scored(name: str, paths: Sequence[str], want: int) -> Pairs:
    subsets = [subset for path in paths for subset in read_subsets(path)]
    rows = [row for s in subsets for row in zip(s.first, s.second, s.gold.tolist(), strict=True)]
    drawn = _draw(rows, want)
    first, second, gold = zip(*drawn, strict=True)
    return Pairs(name, len(rows), list(first), list(second), gold=np.array(gold))


def _read_questions(name: str, path: str, want: int, labels: Collection[str]) -> Pairs:
    """Read questions and answers: QNLI's columns, or two columns of any name.

    Of two columns every question is also paired with the answer of another one.
    """
    header = task_files.read_header(path)
    if "label" in header:
        pairs = read_labelled(path)
        right_labels = _find_answers(
            sorted(set(pairs.labels)), labels, f"{cite('task')} qa:{name}={path}"
        )
        drawn = _draw(list(zip(pairs.first, pairs.second, pairs.labels, strict=True)), want)
        answers = np.array([label in right_labels for _, _, label in drawn])
        first = [row[0] for row in drawn]
        second = [row[1] for row in drawn]
        return Pairs(name, len(pairs.labels), first, second, answers=answers)
    if len(header) != 2:
        raise OptionError(
            f"{cite('task')} qa:{name}={path}: it needs label, {', '.join(SIDES)}, or two columns:"
            " say which"
        )
    rows = [(row[0], row[1], "") for _, row in task_files.read_table(path, header)]
    drawn = _draw(rows, max(want // 2, 1))
    if len(drawn) < 2:
        raise OptionError(
            f"{cite('task')} qa:{name}={path} holds fewer than two pairs; check the file"
        )
    questions = [row[0] for row in drawn]
    right = [row[1] for row in drawn]
    answers = np.repeat([True, False], len(drawn))
    return Pairs(
        name, len(rows), questions * 2, [*right, *right[1:], right[0]], answers=answers, made=True
    )


def _find_answers(labels: Sequence[str], named: Collection[str], task: str) -> set[str]:
    """Return the labels of answers among those of a file: as given, else by their words.

    Numbers are ambiguous: 1 is an answer in some files, and 0 in the QNLI of Hugging Face's hub.
    """
    shown = ", ".join(map(repr, labels[:SHOWN]))
    if named:
        unknown = sorted(set(named) - set(labels))
        if unknown:
            raise OptionError(
                f"{task}: {cite('labels')} {unknown[0]} is none of its labels; there are {shown}"
            )
        return set(named)
    words = {label: label.lower() for label in labels}
    odd = next((label for label, word in words.items() if word not in ANSWERS | OTHERS), None)
    if odd is not None:
        raise OptionError(
            f"{task}: its labels are {shown}; say which are answers by {cite('labels')}, as in"
            f" {cite('labels')} {odd} (on Hugging Face's hub 0 in QNLI is an answer)"
        )
    return {label for label, word in words.items() if word in ANSWERS}


def _draw(rows: Sequence[tuple[str, str, Value]], want: int) -> list[tuple[str, str, Value]]:
    smallest: Smallest[tuple[str, str, Value]] = Smallest(want)
    keys = compute_keys(
        [f"{row[0]}\0{row[1]}" for row in rows], [str(place) for place in range(len(rows))]
    )
    for key, row in zip(keys, rows, strict=True):
        smallest.add(key, row)
    return smallest.items()


def pair_figures(
    pooler: str,
    pairs: Pairs,
    a: np.ndarray,
    b: np.ndarray,
    edits: np.ndarray | None,
    requested: Collection[str],
) -> list[Row]:
    """Return the requested figures of a pooler's vectors of both sides, float32 [n, d].

    `edits` are `edit_distances`. Correlations and areas are times 100.
    """
    n = len(pairs.first)
    near = cosines(a, b)
    rows = []
    more: dict[str, Any] = {"task": pairs.name}
    if "alignment" in requested and pairs.gold is not None:
        aligned = int((pairs.gold > ALIGNED).sum())
        rows.append(
            figure("alignment", alignment(a, b, pairs.gold, ALIGNED), aligned, pooler, **more)
        )
    if "edit-distance" in requested and edits is not None:
        for name, chosen in (("all", np.ones(n, bool)), (f"at most {NEAR} edits", edits <= NEAR)):
            value = 100 * _spearman(near[chosen], edits[chosen])
            count = int(chosen.sum())
            rows.append(figure("edit-distance", value, count, pooler, pairs=name, **more))
        if pairs.gold is not None:
            rows.append(figure("spearman", 100 * _spearman(near, pairs.gold), n, pooler, **more))
    if PAIRS in requested:
        rows += _list_pairs(pooler, pairs, near, edits)
    if "auc" in requested and pairs.answers is not None:
        rows.append(
            figure("auc", 100 * area(near, pairs.answers), n, pooler, made=pairs.made, **more)
        )
    return rows


def _list_pairs(pooler: str, pairs: Pairs, near: np.ndarray, edits: np.ndarray | None) -> list[Row]:
    """Return the cosine of every pair with its edits and gold score (BERT-flow, figure 2)."""
    counted = [None] * len(near) if edits is None else edits.tolist()
    scores = [None] * len(near) if pairs.gold is None else pairs.gold.tolist()
    return [
        figure("pair", value, 1, pooler, place=place, edits=edit, gold=gold, task=pairs.name)
        for place, (value, edit, gold) in enumerate(
            zip(near.tolist(), counted, scores, strict=True)
        )
    ]


def agreement_figures(pairs: Pairs, near: Mapping[str, np.ndarray]) -> list[Row]:
    """Correlate the cosines, float64 [n], of every two methods by Spearman, times 100."""
    return [
        figure(
            "agreement",
            100 * _spearman(near[one], near[other]),
            len(pairs.first),
            one,
            other=other,
            task=pairs.name,
        )
        for one, other in combinations(near, 2)
    ]


def gold_figures(pairs: Pairs, edits: np.ndarray | None) -> list[Row]:
    """Correlate the gold scores with the edit distance, whatever the vectors."""
    if pairs.gold is None or edits is None:
        return []
    value = 100 * _spearman(pairs.gold, edits)
    return [figure("edit-distance", value, len(edits), "gold", pairs="all", task=pairs.name)]


def _spearman(a: np.ndarray, b: np.ndarray) -> float:
    return spearman(a, b) if len(a) > 1 else math.nan


def area(scores: np.ndarray, answers: np.ndarray) -> float:
    """Return the share of (answer, other) pairs in which the answer scores higher (ROC-AUC).

    Ties count half. NaN if all are answers, or none.
    """
    right = int(answers.sum())
    wrong = len(answers) - right
    if not right or not wrong:
        return math.nan
    return (float(average_ranks(scores)[answers].sum()) - right * (right + 1) / 2) / (right * wrong)


def edit_distances(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> np.ndarray:
    """Return the tokens to insert, delete or replace between two lists of token ids, int64 [n]."""
    return np.array([edit_distance(a, b) for a, b in zip(first, second, strict=True)], np.int64)


def edit_distance(a: np.ndarray, b: np.ndarray) -> int:
    """Return Levenshtein's distance of two lists of numbers."""
    place = np.arange(len(b) + 1)
    row = place
    for count, token in enumerate(a, 1):
        new = np.minimum(row + 1, np.concatenate([[count], row[:-1] + (b != token)]))
        row = np.minimum.accumulate(new - place) + place  # insertions, one after the other
    return int(row[-1])
