"""Chunks: documents in, pieces out."""

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to

from sentence_beam import Chunks, OptionError


def test_documents_become_pieces_that_quote_them() -> None:
    documents = [
        {"id": "a", "text": "One two three. Four five six. Seven eight nine."},
        {"id": "b", "text": " short "},
        {"id": "c", "text": "\n"},
    ]
    with beam.Pipeline("FnApiRunner") as pipeline:
        pieces = pipeline | beam.Create(documents) | Chunks("budget:tokens=8")
        found = pieces | beam.Map(
            lambda row: (
                row["id"],
                row["piece"],
                row["pieces"],
                row["start"],
                row["end"],
                row["text"],
            )
        )
        expected = [
            ("a", 0, 2, 0, 29, "One two three. Four five six."),
            ("a", 1, 2, 30, 47, "Seven eight nine."),
            ("b", 0, 1, 1, 6, "short"),
        ]
        assert_that(found, equal_to(expected))


def test_rows_with_a_schema_become_such_rows() -> None:
    with beam.Pipeline("FnApiRunner") as pipeline:
        pieces = (
            pipeline | beam.Create([beam.Row(id=1, text="One two. Three.")]) | Chunks("sentences")
        )
        found = (
            pieces
            | beam.Reshuffle()
            | beam.Map(lambda row: (row.id, row.piece, row.text, row.headings))
        )
        assert_that(found, equal_to([(1, 0, "One two.", ""), (1, 1, "Three.", "")]))


@pytest.mark.parametrize(
    ("spec", "said"), [("none", "cuts nothing"), ("budgets", "did you mean budget?")]
)
def test_a_spec_that_cuts_nothing_is_refused_when_the_graph_is_made(spec: str, said: str) -> None:
    with pytest.raises(OptionError) as error:
        Chunks(spec)
    assert said in str(error.value)


def test_a_key_that_is_no_string_is_named() -> None:
    with (
        pytest.raises(OptionError, match="a row has the key 1 of type int"),
        beam.Pipeline("FnApiRunner") as pipeline,
    ):
        _ = pipeline | beam.Create([{1: "x", "text": "One. Two."}]) | Chunks("sentences")
