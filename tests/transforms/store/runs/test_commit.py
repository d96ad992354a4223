"""Ledger and commit: what must add up, and what a reader sees meanwhile.

Covers transforms/store/runs/run_end.py.
"""

import errno
import hashlib
import json
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.corpora import edit_manifest
from helpers.settled import finish, packed
from helpers.snapshots import (
    PlannedFile,
    changed,
    edit_units,
    files_of,
    parts_of,
    records_of,
    row_of,
    small_parts,
    units_of,
    units_settled,
    write_plan,
)
from helpers.units import make_unit, make_vectors

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import DataGateError, SentenceBeamError
from sentence_beam.transforms.corpus import InputFile, Span
from sentence_beam.transforms.space import Space
from sentence_beam.transforms.store import layout, manifest, open_store
from sentence_beam.transforms.store.counts import RowCounts, TokenCounts, WorkCounts
from sentence_beam.transforms.store.entries import (
    RangesEntry,
    RememberedOptions,
    WatchEntry,
    WatchFileEntry,
)
from sentence_beam.transforms.store.index_entries import (
    IndexEntry,
    IndexFileEntry,
    IndexRequest,
    TrainedEntry,
)
from sentence_beam.transforms.store.ledger import Ledger
from sentence_beam.transforms.store.records import Problem, UnitRecord
from sentence_beam.transforms.store.runs import lease
from sentence_beam.transforms.store.runs.carried_check import ROUND
from sentence_beam.transforms.store.runs.changed_rows import Changes
from sentence_beam.transforms.store.runs.commit import (
    Run,
    check_deletes,
    check_unknown,
    make_manifest,
    settle,
)
from sentence_beam.transforms.store.runs.gates import UsedGates
from sentence_beam.transforms.store.runs.recorded_plan import read_plan
from sentence_beam.transforms.store.runs.run_end import make_failed_result
from sentence_beam.transforms.store.runs.run_result import find_result_here, now, read_result
from sentence_beam.transforms.store.shards.unit_store import UnitCounts, UnitStore
from sentence_beam.transforms.store.verification import faults

FILE = InputFile("/in/a.txt", "a.txt", "text", "", 300, "sum", "v")


def record(
    start: int, stop: int | None, rows: int = 4, name: str | None = None, **values: object
) -> UnitRecord:
    """A unit of bytes [start, stop) with some embedded rows."""
    made = UnitRecord(
        path=f"embeddings/{FILE.key}-{start:012d}-{'0' * 16}.parquet", unit=name or f"{FILE.key}-{start:012d}", file="a.txt", range=(start, stop),
        rows=rows, read=rows, rejected=0, rejects=None, tokens=9, truncated=0, lost=0, bytes=1, sha256="5" * 64, embedded=rows,
    )  # fmt: skip
    return replace(made, **values)  # type: ignore[arg-type]


@pytest.fixture
def run(tmp_path: Path, space: Space) -> Run:
    """A run over one file of three spans, planned."""
    root = str(tmp_path / "store")
    spans = tuple(Span(FILE, start, start, start + 100, tokens=10) for start in (0, 100, 200))
    write_plan(root, "run1", [PlannedFile(FILE, spans)])
    return Run(
        root=root, id="run1", space=space, partition="file", unit_tokens=100, globs=("/in/*.txt",),
        options=RememberedOptions(model="m"), started=now(),
    )  # fmt: skip


GOOD = [record(0, 100), record(100, 200), record(200, 300)]


def test_the_plan_reads_back(run: Run) -> None:
    plan = read_plan(run.root, "run1")
    spans = plan.spans.select(["name", "start", "stop"]).to_pylist()
    assert [(*span.values(),) for span in spans] == [(u.unit, *u.range) for u in GOOD]
    assert plan.files.column("path").to_pylist() == ["a.txt"]
    assert plan.tokens == 30


