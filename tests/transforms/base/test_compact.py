"""What a run has millions of: small in memory, and the same after it was pickled."""

import pickle

from sentence_beam.transforms.corpus import InputFile, Span
from sentence_beam.transforms.corpus.groups import GroupSpan
from sentence_beam.transforms.steps.plan.elements import PlannedFiles
from sentence_beam.transforms.store.entries import InputEntry
from sentence_beam.transforms.store.records import UnitRecord
from sentence_beam.transforms.store.runs.plan import PlannedFile

FILES = [
    InputFile(
        path=f"/mnt/collection/texts/by-month/2026-11/{n:07d}.txt",
        relative=f"texts/by-month/2026-11/{n:07d}.txt",
        format="text",
        compression="",
        size=50,
        checksum=f"{n:064x}",
        version=f"50-{1_700_000_000_000_000_000 + n}-{1_700_000_000_000_000_000 + n}-{10_000_000 + n}",
    )
    for n in range(256)
]


def test_planned_files_are_the_same_after_they_were_pickled() -> None:
    spans = [Span(file, 0, 0, file.size, tokens=16) for file in FILES]
    planned = [
        PlannedFile(file, (span,), kept=(), ms=0.5) for file, span in zip(FILES, spans, strict=True)
    ]
    planned[0] = PlannedFile(
        FILES[0], group=GroupSpan("f0-0", tuple(spans)), was="other.txt", bad=""
    )
    again = pickle.loads(pickle.dumps(planned))  # noqa: S301 (of this test)
    assert again == planned
    assert [item.ms for item in again] == [item.ms for item in planned]
    assert not any(
        hasattr(item, "__dict__") for one in again[1:] for item in (one, one.file, one.spans[0])
    )


def test_a_small_file_takes_few_bytes_on_its_way_to_the_plan() -> None:
    batch = PlannedFiles(
        tuple(PlannedFile(file, (Span(file, 0, 0, 50, tokens=16),), kept=()) for file in FILES)
    )
    said = sum(len(file.path + file.relative + file.checksum + file.version) for file in FILES)
    assert len(pickle.dumps(batch)) - said < 80 * len(FILES)


def test_records_of_units_have_slots_and_are_the_same_after_they_were_pickled() -> None:
    unit = UnitRecord(
        path=None, unit="f0-0", file="", range=(0, None), rows=1, read=1, rejected=0, rejects=None, tokens=1,
        truncated=0, lost=0, bytes=0, sha256=None, measures={"read_ms": 0.5}, damaged=("a",), moved=(0.5,),
    )  # fmt: skip
    entry = InputEntry(
        "a.txt", "/in/a.txt", "text", "sum", "v", 1, original={"path": "a.txt", "later": 1}
    )
    again = pickle.loads(pickle.dumps([unit, entry]))  # noqa: S301 (of this test)
    assert again == [unit, entry]
    assert (again[0].measures, again[1].to_json()["later"]) == ({"read_ms": 0.5}, 1)
    assert not any(hasattr(item, "__dict__") for item in again)
