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

from sentence_beam.transforms.store.runs.result import read_result

ALL = ("--max-rejects", 1)


@pytest.fixture(params=["file", pytest.param("content", marks=pytest.mark.slow)])
def partition(request: pytest.FixtureRequest) -> str:
    """Both."""
    return request.param


def reasons(store: Path) -> dict[str, str]:
    """Reason by id."""
    return {row["id"]: row["reason"] for row in rejects_of(store)}


def test_reject_files_say_which_row_of_which_file_and_show_it(
    embed: Run, inputs: Path, store: Path
) -> None:
    write_jsonl(inputs / "sub/a.jsonl", [{"text": "one"}, {"text": 5}, "{" + "x" * 500])
    embed(inputs / "**", *ALL).ok()
    check_ledger(store, 1, 2)
    assert rejects_of(store) == [
        {"id": "sub/a.jsonl@16", "file": "sub/a.jsonl", "row": 16, "reason": "text is not a string",
         "excerpt": '{"text": 5}'},
        {"id": "sub/a.jsonl@28", "file": "sub/a.jsonl", "row": 28, "reason": "not a JSON object",
         "excerpt": ("{" + "x" * 500)[:80]},
    ]  # fmt: skip


@pytest.mark.parametrize(("limit", "status"), [("0.24", 3), ("0.25", 0)])
def test_max_rejects(embed: Run, inputs: Path, store: Path, limit: str, status: int) -> None:
    write_parquet(inputs / "a.parquet", [*sentences(30), *[""] * 10])
    outcome = embed(inputs / "*", "--max-rejects", limit)
    if status == 0:
        outcome.ok()
        check_ledger(store, 30, 10)
        return
    outcome.failed(
        3, "10 of 40 rows rejected", "--max-rejects", "10 empty text", f"rejects --store {store}"
    )
    assert manifest_of(store) is None
    assert not (store / "lease.json").exists()
    result = read_result(str(store), next((store / "runs").iterdir()).name)
    assert result is not None
    assert (result.status, result.exit_code) == ("failed", 3)
    assert len(list((store / "rejects").iterdir())) == 1
    embed(inputs / "*", "--max-rejects", 1).ok()
    check_ledger(store, 30, 10, embedded=30)


@pytest.mark.parametrize("grouped", [False, True])
def test_essays_are_embedded_though_blank_lines_part_their_paragraphs(
    embed: Run, inputs: Path, store: Path, partition: str, grouped: bool
) -> None:
    for number in range(20 if grouped else 2):  # sixteen small files share units
        write_lines(
            inputs / f"{number}.txt",
            ["", *(line for text in sentences(12, 12 * number) for line in (text, ""))],
        )
    said = embed(inputs, "--max-rejects", 0).ok().out
    essays = len(list(inputs.iterdir()))
    check_ledger(store, 12 * essays, 13 * essays)
    assert f"\nblank       {13 * essays} of the rejected rows are blank lines; " in said
    assert "say --format file" in said
    assert set(reasons(store).values()) == {"blank line"}
    embed(inputs, "--max-rejects", 0).ok()
    check_ledger(
        store, 12 * essays, 13 * essays, **({"carried": 12 * essays} if partition == "file" else {})
    )
    write_bytes(inputs / "bad.txt", b"caf\xe9\n\n")
    line = embed(inputs, "--max-rejects", 0).failed(
        3, f"1 of {12 * essays + 1} rows rejected", ": 1 not UTF-8;"
    )
    assert "blank" not in line


def test_duplicate_ids_are_kept_and_counted(embed: Run, inputs: Path, store: Path) -> None:
    write_parquet(inputs / "a.parquet", ["one", "two", "three"], id=["x", "x", "y"])
    write_parquet(inputs / "b.parquet", ["one", "four"], id=["x", "z"])
    outcome = embed(inputs / "*", "--id-column", "id").ok()
    assert "2 rows have an id that an earlier row has" in outcome.out
    check_ledger(store, 5)
    assert sorted(ids_of(store)) == ["x", "x", "x", "y", "z"]
