"""A remote snapshot as a dataset: what is asked of the storage before the first row, and what stays
in memory.
"""

import gc
import io
import time
import weakref
from pathlib import Path
from typing import BinaryIO, ClassVar

import pytest
from helpers import fake_storage
from helpers.gcs import Gcs
from helpers.snapshots import night, numbered

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.storage.local import LocalStorage
from sentence_beam.transforms.store import open_store

SHARDS = 40


def forty_shards(root: str) -> None:
    """A snapshot of so many shards, each of three rows."""
    night(root, 0, *(numbered(3 * i, 3 * i + 3) for i in range(SHARDS)))


class Reader(io.FileIO):
    """A reader that is counted as long as it is there."""


class Remote(LocalStorage):
    """A folder that passes for a remote store, and knows what was asked of it."""

    asked: ClassVar[list[str]] = []
    readers: ClassVar["weakref.WeakSet[Reader]"] = weakref.WeakSet()

    def open(self, path: str, entry: storage.Entry | None = None) -> BinaryIO:
        self.asked.append(path)
        assert entry is not None, "the size has to be asked for"
        assert entry.size == Path(path).stat().st_size
        reader = Reader(path)
        self.readers.add(reader)
        return reader  # type: ignore[return-value]

    def stat(self, path: str) -> storage.Entry | None:
        pytest.fail(f"a request for {path}, which the manifest knows")


def test_a_remote_dataset_opens_what_is_read_and_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(tmp_path / "store")
    forty_shards(root)
    here = open_store(root).dataset().to_table()
    store = open_store(root)
    fake_storage.replace_storage(monkeypatch, Remote())
    monkeypatch.setattr(storage, "is_local", lambda path: False)
    Remote.asked.clear()

    dataset = store.dataset()
    assert Remote.asked == store.manifest.shard_paths[:1]
    assert dataset.files == store.manifest.shard_paths
    Remote.asked.clear()
    assert next(dataset.get_fragments()).head(1).num_rows == 1
    assert set(Remote.asked) == set(store.manifest.shard_paths[:1])

    Remote.asked.clear()
    assert dataset.to_table().sort_by("id").equals(here.sort_by("id"))
    assert set(Remote.asked) == set(store.manifest.shard_paths)
    assert len(Remote.asked) <= 2 * SHARDS  # footer, then rows
    assert nothing_is_kept()


def nothing_is_kept(seconds: float = 30) -> bool:
    """Whether every reader is let go in that time: a read ahead ends on a thread of Arrow's after
    its table is here.
    """
    until = time.monotonic() + seconds
    while len(Remote.readers) and time.monotonic() < until:
        gc.collect()
        time.sleep(0.01)
    return not len(Remote.readers)


def test_a_dataset_on_gs_asks_for_what_is_read_alone(gs: str, gcs: Gcs) -> None:
    forty_shards(gs)
    with gcs.counted() as requests:
        dataset = open_store(gs).dataset()
    assert len(requests) == 3, requests  # the manifest, its units and a footer
    with gcs.counted() as requests:
        assert next(dataset.get_fragments()).head(1).num_rows == 1
    assert len(requests) <= 2, requests  # its footer, then its rows
    with gcs.counted() as requests:
        assert dataset.to_table().num_rows == 3 * SHARDS
    assert len(requests) <= 2 * SHARDS


def test_a_damaged_first_shard_is_one_line(tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    night(root, 0, numbered(0, 3))
    (path,) = open_store(root).manifest.shard_paths
    Path(path).write_bytes(b"[" * 1000)
    with pytest.raises(SentenceBeamError, match=r"is damaged \(.*\); run embed"):
        open_store(root).dataset()


def test_a_store_that_is_not_named_is_that_of_the_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("store", "other"):
        night(str(tmp_path / name), 0, numbered(0, 3))
    monkeypatch.chdir(tmp_path)
    assert open_store().root == str(tmp_path / "store")
    monkeypatch.setenv("SENTENCE_BEAM_STORE", "other")
    assert open_store().root == str(tmp_path / "other")
    with pytest.raises(SentenceBeamError, match="holds no store"):
        open_store("")
