"""Units settled by stretches of their names: what each key gets as a run grows, and that nothing
comes twice.
"""

import pickle
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from helpers import eager
from helpers.settled import settled, stretches
from helpers.snapshots import SPACE, run_name

from sentence_beam.transforms.beam import Commit, Settle
from sentence_beam.transforms.corpus import InputFile
from sentence_beam.transforms.corpus.buckets import Buckets
from sentence_beam.transforms.store import layout, manifest, manifest_parts
from sentence_beam.transforms.store.entries import RememberedOptions
from sentence_beam.transforms.store.forms import run_form
from sentence_beam.transforms.store.records import Problem, UnitRecord, carried
from sentence_beam.transforms.store.runs import settled as store_settled
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.facts import RunFact
from sentence_beam.transforms.store.runs.plan import PlannedFile
from sentence_beam.transforms.store.runs.plan_file import write_plan
from sentence_beam.transforms.store.runs.result import now
from sentence_beam.transforms.store.runs.settled import Settler

pytestmark = pytest.mark.usefixtures("plain_beam")

OPTIONS = RememberedOptions(model="m")


def unit_of(file: InputFile) -> UnitRecord:
    """The one unit of a file."""
    name = f"{file.key}-{0:012d}"
    return UnitRecord(
        path=layout.shard(name, "0" * 16), unit=name, file=file.relative, range=(0, None), rows=10, read=10, rejected=0,
        rejects=None, tokens=100, truncated=1, lost=2, bytes=1000, sha256=file.key * 4, embedded=10, real=98, padded=99,
        run="other", measures={"read_ms": 1.5, "forward_ms": 20.25}, form=run_form(SPACE, 0, OPTIONS) + "0" * 8,
    )  # fmt: skip


def run_of(root: Path, units: int, number: int = 1) -> tuple[Run, list[UnitRecord]]:
    """A run over so many files of one unit each, planned, and its units."""
    files = [
        InputFile(f"/in/{n}.txt", f"{n}.txt", "text", "", 1000, "sum", "v") for n in range(units)
    ]
    made = [unit_of(file) for file in files]
    write_plan(
        str(root),
        run_name(number),
        [PlannedFile(f, carried=(u,)) for f, u in zip(files, made, strict=True)],
    )
    run = Run(str(root), run_name(number), SPACE, "file", 100, ("/in/*.txt",), OPTIONS, {}, now())
    return run, made


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """How many units each key was given, as often as it was."""
    given: Counter[int] = Counter()
    call = Settler.settle

    def settle(self: Settler, number: int, packed: object) -> object:
        items = list(packed)  # type: ignore[call-overload]
        given[number] += len(items)
        return call(self, number, items)

    monkeypatch.setattr(Settler, "settle", settle)
    return given