def test_all_units_once_settle(run: Run) -> None:
    made = settle(run, packed([*GOOD, GOOD[1]]), [])
    ledger = made.tally.ledger
    assert [u["start"] for u in units_settled(made, run.root)] == [0, 100, 200]
    assert (ledger.read, ledger.written, *ledger.list_work("embedded")) == (12, 12, 12)


def test_units_of_a_span_cut_again_must_tile_it(run: Run) -> None:
    name = GOOD[1].unit
    parts = [record(100, 130, name=f"{name}.0"), record(130, 200, name=f"{name}.1")]
    settle(run, packed([GOOD[0], *parts, GOOD[2]]), [])
    with pytest.raises(SentenceBeamError, match="not finished"):
        settle(run, packed([GOOD[0], parts[0], GOOD[2]]), [])
    with pytest.raises(SentenceBeamError, match="doubled or out of place"):
        settle(
            run,
            packed([GOOD[0], parts[0], record(140, 200, name=f"{name}.1"), GOOD[2]]),
            [],
        )


@pytest.mark.parametrize(
    ("units", "said"),
    [
        (GOOD[:2], "not finished"),
        ([*GOOD, record(300, 400)], "never planned"),
        ([*GOOD, replace(GOOD[0], sha256="6" * 64)], "written twice"),
        ([GOOD[0], GOOD[1], replace(GOOD[2], read=5)], "rows read are not"),
        ([GOOD[0], GOOD[1], replace(GOOD[2], embedded=3)], "rows written are not"),
    ],
)
def test_a_ledger_that_does_not_add_up_is_exit_4_and_no_commit(
    run: Run, units: list[UnitRecord], said: str
) -> None:
    result = finish(run, units, [])
    assert (result.status, result.exit_code) == ("failed", 4)
    assert said in result.message
    assert manifest.read_manifest(run.root) is None
    assert read_result(run.root, "run1") == result


OTHER = InputFile("/in/b.txt", "b.txt", "text", "", 5, "sum", "v")
UNCOUNTED = "ledger: no unit counts the rows of b.txt (1 such files); nothing committed"


@pytest.mark.parametrize(
    ("other", "options", "said"),
    [
        (PlannedFile(OTHER, in_group="f0-0"), {}, UNCOUNTED),
        (PlannedFile(OTHER, is_rowless=True), {}, "committed"),
        (PlannedFile(replace(OTHER, size=0)), {}, "committed"),
        (PlannedFile(OTHER), {"limit": 9}, "committed"),
    ],
)
def test_every_file_with_rows_has_a_unit_that_counts_them(
    run: Run, other: PlannedFile, options: dict, said: str
) -> None:
    spans = tuple(Span(FILE, start, start, start + 100, tokens=10) for start in (0, 100, 200))
    write_plan(run.root, "run2", [PlannedFile(FILE, spans), other])
    result = finish(replace(run, id="run2", options=replace(run.options, **options)), GOOD, [])
    assert (result.message, result.exit_code) == (said, 0 if said == "committed" else 4)


def test_parquet_rows_must_all_be_read(tmp_path: Path, run: Run) -> None:
    write_plan(run.root, "run2", [PlannedFile(FILE, (Span(FILE, 0, 0, 5, (0,), rows=5),))])
    other = replace(run, id="run2")
    with pytest.raises(SentenceBeamError, match="4 rows read of 5 planned"):
        settle(other, packed([record(0, 5)]), [])


def test_too_many_rejects_is_exit_3(run: Run) -> None:
    bad = [GOOD[0], GOOD[1], replace(GOOD[2], read=14, rejected=10)]
    with pytest.raises(DataGateError, match="10 of 22 rows rejected.*max_rejects 0.01"):
        settle(run, packed(bad), [])
    assert (
        settle(
            replace(run, gates=UsedGates(max_rejects=0.5)), packed(bad), []
        ).tally.ledger.rejected
        == 10
    )


