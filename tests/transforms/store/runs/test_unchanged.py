"""Files that have not changed travel to the plan by name, and come out of the last snapshot as they
were.
"""

import json
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from sentence_beam.transforms.corpus import InputFile, Span
from sentence_beam.transforms.corpus.syntax import AS_FOUND, Syntax
from sentence_beam.transforms.steps.plan.elements import PlannedFiles
from sentence_beam.transforms.store.entries import InputEntry
from sentence_beam.transforms.store.manifest import Manifest, with_units
from sentence_beam.transforms.store.records import UnitRecord
from sentence_beam.transforms.store.runs.carried import Checked
from sentence_beam.transforms.store.runs.plan import PlannedFile
from sentence_beam.transforms.store.runs.unchanged import UnchangedFile, by_name, in_full

FILE = InputFile("/in/2026/a.csv.gz", "2026/a.csv.gz", "csv", ".gz", 100, "5" * 64, "v1")
SMALL = InputFile("/in/2026/b.md", "2026/b.md", "file", "", 3, "6" * 64, "v2")
UNITS = tuple(
    UnitRecord(
        path=f"embeddings/{FILE.key}-{number:012d}-{number:016x}.parquet", unit=f"{FILE.key}-{number:012d}",
        file=FILE.relative, range=(number, None), rows=9, read=10, rejected=1, rejects=None, tokens=90, truncated=0,
        lost=0, bytes=16_000, sha256="7" * 64, checksum="md5", form="8" * 16,
    )
    for number in range(20)
)  # fmt: skip
ITEM = PlannedFile(FILE, carried=UNITS, checked=Checked(shards=20, compared=20), ms=0.25)


@pytest.fixture(scope="module")
def last() -> Manifest:
    """A snapshot of the two files, the small one in a group."""
    (path,) = (Path(__file__).parents[3] / "fixtures" / "manifests").glob("*.json")
    group = replace(UNITS[0], unit="f0-0", file="", path=f"embeddings/f0-0-{0:016x}.parquet")
    entries = [
        InputEntry(f.relative, f.path, f.format, f.checksum, f.version, f.size)
        for f in (FILE, SMALL)
    ]
    return with_units(
        Manifest.of("/store", json.loads(path.read_bytes())), [*UNITS, group], entries
    )


@pytest.mark.parametrize("syntax", [AS_FOUND, Syntax(";", json_rows="data")])
@pytest.mark.parametrize(
    "item", [ITEM, PlannedFile(SMALL, ms=1.5)], ids=["twenty units", "in a group"]
)
def test_what_travelled_by_name_is_the_same_in_the_plan(
    last: Manifest, item: PlannedFile, syntax: Syntax
) -> None:
    item = replace(item, file=replace(item.file, syntax=syntax))
    short = by_name(item, last, syntax)
    assert short is not None
    again = in_full(pickle.loads(pickle.dumps(short)), last, syntax)  # noqa: S301 (of this test)
    assert again == item
    assert again.ms == item.ms


@pytest.mark.parametrize(
    "other",
    [
        {"file": replace(FILE, path="/moved/2026/a.csv.gz")},
        {"file": replace(FILE, version="v3")},
        {"file": replace(FILE, checksum="8" * 64)},
        {"file": replace(FILE, relative="2026/new.csv.gz")},
        {"file": replace(FILE, syntax=Syntax("|"))},
        {"carried": UNITS[1:]},
        {"carried": (replace(UNITS[0], checksum="another"), *UNITS[1:])},
        {"spans": (Span(FILE, 0, 0, None),)},
        {"kept": ()},
        {"bad": "damaged"},
    ],
    ids=str,
)
def test_what_differs_from_the_last_snapshot_travels_whole(last: Manifest, other: dict) -> None:
    assert by_name(replace(ITEM, **other), last, AS_FOUND) is None


def test_an_unchanged_file_takes_few_bytes_whatever_its_units() -> None:
    files = [
        UnchangedFile(f"2026/{n:06d}.csv", Checked(shards=20, compared=20), 0.25)
        for n in range(256)
    ]
    said = sum(len(file.relative) for file in files)
    assert len(pickle.dumps(PlannedFiles((), tuple(files)))) - said < 80 * len(files)
