"""Units of floats to units of whole numbers, by list in and list out."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers import eager
from helpers.nights import Nights, vector_of

from sentence_beam.transforms import storage
from sentence_beam.transforms.beam.quantize import Quantize
from sentence_beam.transforms.store.records import Problem, UnitRecord
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.shards.precision import Coding, read_kept_ranges

pytestmark = pytest.mark.usefixtures("plain_beam")

FILES = {"a": [("1", "x"), ("2", "y"), ("3", "z")], "b": [("4", "u")], "c": []}
OUTPUTS = ("units", "problems", "ranges")


@pytest.fixture
def made(tmp_path: Path) -> tuple[Run, list[UnitRecord]]:
    """A run that is to store int8, and its units, written as floats first."""
    nights = Nights(tmp_path / "store")
    run, units = nights.begin(FILES)
    return replace(run, space=replace(nights.space, precision="int8")), units


def shards_in(run: Run) -> set[Path]:
    return set(Path(run.root, "embeddings").iterdir())


def test_each_unit_is_written_again_within_half_a_step_of_its_vectors(
    made: tuple[Run, list[UnitRecord]],
) -> None:
    run, units = made
    found = eager.outputs(Quantize(run), units, [], names=OUTPUTS)
    assert found["problems"] == []
    (record,) = found["ranges"]
    ranges = read_kept_ranges(run.root, record.ranges)
    by_name = {unit.unit: unit for unit in found["units"]}
    assert by_name.keys() == {unit.unit for unit in units}
    for unit, rows in zip(units, FILES.values(), strict=True):
        coded = by_name[unit.unit]
        assert (coded.rows, coded.embedded, coded.file) == (unit.rows, unit.embedded, unit.file)
        if not rows:
            assert coded.path is None
            continue
        table = pq.read_table(storage.join(run.root, coded.path))
        assert table.column("id").to_pylist() == [row_id for row_id, _ in rows]
        coding = Coding.from_shard(table.schema.metadata, coded.path)
        vectors = coding.decode(table.column("embedding").combine_chunks())
        expected = np.array([vector_of(text) for _, text in rows])
        # half a step, then made of length 1 again
        assert np.abs(vectors - expected).max() <= ranges.step.max()
        assert (vectors != expected).any()


def test_ranges_are_those_of_all_units(made: tuple[Run, list[UnitRecord]]) -> None:
    run, units = made
    (record,) = eager.outputs(Quantize(run), units, [], names=OUTPUTS)["ranges"]
    ranges, vectors = (
        read_kept_ranges(run.root, record.ranges),
        np.array([vector_of(text) for text in "xyzu"]),
    )
    np.testing.assert_array_equal(ranges.low, vectors.min(axis=0))
    np.testing.assert_array_equal(ranges.high, vectors.max(axis=0))


def test_nothing_is_written_for_a_run_that_is_to_fail(made: tuple[Run, list[UnitRecord]]) -> None:
    run, units = made
    before, lost = shards_in(run), Problem("lost", 1)
    found = eager.outputs(Quantize(run), units, [lost], names=OUTPUTS)
    assert (found["units"], found["problems"]) == ([], [lost])
    assert shards_in(run) == before


def test_a_damaged_shard_is_a_problem(made: tuple[Run, list[UnitRecord]]) -> None:
    run, units = made
    path = storage.join(run.root, units[0].path or "")
    Path(path).write_bytes(b"PAR1")
    found = eager.outputs(Quantize(run), units, [], names=OUTPUTS)
    assert [path in problem.message for problem in found["problems"]] == [True]
    assert found["units"] == []


def test_a_run_without_rows_has_no_ranges(tmp_path: Path) -> None:
    nights = Nights(tmp_path / "store")
    run, units = nights.begin({"a": []})
    run = replace(run, space=replace(nights.space, precision="int8"))
    found = eager.outputs(Quantize(run), units, [], names=OUTPUTS)
    assert found == {
        "units": [replace(unit, worker="") for unit in units],
        "problems": [],
        "ranges": [],
    }
