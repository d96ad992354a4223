"""gs:// against a real server: one winner of many, one generation read throughout, refusals and
faults in one line.
"""

import hashlib
import os
import threading
from pathlib import Path

import pytest
from helpers.gcs import Gcs
from helpers.settled import finish
from helpers.snapshots import begin, write_unit

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import (
    InputChangedError,
    MissingExtraError,
    SentenceBeamError,
)
from sentence_beam.transforms.storage import dispatch
from sentence_beam.transforms.storage.cache import cache_file
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.runs import lease
from sentence_beam.transforms.store.verification import faults


def put(path: str, data: bytes) -> storage.Storage:
    """Write a file; gives its storage."""
    place = storage.storage_of(path)
    assert place.put_if_absent(path, data)
    return place


def test_a_bucket_is_no_file_but_a_folder(gs: str) -> None:
    bucket = gs.rpartition("/")[0]
    put(f"{gs}/a.txt", b"a line\n")
    place = storage.storage_of(bucket)
    assert place.stat(bucket) is None
    assert place.match(bucket).files == []
    assert f"{gs}/a.txt" in [entry.path for entry in place.match(f"{bucket}/**").files]


def test_of_many_writers_at_once_exactly_one_wins(gs: str) -> None:
    wins: list[tuple[str, int]] = []
    start, place = threading.Barrier(8), storage.storage_of(gs)

    def write(number: int) -> None:
        start.wait()
        if number < 4 and place.put_if_absent(f"{gs}/once", b"%d" % number):
            wins.append(("once", number))
        if number >= 4 and place.replace_if(f"{gs}/pointer", b"%d" % number, None):
            wins.append(("pointer", number))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(name for name, _ in wins) == ["once", "pointer"]
    assert all(storage.read_bytes(f"{gs}/{name}") == b"%d" % number for name, number in wins)


def test_of_two_runs_that_began_alike_the_second_harms_nothing(gs: str) -> None:
    first, second = begin(gs, 1, 1), begin(gs, 2, 1)
    assert finish(first, [write_unit(gs, 0, [("a", "one")])], []).status == "committed"
    late = finish(second, [write_unit(gs, 0, [("a", "other")])], [])
    assert (late.exit_code, f"run {first.id} committed while this run worked" in late.message) == (
        1,
        True,
    )
    store = open_store(gs)
    assert store.manifest.run == first.id
    assert list(faults(store.manifest)) == []
    assert store.dataset().to_table(columns=["id"]).to_pydict() == {"id": ["a"]}


def test_of_many_leases_at_once_one_is_given(gs: str) -> None:
    refused: list[str] = []
    start = threading.Barrier(6)

    def take(number: int) -> None:
        start.wait()
        try:
            lease.acquire(
                gs, lease.Lease.from_this_process(f"run{number}", "FnApiRunner", "job", True)
            )
        except SentenceBeamError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=take, args=(number,)) for number in range(6)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    (holder,) = (number for number in range(6) if lease.holds(gs, f"run{number}"))
    assert len(refused) == 5
    assert all(f"is being written by run run{holder}" in line for line in refused)
    lease.renew(gs, f"run{holder}")
    lease.release(gs, f"run{(holder + 1) % 6}")
    assert lease.holds(gs, f"run{holder}")
    lease.release(gs, f"run{holder}")
    assert storage.storage_of(gs).stat(f"{gs}/lease.json") is None


def test_a_write_whose_answer_was_lost_is_known_by_its_bytes(gs: str) -> None:
    place = put(f"{gs}/a", b"mine")
    assert place.replace_if(f"{gs}/a", b"mine", None)
    assert not place.replace_if(f"{gs}/a", b"other", None)


def test_a_reader_keeps_to_the_version_that_was_listed(gs: str) -> None:
    place = put(f"{gs}/a.bin", b"x" * 3_000_000)
    (entry,) = place.match(f"{gs}/*.bin").files
    with place.open(entry.path, entry) as f:
        assert f.read(10) == b"x" * 10
        found = place.read_versioned(entry.path)
        assert found is not None
        assert found[1] == entry.version
        assert place.replace_if(entry.path, b"y" * 3_000_000, entry.version)
        f.seek(2_000_000)
        with pytest.raises(InputChangedError, match=r"a\.bin was replaced or removed"):
            f.read(10)


def test_a_listing_has_checksums_sizes_and_times_in_one_request(gs: str, gcs: Gcs) -> None:
    for number in range(5):
        put(f"{gs}/in/{number}.txt", b"%d" % number)
    with gcs.counted() as requests:
        entries = storage.storage_of(gs).match(f"{gs}/in/*.txt").files
    assert len(requests) == 1
    assert len({entry.checksum for entry in entries}) == 5
    assert all(
        entry.size == 1 and entry.modified > 1e9 and entry.version.isdecimal() for entry in entries
    )
    with gcs.counted() as requests:
        assert storage.storage_of(gs).stat(f"{gs}/in/9.txt") is None
    assert len(requests) == 1


