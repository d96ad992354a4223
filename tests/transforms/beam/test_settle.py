"""Units settled by stretches of their names: the tables of the snapshot, and what is refused."""

import pickle
from dataclasses import replace
from pathlib import Path

import apache_beam as beam
import pytest
from helpers import eager
from helpers.settled import settled
from helpers.snapshots import (
    SPACE,
    PlannedFile,
    begin,
    files_of,
    night,
    numbered,
    row_of,
    run_name,
    small_parts,
    units_of,
    units_settled,
    write_plan,
)

from sentence_beam.transforms.beam import Commit, Settle
from sentence_beam.transforms.corpus import InputFile, Span
from sentence_beam.transforms.corpus.buckets import Buckets
from sentence_beam.transforms.steps.options.from_snapshot import record_plan
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.entries import RememberedOptions
from sentence_beam.transforms.store.forms import compute_run_form
from sentence_beam.transforms.store.manifest import read_manifest
from sentence_beam.transforms.store.records import Problem, UnitRecord
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.recorded_plan import SOME
from sentence_beam.transforms.store.runs.run_facts import RunFact
from sentence_beam.transforms.store.runs.run_result import now

pytestmark = pytest.mark.usefixtures("plain_beam")

OPTIONS = RememberedOptions(model="m")


def unit_of(file: InputFile) -> UnitRecord:
    """The one unit of a file."""
    name = f"{file.key}-{0:012d}"
    return UnitRecord(
        path=layout.shard(name, "0" * 16), unit=name, file=file.relative, range=(0, None), rows=10, read=10, rejected=0,
        rejects=None, tokens=100, truncated=1, lost=2, bytes=1000, sha256=file.key * 4, embedded=10, real=98, padded=99,
        run="other", measures={"read_ms": 1.5, "forward_ms": 20.25}, form=compute_run_form(SPACE, 0, OPTIONS) + "0" * 8,
    )  # fmt: skip


def run_of(root: Path, units: int, number: int = 1) -> tuple[Run, list[UnitRecord]]:
    """A run over so many files of one unit each, planned, and its units."""
    files = [
        InputFile(f"/in/{n}.txt", f"{n}.txt", "text", "", 1000, "sum", "v") for n in range(units)
    ]
    made = [unit_of(file) for file in files]
    planned = [PlannedFile(file, (Span(file, 0, 0, None),)) for file in files]
    write_plan(str(root), run_name(number), planned)
    run = Run(
        root=str(root), id=run_name(number), space=SPACE, partition="file", unit_tokens=100,
        globs=("/in/*.txt",), options=OPTIONS, started=now(),
    )  # fmt: skip
    return run, made


@pytest.mark.parametrize("count", [0, 1, 300])
def test_units_become_the_tables_of_the_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    small_parts(monkeypatch)
    run, units = run_of(tmp_path, count)
    (fact,) = eager.run(Settle(run), [*units, *units[:3]], [])  # some are delivered twice
    found = fact.settled
    assert found, fact
    assert found.tally.units == count == len(units_settled(found, run.root))
    (result,) = eager.run(Commit(run), [fact], [])
    assert (result.exit_code, result.ledger.get("embedded", 0)) == (0, 10 * count)
    assert result.resumed == ({"other": count} if count else {})
    if count:
        read = {"count": count, "sum": 1.5 * count, "p50": 1.5, "p95": 1.5, "max": 1.5}
        assert result.measures["embed"]["read_ms"] == read
    wanted = sorted(units, key=lambda unit: unit.unit)
    assert units_of(run.root) == [row_of(unit) for unit in wanted]
    assert [file["path"] for file in files_of(run.root)] == sorted(unit.file for unit in units)


def test_what_the_last_step_sends_on_is_names_of_parts_alone(tmp_path: Path) -> None:
    sizes = []
    for count in (100, 400):
        run, units = run_of(tmp_path / f"{count}", count)
        sizes.append(len(pickle.dumps(settled(run, units))))
    assert sizes[1] < 1.1 * sizes[0] < 30_000


