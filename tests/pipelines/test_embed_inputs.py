"""Inputs by the command: folders, several names, standard input, and what one line says of them."""

import errno
import io
import os
from pathlib import Path

import pytest
from helpers import fake_storage
from helpers.commands import Run
from helpers.corpora import (
    check_ledger,
    manifest_of,
    rows_of,
    sentences,
    write_bytes,
    write_lines,
)
from helpers.snapshots import files_of

from sentence_beam.pipelines.common.stdin import with_stdin
from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.steps.options import EmbedOptions


def test_a_folder_stands_for_its_files_of_one_format(embed: Run, inputs: Path, store: Path) -> None:
    for name in ("a.txt", "below/b.txt.gz", "_temporary/c.txt", ".hidden.txt"):
        write_lines(inputs / name, sentences(3))
    for name in ("_SUCCESS", "read.me"):
        write_bytes(inputs / name, b"")
    said = embed(f"{inputs}/").ok().out
    assert "2 taken" in said
    assert "3 without an ending" not in said
    taken = {file["path"] for file in files_of(store, check_ledger(store, 6))}
    assert taken == {"a.txt", "below/b.txt.gz"}
    assert "1 with a leading _" in embed(inputs / "**" / "*.txt*").ok().out
    check_ledger(store, 6, carried=6)
    write_bytes(inputs / "c.csv", b"text\nx\n")
    embed(inputs).failed(2, inputs, "1 csv", "2 text", f"'{inputs}/**/*.csv'")
    embed(inputs, "--format", "csv", "--max-deletes", 1).ok()
    check_ledger(store, 1)


def test_several_names_and_a_store_with_an_odd_one(
    run: Run, inputs: Path, model: Path, tmp_path: Path
) -> None:
    names = [write_lines(inputs / f"{name}.txt", sentences(2)) for name in "abc"]
    store = tmp_path / "my store [1]*#é"
    how = ("--store", store, "--model", model, "--index", "Flat")
    for _ in range(2):
        run("embed", "--input", *names[:2], *how, "--input", names[2]).ok()
    check_ledger(store, 6, carried=6)
    run("search", "--store", store, "--query", "dog").ok()
    run("verify", "--store", store).ok()


def test_standard_input(
    embed: Run, inputs: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def typed(text: str) -> None:
        stream = io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf8")
        monkeypatch.setattr("sys.stdin", stream)

    write_lines(inputs / "a.txt", ["three"])
    for carried in (0, 3):
        typed("one\ntäxt\n")
        embed(["-", inputs / "a.txt"], "--keep-columns", "text").ok()
        check_ledger(store, 3, carried=carried)
    assert {row["id"]: row["text"] for row in rows_of(store)} == {
        "stdin.txt@0": "one",
        "stdin.txt@4": "täxt",
        "a.txt@0": "three",
    }
    typed('{"text": "one"}\n')
    embed("-", "--format", "jsonl", "--max-deletes", 1).ok()
    check_ledger(store, 1)


def test_standard_input_is_not_for_workers_elsewhere() -> None:
    asked = EmbedOptions(input=("-",), store="store")
    with (
        pytest.raises(OptionError, match="--input - is read in this process alone"),
        with_stdin(asked, local=False),
    ):
        pass


def test_a_file_that_cannot_be_read_is_named_in_one_line(
    embed: Run, run: Run, inputs: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_bytes(inputs / "a\nb.parquet", b"not parquet at all\n" * 20)
    said = (r"a\nb.parquet is not a readable Parquet file", "leave it out")
    embed(path).failed(1, *said)
    run("plan", "--input", path).failed(1, *said)
    path = write_lines(inputs / "a.txt", ["one"])
    path.chmod(0)
    if os.access(path, os.R_OK):  # root reads everything
        error = PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        fake_storage.refuse(monkeypatch, "open", error)
    embed(path).failed(1, path, "Permission denied", "--input")
    assert manifest_of(store) is None


def test_a_delimiter_that_is_given(embed: Run, inputs: Path, store: Path) -> None:
    write_bytes(inputs / "a.csv", b"text:a, b, c\none:1\ntwo:2\n")
    embed(inputs / "a.csv").failed(2, "no column text", "text:a")
    embed(inputs / "a.csv", "--delimiter", ":").ok()
    embed(inputs / "a.csv").ok()
    check_ledger(store, 2, carried=2)
    write_bytes(inputs / "b.csv", b"text\tn\none, two\t1\n")
    embed([inputs / "b.csv"], "--delimiter", "tab", "--max-deletes", "1").ok()
    assert check_ledger(store, 1)["options"]["delimiter"] == "\t"


def test_blanks_around_names_of_columns_are_left_out(embed: Run, inputs: Path, store: Path) -> None:
    write_bytes(inputs / "a.csv", b'id , text,"a, b"\n1, one ,x\n2,two,y\n')
    out = embed(inputs / "a.csv", "--id-column", "id", "--keep-columns", '"a, b"').ok().out
    assert 'columns     blanks around names left out: "id ", " text"' in out
    assert sorted((row["id"], row["text"], row["a, b"]) for row in rows_of(store)) == [
        ("1", " one ", "x"),
        ("2", "two", "y"),
    ]
    assert "blanks around" not in embed(inputs / "a.csv", "--text-column", " text").ok().out
    embed(inputs / "a.csv", "--keep-columns", "b").failed(
        2, 'its columns, by its first row: id, text, "a, b"'
    )
    write_bytes(inputs / "b.csv", b"id,text, text\n1,one,two\n")  # which stay two columns
    embed(inputs / "b.csv", "--keep-columns", "txet").failed(
        2, "did you mean text? its columns", 'text, " text"'
    )
