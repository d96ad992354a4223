"""The data of a training, read and checked as a whole, and what is said of it before the training
begins.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transforms.base.errors import OptionError
from transforms.training.examples import Examples, labels_of, overlap, read_examples, scaled
from transforms.training.options import CLASSIFICATION, RANKING, REGRESSION, TrainOptions
from transforms.training.roles import LABEL, NEGATIVE, SCORE


@dataclass(frozen=True)
class Data:
    """The rows to train on and to score, labels in their order, and how many dev and test rows are
    training rows too.

    `values` are the training rows by role, labels as numbers and scores from 0 to 1.
    """

    train: Examples
    dev: Examples | None
    labels: tuple[str, ...]
    values: Mapping[str, Sequence[Any]]
    overlap: int
    test: Examples | None = None
    test_overlap: int = 0


def read_data(options: TrainOptions) -> Data:
    """The rows that the options name, checked. Raises OptionError and DataGateError."""
    examples = read_examples("--input", options.inputs, options, options.limit)
    dev = read_examples("--dev", [options.dev], options) if options.dev else None
    test = read_examples("--test", [options.test], options) if options.test else None
    if len(examples) < options.batch:
        raise OptionError(
            f"{len(examples)} rows are fewer than a batch of {options.batch}; say --batch"
            f" {len(examples)} or less, or give more rows"
        )
    labels: tuple[str, ...] = ()
    values: dict[str, Sequence[Any]] = dict(examples.columns)
    if options.objective == CLASSIFICATION:
        labels = labels_of(examples, (dev, test), options.labels)
        values[LABEL] = [labels.index(label) for label in examples.columns[LABEL]]
    if SCORE in values:
        bounded = options.objective == REGRESSION
        values[SCORE] = scaled(examples, options.scores, bounded)
        for held_out in (dev, test):
            if held_out is not None:
                scaled(held_out, options.scores, bounded)
    if options.objective == RANKING and len(set(values["positive"])) == 1:
        raise OptionError("all positive texts are the same; no row has another row's as a negative")
    if options.hard_negatives and NEGATIVE in values:
        names = ",".join(list(examples.sources[0].columns.values())[:2])
        raise OptionError(
            f"--hard-negatives: the data has a column of negatives; say --columns {names}, or leave"
            " it out"
        )
    seen = [overlap(examples, held_out) if held_out else 0 for held_out in (dev, test)]
    return Data(examples, dev, labels, values, seen[0], test, seen[1])


def taken(data: Data, options: TrainOptions) -> list[str]:
    """What was taken of the data, a line a file, for a person who has to see it before hours of
    training.
    """
    lines = []
    for flag, examples in (("train", data.train), ("dev", data.dev), ("test", data.test)):
        for source in examples.sources if examples else ():
            columns = ", ".join(f"{role} from {name}" for role, name in source.columns.items())
            lost = sum(source.rejected.values())
            said = f", {lost:,} rejected ({', '.join(source.rejected)})" if lost else ""
            lines.append(f"{flag:<11} {source.name}: {source.rows - lost:,} rows{said}; {columns}")
    if data.labels:
        lines.append(f"labels      {', '.join(data.labels)}")
    first = [f"{role} {_excerpt(column[0])}" for role, column in data.train.columns.items()]
    lines.append(f"first row   {', '.join(first)}")
    for name, held_out, seen in (
        ("dev", data.dev, data.overlap),
        ("test", data.test, data.test_overlap),
    ):
        if held_out is not None and seen:
            said = (
                f"{seen:,} of {len(held_out):,} {name} rows are training rows too, and flatter the"
                " score"
            )
            lines.append(f"note        {said}")
    return lines


def _excerpt(value: Any) -> str:
    if not isinstance(value, str):
        return f"{value:g}"
    return repr(value if len(value) <= 40 else value[:39] + "…")
