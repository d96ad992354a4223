"""Stores and inputs on s3://, through Beam's filesystem, against a real server."""

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.commands import Run
from helpers.corpora import manifest_of, sentences, write_lines, write_parquet
from helpers.snapshots import units_of

from sentence_beam.transforms import storage
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.runs import lease


@pytest.fixture
def bucket(s3: str) -> str:
    """A folder of the service's bucket that no other test uses."""
    return s3


def test_storage_writes_lists_and_removes(bucket: str) -> None:
    place = storage.storage_of(bucket)
    assert place.put_if_absent(f"{bucket}/a.txt", b"one")
    assert not place.put_if_absent(f"{bucket}/a.txt", b"two")
    found = place.read_versioned(f"{bucket}/a.txt")
    assert found is not None
    assert not place.replace_if(f"{bucket}/a.txt", b"three", "other")
    assert place.replace_if(f"{bucket}/a.txt", b"three", found[1])
    assert place.put_if_absent(f"{bucket}/deep/b.txt", b"b")
    assert [(e.path, e.size) for e in place.below(bucket)] == [
        (f"{bucket}/a.txt", 5),
        (f"{bucket}/deep/b.txt", 1),
    ]
    (entry,) = place.match(f"{bucket}/*.txt").files
    assert entry == place.stat(f"{bucket}/a.txt")
    place.delete(f"{bucket}/a.txt", f"{bucket}/none")
    assert place.match(f"{bucket}/*.txt").files == []


