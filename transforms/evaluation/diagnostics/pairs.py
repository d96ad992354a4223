"""Figures of pairs of texts: alignment, edit distance beside the cosine, and the area under the
curve of answers.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, TypeVar

import numpy as np

from transforms.base.errors import OptionError
from transforms.calibration.quality import alignment, average_ranks, cosines, spearman
from transforms.evaluation import tables
from transforms.evaluation.diagnostics.figures import PAIRS, Row, figure
from transforms.evaluation.diagnostics.sample import Smallest, keys_of
from transforms.evaluation.pair_files import SIDES, read_labelled, read_subsets

FORM = "[sts:]NAME=PATH[,PATH] or qa:NAME=PATH"
NEAR = 4  # edits: the pairs that BERT-flow's figure 3 looks at
SHOWN = 5  # labels in an error
ALIGNED = 4.0  # the score above which a pair counts for alignment
Value = TypeVar("Value", float, str)
ANSWERS = frozenset(("entailment", "true", "yes"))
OTHERS = frozenset(("not_entailment", "not entailment", "false", "no"))


@dataclass(frozen=True)
class Pairs:
    """The pairs that were drawn of `total`: two texts each, with gold scores or with answers (1)
    and others (0).

    `gold` float64 [n] and `answers` bool [n] are None where the data have none; `made` says that
    the others are answers of other questions.
    """

    name: str
    total: int
    first: list[str]
    second: list[str]
    gold: np.ndarray | None = None
    answers: np.ndarray | None = None
    made: bool = False


def read(word: str, want: int, labels: Collection[str] = ()) -> Pairs:
    """The pairs that one value of `--task` names, `want` of them; `labels` are those of answers.

    Raises OptionError for another form, and if only a guess could say which labels are answers.
    """
    named, equals, listed = word.partition("=")
    kind, colon, name = named.partition(":")
    kind, name = (kind, name) if colon else ("sts", named)
    if not equals or not name or not listed or kind not in ("sts", "qa"):
        raise OptionError(f"--task {word}: say {FORM}")
    return (
        _scored(name, listed.split(","), want)
        if kind == "sts"
        else _questions(name, listed, want, labels)
    )


def _scored(name: str, paths: Sequence[str], want: int) -> Pairs:
    subsets = [subset for path in paths for subset in read_subsets(path)]
    rows = [row for s in subsets for row in zip(s.first, s.second, s.gold.tolist(), strict=True)]
    drawn = _drawn(rows, want)
    first, second, gold = zip(*drawn, strict=True)
    return Pairs(name, len(rows), list(first), list(second), gold=np.array(gold))


def _questions(name: str, path: str, want: int, labels: Collection[str]) -> Pairs:
    """QNLI's layout (label, sentence1, sentence2), or two columns of any name: question and answer.

    Of the latter every question is paired with the answer of another one too.
    """
    header = tables.read_header(path)
    if "label" in header:
        pairs = read_labelled(path)
        right_labels = _answers_among(sorted(set(pairs.labels)), labels, f"--task qa:{name}={path}")
        drawn = _drawn(list(zip(pairs.first, pairs.second, pairs.labels, strict=True)), want)
        answers = np.array([label in right_labels for _, _, label in drawn])
        first, second = [row[0] for row in drawn], [row[1] for row in drawn]
        return Pairs(name, len(pairs.labels), first, second, answers=answers)
    if len(header) != 2:
        raise OptionError(
            f"--task qa:{name}={path}: it needs label, {', '.join(SIDES)}, or two columns: say"
            " which"
        )
    rows = [(row[0], row[1], "") for _, row in tables.read_table(path, header)]
    drawn = _drawn(rows, max(want // 2, 1)) if rows else []
    if len(drawn) < 2:
        raise OptionError(f"--task qa:{name}={path} holds fewer than two pairs; check the file")
    questions, right = [row[0] for row in drawn], [row[1] for row in drawn]
    answers = np.repeat([True, False], len(drawn))
    return Pairs(
        name, len(rows), questions * 2, [*right, *right[1:], right[0]], answers=answers, made=True
    )


def _answers_among(found: Sequence[str], given: Collection[str], task: str) -> set[str]:
    """The labels of answers among those of a file: as given, else by their words.

    Numbers say nothing: 1 is an answer in some files, and 0 in the QNLI of Hugging Face's hub.
    """
    shown = ", ".join(map(repr, found[:SHOWN]))
    if given:
        unknown = sorted(set(given) - set(found))
        if unknown:
            raise OptionError(
                f"{task}: --labels {unknown[0]} is none of its labels; there are {shown}"
            )
        return set(given)
    words = {label: label.lower() for label in found}
    odd = next((label for label, word in words.items() if word not in ANSWERS | OTHERS), None)
    if odd is not None:
        raise OptionError(
            f"{task}: its labels are {shown}; say which are answers by --labels, as in --labels"
            f" {odd} (on Hugging Face's hub 0 in QNLI is an answer)"
        )
    return {label for label, word in words.items() if word in ANSWERS}


def _drawn(rows: Sequence[tuple[str, str, Value]], want: int) -> list[tuple[str, str, Value]]:
    smallest: Smallest[tuple[str, str, Value]] = Smallest(want)
    keys = keys_of(
        [f"{row[0]}\0{row[1]}" for row in rows], [str(place) for place in range(len(rows))]
    )
    for key, row in zip(keys, rows, strict=True):
        smallest.add(key, row)
    return smallest.taken()


def of_pairs(
    pooler: str,
    pairs: Pairs,
    a: np.ndarray,
    b: np.ndarray,
    edits: np.ndarray | None,
    asked: Collection[str],
) -> list[Row]:
    """The figures of a pooler's vectors of both sides, float32 [n, d], as asked for; `edits` are
    `edit_distances`.

    Correlations and areas are times 100.
    """
    n, near, found = len(pairs.first), cosines(a, b), []
    told: dict[str, Any] = {"task": pairs.name}
    if "alignment" in asked and pairs.gold is not None:
        aligned = int((pairs.gold > ALIGNED).sum())
        found.append(
            figure("alignment", alignment(a, b, pairs.gold, ALIGNED), aligned, pooler, **told)
        )
    if "edit-distance" in asked and edits is not None:
        for name, chosen in (("all", np.ones(n, bool)), (f"at most {NEAR} edits", edits <= NEAR)):
            value, count = 100 * _spearman(near[chosen], edits[chosen]), int(chosen.sum())
            found.append(figure("edit-distance", value, count, pooler, pairs=name, **told))
        if pairs.gold is not None:
            found.append(figure("spearman", 100 * _spearman(near, pairs.gold), n, pooler, **told))
    if PAIRS in asked:
        found += _each(pooler, pairs, near, edits)
    if "auc" in asked and pairs.answers is not None:
        found.append(
            figure("auc", 100 * area(near, pairs.answers), n, pooler, made=pairs.made, **told)
        )
    return found


def _each(pooler: str, pairs: Pairs, near: np.ndarray, edits: np.ndarray | None) -> list[Row]:
    """The cosine of every pair with its edits and gold score, for pictures such as BERT-flow's
    figure 2.
    """
    counted = [None] * len(near) if edits is None else edits.tolist()
    scores = [None] * len(near) if pairs.gold is None else pairs.gold.tolist()
    return [
        figure("pair", value, 1, pooler, place=place, edits=edit, gold=gold, task=pairs.name)
        for place, (value, edit, gold) in enumerate(
            zip(near.tolist(), counted, scores, strict=True)
        )
    ]


def of_agreement(pairs: Pairs, near: Mapping[str, np.ndarray]) -> list[Row]:
    """Spearman's correlation (times 100) of the cosines of every two methods, float64 [n] each by
    name.
    """
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


def of_gold(pairs: Pairs, edits: np.ndarray | None) -> list[Row]:
    """How the gold scores go with the edit distance, whatever the vectors."""
    if pairs.gold is None or edits is None:
        return []
    value = 100 * _spearman(pairs.gold, edits)
    return [figure("edit-distance", value, len(edits), "gold", pairs="all", task=pairs.name)]


def _spearman(a: np.ndarray, b: np.ndarray) -> float:
    return spearman(a, b) if len(a) > 1 else math.nan


def area(scores: np.ndarray, answers: np.ndarray) -> float:
    """The share of (answer, other) pairs in which the answer scores higher, ties counting half
    (ROC-AUC).

    NaN where all are answers, or none.
    """
    right = int(answers.sum())
    wrong = len(answers) - right
    if not right or not wrong:
        return math.nan
    return (float(average_ranks(scores)[answers].sum()) - right * (right + 1) / 2) / (right * wrong)


def edit_distances(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> np.ndarray:
    """The number of tokens to insert, delete or replace between two lists of token ids, int64
    [n].
    """
    return np.array([edit_distance(a, b) for a, b in zip(first, second, strict=True)], np.int64)


def edit_distance(a: np.ndarray, b: np.ndarray) -> int:
    """Levenshtein's distance of two lists of numbers."""
    place = np.arange(len(b) + 1)
    row = place
    for count, token in enumerate(a, 1):
        new = np.minimum(row + 1, np.concatenate([[count], row[:-1] + (b != token)]))
        row = np.minimum.accumulate(new - place) + place  # insertions, one after the other
    return int(row[-1])