def test_each_unit_goes_to_one_of_64_keys_once_and_what_the_last_key_gets_does_not_grow(
    tmp_path: Path, keys: Counter[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "UNITS_IN_ONE_FILE", 100)  # for 20,000
    sizes, most = {}, {}
    for count in (400, 800):
        keys.clear()
        run, units = run_of(tmp_path / f"{count}", count)
        (fact,) = eager.run(Settle(run), units, [])
        found = fact.settled
        assert len(keys) == 64
        assert sum(keys.values()) == count
        sizes[count], most[count] = len(pickle.dumps(found)), max(keys.values())
        assert found.tally.units == count == sum(part.units for part in found.parts)
        assert not found.sent
        (result,) = eager.run(Commit(run), [fact], [])
        assert (result.exit_code, result.ledger["embedded"], result.resumed) == (
            0,
            10 * count,
            {"other": count},
        )
        assert result.measures["embed"]["read_ms"] == {
            "count": count,
            "sum": 1.5 * count,
            "p50": 1.5,
            "p95": 1.5,
            "max": 1.5,
        }
        on_record = manifest.read_manifest(run.root)
        assert on_record is not None
        assert on_record.units == [
            carried_from(unit) for unit in sorted(units, key=lambda unit: unit.unit)
        ]
        assert [file.path for file in on_record.files] == sorted(f"{n}.txt" for n in range(count))
        assert sum(keys.values()) == count, "the commit took the units again"
    assert sizes[800] < 1.1 * sizes[400] < 30_000
    assert most[800] < 800 / 64 * 2


def carried_from(unit: UnitRecord) -> UnitRecord:
    """A unit as a manifest has it."""
    return UnitRecord(**unit.to_manifest())


def test_a_settling_that_is_done_again_writes_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "UNITS_IN_ONE_FILE", 100)
    run, units = run_of(tmp_path, 300)
    first = settled(run, units)
    assert first.settled
    parts = {path: path.read_bytes() for path in (tmp_path / "manifests" / "parts").iterdir()}
    again = settled(run, [*reversed(units), *units[:3]])  # in another order, some delivered twice
    assert again.settled
    assert again.settled.parts == first.settled.parts
    assert {
        path: path.read_bytes() for path in (tmp_path / "manifests" / "parts").iterdir()
    } == parts
    (result,) = eager.run(Commit(run), [first], [])
    committed = (tmp_path / "manifest.json").read_bytes()
    (again_committed,) = eager.run(Commit(run), [again], [])
    assert (result.status, again_committed.status) == ("committed", "committed")
    assert (tmp_path / "manifest.json").read_bytes() == committed


@pytest.mark.parametrize("count", [0, 1, 100, 101, 250])
def test_up_to_a_limit_the_manifest_itself_has_the_units(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    # so that a stretch writes parts from 4 units on
    monkeypatch.setattr(manifest, "UNITS_IN_ONE_FILE", 100)
    run, units = run_of(tmp_path, count)
    (result,) = eager.run(Commit(run), [settled(run, units)], [])
    assert result.exit_code == 0, result.message
    found = manifest.read_manifest(run.root)
    assert found is not None
    assert bool(found.parts) == (count > 100)
    assert [unit.unit for unit in found.units] == sorted(unit.unit for unit in units)
    assert len(found.files) == count


def test_all_units_of_one_file_are_cut_into_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "UNITS_IN_ONE_FILE", 10)
    monkeypatch.setattr(manifest_parts, "UNITS_IN_A_PART", 10)
    run, (unit,) = run_of(tmp_path, 1)
    empty = replace(unit, rows=0, read=0, embedded=0)
    units = [
        replace(
            empty if n else unit,
            unit=f"{unit.unit}.{n}",
            range=(10 * n, 10 * n + 10 if n < 34 else None),
        )
        for n in range(35)
    ]
    fact = settled(run, units)
    made = fact.settled
    assert made, fact
    assert [part.units for part in made.parts] == [8, 9, 9, 9]


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


def test_a_stretch_that_does_not_arrive_is_a_fault(tmp_path: Path) -> None:
    run, units = run_of(tmp_path, 3)
    plan = store_settled.shared_plan(run.root, run.id)
    with pytest.raises(Exception, match="63 of 64"):
        store_settled.join(run.root, plan, stretches(run, units)[1:])


def test_buckets_are_settled_by_stretches_too(tmp_path: Path) -> None:
    file = InputFile("/in/a.txt", "a.txt", "text", "", 1000, "sum", "v")
    buckets = Buckets(bits=7, rows=1280, chosen_rows=1280, chosen_tokens=1)
    write_plan(str(tmp_path), run_name(1), [PlannedFile(file)], buckets)
    run = Run(
        str(tmp_path),
        run_name(1),
        SPACE,
        "content",
        100,
        ("/in/*.txt",),
        RememberedOptions(model="m"),
        {},
        now(),
    )
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


def test_carried_units_are_in_the_sums(tmp_path: Path) -> None:
    run, units = run_of(tmp_path, 70)
    made = settled(run, [carried(unit) for unit in units[:35]] + units[35:]).settled
    assert made
    ledger = made.tally.ledger
    assert (ledger.carried, ledger.embedded, made.tally.made, made.tally.own_rows) == (
        350,
        350,
        35,
        0,
    )