@pytest.mark.parametrize(
    ("read", "rejected", "blank", "share", "too_many"),
    [
        (1000, 10, 0, 0.01, False),  # as many as are allowed
        (1000, 11, 0, 0.01, True),
        (20, 9, 0, 0.01, False),  # the gate begins at ten
        (20, 10, 0, 0.01, True),
        (9, 9, 0, 0.01, True),  # no row is left
        (1000, 1, 0, 0.0, True),  # none is allowed
        (9, 9, 0, 1.0, False),
        (200, 100, 100, 0.01, False),  # blank lines do not count
        (200, 100, 100, 0.0, False),
        (100, 100, 100, 0.01, False),
        (200, 110, 100, 0.1, False),  # ten of the hundred lines with text
        (200, 111, 100, 0.1, True),
        (0, 0, 0, 0.0, False),
    ],
)
def test_the_gate_of_rejected_rows(
    read: int, rejected: int, blank: int, share: float, too_many: bool
) -> None:
    counts = {"read": read, "written": read - rejected, "rejected": rejected, "blank": blank}
    ledger = Ledger(kept=counts)
    assert ledger.rejects_too_many(share) == too_many


def test_a_problem_comes_before_everything_else(run: Run) -> None:
    result = finish(run, [], [Problem("z broke", 2), Problem("a broke", 1)])
    assert (result.exit_code, result.message) == (1, "a broke")


def commit_one(
    tmp_path: Path, space: Space, run: str, texts: list[str], previous: manifest.Manifest | None
) -> Run:
    """A run that writes one unit; not yet finished."""
    root = str(tmp_path / "store")
    write_plan(root, run, [PlannedFile(replace(FILE, size=100), (Span(FILE, 0, 0, 100),))])
    return Run(
        root=root, id=run, space=space, partition="file", unit_tokens=100, globs=("/in/*.txt",),
        options=RememberedOptions(model="m"), started=now(),
        previous=previous.run if previous else None, version=previous.version if previous else None,
    )  # fmt: skip


def written(root: str, space: Space, texts: list[str]) -> UnitRecord:
    """A unit of these texts in the store."""
    unit = make_unit(space, texts, name=f"{FILE.key}-{0:012d}")
    return UnitStore(root, space).write(
        unit, make_vectors(len(texts)), [], UnitCounts(len(texts), 0, 0)
    )


def test_of_two_runs_that_began_alike_the_second_harms_nothing(
    tmp_path: Path, space: Space
) -> None:
    root = str(tmp_path / "store")
    first = commit_one(tmp_path, space, "run1", ["x"], None)
    assert finish(first, [written(root, space, ["x"])], []).status == "committed"
    base = manifest.read_manifest(root)

    a, b = (commit_one(tmp_path, space, run, [], base) for run in ("run2", "run3"))
    assert finish(a, [written(root, space, ["x", "y"])], []).status == "committed"
    late = finish(b, [written(root, space, ["x", "z"])], [])

    assert (late.exit_code, "run2 committed while this run worked" in late.message) == (1, True)
    store = open_store(root)
    assert store.manifest.run == "run2"
    assert store.manifest.data["previous"] == "run1"
    assert store.dataset().count_rows() == 2
    assert list(faults(store.manifest)) == []
    assert open_store(root, "run1").dataset().count_rows() == 1


def test_a_commit_tried_again_finds_itself(tmp_path: Path, space: Space) -> None:
    root = str(tmp_path / "store")
    run = commit_one(tmp_path, space, "run1", ["x"], None)
    units = [written(root, space, ["x"])]
    assert finish(run, units, []).status == "committed"
    before = (tmp_path / "store" / "manifest.json").read_bytes()
    assert finish(run, units, []).status == "committed"
    assert (tmp_path / "store" / "manifest.json").read_bytes() == before