def test_a_long_listing_goes_side_by_side(
    gs: str, gcs: Gcs, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sentence_beam.transforms.storage import gcs as module

    for number in range(60):
        put(f"{gs}/in/part-{number:03d}.txt", b"%d" % number)
    whole = storage.storage_of(gs).below(f"{gs}/in")
    monkeypatch.setattr(module, "OBJECTS_IN_A_PAGE", 4)
    with gcs.counted() as requests:
        assert storage.storage_of(gs).below(f"{gs}/in") == whole
    assert len(whole) == 60
    assert len(requests) > 15
    assert not any("pageToken" in request for request in requests), (
        "one page had to wait for another"
    )


@pytest.mark.parametrize("size", [0, 1, 100_000, 5_000_001])
def test_any_part_reads_as_it_was_written(gs: str, gcs: Gcs, size: int) -> None:
    data = os.urandom(size)
    place = put(f"{gs}/a", data)
    with gcs.counted() as requests, place.open(f"{gs}/a") as f:
        assert f.read() == data
        for start in (size - 10, 0, size // 2, size + 5):
            f.seek(max(start, 0))
            assert f.read(100) == data[max(start, 0) :][:100]
    assert len(requests) <= (2 if size < 1 << 20 else 5)


def test_large_files_are_read_in_few_large_parts(gs: str, gcs: Gcs) -> None:
    data = os.urandom(20 << 20)
    place = put(f"{gs}/a", data)
    with gcs.counted() as requests, place.open(f"{gs}/a") as f:
        assert b"".join(iter(lambda: f.read(1 << 20), b"")) == data
    assert len(requests) <= 7


def test_faults_in_between_do_not_show(gs: str, gcs: Gcs) -> None:
    # large ones go up in sessions
    data = [os.urandom(9_000_000 if number > 7 else 300_000) for number in range(10)]
    with gcs.failing(unavailable=0.2, cut=0.2, slow=0.1, wait=0.2):
        for number in range(10):
            assert storage.storage_of(gs).put_if_absent(f"{gs}/{number}", data[number])
            assert storage.read_bytes(f"{gs}/{number}") == data[number]
        assert len(storage.storage_of(gs).below(gs)) == 10
        storage.storage_of(gs).delete(*(f"{gs}/{number}" for number in range(10)))
    assert storage.storage_of(gs).below(gs) == []


def test_a_missing_bucket_and_a_refusal_say_what_mends_them(gs: str, gcs: Gcs) -> None:
    place = storage.storage_of(gs)
    for act in (
        lambda: place.put_if_absent("gs://nowhere/a", b""),
        lambda: place.match("gs://nowhere/*"),
    ):
        with pytest.raises(
            SentenceBeamError, match=r"there is no bucket gs://nowhere \(404\); create it"
        ):
            act()
    with gcs.failing(refused="."):
        for act in (
            lambda: place.stat(f"{gs}/a"),
            lambda: place.below(gs),
            lambda: place.put_if_absent(gs, b""),
        ):
            with pytest.raises(
                SentenceBeamError, match=r"permission denied \(403\); the account needs"
            ):
                act()


def test_without_credentials_the_line_says_where_they_come_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/none/account.json")
    with pytest.raises(SentenceBeamError, match="no valid Google credentials; run `gcloud auth"):
        storage.storage_of("gs://bucket").read_versioned("gs://bucket/a")


def test_a_refusal_that_breaks_off_is_asked_for_again(gs: str, gcs: Gcs) -> None:
    with gcs.failing(cut=0.5):
        assert all(storage.storage_of(gs).read_versioned(f"{gs}/none") is None for _ in range(4))
        assert gcs.faults.happened


def test_a_cached_file_is_fetched_once_and_only_if_it_is_the_right_one(
    gs: str, gcs: Gcs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    data = os.urandom(2_000_000)
    sha256 = hashlib.sha256(data).hexdigest()
    put(f"{gs}/index/{sha256}.faiss", data)
    path = cache_file(f"{gs}/index/{sha256}.faiss", sha256)
    assert Path(path).read_bytes() == data
    assert tmp_path / "cache" in Path(path).parents
    with gcs.counted() as requests:
        assert cache_file(f"{gs}/index/{sha256}.faiss", sha256) == path
    assert requests == []
    with pytest.raises(SentenceBeamError, match="was changed after it was written"):
        cache_file(f"{gs}/index/{sha256}.faiss", "0" * 64)
    with pytest.raises(SentenceBeamError, match="is missing"):
        cache_file(f"{gs}/index/none.faiss", "1" * 64)
    assert [found.name for found in Path(path).parent.iterdir()] == [f"{sha256}.faiss"]
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    with pytest.raises(SentenceBeamError, match="cannot be written .*; set XDG_CACHE_HOME"):
        cache_file(f"{gs}/index/{sha256}.faiss", sha256)


def test_without_the_extra_the_line_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "sentence_beam.transforms.storage.gcs", None)
    dispatch.import_back_end.cache_clear()
    with pytest.raises(
        MissingExtraError, match=r"no filesystem for gs://.*pip install -c .*\[gcp\]"
    ):
        storage.storage_of("gs://bucket/a")


def test_sixty_four_objects_are_removed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits until all others have begun."""
    from sentence_beam.transforms.storage import gcs as back_end

    together = threading.Barrier(64, timeout=60)
    removed = []

    def delete(_: back_end.GcsStorage, path: str, *__: object) -> bool:
        together.wait()
        removed.append(path)
        return True

    monkeypatch.setattr(back_end.GcsStorage, "delete_object", delete)
    paths = [f"gs://bucket/{n}" for n in range(128)]
    back_end.GcsStorage().delete(*paths)
    assert sorted(removed) == sorted(paths)


def test_the_client_keeps_a_connection_for_each_of_them(gs: str) -> None:
    from sentence_beam.transforms.storage import gcs as back_end

    for url in ("https://storage.googleapis.com", os.environ["STORAGE_EMULATOR_HOST"]):
        adapter = back_end.get_process_client()._http.get_adapter(url)
        assert adapter._pool_maxsize == back_end.DELETES_AT_ONCE
    paths = [f"{gs}/{n}" for n in range(100)]
    for path in paths:
        storage.storage_of(path).put_if_absent(path, b"x")
    storage.storage_of(gs).delete(*paths, f"{gs}/missing")
    assert not storage.storage_of(gs).below(gs)
