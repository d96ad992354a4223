"""Search in ranges of a store on gs://: what it requests, what it keeps, and what it refuses.

Covers transforms/search/opened.py.
"""

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.faulty_disk import free_bytes
from helpers.gcs import BUCKET, Gcs
from helpers.nights import Nights, vector_of
from helpers.snapshots import units_of
from helpers.variants import variants

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import DamagedIndexError, SentenceBeamError
from sentence_beam.transforms.beam import IndexRequest
from sentence_beam.transforms.index.range_file import HEADER_BYTES, LIST_BYTES, count_header_bytes
from sentence_beam.transforms.search import Copies, Searcher
from sentence_beam.transforms.store.index_files import checked_files as index_files
from sentence_beam.transforms.store.manifest import read_manifest

pytest.importorskip("faiss")

TOPICS = "abcdefghijklmnop"
QUERIES = ["a question", "k 17 3"]
ROWS = {f"f{i}": [(f"{i}-{j}", f"{TOPICS[j % 16]} {i} {j}") for j in range(400)] for i in range(5)}


@dataclass(frozen=True)
class Remote:
    """The same store on this disk and on gs://."""

    here: Nights
    there: str

    def searcher(self, copies: Copies) -> Searcher:
        manifest = read_manifest(self.there)
        assert manifest is not None
        return Searcher(manifest, copies=copies)

    @property
    def ranges(self) -> list[dict[str, Any]]:
        return [s for s in self.here.index["segments"] if s.get("lists")]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Nights:
    nights = Nights(tmp_path_factory.mktemp("remote") / "store")
    nights.commit(ROWS, IndexRequest("IVF64,SQ8", range_bytes=6000))
    files = dict(ROWS)
    files["f0"] = ROWS["f0"][30:]
    nights.commit(files)
    return nights


def uploaded(nights: Nights, there: str) -> Remote:
    for path in sorted(p for p in nights.root.rglob("*") if p.is_file()):
        storage.overwrite(f"{there}/{path.relative_to(nights.root)}", path.read_bytes())
    return Remote(nights, there)


@pytest.fixture(scope="module")
def kept(built: Nights, gcs: Gcs) -> Remote:
    """A copy on gs:// for the tests that only read it."""
    return uploaded(built, f"gs://{BUCKET}/kept-{uuid.uuid4().hex[:12]}")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder of copies."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def remote(kept: Remote, cache: None) -> Remote:
    return kept


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """The parts of files of the index that are read from now on."""
    read: list[tuple[str, int, int]] = []
    real = index_files.part

    def part(path: str, start: int, stop: int) -> bytes:
        read.append((path, start, stop))
        return real(path, start, stop)

    monkeypatch.setattr(index_files, "part", part)
    return read


def answers(searcher: Searcher, texts: list[str] = QUERIES, k: int = 10) -> list[Any]:
    hits = searcher.nearest(np.array([vector_of(text) for text in texts]), k)
    rows = searcher.rows.describe(hits)
    return [[(row["score"], row["id"]) for row in of_query] for of_query in rows]


