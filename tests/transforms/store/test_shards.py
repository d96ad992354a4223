"""The shards of a snapshot, by number and by path, and the memory that they take.

Covers transforms/store/shards/shard_files.py.
"""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from helpers.snapshots import changed, edit_units, night, numbered, units_of

from sentence_beam.transforms import storage
from sentence_beam.transforms.store.manifest import Manifest, read_manifest
from sentence_beam.transforms.store.shards.shard_files import open_shard_files

UNITS = 6
BYTES_A_UNIT = 200


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Six units; the third has no shard, and the paths are in another order than the units."""
    root = tmp_path / "store"
    night(str(root), 0, *(numbered(n, n + 1) for n in range(UNITS)))
    names = [f"{key * 16}-000000000000" for key in "5a3f10"]
    for number, name in enumerate(names):
        path = f"embeddings/{name}-{'0' * 16}.parquet"
        edit_units(root, changed(number, path=path, bytes=100 + number, rows=number))
    edit_units(root, changed(2, path=None))
    return root


def current(store: Path) -> Manifest:
    found = read_manifest(str(store))
    assert found is not None
    return found


def test_a_shard_is_known_by_its_number_and_by_its_path(store: Path) -> None:
    manifest = current(store)
    wanted = [unit for unit in units_of(store) if unit["path"]]
    assert len(manifest.shards) == len(wanted) == UNITS - 1
    for number, unit in enumerate(wanted):
        assert manifest.find_shard_number(unit["path"]) == number
        full = storage.join(str(store), unit["path"])
        assert manifest.shard(number) == (full, unit["path"], unit["rows"], unit["bytes"])


@pytest.mark.parametrize("path", ["", "embeddings/", "embeddings/zz.parquet", "a", "z"])
def test_another_path_has_no_number(store: Path, path: str) -> None:
    assert current(store).find_shard_number(path) == -1


def test_some_of_the_shards(store: Path) -> None:
    manifest = current(store)
    some = manifest.select_shards(manifest.shards.slice(1, 2))
    assert [some.shard(number) for number in (0, 1)] == [manifest.shard(n) for n in (1, 2)]
    assert some.find_shard_number(manifest.shard(2).path) == 1
    assert some.find_shard_number(manifest.shard(0).path) == -1


def test_arrow_opens_the_shards_alone(store: Path) -> None:
    manifest = current(store)
    shard = manifest.shard(1)
    found = open_shard_files(manifest).get_file_info(
        [shard.full_path, str(store / "manifest.json")]
    )
    assert (found[0].size, found[1].type) == (shard.bytes, pa.fs.FileType.NotFound)


def test_a_process_that_searches_holds_200_bytes_a_unit(tmp_path: Path) -> None:
    root, number = tmp_path / "store", 20_000
    night(str(root), 0, numbered(0, 1))
    [unit] = units_of(root)
    names = [f"{n:016x}-000000000000" for n in range(number)]
    edit_units(
        root,
        lambda _: [
            {**unit, "unit": name, "path": f"embeddings/{name}-{'0' * 16}.parquet"}
            for name in names
        ],
    )
    manifest = current(root)
    before = pa.total_allocated_bytes()
    assert manifest.find_shard_number(manifest.shard(number // 2).path) == number // 2
    assert pa.total_allocated_bytes() - before < BYTES_A_UNIT * number


def test_pandas_is_not_imported_for_them(store: Path) -> None:
    code = (
        "import sys\n"
        "from sentence_beam.transforms.store.manifest import read_manifest\n"
        f"manifest = read_manifest({str(store)!r})\n"
        "manifest.shard_number(manifest.shard(1).path)\n"
        "sys.exit('pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
