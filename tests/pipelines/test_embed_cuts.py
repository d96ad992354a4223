"""The cuts of input files that a store keeps from run to run."""

from pathlib import Path

from helpers.commands import Run
from helpers.corpora import (
    check_ledger,
    manifest_of,
    rows_of,
    sentences,
    write_jsonl,
    write_parquet,
)
from helpers.snapshots import files_of

UNIT = 400  # tokens


def test_a_file_keeps_its_cut_until_all_is_embedded_again(
    embed: Run, inputs: Path, store: Path
) -> None:
    def write(meta: int) -> None:
        rows = [{"meta": "x" * meta, "text": text} for text in sentences(100)]
        write_jsonl(inputs / "a.jsonl", rows)

    def cut_of() -> int:
        manifest = manifest_of(store)
        assert manifest is not None
        (entry,) = files_of(store, manifest)
        return entry["cut"] or 0

    write(900)
    embed(inputs / "a.jsonl", "--unit-tokens", UNIT).ok()
    chosen = cut_of()
    write(10)
    embed(inputs / "a.jsonl").ok()
    assert cut_of() == chosen > 3 * UNIT
    embed(inputs / "a.jsonl", "--keep-columns", "meta").ok()
    assert cut_of() == chosen
    embed(inputs / "a.jsonl", "--reembed").ok()
    assert 0 < cut_of() < chosen
    check_ledger(store, 100)


def test_a_renamed_file_takes_its_cut_along(embed: Run, inputs: Path, store: Path) -> None:
    path = write_parquet(inputs / "a.parquet", sentences(40), 40, id=[str(i) for i in range(40)])
    embed(inputs / "*.parquet", "--id-column", "id", "--unit-tokens", 100).ok()
    manifest = manifest_of(store)
    assert manifest is not None
    path.rename(inputs / "b.parquet")
    embed(inputs / "*.parquet", "--id-column", "id").ok()
    renamed = manifest_of(store)
    assert renamed is not None
    assert renamed["work"]["carried"] == 40
    assert files_of(store, renamed)[0]["cut"] == files_of(store, manifest)[0]["cut"] > 0
    assert len(rows_of(store)) == 40
