"""What is read of a damaged shard: whole row groups, or nothing."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentence_beam.transforms.steps.forget.damage import ReadableRows, readable_groups

ROWS = 10
COLUMNS = ["id", "row_hash"]


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    """Ten rows in row groups of four, four and two, each page with its checksum."""
    hashes = pa.array([bytes([n]) * 16 for n in range(ROWS)], pa.binary(16))
    table = pa.table({"id": [f"row-{n}" for n in range(ROWS)], "row_hash": hashes})
    path = tmp_path / "shard.parquet"
    plain = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    plain["write_statistics"] = False  # they hold values too, which no checksum covers
    pq.write_table(table, path, row_group_size=4, **plain)
    return path


def flip(path: Path, found: bytes) -> None:
    """Change one bit of the first place where these bytes stand."""
    data = bytearray(path.read_bytes())
    data[data.index(found)] ^= 1
    path.write_bytes(data)


def test_a_sound_shard_is_read_whole(shard: Path) -> None:
    found = readable_groups(str(shard), ROWS)
    assert [start for start, _ in found.groups] == [0, 4, 8]
    assert not found.is_lost.any()
    assert found.table(COLUMNS).equals(pq.read_table(shard))
    live = found.live()
    assert live is not None
    assert live.equals(pq.read_table(shard))


@pytest.mark.parametrize("row", [0, 5, 9])
def test_a_flipped_bit_loses_its_row_group_alone(shard: Path, row: int) -> None:
    flip(shard, b"row-%d" % row)
    found = readable_groups(str(shard), ROWS)
    start = row // 4 * 4
    lost = [start <= n < start + 4 for n in range(ROWS)]
    assert found.is_lost.tolist() == lost
    names = [None if gone else f"row-{n}" for n, gone in enumerate(lost)]
    table = found.table(COLUMNS)
    assert table.column("id").to_pylist() == names
    assert table.schema.types == [pa.string(), pa.binary(16)]
    live = found.live()
    assert live is not None
    assert live.column("id").to_pylist() == [name for name in names if name is not None]


@pytest.mark.parametrize("kept", [0, 3, 100])
def test_a_shard_without_its_footer_is_lost(shard: Path, kept: int) -> None:
    shard.write_bytes(shard.read_bytes()[:kept])
    found = readable_groups(str(shard), ROWS)
    assert found.is_lost.all()
    assert found.live() is None
    assert found.table(COLUMNS).column("row_hash").null_count == ROWS


def test_a_shard_of_another_number_of_rows_is_lost(shard: Path) -> None:
    found = readable_groups(str(shard), ROWS + 1)
    assert found == ReadableRows([], ROWS + 1, None)
    assert np.count_nonzero(found.is_lost) == ROWS + 1