def test_a_graph_executed_twice_with_other_rows_is_one_line(tmp_path: Path, space: Space) -> None:
    root = str(tmp_path / "store")
    run = commit_one(tmp_path, space, "run1", ["x"], None)
    assert finish(run, [written(root, space, ["x"])], []).status == "committed"
    before = (tmp_path / "store" / "manifest.json").read_bytes()
    again = finish(run, [written(root, space, ["y"])], [])
    assert (again.status, again.exit_code) == ("failed", 1)
    assert "run run1 was executed before, with other rows" in again.message
    assert (tmp_path / "store" / "manifest.json").read_bytes() == before
    (tmp_path / "store" / "manifests" / "run1.json").unlink()
    assert "was executed before" in finish(run, [written(root, space, ["y"])], []).message
    assert (tmp_path / "store" / "manifest.json").read_bytes() == before


def test_a_disk_that_does_not_confirm_the_replacement_is_a_commit_that_says_so(
    tmp_path: Path, space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, fsync, replaced = str(tmp_path / "store"), os.fsync, os.replace
    run = commit_one(tmp_path, space, "run1", ["x"], None)
    units = [written(root, space, ["x"])]

    def replace_and_break(source: str, target: str) -> None:
        replaced(source, target)
        monkeypatch.setattr(
            os, "fsync", lambda fd: _broken() if stat.S_ISDIR(os.fstat(fd).st_mode) else fsync(fd)
        )

    monkeypatch.setattr(os, "replace", replace_and_break)
    result = finish(run, units, [])
    assert (result.status, result.exit_code) == ("committed", 0)
    assert (
        f"the disk did not confirm it ({root}/manifest.json: Input/output error)" in result.message
    )
    assert manifest.read_manifest(root).run == "run1"  # type: ignore[union-attr]
    assert read_result(root, "run1") == result


def _broken() -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_manifest_has_every_field_and_its_snapshot_is_the_same_file(
    tmp_path: Path, space: Space
) -> None:
    root = str(tmp_path / "store")
    finish(commit_one(tmp_path, space, "run1", ["x"], None), [written(root, space, ["x"])], [])
    data = json.loads((tmp_path / "store" / "manifest.json").read_bytes())
    assert {
        "format", "run", "space", "partition", "unit_tokens", "rows", "work", "tokens", "index",
        "calibration", "input", "options", "versions", "started", "finished", "previous",
    } <= set(data)  # fmt: skip
    (unit,) = units_of(root)
    assert {name for name, value in unit.items() if value} == {
        "path", "unit", "file", "stop", "rows", "read", "tokens", "bytes", "sha256",
    }  # fmt: skip
    assert (tmp_path / "store" / "manifests" / "run1.json").read_bytes() == (
        tmp_path / "store" / "manifest.json"
    ).read_bytes()


def test_very_many_units_go_into_parts(
    tmp_path: Path, space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_parts(monkeypatch)
    root = str(tmp_path / "store")
    run = Run(
        root=root, id="run1", space=space, partition="file", unit_tokens=100, globs=(),
        options=RememberedOptions(), started=now(),
    )  # fmt: skip
    write_plan(
        root, "run1", [PlannedFile(FILE, tuple(Span(FILE, s, s, s + 100) for s in (0, 100, 200)))]
    )
    assert finish(run, GOOD, []).status == "committed"
    parts = parts_of(root)
    assert sum(part["rows"] for part in parts) == 3
    assert units_of(root) == [row_of(unit) for unit in GOOD]
    assert [file["path"] for file in files_of(root)] == ["a.txt"]
    part = tmp_path / "store" / parts[-1]["path"]
    part.write_bytes(part.read_bytes() + b" ")
    with pytest.raises(SentenceBeamError, match="not the part that the manifest names"):
        records_of(root)
    assert finish(run, GOOD).status == "committed"  # tried again
    assert hashlib.sha256(part.read_bytes()).hexdigest() == parts[-1]["sha256"]


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"{}", b'{"format": 1}', b'{"format": 2}', b"\xff"]
)
def test_a_corrupt_manifest_is_one_line(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "manifest.json").write_bytes(data)
    with pytest.raises(SentenceBeamError, match="manifest.json"):
        open_store(str(tmp_path))


