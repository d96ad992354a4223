"""What a run has millions of: small in memory, and the same after it was pickled."""

import pickle

from sentence_beam.transforms.corpus import InputFile, Span
from sentence_beam.transforms.steps.plan.elements import PlannedFiles, pack_table
from sentence_beam.transforms.steps.plan.planned import OpenedFile, make_planned_rows
from sentence_beam.transforms.store.records import UnitRecord

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
SPANS = [Span(file, 0, 0, file.size, tokens=16) for file in FILES]


def test_files_and_spans_are_the_same_after_they_were_pickled() -> None:
    again = pickle.loads(pickle.dumps(SPANS))  # noqa: S301 (of this test)
    assert again == SPANS
    assert not any(hasattr(item, "__dict__") for span in again for item in (span, span.file))


def test_a_small_file_takes_few_bytes_on_its_way_to_the_plan() -> None:
    rows = make_planned_rows([OpenedFile(span.file, (span,)).row() for span in SPANS])
    batch = PlannedFiles(pack_table(rows))
    assert pickle.loads(pickle.dumps(batch)).table.equals(rows)  # noqa: S301 (of this test)
    checksums = sum(len(file.checksum) for file in FILES)
    assert len(pickle.dumps(batch)) - checksums < 80 * len(FILES)


def test_records_of_units_have_slots_and_are_the_same_after_they_were_pickled() -> None:
    unit = UnitRecord(
        path=None, unit="f0-0", file="", range=(0, None), rows=1, read=1, rejected=0, rejects=None, tokens=1,
        truncated=0, lost=0, bytes=0, sha256=None, measures={"read_ms": 0.5}, damaged=("a",), moved=(0.5,),
    )  # fmt: skip
    again = pickle.loads(pickle.dumps(unit))  # noqa: S301 (of this test)
    assert again == unit
    assert again.measures == {"read_ms": 0.5}
    assert not hasattr(again, "__dict__")
