"""Input files that cannot be opened: left out and named where a run may do that, and read as soon as they can be."""

import json
from pathlib import Path

import pytest
from helpers.commands import Run
from helpers.corpora import sentences, write_parquet

from transforms.store import open_store

OPTIONS = ("--id-column", "id", "--unit-tokens", 60)


@pytest.fixture
def glob(inputs: Path) -> Path:
    """Three files of ten rows."""
    for number, name in enumerate("abc"):
        write(inputs / f"{name}.parquet", number)
    return inputs / "*.parquet"


def write(path: Path, number: int) -> None:
    """Ten rows of their own."""
    write_parquet(path, sentences(10, 10 * number), row_group_size=5, id=[f"{number}-{n}" for n in range(10)])


def ids(store: Path) -> set[str]:
    """The files' numbers that the store's ids begin with."""
    return {row_id.partition("-")[0] for row_id in open_store(str(store)).dataset().to_table()["id"].to_pylist()}


def test_a_bad_file_keeps_its_rows_and_is_read_once_it_is_mended(
    embed: Run, run: Run, glob: Path, inputs: Path, store: Path
) -> None:
    embed(glob, *OPTIONS).ok()
    (inputs / "b.parquet").write_bytes(b"PAR1 cut short")
    (inputs / "new.parquet").write_bytes(b"PAR1")
    write(inputs / "c.parquet", 3)
    embed(glob, *OPTIONS).failed(1, "is not a readable Parquet file")
    embed(glob, *OPTIONS, "--max-bad-files", 1).failed(1, "2 of 4 files, more than --max-bad-files 1: ")
    outcome = embed(glob, *OPTIONS, "--max-bad-files", 2).ok()
    assert ids(store) == {"0", "1", "3"}
    assert "2 taken" in outcome.out
    assert f"bad file    {inputs / 'b.parquet'} is not a readable" in outcome.out
    manifest = open_store(str(store)).manifest
    result = json.loads((store / "runs" / manifest.run / "result.json").read_text())
    assert sorted(result["input"]["bad"]) == ["b.parquet", "new.parquet"]
    assert "2 files could not be opened: " in (store / "report.json").read_text()
    run("verify", "--store", store).ok()

    embed(glob, *OPTIONS, "--max-bad-files", "0.5").ok()  # still bad, still there
    assert ids(store) == {"0", "1", "3"}
    embed(glob, *OPTIONS).failed(1, "is not a readable Parquet file")
    write(inputs / "b.parquet", 5)
    write(inputs / "new.parquet", 6)
    outcome = embed(glob, *OPTIONS).ok()
    assert ids(store) == {"0", "3", "5", "6"}
    assert "bad file" not in outcome.out


def test_rows_in_units_of_several_files_are_not_lost_for_a_bad_one(embed: Run, inputs: Path, store: Path) -> None:
    for number in range(20):
        write(inputs / f"{number:02d}.parquet", number)
    embed(inputs / "*.parquet", "--id-column", "id").ok()
    (inputs / "07.parquet").write_bytes(b"PAR1 cut short")
    embed(inputs / "*.parquet", "--id-column", "id", "--max-bad-files", 5).failed(1, "07.parquet is not a readable")


def test_by_content_the_option_is_refused(embed: Run, glob: Path) -> None:
    embed(glob, *OPTIONS, "--partition", "content", "--max-bad-files", 1).failed(
        2, "--max-bad-files: --partition content"
    )
