"""What the hash of a row covers: everything that goes into the model for it, and nothing that
another row may have.
"""

from hypothesis import given
from hypothesis import strategies as st

from sentence_beam.transforms.corpus import InputFile, UnitRows
from sentence_beam.transforms.corpus.rows import Parts
from sentence_beam.transforms.space import row_hashes
from sentence_beam.transforms.steps.embed.inputs import hash_inputs

PIECES = st.lists(
    st.tuples(st.text("ab\x00\x01\x02\x1e", max_size=4), st.integers(0, 3)), min_size=1, max_size=3
)
Pieces = list[tuple[str, int]]


def rows_of(*documents: Pieces) -> UnitRows:
    """Rows whose vectors are means of pieces, given by text and tokens."""
    file = InputFile("/a.txt", "a.txt", "text", "", 1, "", "")
    parts = Parts(
        [[text for text, _ in one] for one in documents], [[n for _, n in one] for one in documents]
    )
    return UnitRows("u", file, 0, 1, [], [], [], None, [], parts=parts)


@given(PIECES, PIECES)
def test_documents_of_other_pieces_have_other_hashes(one: Pieces, other: Pieces) -> None:
    first, second = hash_inputs(rows_of(one, other))
    assert (first == second) == (one == other)


def test_two_pieces_are_not_one_with_what_once_stood_between_them() -> None:
    two, one = [("man dog cat apple", 4), ("horse", 1)], [("man dog cat apple\x1ehorse", 5)]
    first, second = hash_inputs(rows_of(two, one))
    assert first != second
    assert not {first, second} & set(row_hashes(["man dog cat apple\x1ehorse"]))
