"""Files that are a row each, by the commands: a folder of Markdown, and `--format file`."""

from pathlib import Path

import pytest
from helpers.commands import Run
from helpers.corpora import (
    check_ledger,
    ids_of,
    rows_of,
    sentences,
    vectors_of,
    write_bytes,
    write_lines,
    write_parquet,
)

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