@pytest.fixture
def sound(tmp_path: Path, space: Space) -> manifest.Manifest:
    """A committed store of one unit with three rows and a reject."""
    root = str(tmp_path / "store")
    unit = make_unit(space, ["x", "y", "z"], rejects=1, name=f"{FILE.key}-{0:012d}")
    made = UnitStore(root, space).write(unit, make_vectors(3), [], UnitCounts(3, 0, 0))
    run = replace(commit_one(tmp_path, space, "run1", [], None), gates=UsedGates(max_rejects=0.5))
    assert finish(run, [made], []).status == "committed"
    return open_store(root).manifest


def _flip(path: str) -> None:
    data = bytearray(Path(path).read_bytes())
    data[len(data) // 2] ^= 1
    Path(path).write_bytes(data)


def edit(found: manifest.Manifest, group: str, **counts: int) -> None:
    """Change some counts of the current manifest."""
    data = {**found.data, group: {**found.data[group], **counts}}
    edit_manifest(Path(found.root, "manifest.json"), data)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda m: _flip(m.shard_paths[0]), "sha256 differs"),
        (lambda m: Path(m.shard_paths[0]).unlink(), "shard is missing"),
        (
            lambda m: Path(storage.join(m.root, units_of(m.root)[0]["rejects"])).unlink(),
            "reject file",
        ),
        (
            lambda m: Path(storage.join(m.root, "manifests/run1.json")).unlink(),
            "snapshot's own manifest",
        ),
        (lambda m: edit(m, "rows", read=9), "the manifest says 9"),
        (lambda m: edit(m, "work", embedded=1), "rows written are not"),
        (lambda m: edit_units(m.root, changed(0, rows=2)), "the manifest says 2"),
    ],
)
def test_verify_says_what_is_wrong_where(
    sound: manifest.Manifest, damage: Callable[[manifest.Manifest], None], said: str
) -> None:
    assert list(faults(sound)) == []
    damage(sound)
    found = list(faults(open_store(sound.root).manifest))
    assert any(said in fault for fault in found), found
    assert all("\n" not in fault for fault in found)


def test_a_first_run_whose_lease_was_taken_commits_nothing(tmp_path: Path, space: Space) -> None:
    run = replace(commit_one(tmp_path, space, "run1", [], None), leased=True)
    result = finish(run, [written(run.root, space, ["x"])], [])
    assert (result.status, result.exit_code) == ("failed", 1)
    assert result.message.startswith(f"{run.root}: the lease was taken from this run")
    assert manifest.read_manifest(run.root) is None


@pytest.mark.parametrize("damaged", [None, b"{}"])
def test_a_snapshot_whose_own_manifest_is_damaged_gets_it_back(
    tmp_path: Path, space: Space, damaged: bytes | None
) -> None:
    root = str(tmp_path / "store")
    finish(commit_one(tmp_path, space, "run1", [], None), [written(root, space, ["x"])], [])
    own = tmp_path / "store" / "manifests" / "run1.json"
    data = own.read_bytes()
    own.unlink()
    if damaged is not None:
        own.write_bytes(damaged)
    run = commit_one(tmp_path, space, "run2", [], manifest.read_manifest(root))
    assert finish(run, [written(root, space, ["x", "y"])], []).status == "committed"
    assert own.read_bytes() == data
    assert open_store(root, "run1").dataset().count_rows() == 1


def test_vacuum_that_worked_meanwhile_ends_a_run_without_a_lease(
    tmp_path: Path, space: Space
) -> None:
    root = str(tmp_path / "store")
    finish(commit_one(tmp_path, space, "run1", [], None), [written(root, space, ["x"])], [])
    run = commit_one(tmp_path, space, "run2", [], manifest.read_manifest(root))
    units = [written(root, space, ["x", "y"])]
    result = finish(replace(run, version="another"), units, [])
    assert "vacuum removed files while this run worked" in result.message
    assert manifest.read_manifest(root).run == "run1"
    assert finish(run, units, []).status == "committed"


