"""Requests of a later night, of `verify` and of `vacuum` over a store whose tables have several
parts: they grow with files and parts, not with files times parts.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from helpers.commands import Run
from helpers.corpora import sentences, write_parquet
from helpers.gcs import Gcs
from helpers.snapshots import parts_of, small_parts

from sentence_beam.transforms import storage
from sentence_beam.transforms.steps.plan import elements

ROWS = 8  # of a file, which is a unit
SIZES = (8, 24)  # files
BATCH = 4  # files that a worker plans, rows that a part has on average


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables have many parts, as with very many units."""
    small_parts(monkeypatch, BATCH)
    monkeypatch.setattr(elements, "FILES_PER_ELEMENT", BATCH)
    monkeypatch.setattr(elements, "ROUNDS", 1)


@dataclass(frozen=True)
class Store:
    """A store of so many files, with the run of a command over it and the requests of that run."""

    root: str
    files: int
    command: Callable[..., list[str]]

    @property
    def parts(self) -> int:
        """The parts of both tables."""
        return sum(len(parts_of(self.root, kind=kind)) for kind in ("files", "units"))


@pytest.fixture
def stores(run: Run, model: Path, inputs: Path, gs: str, gcs: Gcs) -> list[Store]:
    """A small and a larger store, each of one night, with an input of which one file is new."""
    made = []
    for size in SIZES:
        root = f"{gs}/{size}"

        def command(name: str, *options: object, root: str = root) -> list[str]:
            where: tuple[object, ...] = ("--store", f"{root}/store", *options)
            if name == "embed":
                where += ("--input", f"{root}/in/*", "--model", model, "--unit-tokens", 200)
            with gcs.counted() as requests:
                run(name, *where).ok()
            return requests

        for number in range(size):
            write(inputs, f"{root}/in", number, ROWS * number)
        command("embed")
        write(inputs, f"{root}/in", 1, 10_000)
        made.append(Store(f"{root}/store", size, command))
    return made


def write(inputs: Path, folder: str, number: int, first: int) -> None:
    path = write_parquet(inputs / f"{number}.parquet", sentences(ROWS, first))
    storage.overwrite(f"{folder}/{number}.parquet", path.read_bytes())


def ranges(requests: Collection[str], folder: str) -> list[tuple[str, str]]:
    """The ranges of names that were listed of a folder of the store, in their order."""
    found = []
    for one in requests:
        query = parse_qs(urlsplit(one).query)
        if query.get("prefix", [""])[0].endswith(f"/store/{folder}/"):
            bounds = (query.get(name, [""])[0] for name in ("startOffset", "endOffset"))
            found.append(tuple(bound.rpartition("/")[2] for bound in bounds))
    return sorted(found)


def reads(requests: Collection[str], folder: str) -> int:
    """The objects of a folder of the store that were read."""
    return sum(bool(re.search(rf"GET .*%2F{folder}%2F[^?]*\?alt=media", one)) for one in requests)


def test_requests_grow_with_files_and_parts(stores: list[Store]) -> None:
    """One test, since making the stores takes longer than looking at them."""
    found = [check_night(store) for store in stores]
    small, large = stores
    more = found[1] - found[0]
    assert 0 < more <= 6 * (large.parts - small.parts) + (large.files - small.files) / BATCH
    for store in stores:
        check_verify(store, most=3)
        check_verify(store, "--runner", "FnApiRunner", most=3)
        check_vacuum(store)


def check_night(store: Store) -> int:
    """A night lists the shards once, and reads a part a few times; returns all its requests."""
    requests = store.command("embed")
    listed = sorted(ranges(requests, "embeddings"))
    assert 1 < len(listed) <= store.parts
    assert all(one[1] <= following[0] for one, following in pairwise(listed))
    # by what plans, settles and counts changes
    assert store.parts <= reads(requests, "manifests%2Fparts") <= 4 * store.parts
    assert reads(requests, "embeddings") <= 6, "those of the new file alone"
    return len(requests)


def check_verify(store: Store, *options: str, most: int) -> None:
    """Each shard is read once, and a part by as many steps as need all units."""
    requests = store.command("verify", *options)
    assert reads(requests, "embeddings") == store.files
    assert reads(requests, "manifests%2Fparts") <= most * store.parts
    assert len(requests) <= store.files + most * store.parts + 20


def check_vacuum(store: Store) -> None:
    """Each folder of units is listed once, and a part of the kept snapshot is read once."""
    requests = store.command("vacuum", "--keep", 1)
    for folder in ("embeddings", "sidecars", "ids", "rejects"):
        listed = ranges(requests, folder)
        assert len(listed) == len(set(listed)) == 16
    assert reads(requests, "manifests%2Fparts") <= store.parts
    deleted = sum(one.startswith("DELETE") for one in requests)
    assert 4 < deleted <= 8, "the old shard, its sidecar, its part, its manifest"
    assert len(requests) <= store.parts + 4 * 16 + deleted + 24