def test_it_finds_what_a_local_search_finds_and_reads_what_it_probes(
    remote: Remote, gcs: Gcs, parts: list[tuple[str, int, int]], tmp_path: Path
) -> None:
    right = answers(Searcher(remote.here.manifest))
    parts.clear()
    searcher = remote.searcher(Copies())
    with gcs.counted() as requests:
        assert answers(searcher) == right
    of_ranges = [part for part in parts if part[0].endswith(".lists")]
    assert len([r for r in requests if ".lists" in r]) == len(of_ranges)
    headers = [part for part in of_ranges if part[1] == 0]
    bounds = [s["lists"][1] - s["lists"][0] for s in remote.ranges]
    assert all(stop == count_header_bytes(max(bounds)) or stop < 1000 for _, _, stop in headers)
    probed = 2 * searcher.manifest.index.nprobe
    assert len(of_ranges) - len(headers) <= probed
    index = searcher.index.whole_index.parts[0]
    sizes = index.lists.sizes
    lists = np.flatnonzero(index.ready)
    wanted = int(sizes[lists].sum()) * (index.index.code_size + 8)
    read = sum(stop - start for _, start, stop in of_ranges)
    assert read == wanted + sum(stop for _, _, stop in headers)
    parts.clear()
    assert answers(searcher) == right  # in memory
    assert answers(remote.searcher(Copies())) == right  # by another command, from the cache
    assert not [part for part in parts if part[0].endswith(".lists")]
    copies = list((tmp_path / "cache" / "sentence-beam").glob("*.lists"))
    assert not copies


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("ranges", [1, 17, 64])
def test_a_cold_query_of_200_000_rows(
    tmp_path: Path,
    gcs: Gcs,
    cache: None,
    parts: list[tuple[str, int, int]],
    monkeypatch: pytest.MonkeyPatch,
    ranges: int,
) -> None:
    nlist, rows, k = 2048, 200_000, 10
    nights = Nights(tmp_path / "store")
    code = nights.space.dim + 8  # a row of a list: eight-bit codes and its id
    of_all = rows * code + LIST_BYTES * nlist
    request = IndexRequest(f"IVF{nlist},SQ8", range_bytes=of_all // ranges + HEADER_BYTES)
    files = {
        f"f{i}": [(f"{i}-{j}", f"{TOPICS[j % 16]} {i} {j}") for j in range(rows // 20)]
        for i in range(20)
    }
    nights.commit(files, request)
    remote = uploaded(nights, f"gs://{BUCKET}/cold-{uuid.uuid4().hex[:12]}")
    # the held-out rows are no part of a range, and a range has whole lists
    assert 0.9 * ranges <= len(remote.ranges) <= 1.2 * ranges
    right = answers(Searcher(remote.here.manifest), QUERIES[:1], k)
    parts.clear()
    with gcs.counted() as requests:
        searcher = remote.searcher(Copies())
        found = answers(searcher, QUERIES[:1], k)
    assert found == right
    of_ranges = [part for part in parts if part[0].endswith(".lists")]
    headers = sum(stop for _, start, stop in of_ranges if start == 0)
    index = searcher.index.whole_index.parts[0]
    probed = np.flatnonzero(index.ready)
    wanted = int(index.lists.sizes[probed].sum()) * (index.index.code_size + 8)
    asked = [request for request in requests if ".lists" in request]
    shards = [request for request in requests if "embeddings" in request]
    locators = [request for request in requests if "index" in request and ".parquet" in request]
    print(
        f"{len(remote.ranges)} ranges, {len(probed)} lists probed: {len(asked)} requests,"
        f" {sum(stop - start for _, start, stop in of_ranges):,} bytes, {headers:,} of them"
        f" headers; {wanted:,} bytes of lists; {len(shards)} requests of shards,"
        f" {len(locators)} of locators, {len(requests)} in all"
    )
    assert len(asked) <= 1.2 * len(probed) + 12
    assert len(shards) + len(locators) <= 2 * k
    assert sum(stop - start for _, start, stop in of_ranges) <= 1.5 * (wanted + headers)
    assert headers <= 40 * nlist + 2000 * len(remote.ranges)


def test_a_shard_of_hits_takes_one_request(remote: Remote, gcs: Gcs) -> None:
    searcher = remote.searcher(Copies())
    hits = searcher.nearest(np.array([vector_of(QUERIES[0])]), 5)
    assert searcher.rows.columns.names  # from the first shard, once
    with gcs.counted() as requests:
        searcher.rows.describe(hits)
    assert len(requests) == len(np.unique(hits.shard))


@pytest.mark.parametrize("where", [None, "id = '1-1'"])
def test_a_shard_that_was_cut_is_named_in_one_line(
    built: Nights, gs: str, cache: None, where: str | None
) -> None:
    remote = uploaded(built, gs)
    for unit in units_of(built.root):
        path = f"{gs}/{unit['path']}"
        data = storage.read_bytes(path)
        storage.overwrite(path, data[: len(data) // 2])
    searcher = remote.searcher(Copies())
    with pytest.raises(SentenceBeamError, match=r"embeddings/.*ends before the .* bytes") as got:
        searcher.rows.describe(searcher.nearest(np.array([vector_of(QUERIES[0])]), 5, where=where))
    assert "\n" not in str(got.value)


def test_all_is_copied_if_that_is_asked_for(
    remote: Remote, parts: list[tuple[str, int, int]], tmp_path: Path
) -> None:
    right = answers(Searcher(remote.here.manifest))
    assert answers(remote.searcher(Copies(local=True))) == right
    assert not [part for part in parts if part[0].endswith(".lists")]
    copies = list((tmp_path / "cache" / "sentence-beam").glob("*.lists"))
    assert len(copies) == len(remote.ranges)


def test_the_cache_never_holds_more_than_its_bound(
    remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free_bytes(monkeypatch, 40_000)
    right = answers(Searcher(remote.here.manifest))
    folder = tmp_path / "cache" / "sentence-beam" / "lists"
    for _ in range(2):
        searcher = remote.searcher(Copies())
        for query, hits in zip(QUERIES, right, strict=True):
            assert answers(searcher, [query]) == [hits]
            assert sum(path.stat().st_size for path in folder.iterdir()) <= 4000
    assert list(folder.iterdir())


def test_a_damaged_copy_in_the_cache_is_read_again(remote: Remote, tmp_path: Path) -> None:
    right = answers(remote.searcher(Copies()))
    for path in (tmp_path / "cache" / "sentence-beam" / "lists").iterdir():
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    assert answers(remote.searcher(Copies())) == right


def test_a_folder_that_cannot_be_written_is_done_without(
    remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = answers(remote.searcher(Copies()))
    lists = tmp_path / "cache" / "sentence-beam" / "lists"
    for path in lists.iterdir():
        path.unlink()
    lists.rmdir()
    lists.write_bytes(b"")  # a file in its place
    assert answers(remote.searcher(Copies())) == right


@pytest.mark.parametrize("where", ["header", "list"])
@pytest.mark.parametrize("how", ["flipped", "cut"])
def test_a_damaged_range_is_named_in_one_line(
    built: Nights, gs: str, cache: None, where: str, how: str
) -> None:
    remote = uploaded(built, gs)
    for segment in remote.ranges:
        path = f"{remote.there}/{segment['path']}"
        data = bytearray(storage.read_bytes(path))
        start = count_header_bytes(segment["lists"][1] - segment["lists"][0])
        if how == "cut":
            del data[start + 1 if where == "list" else start - 9 :]
        elif where == "header":
            data[60] ^= 1
        else:
            data[start:] = bytes(byte ^ 1 for byte in data[start:])
        storage.overwrite(path, bytes(data))
    with pytest.raises(DamagedIndexError, match=r"\.lists was changed after it was written") as got:
        answers(remote.searcher(Copies()))
    assert "\n" not in str(got.value)


@variants("sends", ["everything", "less", "nothing"], (0, 1))
def test_a_server_that_sends_other_bytes_never_gives_other_results(
    remote: Remote, monkeypatch: pytest.MonkeyPatch, sends: str
) -> None:
    real = storage.read_range

    def read_range(path: str, start: int, stop: int) -> bytes:
        if not path.endswith(".lists"):
            return real(path, start, stop)
        if sends == "everything":
            return storage.read_bytes(path)
        return real(path, start, stop)[: (stop - start) // 2 if sends == "less" else 0]

    monkeypatch.setattr(storage, "read_range", read_range)
    with pytest.raises(SentenceBeamError, match=r"\.lists(: the storage sent| was changed)") as got:
        answers(remote.searcher(Copies()))
    assert "\n" not in str(got.value)


def test_a_part_beyond_the_end_of_a_file_is_an_error_in_one_line(gs: str, gcs: Gcs) -> None:
    storage.overwrite(f"{gs}/x.lists", b"short")
    with pytest.raises(DamagedIndexError, match=r"x\.lists was changed"):
        index_files.part(f"{gs}/x.lists", 10, 20)
    with pytest.raises(DamagedIndexError, match=r"x\.lists was changed"):
        index_files.part(f"{gs}/x.lists", 0, 20)
