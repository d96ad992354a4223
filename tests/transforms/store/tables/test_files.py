"""Full paths of files, and the counts that units give to them."""

import numpy as np
import pyarrow as pa
import pytest
from helpers.unit_records import unit_record
from hypothesis import given
from hypothesis import strategies as st

from sentence_beam.transforms.corpus.files import key_of
from sentence_beam.transforms.store.records import UnitRecord
from sentence_beam.transforms.store.tables.columns import FILE_COUNTS, FILES, units_table
from sentence_beam.transforms.store.tables.files import (
    count_units,
    full_path,
    place_of,
    with_counts,
    written_rows,
)
from sentence_beam.transforms.store.tables.names import Owners


@pytest.mark.parametrize(
    ("source", "path", "folder"),
    [
        ("/in/a/b.txt", "a/b.txt", "/in/"),
        ("gs://bucket/b.txt", "b.txt", "gs://bucket/"),
        ("b.txt", "b.txt", ""),
        ("rows of a program", "rows", None),
    ],
)
def test_a_full_path_is_the_folder_and_the_path_or_itself(
    source: str, path: str, folder: str | None
) -> None:
    place = place_of(source, path)
    assert place["folder"] == folder
    assert full_path({**place, "path": path}) == source


@given(st.text(), st.text(min_size=1))
def test_every_full_path_comes_back(source: str, path: str) -> None:
    for whole in (source, source + path):
        assert full_path({**place_of(whole, path), "path": path}) == whole


def unit(name: str, rows: int, **values: object) -> UnitRecord:
    return unit_record(rows, unit=name, read=rows + 1, rejected=1, **values)


UNITS = units_table(
    [
        unit(f"{key_of('a')}-{0:012d}", 3),
        unit(f"{key_of('a')}-{5:012d}.0", 4),
        unit(f"{key_of('c')}-{0:012d}", 8, documents=2),
        unit("f0-0.0", 5),
        unit("f0-0.1", 6),
        unit(f"{key_of('gone')}-{0:012d}", 7),
    ]
)


def test_units_count_for_their_file_and_those_of_a_group_for_its_first() -> None:
    owners = Owners(pa.array(["a", "b", "c", "d"]), pa.array([None, "f0-0", None, "f0-0"]))
    found = {name: values.tolist() for name, values in count_units(owners, 4, UNITS).items()}
    assert found == {
        "units": [2, 2, 1, 0],
        "rows": [7, 11, 8, 0],
        "read": [9, 13, 9, 0],
        "written": [7, 11, 2, 0],
    }
    nothing = count_units(owners, 4, UNITS.slice(0, 0))
    assert {name: values.tolist() for name, values in nothing.items()} == {
        name: [0, 0, 0, 0] for name in FILE_COUNTS
    }


def test_a_unit_of_documents_wrote_these_and_not_their_pieces() -> None:
    wanted = {f"{key_of('c')}-{0:012d}": 2}
    names = UNITS["unit"].to_pylist()
    rows = [
        wanted.get(name, row) for name, row in zip(names, UNITS["rows"].to_pylist(), strict=True)
    ]
    assert written_rows(UNITS).tolist() == rows


def test_files_with_other_counts_are_the_same_otherwise() -> None:
    row = dict.fromkeys(FILES.names) | dict.fromkeys(FILE_COUNTS, 1)
    row |= {"format": "text", "checksum": "c", "version": "v", "size": 3}
    files = pa.Table.from_pylist([row | {"path": path} for path in "abc"], FILES)
    counts = {name: np.arange(3) + place for place, name in enumerate(FILE_COUNTS)}
    found = with_counts(files, counts)
    assert found.schema == FILES
    for name in FILES.names:
        wanted = counts[name].tolist() if name in counts else files[name].to_pylist()
        assert found[name].to_pylist() == wanted
