"""Which files a pattern takes, on the command line; and what a run says of those that it does not
take.

Covers pipelines/common/input_lines.py.
"""

from pathlib import Path

import pytest
from helpers.commands import Run
from helpers.corpora import (
    check_ledger,
    edit_manifest,
    ids_of,
    manifest_of,
    rows_of,
    sentences,
    write_bytes,
    write_jsonl,
    write_lines,
    write_parquet,
)
from helpers.snapshots import files_of

BOTH = pytest.mark.parametrize("partition", ["file", "content"])


@pytest.fixture
def files(inputs: Path) -> Path:
    """Three files to take, two of them in folders, and others beside them."""
    for number, name in enumerate(["a.txt", "d/b.txt", "d/e/c.txt"]):
        write_lines(inputs / name, sentences(2, 2 * number))
    for name in (
        ".hidden.txt",
        "d/.git/x.txt",
        "d/.DS_Store",
        "d/notes.csv",
        "d/_SUCCESS",
        "other/b.csv",
        "d/e/x.CSV",
    ):
        write_lines(inputs / name, ["not this"])
    return inputs


def said(out: str, head: str) -> str:
    """The rest of the line that begins with a word, "" where there is none."""
    return next((line[12:] for line in out.splitlines() if line[:12].strip() == head), "")


@BOTH
def test_a_run_says_what_it_took_and_what_lay_beside(
    embed: Run, plan: Run, files: Path, store: Path
) -> None:
    write_bytes(files / "d" / "empty.txt", b"")
    planned = plan(files / "**/*.txt").ok().out
    out = embed(files / "**/*.txt").ok().out
    assert said(out, "files") == "4 taken, 1 of them empty"
    beside = "not taken: 2 .csv, 2 hidden, 1 hidden folder, 1 without an ending"
    assert (said(out, "beside"), said(planned, "beside")) == (beside, beside)
    check_ledger(store, 6)
    assert sorted(i.partition("@")[0] for i in ids_of(store)) == sorted(
        ["a.txt", "d/b.txt", "d/e/c.txt"] * 2
    )


def test_nothing_is_said_of_files_that_another_pattern_takes(embed: Run, files: Path) -> None:
    out = embed(
        [
            files / "*.txt",
            files / "*.txt",
            files / "d" / "*.txt",
            files / "d/.git/*.txt",
            files / ".hidden.txt",
        ]
    )
    assert said(out.ok().out, "files") == "4 taken"
    assert said(out.out, "beside") == "not taken: 1 .csv, 1 hidden, 1 without an ending"
    assert said(embed(files / "a.txt", "--max-deletes", 1).ok().out, "beside") == ""


def test_hidden_files_are_taken_where_asked_for_and_the_store_remembers(
    embed: Run, files: Path, store: Path
) -> None:
    pattern = files / "{**/*.txt,nothing}"
    embed(pattern).ok()
    check_ledger(store, 6)
    embed(pattern, "--hidden").ok()
    manifest = check_ledger(store, 8)
    assert [file["path"] for file in files_of(store, manifest)][:1] == [".hidden.txt"]
    out = embed(pattern).ok().out
    check_ledger(store, 8, carried=8)
    assert "hidden" not in said(out, "beside")
    embed(pattern, "--no-hidden").ok()
    check_ledger(store, 6, embedded=0)


def test_an_earlier_store_that_remembers_nothing_of_hidden_files_carries_its_units(
    embed: Run, files: Path, store: Path
) -> None:
    embed(files / "**/*.txt").ok()
    manifest = manifest_of(store)
    del manifest["options"]["hidden"]
    edit_manifest(store / "manifest.json", manifest)
    embed(files / "**/*.txt").ok()
    check_ledger(store, 6, carried=6)


def test_a_hidden_file_that_is_named_is_taken(embed: Run, files: Path, store: Path) -> None:
    embed(files / ".hidden.txt").ok()
    check_ledger(store, 1)
    embed(files / "d/.git/*.txt").ok()
    check_ledger(store, 1)


def test_only_hidden_files_match(embed: Run, inputs: Path, store: Path) -> None:
    write_lines(inputs / ".a.txt", ["one"])
    embed(inputs / "*.txt").failed(2, inputs / "*.txt", "--hidden")
    assert manifest_of(store) is None


def test_alternatives(embed: Run, files: Path, store: Path) -> None:
    embed(files / "{a,d/b}.txt").ok()
    check_ledger(store, 4)
    assert {i.partition("@")[0] for i in ids_of(store)} == {"a.txt", "d/b.txt"}


@pytest.mark.parametrize("pattern", ["[b-a].txt", "a/**/[9-0]*", "{a,b}" * 14])
def test_a_pattern_without_a_meaning_is_one_line(
    embed: Run, plan: Run, run: Run, inputs: Path, store: Path, pattern: str
) -> None:
    write_lines(inputs / "a.txt", ["one"])
    embed(inputs / pattern).failed(2, inputs / pattern, "pattern")
    plan(inputs / pattern).failed(2, inputs / pattern, "pattern")
    run("pairs", "--input", inputs / pattern).failed(2, inputs / pattern, "pattern")
    assert not store.exists()


# --- kept keys of JSONL


@BOTH
def test_a_kept_key_may_come_after_the_first_rows_and_in_some_files_never(
    embed: Run, inputs: Path, store: Path
) -> None:
    filler = [{"text": text, "pad": "x" * 60_000} for text in sentences(20)]
    write_jsonl(inputs / "a.jsonl", [*filler, {"text": "late", "lang": "de"}])
    assert (inputs / "a.jsonl").stat().st_size > 1 << 20
    write_jsonl(inputs / "b.jsonl", [{"text": "early", "lang": "en"}])
    write_bytes(inputs / "c.jsonl", b"")
    embed(inputs / "*", "--keep-columns", "lang").ok()
    found = [row["lang"] for row in rows_of(store)]
    assert sorted(filter(None, found)) == ["de", "en"]
    assert found.count(None) == 20
    write_jsonl(inputs / "d.jsonl", [{"text": "new"}])
    embed(inputs / "*").ok()
    check_ledger(store, 23)


def test_a_kept_key_that_no_first_rows_have_is_refused(
    embed: Run, inputs: Path, store: Path
) -> None:
    first = write_jsonl(inputs / "a.jsonl", [{"text": "one", "n": 1}])
    write_jsonl(inputs / "b.jsonl", [{"text": "two", "n": 2}])
    embed(inputs / "*", "--keep-columns", "n,lang").failed(
        2, first, "column lang", "--keep-columns", "text, n"
    )
    assert manifest_of(store) is None


def test_a_column_of_parquet_stands_for_a_key_that_jsonl_lacks(
    embed: Run, inputs: Path, store: Path
) -> None:
    write_jsonl(inputs / "a.jsonl", [{"text": "one"}])
    write_parquet(inputs / "b.parquet", ["two"], lang=["en"])
    embed(inputs / "*", "--keep-columns", "lang").ok()
    assert sorted(str(row["lang"]) for row in rows_of(store)) == ["None", "en"]
