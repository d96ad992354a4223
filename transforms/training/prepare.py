"""Prepare a training: the model with its loss and rows, and the tasks that score it."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.base.summary_lines import format_summary_line
from sentence_beam.transforms.training.data import Data
from sentence_beam.transforms.training.dev import Classify, make_task
from sentence_beam.transforms.training.train_options import CLASSIFICATION, RANKING, TrainOptions
from sentence_beam.transforms.training.training_examples import Examples
from sentence_beam.transforms.training.training_progress import Say

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder, SentenceTransformer

    from sentence_beam.transforms.evaluation.task import Task
    from sentence_beam.transforms.training.trainer import Job

SAMPLED = 10_000  # texts of each column whose lengths are counted

Values = Mapping[str, Sequence[Any]]


def prepare(options: TrainOptions, data: Data, say: Say) -> "Job":
    """Return the model with its loss and rows, ready to train, and the tasks that score it.

    Raises OptionError for models, widths and rows that cannot be trained.
    """
    from transformers import set_seed

    from sentence_beam.transforms.encoder.devices import resolve_device

    device = resolve_device(options.device)
    set_seed(options.seed)
    if options.cross_encoder:
        return _prepare_cross_encoder(options, data, device.type, say)
    return _prepare_encoder(options, data, device.type, say)


def _prepare_encoder(options: TrainOptions, data: Data, device: str, say: Say) -> "Job":
    from sentence_beam.transforms.training import model as models
    from sentence_beam.transforms.training import objectives
    from sentence_beam.transforms.training.trainer import Job

    model = models.load(options, device)
    last = models.take_normalize(model) if options.objective == CLASSIFICATION else None
    loss = objectives.make_loss(model, options, len(data.labels))
    values = _add_negatives(options, data, model, say) if options.hard_negatives else data.values
    if options.objective == RANKING:
        _check_batches(options, values, say)
    _say_truncated(model, data.train, say)
    classify_pairs = partial(classify, objectives.find_classifier(loss), options.concat)
    dev, test = _make_tasks(data, options, classify_pairs)
    return Job(model, loss, data.train, values, options, dev, last, test=test)


def _prepare_cross_encoder(options: TrainOptions, data: Data, device: str, say: Say) -> "Job":
    from sentence_beam.transforms.training import cross_encoder
    from sentence_beam.transforms.training.trainer import Job

    model = cross_encoder.load(options, data.labels, device)
    loss = cross_encoder.make_loss(model, len(data.labels))
    _say_truncated(model, data.train, say, in_pairs=True)
    dev, test = _make_tasks(data, options, _refuse_vectors)
    return Job(model, loss, data.train, data.values, options, dev, test=test)


def _add_negatives(
    options: TrainOptions, data: Data, model: "SentenceTransformer", say: Say
) -> Values:
    """Return the rows with hard negatives. Raises OptionError if they are fewer than a batch."""
    from sentence_beam.transforms.training.negatives import mine_negatives

    values = mine_negatives(data.values, model, options)
    rows = len(values["anchor"])
    share = f"{rows:,} of {len(data.train):,} rows"
    say(format_summary_line("negatives", f"{options.hard_negatives} to each of {share}"))
    if rows < options.batch:
        raise OptionError(
            f"{cite('hard_negatives')}: fewer rows than a batch have so many; ask for fewer"
        )
    return values


def _check_batches(options: TrainOptions, values: Values, say: Say) -> None:
    """Count the rows in the batches of an epoch, in none of which a text occurs twice.

    Raises OptionError if the batches are too small to have negatives.
    """
    from sentence_beam.transforms.training.trainer import count_batched_rows

    rows = len(values["anchor"])
    used = count_batched_rows(values, options)
    if options.batch > 1 and used < 2 * math.ceil(rows / options.batch):
        raise OptionError(
            "nearly all rows share a text, so that batches have no negatives; give others"
        )
    if used < rows:
        share = f"{used:,} of {rows:,} rows"
        note = f"{share} are in an epoch's batches; the others share texts with these"
        say(format_summary_line("note", note))


def _make_tasks(
    data: Data, options: TrainOptions, classify_pairs: Classify
) -> "tuple[Task | None, Task | None]":
    """Return the task of the dev rows, and the one of the test rows, if there are any."""
    dev, test = (
        make_task(examples, options.objective, data.labels, classify_pairs) if examples else None
        for examples in (data.dev, data.test)
    )
    return dev, test


def classify(layer: Any, concat: str, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the labels that the trained layer gives pairs of vectors, int64 [n]."""
    weights = layer.weight.detach().float().cpu().numpy()
    parts = {"u": first, "v": second, "|u-v|": np.abs(first - second), "u*v": first * second}
    features = np.concatenate([parts[name] for name in concat.split(",")], axis=1)
    return np.argmax(features @ weights.T, axis=1)


def _refuse_vectors(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Raise TypeError: a cross-encoder gives labels to texts, not to vectors."""
    raise TypeError("a cross-encoder makes no vectors")


def _say_truncated(
    model: "SentenceTransformer | CrossEncoder",
    examples: Examples,
    say: Say,
    in_pairs: bool = False,
) -> None:
    """Say how many of the first texts are longer than the model's limit, if there are any."""
    limit = model.max_seq_length
    if not limit or limit == math.inf:  # a table of token embeddings reads whole texts
        return
    if in_pairs:
        things = "pairs"
        columns = [column[:SAMPLED] for column in examples.texts.values()]
    else:
        things = "texts"
        columns = [_list_first_texts(examples)]
    tokenized = model.tokenizer(*columns, truncation=False, verbose=False)
    lengths = [len(ids) for ids in tokenized["input_ids"]]
    cut = sum(length > limit for length in lengths)
    if cut:
        share = f"{cut:,} of {len(lengths):,} {things}"
        longer = f"{share} are longer than {limit} tokens and are cut (--max-tokens)"
        say(format_summary_line("truncated", longer))


def _list_first_texts(examples: Examples) -> list[str]:
    """Return the first distinct texts of all columns."""
    texts: dict[str, None] = {}
    for column in examples.texts.values():
        texts.update(dict.fromkeys(column[:SAMPLED]))
    return list(texts)[:SAMPLED]
