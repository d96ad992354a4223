"""Units of the last snapshot that may have a unit's texts: by file, other name, group, bucket."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.settled import finish
from helpers.snapshots import (
    SPACE,
    PlannedFile,
    begin,
    night,
    numbered,
    plan_rows,
    records_of,
    run_name,
    write_plan,
    write_unit,
)
from helpers.units import make_unit, make_vectors

from sentence_beam.transforms import storage
from sentence_beam.transforms.corpus import InputFile, Span, UnitRows
from sentence_beam.transforms.corpus.buckets import Bucket, Buckets
from sentence_beam.transforms.corpus.groups import AnySpan, GroupSpan
from sentence_beam.transforms.space import row_hashes
from sentence_beam.transforms.store.entries import RememberedOptions
from sentence_beam.transforms.store.manifest import Manifest, read_manifest
from sentence_beam.transforms.store.records import UnitRecord
from sentence_beam.transforms.store.runs import reused_vectors
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.reused_vectors import (
    LastSnapshot,
    OldShards,
    add_units_before,
)
from sentence_beam.transforms.store.runs.run_result import now
from sentence_beam.transforms.store.shards.unit_store import UnitCounts, UnitStore


def input_file(relative: str, checksum: str = "sum", **values: object) -> InputFile:
    """A file that does not exist."""
    made = InputFile(f"/in/{relative}", relative, "text", "", 100, checksum, "v")
    return replace(made, **values)  # type: ignore[arg-type]


def rows_of(name: str, file: InputFile | None, sources: tuple[InputFile, ...] = ()) -> UnitRows:
    """A unit without rows."""
    unit = make_unit(SPACE, [], name=name).rows
    return replace(unit, file=file, sources=sources)


def commit(root: str, files: dict[InputFile, list[str]]) -> Manifest:
    """A snapshot of these files, each of a unit with these texts."""
    planned, units = [], []
    for file, texts in files.items():
        name = f"{file.key}-{0:012d}"
        unit = make_unit(SPACE, texts, name=name)
        unit = replace(unit, rows=replace(unit.rows, file=file, kept=None))
        counts = UnitCounts(len(texts), 0, 0)
        units.append(UnitStore(root, SPACE).write(unit, make_vectors(len(texts)), [], counts))
        planned.append(PlannedFile(file, (Span(file, 0, 0, 100),)))
    write_plan(root, run_name(0), planned)
    options = RememberedOptions(model="m")
    run = Run(
        root=root, id=run_name(0), space=SPACE, partition="file", unit_tokens=100, globs=("/in/*",),
        options=options, started=now(),
    )  # fmt: skip
    assert finish(run, units).status == "committed"
    found = read_manifest(root)
    assert found is not None
    return found


A, B = input_file("a.txt", "sum a"), input_file("b.txt", "sum b")


@pytest.fixture
def last(tmp_path: Path) -> Manifest:
    """A snapshot of two files."""
    return commit(str(tmp_path), {A: ["a 0", "a 1"], B: ["b 0"]})


def known_before(last: Manifest, *files: InputFile) -> list[tuple[str, str]]:
    """The names under which the snapshot has units of files."""
    spans = [Span(file, 0, 0, 100) for file in files]
    return [span.file.before for span in spans_before(spans, files, last)]


def spans_before(
    spans: list[AnySpan], files: Sequence[InputFile], last: Manifest | None
) -> list[AnySpan]:
    """Spans whose files know the names of their units in a snapshot."""
    found: list[AnySpan] = []
    for span, file in zip(spans, files, strict=True):
        parts = span.spans if isinstance(span, GroupSpan) else (Span(file, 0, 0, 100),)
        rows = plan_rows([PlannedFile(part.file, (part,)) for part in parts])
        found += add_units_before(iter([span]), rows, last)
    return found


def test_a_file_is_known_by_its_name_and_by_its_bytes(last: Manifest) -> None:
    copy_of_b = replace(A, checksum="sum b")
    renamed = input_file("c.txt", "sum b")
    new = input_file("d.txt", "sum d")
    assert known_before(last, A, copy_of_b, renamed, new) == [
        (A.key, ""),
        (A.key, B.key),
        ("", B.key),
        ("", ""),
    ]


def test_files_of_a_group_are_known_as_others_are(last: Manifest) -> None:
    group = GroupSpan("f0-0", (Span(A, 0, 0, 100), Span(input_file("d.txt", "sum b"), 0, 0, 9)))
    (found,) = spans_before([group], [A], last)
    assert [span.file.before for span in found.spans] == [(A.key, ""), ("", B.key)]
    assert (found.name, [span.stop for span in found.spans]) == ("f0-0", [100, 9])
    assert spans_before([group], [A], None) == [group]


def test_old_units_are_those_of_the_name_and_of_the_bytes(last: Manifest) -> None:
    known = LastSnapshot(last.root, last.run, SPACE)
    units = {unit.file: unit for unit in records_of(last.root)}
    assert known.find_units_of_files([replace(A, before=(A.key, ""))]) == [units["a.txt"]]
    both = [replace(A, before=(A.key, B.key)), replace(B, before=(B.key, ""))]
    assert {unit.file for unit in known.find_units_of_files(both)} == {"a.txt", "b.txt"}
    assert len(known.find_units_of_files(both)) == 2
    assert known.find_units_of_files([input_file("c.txt")]) == []
    assert LastSnapshot(last.root, None, SPACE).find_units_of_files(both) == []


def test_only_so_many_other_names_are_looked_up(
    last: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reused_vectors, "RENAMED", 1)
    files = [input_file(f"{key}.txt", before=("", key)) for key in (B.key, A.key)]
    found = LastSnapshot(last.root, last.run, SPACE).find_units_of_files(files)
    assert [unit.file for unit in found] == ["b.txt"]
    own = [replace(file, before=file.before[::-1]) for file in files]
    assert len(LastSnapshot(last.root, last.run, SPACE).find_units_of_files(own)) == 2


def test_a_unit_is_known_if_its_snapshot_or_its_run_was_committed(tmp_path: Path) -> None:
    root = str(tmp_path)
    night(root, 0, numbered(0, 5), numbered(5, 10))
    (old, same) = records_of(root)
    night(root, 1, {**numbered(0, 5), "r0": "new"}, numbered(5, 10))
    begin(root, 2, 1)
    unfinished = write_unit(root, 7, [("x", "y")], run_name(2))
    known = LastSnapshot(root, run_name(1), SPACE)
    old = replace(old, run=run_name(0))
    assert [known.had(unit) for unit in (same, old, unfinished)] == [True, True, False]
    assert not known.had(replace(old, run=run_name(9)))
    assert not LastSnapshot(root, None, SPACE).had(same)
    assert LastSnapshot(root, run_name(1), SPACE).had(same)
    assert not LastSnapshot(root, run_name(1), SPACE).had(unfinished)


BUCKETS = Buckets(bits=2, rows=8, chosen_rows=8, chosen_tokens=80)


def test_a_bucket_has_the_texts_of_those_it_was_part_of(tmp_path: Path) -> None:
    root = str(tmp_path)
    store = UnitStore(root, SPACE)
    units: list[UnitRecord] = []
    for number in range(4):
        unit = make_unit(SPACE, [f"{number} 0", f"{number} 1"], name=Bucket(2, number).name)
        unit = replace(unit, rows=replace(unit.rows, file=None, kept=None))
        units.append(store.write(unit, make_vectors(2), [], UnitCounts(2, 0, 0)))
    write_plan(root, "run1", [PlannedFile(A)], BUCKETS)
    options = RememberedOptions(model="m")
    run = Run(
        root=root, id="run1", space=SPACE, partition="content", unit_tokens=100, globs=("/in/*",),
        options=options, started=now(),
    )  # fmt: skip
    assert finish(run, units).message == "committed"
    known = LastSnapshot(root, "run1", SPACE)

    def of(bits: int, number: int) -> list[str]:
        return [unit.unit for unit in known.find_units_of_bucket(Bucket(bits, number))]

    assert (of(2, 1), of(1, 1), of(3, 7)) == (["2-1"], ["2-2", "2-3"], ["2-3"])
    assert LastSnapshot(root, None, SPACE).find_units_of_bucket(Bucket(2, 1)) == []
    old = LastSnapshot(root, "run1", SPACE).open_shards_of(rows_of("3-2", None))
    assert old.find(row_hashes(["1 0", "2 0"])).places.tolist() == [0]


def test_a_store_by_file_has_no_buckets(last: Manifest) -> None:
    assert LastSnapshot(last.root, last.run, SPACE).find_units_of_bucket(Bucket(0, 0)) == []


def test_vectors_of_a_file_are_found_for_all_its_units(last: Manifest) -> None:
    snapshot = LastSnapshot(last.root, last.run, SPACE)
    file = replace(A, before=(A.key, ""))
    first = snapshot.open_shards_of(rows_of(f"{A.key}-{0:012d}", file))
    assert first.find(row_hashes(["b 0", "a 1"])).places.tolist() == [1]
    assert snapshot.open_shards_of(rows_of(f"{A.key}-{50:012d}", file)) is first
    other = snapshot.open_shards_of(rows_of(f"{B.key}-{0:012d}", replace(B, before=(B.key, ""))))
    assert other.find(row_hashes(["b 0", "a 1"])).places.tolist() == [0]
    sources = (file, replace(B, before=(B.key, "")))
    group = snapshot.open_shards_of(rows_of("f1-0.1", None, sources))
    assert sorted(group.find(row_hashes(["b 0", "a 1", "no"])).places.tolist()) == [0, 1]
    assert snapshot.open_shards_of(rows_of("f1-0.2", None, ())) is group
    assert snapshot.open_shards_of(rows_of("f1-1.0", None, ())) is not group


@pytest.mark.parametrize(
    ("changed", "final"),
    [({}, True), ({"weights": "other"}, False), ({"precision": "int8"}, False)],
)
def test_final_vectors_are_taken_only_for_the_same_floats(
    last: Manifest, changed: dict, final: bool
) -> None:
    assert LastSnapshot(last.root, last.run, replace(SPACE, **changed)).is_final == final
    assert LastSnapshot(last.root, None, replace(SPACE, **changed)).is_final


def test_without_a_snapshot_nothing_is_found(tmp_path: Path) -> None:
    snapshot = LastSnapshot(str(tmp_path), None, SPACE)
    found = snapshot.open_shards_of(rows_of(f"{A.key}-{0:012d}", A)).find(row_hashes(["a 0"]))
    assert (len(found.places), found.vectors, found.damaged) == (0, None, ())


def test_pooled_vectors_are_taken_along(tmp_path: Path) -> None:
    space = replace(SPACE, truncate_dim=4, calibration="c" * 64)
    vectors = make_vectors(2)
    pooled = np.arange(12, dtype=np.float32).reshape(2, 6)
    unit = make_unit(space, ["a", "b"])
    record = UnitStore(str(tmp_path), space).write(
        unit, replace(vectors, pooled=pooled), [], UnitCounts(2, 0, 0)
    )
    found = OldShards(str(tmp_path), space, [record]).find(row_hashes(["b", "a"]))
    order = np.argsort(found.places)
    np.testing.assert_array_equal(found.vectors.pooled[order], pooled[::-1])
    np.testing.assert_array_equal(found.vectors.embedding[order], vectors.embedding[::-1])


@pytest.mark.parametrize(("few", "times"), [(1 << 20, 1), (0, 2)])
def test_few_remote_shards_are_fetched_once(
    last: Manifest, monkeypatch: pytest.MonkeyPatch, few: int, times: int
) -> None:
    fetched: list[str] = []
    original = reused_vectors.read_checked

    def read_checked(path: str, *rest: object) -> object:
        fetched.append(path)
        return original(path, *rest)

    monkeypatch.setattr(reused_vectors, "read_checked", read_checked)
    monkeypatch.setattr(reused_vectors, "FEW_BYTES", few)
    monkeypatch.setattr(storage, "is_local", lambda path: False)
    unit = next(unit for unit in records_of(last.root) if unit.file == "a.txt")
    old = OldShards(last.root, SPACE, [unit])
    for _ in range(2):
        assert old.find(row_hashes(["a 0", "a 1"])).places.tolist() == [0, 1]
    assert len(fetched) == times
