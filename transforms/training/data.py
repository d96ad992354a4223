"""Read and check the data of a training as a whole, and describe it before the training begins."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.base.summary_lines import format_summary_line
from sentence_beam.transforms.training.roles import LABEL, NEGATIVE, SCORE
from sentence_beam.transforms.training.train_options import (
    CLASSIFICATION,
    RANKING,
    REGRESSION,
    TrainOptions,
)
from sentence_beam.transforms.training.training_examples import (
    Examples,
    count_overlap,
    quote_value,
    read_examples,
)
from sentence_beam.transforms.training.training_targets import find_labels, scale_scores


@dataclass(frozen=True)
class Data:
    """The rows to train on and to score, labels in their order, and counts of shared rows.

    `values` are the training rows by role, with labels as numbers and scores from 0 to 1. `overlap`
    and `test_overlap` count the dev and test rows that are training rows too.
    """

    train: Examples
    dev: Examples | None
    labels: tuple[str, ...]
    values: Mapping[str, Sequence[Any]]
    overlap: int
    test: Examples | None = None
    test_overlap: int = 0


def read_data(options: TrainOptions) -> Data:
    """Read and check the rows of the options. Raises OptionError and DataGateError."""
    examples = read_examples(cite("input"), options.inputs, options, options.limit)
    dev = _read_held_out(cite("dev"), options.dev, options)
    test = _read_held_out(cite("test"), options.test, options)
    if len(examples) < options.batch:
        raise OptionError(
            f"{len(examples)} rows are fewer than a batch of {options.batch}; say {cite('batch')}"
            f" {len(examples)} or less, or give more rows"
        )
    labels: tuple[str, ...] = ()
    values: dict[str, Sequence[Any]] = dict(examples.columns)
    if options.objective == CLASSIFICATION:
        labels = find_labels(examples, (dev, test), options.labels)
        values[LABEL] = [labels.index(label) for label in examples.columns[LABEL]]
    if SCORE in values:
        bounded = options.objective == REGRESSION
        values[SCORE] = scale_scores(examples, options.scores, bounded)
        for held_out in (dev, test):
            if held_out is not None:
                scale_scores(held_out, options.scores, bounded)
    _check_negatives(examples, options)
    return Data(
        examples,
        dev,
        labels,
        values,
        _count_shared(examples, dev),
        test,
        _count_shared(examples, test),
    )


def _read_held_out(flag: str, path: str | None, options: TrainOptions) -> Examples | None:
    return read_examples(flag, [path], options) if path else None


def _check_negatives(examples: Examples, options: TrainOptions) -> None:
    """Raise OptionError if rows give no negatives, or negatives are both given and mined."""
    columns = examples.columns
    if options.objective == RANKING and len(set(columns["positive"])) == 1:
        raise OptionError("all positive texts are the same; no row has another row's as a negative")
    if options.hard_negatives and NEGATIVE in columns:
        names = ",".join(list(examples.sources[0].columns.values())[:2])
        raise OptionError(
            f"{cite('hard_negatives')}: the data has a column of negatives; say {cite('columns')}"
            f" {names}, or leave it out"
        )


def _count_shared(train: Examples, held_out: Examples | None) -> int:
    return 0 if held_out is None else count_overlap(train, held_out)


def describe_data(data: Data) -> list[str]:
    """Describe the data that was read, a line a file, before hours of training."""
    lines = []
    for flag, examples in (("train", data.train), ("dev", data.dev), ("test", data.test)):
        if examples is None:
            continue
        for source in examples.sources:
            columns = ", ".join(f"{role} from {name}" for role, name in source.columns.items())
            lost = sum(source.rejected.values())
            rejected = f", {lost:,} rejected ({', '.join(source.rejected)})" if lost else ""
            rows = f"{source.rows - lost:,} rows{rejected}"
            lines.append(format_summary_line(flag, f"{source.name}: {rows}; {columns}"))
    if data.labels:
        lines.append(format_summary_line("labels", ", ".join(data.labels)))
    first = [f"{role} {_show(column[0])}" for role, column in data.train.columns.items()]
    lines.append(format_summary_line("first row", ", ".join(first)))
    for name, held_out, seen in (
        ("dev", data.dev, data.overlap),
        ("test", data.test, data.test_overlap),
    ):
        if held_out is not None and seen:
            note = (
                f"{seen:,} of {len(held_out):,} {name} rows are training rows too, and flatter the"
                " score"
            )
            lines.append(format_summary_line("note", note))
    return lines


def _show(value: Any) -> str:
    return quote_value(value) if isinstance(value, str) else f"{value:g}"
