"""Files that are a row each: a folder of Markdown, and `--format file`."""

import gzip
from pathlib import Path

import pytest
from helpers.commands import Run
from helpers.corpora import (
    check_ledger,
    ids_of,
    manifest_of,
    rejects_of,
    rows_of,
    sentences,
    vectors_of,
    write_bytes,
    write_lines,
    write_parquet,
)

from sentence_beam.transforms import storage
from sentence_beam.transforms.corpus.formats import document

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


def test_plain_files_are_rows_where_that_is_said(embed: Run, documents: Path, store: Path) -> None:
    write_lines(documents / "d" / "x.txt", ["one", "two"])
    embed(documents, "--format", "file").ok()  # Markdown too: all that is plain text
    assert sorted(ids_of(store)) == ["a.md", "d/b.md", "d/e/c.markdown", "d/x.txt"]


def test_text_stays_a_row_a_line(embed: Run, inputs: Path, store: Path) -> None:
    write_lines(inputs / "x.txt", ["one", "two"])
    embed(inputs).ok()
    assert sorted(ids_of(store)) == ["x.txt@0", "x.txt@4"]


def test_markdown_beside_other_files_describes_them(embed: Run, inputs: Path, store: Path) -> None:
    write_parquet(inputs / "a.parquet", sentences(3))
    write_bytes(inputs / "README.md", b"about these rows")
    out = embed(inputs).ok().out
    assert "not taken: 1 .md" in out
    check_ledger(store, 3)


def test_encodings_and_empty_files(embed: Run, inputs: Path, store: Path) -> None:
    named = {
        "bom.md": b"\xef\xbb\xbfa dog",
        "bad.md": b"caf\xe9",
        "empty.md": b"",
        "blank.md": b" \n",
        "good.md": b"a cat",
    }
    for name, data in {**named, "z.md.gz": b"a bird"}.items():
        write_bytes(inputs / name, data)
    embed(inputs / "*.md*", "--max-rejects", 0.5, "--keep-columns", "text").ok()
    check_ledger(store, 3, rejected=3)
    assert {r["id"]: r["reason"] for r in rejects_of(store)} == {
        "bad.md": "not UTF-8", "empty.md": "empty text", "blank.md": "empty text",
    }  # fmt: skip
    assert {row["id"]: row["text"] for row in rows_of(store)} == {
        "bom.md": "a dog", "good.md": "a cat", "z.md.gz": "a bird",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        (
            "a.md",
            "a dog".encode("utf-16"),
            "is UTF-16 (by its byte order mark); convert it to UTF-8",
        ),
        ("a.md.gz", gzip.compress(b"a dog" * 100, mtime=0)[:-9], "is cut short or corrupt"),
        (
            "a.md",
            b"x" * 2001,
            "has more than 0 MB, too much for one row; cut it into files, or say --format text",
        ),
        ("a.md.gz", gzip.compress(b"x" * 2001, mtime=0), "too much for one row"),
    ],
)
def test_files_that_cannot_be_rows_are_one_line(
    embed: Run,
    inputs: Path,
    store: Path,
    name: str,
    data: bytes,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(document, "MOST_BYTES", 2000)
    (inputs / name).write_bytes(data)
    embed(inputs / "*").failed(2 if "too much" in said else 1, inputs / name, said)
    assert manifest_of(store) is None


@pytest.mark.parametrize("options", [("--id-column", "id"), ("--keep-columns", "lang")])
def test_documents_have_no_columns(embed: Run, documents: Path, options: tuple[str, str]) -> None:
    embed(documents, *options).failed(2, "is plain text and has no column", *options)


def test_other_commands_read_documents(
    run: Run, documents: Path, tmp_path: Path, model: Path
) -> None:
    assert "3 rows with 3 texts" in run("pairs", "--input", documents, "--model", model).ok().out
    fitted = (
        run(
            "fit",
            "--input",
            documents,
            "--method",
            "tfidf",
            "--model",
            model,
            "--output",
            tmp_path / "t",
        )
        .ok()
        .out
    )
    assert "3 in 3 files" in fitted
    assert "3 to embed" in run("plan", "--input", documents, "--model", model).ok().out


def check_far(run: Run, root: str, store: Path, model: Path) -> None:
    for name, text in (("a.md", TEXT), ("d/b.md", "a cat"), ("d/empty.md", "")):
        storage.overwrite(f"{root}/in/{name}", text.encode())
    how = ("--store", store, "--model", model, "--max-rejects", 0.5, "--keep-columns", "text")
    run("embed", "--input", f"{root}/in", *how).ok()
    assert {row["id"]: row["text"] for row in rows_of(store)} == {"a.md": TEXT, "d/b.md": "a cat"}
    check_ledger(store, 2, rejected=1)


def test_documents_on_s3(run: Run, s3: str, store: Path, model: Path) -> None:
    check_far(run, s3, store, model)
