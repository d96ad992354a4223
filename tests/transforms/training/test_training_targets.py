"""Labels in their order and scores from 0 to 1, on made-up rows."""

import pytest

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.training.training_examples import Examples, Source, quote_value
from sentence_beam.transforms.training.training_targets import find_labels, scale_scores


def examples(role: str, values: list) -> Examples:
    """Rows of one file, `rows.tsv`, with these labels or scores."""
    texts = [f"text {place}" for place in range(len(values))]
    columns = {"text1": texts, "text2": texts, role: values}
    names = {"text1": "a", "text2": "b", role: "c"}
    source = Source("rows", "rows.tsv", "0" * 64, names, len(values))
    return Examples((source,), columns, [(0, place + 1) for place in range(len(values))])


def test_labels_are_sorted_or_as_given() -> None:
    train = examples("label", ["no", "yes", "no", "yes", "no"])
    assert find_labels(train, (), ()) == ("no", "yes")
    assert find_labels(train, (None, train), ("yes=1", "no=0")) == ("yes", "no")


@pytest.mark.parametrize(
    ("values", "held_out", "given", "message"),
    [
        (["no"] * 4, [], (), "all labels are 'no'; there is nothing to tell apart"),
        (
            ["no", "yes"] * 2,
            ["no", "maybe"],
            (),
            "rows.tsv, row 2: 'maybe' is a label that no training row has; there are 'no', 'yes'",
        ),
        (["no", "yes"] * 2, [], ("no", "perhaps"), "row 2: 'yes' is not among labels"),
        (["no", "yes"] * 2, [], ("no", "yes", "maybe"), "no training row has 'maybe'"),
        (list("abcd"), [], (), "4 different labels in 4 rows, as 'a': is c the column of labels?"),
    ],
)
def test_labels_that_cannot_be_learnt(
    values: list[str], held_out: list[str], given: tuple[str, ...], message: str
) -> None:
    dev = examples("label", held_out) if held_out else None
    with pytest.raises(OptionError) as error:
        find_labels(examples("label", values), (dev,), given)
    assert message in str(error.value)


def test_scores_are_scaled_to_the_ends_of_their_scale() -> None:
    rows = examples("score", [0.0, 2.5, 5.0])
    assert scale_scores(rows, (0, 5), bounded=True) == [0.0, 0.5, 1.0]
    assert scale_scores(rows, None, bounded=False) == [0.0, 2.5, 5.0]


@pytest.mark.parametrize(
    ("values", "scores", "message"),
    [
        ([0.1, 4.2], None, "rows.tsv, row 2: score 4.2 is not from 0 to 1; say scores LOW,HIGH"),
        ([0.1, 4.2], (1, 5), "row 1: score 0.1 is not from 1 to 5; mend the row or scores"),
        ([0.5, 0.5], None, "all scores are 0.5; there is nothing to learn"),
    ],
)
def test_scores_that_cannot_be_learnt(
    values: list[float], scores: tuple[float, float] | None, message: str
) -> None:
    with pytest.raises(OptionError) as error:
        scale_scores(examples("score", values), scores, bounded=True)
    assert message in str(error.value)


def test_long_values_are_shortened_in_messages() -> None:
    assert quote_value("short") == "'short'"
    assert quote_value("x" * 41) == f"'{'x' * 39}…'"
