"""Targets of a training: the labels in their order, and scores from 0 to 1."""

from collections.abc import Sequence

from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.training.labels import read_labels
from sentence_beam.transforms.training.roles import LABEL, SCORE
from sentence_beam.transforms.training.training_examples import Examples, quote_value

SHOWN = 5  # labels in an error


def find_labels(
    train: Examples, held_out: Sequence[Examples | None], labels_named: Sequence[str]
) -> tuple[str, ...]:
    """Return the labels in their order: as given, else sorted.

    Raises OptionError if there is only one, and for a row with a label that is not given, or that
    no training row has.
    """
    seen = set(train.columns[LABEL])
    labels = read_labels(labels_named).names or tuple(sorted(seen))
    if len(seen) < 2:
        raise OptionError(
            f"all labels are {quote_value(next(iter(seen)))}; there is nothing to tell apart"
        )
    for examples in (train, *filter(None, held_out)):
        _check_known(examples, labels, bool(labels_named))
    unseen = [label for label in labels if label not in seen]
    if unseen:
        raise OptionError(
            f"{cite('labels')}: no training row has {unseen[0]!r}; there are {_join(sorted(seen))}"
        )
    if len(labels) > len(seen) or len(seen) > len(train) // 2:
        column = train.sources[0].columns[LABEL]
        raise OptionError(
            f"{len(seen):,} different labels in {len(train):,} rows, as"
            f" {quote_value(labels[0])}: is"
            f" {column} the column of labels? Say {cite('columns')} with the names in the order"
            " text1,text2,label"
        )
    return labels


def _check_known(examples: Examples, labels: Sequence[str], are_named: bool) -> None:
    """Raise OptionError for a row whose label is not among the labels."""
    for place, label in enumerate(examples.columns[LABEL]):
        if label not in labels:
            reason = (
                f"not among {cite('labels')}" if are_named else "a label that no training row has"
            )
            raise OptionError(
                f"{examples.where(place)}: {quote_value(label)} is {reason}; there are"
                f" {_join(labels)}"
            )


def scale_scores(
    examples: Examples, scores: tuple[float, float] | None, bounded: bool
) -> list[float]:
    """Return the scores from 0 to 1, `scores` being the ends of the data's scale.

    Without `scores` they stay unchanged. Raises OptionError for a row outside of the scale, and if
    `bounded` for a row outside of 0 to 1.
    """
    low, high = scores or (0.0, 1.0)
    column = examples.columns[SCORE]
    is_checked = bounded or scores is not None
    for place, score in enumerate(column):
        if is_checked and not low <= score <= high:
            mend = f"mend the row or {cite('scores')}"
            if scores is None:
                mend = f"say {cite('scores')} LOW,HIGH, the ends of the data's scale"
            raise OptionError(
                f"{examples.where(place)}: score {score:g} is not from {low:g} to {high:g}; {mend}"
            )
    if len(set(column)) < 2:
        raise OptionError(f"all scores are {column[0]:g}; there is nothing to learn")
    return [(score - low) / (high - low) for score in column]


def _join(labels: Sequence[str]) -> str:
    names = [quote_value(label) for label in labels[:SHOWN]]
    if len(labels) > SHOWN:
        names.append("...")
    return ", ".join(names)