def test_a_result_counts_what_the_run_did(tmp_path: Path, space: Space) -> None:
    run = replace(commit_one(tmp_path, space, "run1", [], None), tables={"/in/*.txt": "7"})
    unit = written(run.root, space, ["x", "y"])
    result = finish(run, [replace(unit, run="run1", tokens=20, lost=2, real=11)], [])
    assert result.input == {"files": 1, "empty": 0, "beside": {}, "tables": {"/in/*.txt": "7"}}
    assert (result.own_rows, result.made, result.tokens, result.spared) == (2, 1, 11, 7)
    assert (result.resumed, result.truncated, result.damaged) == ({}, 0, [])
    assert set(result.measures) == {"plan", "embed", "index", "commit"}
    assert result.measures["plan"]["planned_ms"]["count"] == 1
    assert set(result.measures["commit"]) == {"settle_ms", "manifest_ms"}


def test_a_record_that_cannot_be_written_is_said_after_the_commit(
    tmp_path: Path, space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("sentence_beam.transforms.store.runs.run_end.record_result", full)
    run = commit_one(tmp_path, space, "run1", [], None)
    result = finish(run, [written(run.root, space, ["x"])], [])
    assert (result.status, result.exit_code) == ("committed", 0)
    assert result.message.startswith("committed; the record of it was not written (")
    assert "No space left on device" in result.message
    assert find_result_here(run.root, "run1") == result


def test_an_unexpected_error_is_a_failed_run(run: Run) -> None:
    result = make_failed_result(run, ValueError("it broke\nin two lines"))
    assert (result.status, result.exit_code, result.run) == ("failed", 1, "run1")
    assert "it broke" in result.message
    assert make_failed_result(run, DataGateError("too many")).exit_code == 3


def test_the_manifest_says_what_the_ledger_counted(tmp_path: Path, space: Space) -> None:
    run = commit_one(tmp_path, space, "run1", [], None)
    run = replace(run, check_from=ROUND - 2, check_stride=5, gates=UsedGates(max_rejects=1))
    unit = written(run.root, space, ["x", "y"])
    unit = replace(unit, read=5, rejected=3, real=11, padded=12, truncated=1, lost=2)
    assert finish(run, [replace(unit, known=8, unknown=4)], []).status == "committed"
    made = manifest.read_manifest(run.root)
    assert made.rows == RowCounts(5, 2, 3)
    assert made.tokens == TokenCounts(11, 12, 1, 2, 4)
    assert made.work == WorkCounts(2, 0, 0, 0)
    assert made.check_from == 3
    assert (made.run, made.previous, made.space, made.partition) == ("run1", None, space, "file")


def test_a_result_says_what_its_snapshot_is(tmp_path: Path, space: Space) -> None:
    root = str(tmp_path / "store")
    held = lease.Lease.from_this_process("run1", "FnApiRunner", "job1", True)
    lease.acquire(root, held)
    run = replace(commit_one(tmp_path, space, "run1", [], None), leased=True, command="embed x")
    unit = replace(written(root, space, ["x"]), measures={"read_ms": 5.0, "forward_ms": 9.0})
    changes = Changes(added=1)
    result = finish(run, [unit], [], duplicate_ids=2, changes=changes)
    assert (result.message, result.command) == ("committed", "embed x")
    assert (result.space, result.pooled) == (space.id, space.pooled_id)
    assert (result.duplicate_ids, result.changes) == (2, vars(changes))
    assert result.limit == "forward"
    assert 0 <= result.seconds < 600
    assert lease.writer(root) is None


@pytest.mark.parametrize(
    ("previous", "unknown", "refused"),
    [(None, 9, False), (None, 10, True), ("run0", 99, False), ("run0", 100, True)],
)
def test_a_first_run_may_have_fewer_unknown_tokens(
    run: Run, previous: str | None, unknown: int, refused: bool
) -> None:
    run = replace(run, previous=previous, gates=UsedGates(max_unknown=0.5))
    ledger = Ledger(work={"known": 1, "unknown": unknown})
    if not refused:
        check_unknown(run, ledger)
        return
    with pytest.raises(DataGateError, match=f"{unknown} of {unknown + 1} tokens are unknown"):
        check_unknown(run, ledger)


def test_blank_lines_are_not_among_the_rejected_rows_that_are_told(run: Run) -> None:
    bad = [GOOD[0], GOOD[1], replace(GOOD[2], read=17, rejected=13, blank=3)]
    with pytest.raises(DataGateError, match="^10 of 22 rows rejected"):
        settle(run, packed(bad), [])


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {},
            "is there, or say append=True to keep them, or name another store for another collection; max_deletes 1",
        ),
        (
            {"partition": "content"},
            "is there, or name another store for another collection; max_deletes 1",
        ),
        (
            {"earlier_globs": ("/in/*.csv",)},
            "is there, or name another store for another collection; max_deletes 1",
        ),
    ],
)
def test_too_many_deleted_rows_name_the_way_to_keep_them(
    run: Run, changed: dict, said: str
) -> None:
    run = replace(run, previous_rows=10, gates=UsedGates(max_deletes=0.5), **changed)
    check_deletes(run, 5)
    with pytest.raises(DataGateError, match="^6 of the 10 rows of ") as caught:
        check_deletes(run, 6)
    assert said in str(caught.value)


