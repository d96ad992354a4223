"""Inputs by the command: folders, several names, standard input, files that are a row each, tables
of Iceberg and Delta Lake, and what one line says of them.
"""

import errno
import io
import json
import os
from pathlib import Path

import pytest
from helpers import fake_storage
from helpers.commands import Run
from helpers.corpora import (
    check_ledger,
    ids_of,
    manifest_of,
    rows_of,
    sentences,
    vectors_of,
    write_bytes,
    write_lines,
    write_parquet,
)
from helpers.lakes import iceberg_catalog, rows
from helpers.snapshots import files_of


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


# --- files that are a row each

TEXT = "# A dog\n\nIt runs.\r\n\n- täxt 文\n"


@pytest.fixture
def documents(inputs: Path) -> Path:
    """Three documents, two of them in folders."""
    for name, text in (("a.md", TEXT), ("d/b.md", "a cat"), ("d/e/c.markdown", "a bird\n")):
        write_bytes(inputs / name, text.encode())
    return inputs


@pytest.mark.parametrize("partition", ["file", "content"])
def test_a_folder_of_markdown_is_a_row_a_file(
    embed: Run, run: Run, documents: Path, store: Path
) -> None:
    embed(documents, "--keep-columns", "text").ok()
    check_ledger(store, 3)
    found = {row["id"]: row["text"] for row in rows_of(store)}
    assert found == {"a.md": TEXT, "d/b.md": "a cat", "d/e/c.markdown": "a bird\n"}
    before = vectors_of(store)
    write_bytes(documents / "d" / "b.md", b"a cow")
    embed(documents, "--keep-columns", "text").ok()
    check_ledger(store, 3, embedded=1)
    after = vectors_of(store)
    assert [name for name in after if after[name] != before[name]] == ["d/b.md"]
    assert "nothing" not in run("search", "--store", store, "--query", "a cow", "-k", "1").ok().out
    run("verify", "--store", store).ok()


def test_plain_files_are_rows_where_that_is_said_and_have_no_columns(
    embed: Run, documents: Path, store: Path
) -> None:
    write_lines(documents / "d" / "x.txt", ["one", "two"])
    embed(documents, "--format", "file").ok()  # Markdown too: all that is plain text
    assert sorted(ids_of(store)) == ["a.md", "d/b.md", "d/e/c.markdown", "d/x.txt"]
    options = ("--id-column", "id")
    embed(documents, *options).failed(2, "is plain text and has no column", *options)


def test_markdown_beside_other_files_describes_them(embed: Run, inputs: Path, store: Path) -> None:
    write_parquet(inputs / "a.parquet", sentences(3))
    write_bytes(inputs / "README.md", b"about these rows")
    assert "not taken: 1 .md" in embed(inputs).ok().out
    check_ledger(store, 3)


def test_other_commands_read_documents(
    run: Run, documents: Path, tmp_path: Path, model: Path
) -> None:
    how = ("--input", documents, "--model", model)
    assert "3 rows with 3 texts" in run("pairs", *how).ok().out
    fitted = run("fit", *how, "--method", "tfidf", "--output", tmp_path / "t").ok().out
    assert "3 in 3 files" in fitted
    assert "3 to embed" in run("plan", *how).ok().out


# --- tables: files of both snapshots are carried over, deleted rows are gone

OPTIONS = ("--id-column", "id", "--keep-columns", "size", "--max-deletes", "1")
TABLE = "iceberg:lake.shop.docs"


def test_an_iceberg_table(
    embed: Run, run: Run, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = iceberg_catalog(tmp_path, monkeypatch).create_table(
        "shop.docs", schema=rows("a").schema
    )
    with table.update_spec() as change:
        change.add_identity("size")
    table.append(rows("a", "b"))
    table.append(rows("c"))
    embed(TABLE, *OPTIONS).ok()
    check_ledger(store, 3, embedded=3)
    before = table.current_snapshot().snapshot_id
    table.append(rows("d"))
    table.delete("id == 'c'")
    embed(TABLE, *OPTIONS, "--input-version", before, "--input-filter", "size = 0").ok()
    check_ledger(store, 2, carried=2)
    assert sorted(ids_of(store)) == ["a", "c"]
    embed(TABLE, *OPTIONS).ok()
    check_ledger(store, 3, carried=1)
    assert sorted(ids_of(store)) == ["a", "b", "d"]
    now = table.refresh().current_snapshot().snapshot_id
    runs = json.loads(run("history", "--store", store, "--json").ok().out)["runs"]
    assert [one["tables"] for one in runs] == [
        {TABLE: str(version)} for version in (before, before, now)
    ]
    embed(TABLE, *OPTIONS, "--input-version", 17).failed(
        2, "--input-version 17", "no such snapshot"
    )


def test_a_delta_table(embed: Run, run: Run, store: Path, tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
    folder = tmp_path / "delta"
    deltalake.write_deltalake(folder, rows("a", "b"))
    deltalake.write_deltalake(folder, rows("c"), mode="append")
    embed(f"delta:{folder}", *OPTIONS, "--input-version", 0).ok()
    check_ledger(store, 2, embedded=2)
    deltalake.write_deltalake(folder, rows("d"), mode="append")
    deltalake.DeltaTable(folder).delete("id = 'c'")
    out = embed(f"delta:{folder}", *OPTIONS).ok().out
    check_ledger(store, 3, embedded=1, carried=2)
    assert sorted(ids_of(store)) == ["a", "b", "d"]
    manifest = manifest_of(store)
    assert manifest is not None
    assert manifest["input"]["globs"] == [f"delta:{folder}"]
    assert manifest["input"]["tables"] == {f"delta:{folder}": "3"}
    assert f"table       delta:{folder}, version 3\n" in out
    assert f"delta:{folder} (version 3)" in (store / "report.html").read_text()
    head, *lines = run("history", "--store", store).ok().out.splitlines()
    place = head.index("table version")
    assert [line[place:].split()[0] for line in lines] == ["0", "3"]
