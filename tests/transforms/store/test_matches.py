"""Which rows of a snapshot a filter matches, in a local store and in a remote one."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from helpers.nights import Nights
from helpers.snapshots import units_of

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.store import matches as store_matches
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.matches import matches


class Numbered(Nights):
    """Nights whose rows keep the number in their text; an x is null."""

    def kept(self, texts: list[str]) -> pa.Table:
        numbers = [None if text == "x" else int(text) for text in texts]
        return pa.table({"n": pa.array(numbers, pa.int64())})


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    """Three shards of three, one and two rows."""
    nights = Numbered(tmp_path / "store")
    texts = {"f0": ["1", "x", "3"], "f1": ["4"], "f2": ["5", "1"]}
    nights.commit_without_index(
        {name: [(f"{name}-{i}", text) for i, text in enumerate(found)]
         for name, found in texts.items()}
    )  # fmt: skip
    return nights.manifest


def rows(manifest: Manifest, found: tuple[np.ndarray, ...]) -> list[list[bool]]:
    """The rows of each shard, in the order of the files."""
    files = [unit["file"] for unit in units_of(manifest.root) if unit["path"]]
    assert len(files) == len(found)
    return [found[files.index(name)].tolist() for name in ("f0", "f1", "f2")]


@pytest.fixture(params=[True, False], ids=["local", "remote"])
def read_with_threads(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> list[bool]:
    """Whether pyarrow reads each shard in several threads; the store passes for a remote one."""
    seen: list[bool] = []
    original = store_matches.match_rows

    def matching(*args: object, threads: bool) -> np.ndarray:
        seen.append(threads)
        return original(*args, threads=threads)

    monkeypatch.setattr(store_matches, "match_rows", matching)
    if not request.param:
        monkeypatch.setattr(storage, "is_local", lambda path: False)
    return seen


def test_rows_match_in_every_shard_and_null_never_does(
    manifest: Manifest, read_with_threads: list[bool]
) -> None:
    local = storage.is_local(manifest.root)
    where = pc.field("n") < 4
    found = matches(manifest, where)
    assert rows(manifest, found.shards) == [[True, False, True], [False], [False, True]]
    assert {shard.dtype for shard in found.shards} == {np.dtype(bool)}
    assert found.count == 3
    assert found.where is where
    # A remote store's shards are read side by side, one thread each.
    assert read_with_threads == [local] * 3
    turned = matches(manifest, ~(pc.field("n") < 4))
    assert rows(manifest, turned.shards) == [[False, False, False], [True], [True, False]]
    assert matches(manifest, pc.field("n") > 9).count == 0


def test_a_store_without_rows_has_no_match(tmp_path: Path, read_with_threads: list[bool]) -> None:
    nights = Numbered(tmp_path / "empty")
    nights.commit_without_index({})
    found = matches(nights.manifest, pc.field("id") == "a")
    assert (found.shards, found.count) == ((), 0)


def test_a_shard_that_cannot_be_read_is_named(
    manifest: Manifest, read_with_threads: list[bool]
) -> None:
    path = Path(manifest.shard_paths[1])
    path.write_bytes(b"PAR1")
    with pytest.raises(SentenceBeamError, match="cannot be filtered") as caught:
        matches(manifest, pc.field("n") < 4)
    assert path.name in str(caught.value)
    assert "sentence-beam verify lists damage" in str(caught.value)
