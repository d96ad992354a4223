"""Which files a pattern takes, on the command line; and what a run says of those that it does not
take.

Covers pipelines/common/input_lines.py.
"""

from pathlib import Path

import pytest
from helpers.commands import Run
from helpers.corpora import (
    check_ledger,
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
    hidden = (".hidden.txt", "d/.git/x.txt", "d/.DS_Store")
    for name in (*hidden, "d/notes.csv", "d/_SUCCESS", "other/b.csv", "d/e/x.CSV"):
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
    assert {i.partition("@")[0] for i in ids_of(store)} == {"a.txt", "d/b.txt", "d/e/c.txt"}


def test_nothing_is_said_of_files_that_another_pattern_takes(embed: Run, files: Path) -> None:
    patterns = ("*.txt", "*.txt", "d/*.txt", "d/.git/*.txt", ".hidden.txt")
    out = embed([files / pattern for pattern in patterns])
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
    for named in (".hidden.txt", "d/.git/*.txt"):
        embed(files / named, "--max-deletes", 1).ok()
        check_ledger(store, 1)


def test_only_hidden_files_match(embed: Run, inputs: Path, store: Path) -> None:
    write_lines(inputs / ".a.txt", ["one"])
    embed(inputs / "*.txt").failed(2, inputs / "*.txt", "--hidden")
    assert manifest_of(store) is None


def test_a_pattern_without_a_meaning_is_one_line(
    embed: Run, plan: Run, run: Run, inputs: Path, store: Path
) -> None:
    write_lines(inputs / "a.txt", ["one"])
    pattern = inputs / "a/**/[9-0]*"
    embed(pattern).failed(2, pattern, "pattern")
    plan(pattern).failed(2, pattern, "pattern")
    run("pairs", "--input", pattern).failed(2, pattern, "pattern")
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
    write_parquet(inputs / "e.parquet", ["two"], lang=["fr"])
    embed(inputs / "*", "--keep-columns", "lang").ok()
    found = [row["lang"] for row in rows_of(store)]
    assert sorted(filter(None, found)) == ["de", "en", "fr"]
    assert found.count(None) == 20
    write_jsonl(inputs / "d.jsonl", [{"text": "new"}])
    embed(inputs / "*").ok()
    check_ledger(store, 24)
