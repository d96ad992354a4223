"""Rejected rows by the command: where they are listed, when there are too many, and doubled ids."""

from pathlib import Path

import pytest
from helpers.commands import Run
from helpers.corpora import (
    check_ledger,
    ids_of,
    manifest_of,
    rejects_of,
    sentences,
    write_bytes,
    write_jsonl,
    write_lines,
    write_parquet,
)
from helpers.variants import variants

from sentence_beam.transforms.store.runs.run_result import read_result

BOTH = variants("partition", ["file", "content"], kept=(0,))


@BOTH
def test_too_many_rejects_end_the_run_and_its_files_say_which_rows_they_are(
    embed: Run, inputs: Path, store: Path
) -> None:
    rows = [{"text": "one"}, {"text": 5}, "{" + "x" * 500]
    write_jsonl(inputs / "sub/a.jsonl", [*rows, *({"text": text} for text in sentences(5))])
    embed(inputs / "**", "--max-rejects", 0).failed(
        3, "2 of 8 rows rejected", "--max-rejects", "1 text is not a string", f"--store {store}"
    )
    assert manifest_of(store) is None
    assert not (store / "lease.json").exists()
    result = read_result(str(store), next((store / "runs").iterdir()).name)
    assert result is not None
    assert (result.status, result.exit_code) == ("failed", 3)
    assert "--max-rejects" in result.message
    assert len(list((store / "rejects").iterdir())) == 1
    embed(inputs / "**", "--max-rejects", 0.25).ok()
    check_ledger(store, 6, 2, embedded=6)
    assert rejects_of(store) == [
        {"id": "sub/a.jsonl@16", "file": "sub/a.jsonl", "row": 16, "reason": "text is not a string",
         "excerpt": '{"text": 5}'},
        {"id": "sub/a.jsonl@28", "file": "sub/a.jsonl", "row": 28, "reason": "not a JSON object",
         "excerpt": ("{" + "x" * 500)[:80]},
    ]  # fmt: skip


@BOTH
@pytest.mark.parametrize("grouped", [False, True])
def test_essays_are_embedded_though_blank_lines_part_their_paragraphs(
    embed: Run, inputs: Path, store: Path, partition: str, grouped: bool
) -> None:
    for number in range(20 if grouped else 2):  # sixteen small files share units
        lines = [line for text in sentences(12, 12 * number) for line in (text, "")]
        write_lines(inputs / f"{number}.txt", ["", *lines])
    said = embed(inputs, "--max-rejects", 0).ok().out
    essays = len(list(inputs.iterdir()))
    check_ledger(store, 12 * essays, 13 * essays)
    assert f"\nblank       {13 * essays} of the rejected rows are blank lines; " in said
    assert "say --format file" in said
    assert {row["reason"] for row in rejects_of(store)} == {"blank line"}
    embed(inputs, "--max-rejects", 0).ok()
    carried = {"carried": 12 * essays} if partition == "file" else {}
    check_ledger(store, 12 * essays, 13 * essays, **carried)
    write_bytes(inputs / "bad.txt", b"caf\xe9\n\n")
    line = embed(inputs, "--max-rejects", 0).failed(
        3, f"1 of {12 * essays + 1} rows rejected", ": 1 not UTF-8;"
    )
    assert "blank" not in line


@BOTH
def test_duplicate_ids_are_kept_and_counted(embed: Run, inputs: Path, store: Path) -> None:
    write_parquet(inputs / "a.parquet", ["one", "two", "three"], id=["x", "x", "y"])
    write_parquet(inputs / "b.parquet", ["one", "four"], id=["x", "z"])
    outcome = embed(inputs / "*", "--id-column", "id").ok()
    assert "2 rows have an id that an earlier row has" in outcome.out
    check_ledger(store, 5)
    assert sorted(ids_of(store)) == ["x", "x", "x", "y", "z"]