def test_a_settling_that_is_done_again_writes_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_parts(monkeypatch)
    run, units = run_of(tmp_path, 300)
    first = settled(run, units)
    assert first.settled
    parts = {path: path.read_bytes() for path in (tmp_path / "manifests" / "parts").iterdir()}
    again = settled(run, [*reversed(units), *units[:3]])  # in another order, some delivered twice
    assert again.settled
    assert again.settled.units == first.settled.units
    assert again.settled.files == first.settled.files
    assert {
        path: path.read_bytes() for path in (tmp_path / "manifests" / "parts").iterdir()
    } == parts
    (result,) = eager.run(Commit(run), [first], [])
    committed = (tmp_path / "manifest.json").read_bytes()
    (again_committed,) = eager.run(Commit(run), [again], [])
    assert (result.status, again_committed.status) == ("committed", "committed")
    assert (tmp_path / "manifest.json").read_bytes() == committed


def test_a_run_that_makes_no_unit_settles_its_pipeline(tmp_path: Path) -> None:
    """Its plan carries all files of the last snapshot."""
    root = str(tmp_path)
    night(root, 0, numbered(0, 5), numbered(5, 9))
    last = read_manifest(root)
    assert last is not None
    record_plan(last, run_name(1), SOME)
    run = replace(begin(root, 2, 2), id=run_name(1))
    with beam.Pipeline("FnApiRunner") as pipeline:
        result = (pipeline | Settle(run),) | Commit(run)
        _ = result | beam.Map(lambda found: pytest.fail(found.message) if found.exit_code else None)
    found = read_manifest(root)
    assert found is not None
    assert (found.run, found.units, found.files) == (run_name(1), last.units, last.files)


@pytest.mark.parametrize("count", [1, 100])
def test_a_unit_that_is_missing_is_found_in_whatever_stretch_it_is(
    tmp_path: Path, count: int
) -> None:
    run, units = run_of(tmp_path, count)
    for lost in {0, count // 2, count - 1}:
        (fact,) = eager.run(Settle(run), units[:lost] + units[lost + 1 :], [])
        assert fact.problem == Problem(
            f"ledger: {units[lost].file}: planned unit {units[lost].unit} was not finished; nothing committed",
            4,
        )


def test_a_problem_comes_before_a_fault_of_the_ledger(tmp_path: Path) -> None:
    run, units = run_of(tmp_path, 3)
    assert eager.run(Settle(run), units[1:], [Problem("lost", 1)]) == [
        RunFact(problem=Problem("lost", 1))
    ]


def test_two_different_units_of_one_name_are_a_problem(tmp_path: Path) -> None:
    run, units = run_of(tmp_path, 3)
    other = replace(units[1], sha256="0" * 64)
    (fact,) = eager.run(Settle(run), [*units, other], [])
    said = f"ledger: unit {other.unit} was written twice with different rows; nothing committed"
    assert fact.problem == Problem(said, 4)


def test_buckets_are_settled_by_stretches_too(tmp_path: Path) -> None:
    file = InputFile("/in/a.txt", "a.txt", "text", "", 1000, "sum", "v")
    buckets = Buckets(bits=7, rows=1280, chosen_rows=1280, chosen_tokens=1)
    write_plan(str(tmp_path), run_name(1), [PlannedFile(file)], buckets)
    run = Run(
        root=str(tmp_path), id=run_name(1), space=SPACE, partition="content", unit_tokens=100,
        globs=("/in/*.txt",), options=RememberedOptions(model="m"), started=now(),
    )  # fmt: skip
    units = [
        replace(
            unit_of(file),
            unit=buckets.name(n),
            file="",
            range=(n, n + 1),
            path=layout.shard(buckets.name(n), "0" * 16),
        )
        for n in range(128)
    ]
    fact = settled(run, units)
    made = fact.settled
    assert made, fact
    assert made.tally.ledger.read == 1280
    assert settled(run, units[:70] + units[71:]).problem == Problem(
        "ledger: planned unit 7-46 was not finished; nothing committed", 4
    )