def test_a_snapshot_and_its_result_name_ranges_calibration_and_index(
    tmp_path: Path, space: Space
) -> None:
    digest = "0" * 64
    space = replace(space, calibration=digest)
    ranges = RangesEntry(layout.ranges(digest), digest, "f" * 16)
    file = layout.index_file(digest, "faiss")
    index = IndexEntry(
        segments=(),
        factory="Flat",
        metric="ip",
        request=IndexRequest("Flat"),
        recall=None,
        nprobe=1,
        rerank=0,
        rows=1,
        trained=TrainedEntry(file),
        queries=IndexFileEntry(file),
    )
    run = replace(commit_one(tmp_path, space, "run1", [], None), ranges=ranges)
    result = finish(run, [written(run.root, space, ["x"])], [], index=index)
    assert (result.message, result.index) == ("committed", index)
    data = manifest.read_manifest(run.root).data
    assert data["ranges"]["digest"] == digest
    assert digest in str(data["calibration"])
    assert data["index"]["factory"] == "Flat"


def test_a_lease_that_cannot_be_given_back_is_no_failure(
    tmp_path: Path, space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(lease, "release", full)
    run = commit_one(tmp_path, space, "run1", [], None)
    unit = replace(written(run.root, space, ["x"]), damaged=("b.parquet", "a.parquet"))
    result = finish(run, [unit], [])
    assert (result.message, result.damaged) == ("committed", ["a.parquet", "b.parquet"])


def test_a_manifest_has_what_the_run_began_with_and_what_it_counted(run: Run) -> None:
    queries = WatchFileEntry("watch/" + "1" * 64 + ".parquet", "1" * 64)
    watch = WatchEntry(queries, queries, count=2, k=3, digest="2" * 64)
    begun = replace(run, watch=watch, check_from=5, gates=UsedGates(max_rejects=1.0))
    plan = read_plan(run.root, "run1")
    plan = replace(plan, notes=replace(plan.notes, group_bits=4))
    settled = settle(begun, packed([*GOOD[:2], replace(GOOD[2], rejected=1, read=5)]), [])
    made = make_manifest(begun, plan, settled, None)
    assert (made.watch, made.group_bits) == (watch, 4)
    assert (made.rows.read, made.rows.written, made.rows.rejected) == (13, 12, 1)
    assert made.work == WorkCounts(embedded=12, reused=0, duplicates=0, carried=0)
    assert made.check_from == (5 + begun.check_stride) % ROUND