@pytest.mark.slow
def test_a_long_listing_goes_side_by_side_where_the_service_can(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sentence_beam.transforms.storage import s3 as back_end

    place, asked = storage.storage_of(bucket), []
    for number in range(60):
        place.put_if_absent(f"{bucket}/in/part-{number:03d}.txt", b"%d" % number)
    whole = place.below(f"{bucket}/in")
    monkeypatch.setattr(back_end, "OBJECTS_IN_A_PAGE", 4)
    events = back_end.copy_shared_client().client.meta.events
    events.register(
        "before-parameter-build.s3.ListObjectsV2", lambda params, **_: asked.append(dict(params))
    )
    assert place.below(f"{bucket}/in") == whole
    assert len(whole) == 60
    assert 15 <= len(asked) < 30
    assert not any("ContinuationToken" in params for params in asked), (
        "one page had to wait for another"
    )

    events.register(
        "before-parameter-build.s3.ListObjectsV2",
        lambda params, **_: params.pop("StartAfter", None),
        "no",
    )
    assert place.below(f"{bucket}/in") == whole, "a service that knows no name to begin at"
    events.unregister("before-parameter-build.s3.ListObjectsV2", unique_id="no")
    asked.clear()
    monkeypatch.setattr(back_end, "UNSORTED", bucket.split("/")[2])
    assert place.below(f"{bucket}/in") == whole
    assert not any("StartAfter" in params for params in asked)


def test_writes_are_on_condition_also_behind_the_look_before_them(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between a look and a write another writer may come."""
    place, path = storage.storage_of(bucket), f"{bucket}/a.txt"
    assert place.put_if_absent(path, b"one")
    first = place.read_versioned(path)
    assert first is not None
    with monkeypatch.context() as patch:
        patch.setattr(type(place), "stat", lambda self, path: None)
        assert not place.put_if_absent(path, b"two")
        assert place.put_if_absent(path, b"one")  # its own, whose answer was lost
    assert place.replace_if(path, b"three", first[1])
    read = type(place).read_versioned
    for act in (
        lambda: place.replace_if(path, b"four", first[1]),
        lambda: place.delete_if(path, first[1]),
    ):
        looks = iter([first])
        with monkeypatch.context() as patch:
            patch.setattr(
                type(place),
                "read_versioned",
                lambda self, path, looks=looks: next(looks, read(self, path)),
            )
            assert not act()
    assert storage.read_bytes(path) == b"three"
    place.delete(path)
    with monkeypatch.context() as patch:
        looks = iter([first])
        patch.setattr(type(place), "read_versioned", lambda self, path: next(looks, None))
        assert not place.replace_if(path, b"four", first[1])
    assert place.stat(path) is None


@pytest.mark.parametrize(
    ("status", "answers", "writes"), [(501, 1, True), (409, 2, True), (409, 9, False)]
)
def test_a_service_without_conditions_is_written_and_a_conflict_tried_again(
    bucket: str, monkeypatch: pytest.MonkeyPatch, status: int, answers: int, writes: bool
) -> None:
    from botocore.exceptions import ClientError

    from sentence_beam.transforms.storage import s3 as back_end

    path, client, left = f"{bucket}/a.txt", back_end.copy_shared_client().client, [answers]
    put = client.put_object

    def refusing(**arguments: Any) -> Any:
        if left[0] and "IfNoneMatch" in arguments:
            left[0] -= 1
            raise ClientError(
                {"Error": {"Code": "x"}, "ResponseMetadata": {"HTTPStatusCode": status}},
                "PutObject",
            )
        return put(**arguments)

    monkeypatch.setattr(client, "put_object", refusing)
    assert storage.storage_of(path).put_if_absent(path, b"one") == writes
    assert (storage.storage_of(path).stat(path) is not None) == writes


def test_what_is_missing_is_said_when_it_is_opened(bucket: str) -> None:
    with pytest.raises(FileNotFoundError):
        storage.storage_of(bucket).open(f"{bucket}/none")
    assert storage.storage_of(bucket).read_versioned(f"{bucket}/none") is None


def test_a_listing_has_etags_without_a_request_a_file(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = storage.storage_of(bucket)
    for number in range(3):
        place.put_if_absent(f"{bucket}/{number}", b"%d" % number)
    monkeypatch.setattr(
        type(place), "stat", lambda self, path: pytest.fail("a request for every file")
    )
    assert len({entry.checksum for entry in place.match(f"{bucket}/*").files}) == 3


def test_a_store_on_s3_is_the_one_on_disk(
    run: Run,
    model: Path,
    inputs: Path,
    store: Path,
    bucket: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_parquet(inputs / "a.parquet", sentences(200), row_group_size=50)
    write_lines(inputs / "b.txt", sentences(50, 200))
    for path in inputs.iterdir():
        storage.overwrite(f"{bucket}/in/{path.name}", path.read_bytes())
    there, how = f"{bucket}/store", ("--model", model, "--unit-tokens", 1000, "--index", "auto")
    run("embed", "--input", inputs / "*", "--store", store, *how).ok()
    run("embed", "--input", f"{bucket}/in/*", "--store", there, *how).ok()
    here = manifest_of(store)
    assert here is not None
    names = ("unit", "path", "sha256", "rows")
    made = json.loads(storage.read_bytes(f"{there}/manifest.json"))
    assert [[u[n] for n in names] for u in units_of(there)] == [
        [u[n] for n in names] for u in units_of(store)
    ]

    run("embed", "--input", f"{bucket}/in/*", "--store", there).ok()
    made = json.loads(storage.read_bytes(f"{there}/manifest.json"))
    assert made["work"] == {"embedded": 0, "reused": 0, "duplicates": 0, "carried": 250}
    run("verify", "--store", there).ok()
    first, second = (open_store(str(store)).numpy()[0][row] for row in (0, 99))
    for query in (
        ("--query", sentences(1, 40)[0], "-k", 5),
        ("--query", "dog", "--where", f"id IN ('{first}', '{second}')"),
        ("--id", first, "--where", f"id != '{second}'"),
    ):
        assert (
            run("search", "--store", there, *query).ok().out
            == run("search", "--store", store, *query).ok().out
        )
    assert open_store(there).dataset().count_rows() == 250


def test_a_missing_bucket_is_one_line(run: Run, model: Path, bucket: str) -> None:
    storage.overwrite(f"{bucket}/in/a.txt", b"a text\n")
    embed = (
        "embed",
        "--input",
        f"{bucket}/in/*",
        "--store",
        "s3://nowhere/store",
        "--model",
        model,
    )
    run(*embed).failed(1, "s3://nowhere/store", "there is no such bucket (404)")


def test_a_second_writer_ends_with_one_line(run: Run, model: Path, bucket: str) -> None:
    storage.overwrite(f"{bucket}/in/a.txt", b"a text\n")
    lease.acquire(
        f"{bucket}/store", lease.Lease.from_this_process("run1", "FnApiRunner", "job", True)
    )
    embed = ("embed", "--input", f"{bucket}/in/*", "--store", f"{bucket}/store", "--model", model)
    run(*embed).failed(1, f"{bucket}/store is being written by run run1")


def test_a_carried_shard_that_changed_is_found_by_its_etag_and_made_again(
    run: Run, model: Path, inputs: Path, bucket: str
) -> None:
    write_lines(inputs / "a.txt", sentences(20))
    how = ("--input", inputs / "*", "--store", bucket, "--model", model)
    run("embed", *how).ok()
    (unit,) = units_of(bucket)
    path = f"{bucket}/{unit['path']}"
    whole = storage.read_bytes(path)
    assert unit["checksum"] == storage.storage_of(path).stat(path).checksum != ""
    assert (
        "1 of 1 carried shards are sound: 1 by the checksum of a listing, 0 by reading"
        in run("embed", *how).ok().out
    )
    storage.overwrite(path, whole[:-1] + b"x")
    out = run("embed", *how).ok().out
    assert "20 embedded" in out
    assert f"damaged     {unit['path']}" in out
    assert storage.read_bytes(path) == whole
