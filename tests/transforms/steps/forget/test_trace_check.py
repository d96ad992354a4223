"""The check by keyed hashes: a file that comes back from a copy is named, whatever its kind."""

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.commands import Run, runner
from helpers.erasing import KeptTexts, forget, read, rows
from helpers.snapshots import night, numbered
from helpers.watching import BY_ID

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.steps.forget.trace_check import find_forgotten_traces, find_unlisted
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.index_entries import IndexRequest

pytest.importorskip("faiss")
KINDS = {"shards", "index", "watch"}


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process."""
    return runner(capfd)


def traces_by_kind(run: Run, folder: Path) -> set[str]:
    """The kinds of files that are named if all files from before an erasure come back."""
    nights = KeptTexts(folder / "store", options=BY_ID)
    person = rows("person", 60)
    nights.commit({"f": person, "g": rows("other", 60)}, IndexRequest("Flat"))
    nights.watch([text for _, text in person[2:5]])
    nights.night({"f": person[1:], "g": rows("other", 60)}, request=IndexRequest("Flat"))
    store = nights.root
    shutil.copytree(store, folder / "copy")
    forget(run, store, person[3][0], person[0][0]).ok()
    assert find_forgotten_traces(read(store)) == []
    shutil.copytree(folder / "copy", store, ignore=keep_current, dirs_exist_ok=True)
    found = find_forgotten_traces(read(store))
    kinds = {layout.kind(line.partition(" has ")[0].removeprefix(f"{store}/")) for line in found}
    return {kind for kind in kinds if kind is not None}


def keep_current(folder: str, names: list[str]) -> set[str]:
    """The files to leave as they are: manifests."""
    return {name for name in names if name == "manifest.json"}


def test_every_kind_of_file_that_names_a_row_by_its_id(run: Run, tmp_path: Path) -> None:
    assert traces_by_kind(run, tmp_path) == KINDS


def test_lists_of_changed_rows_stray_hashes_and_files_that_cannot_be_read(
    run: Run, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    night(str(root), 0, numbered(0, 5), id_column="id")
    forget(run, root, "r3").ok()
    ids = pa.table({"id": ["r1", "r3"]})
    changes = root / layout.changes("x", "0" * 64)
    changes.parent.mkdir()
    pq.write_table(ids, changes)
    stray = root / f"ids/{'0' * 16}-0-{'0' * 16}.xxh3"
    stray.write_bytes(b"")
    damaged = root / f"rejects/{'0' * 16}-0-{'0' * 16}.parquet"
    damaged.write_bytes(b"")
    assert sorted(find_forgotten_traces(read(root))) == sorted(
        [
            f"{changes} has the id of an erased row",
            f"{stray} has hashes of ids of a shard that is gone",
            f"{damaged} cannot be read, and was not checked",
        ]
    )


def test_a_store_without_erased_rows_and_foreign_files(tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    night(root, 0, numbered(0, 5), id_column="id")
    with pytest.raises(OptionError, match="no row of .* was erased"):
        find_forgotten_traces(read(Path(root)))
    assert find_unlisted(root) == []
    (tmp_path / "store" / "embeddings" / "mine.parquet").write_bytes(b"")
    assert find_unlisted(root) == [f"{root}/embeddings/mine.parquet"]
