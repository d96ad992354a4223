"""Files that are a row each: what is read of them, and which cannot be rows."""

import gzip
from pathlib import Path

import pytest
from helpers.corpora import write_bytes, write_lines
from helpers.reading import read, refused

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError
from sentence_beam.transforms.corpus.formats import document

TEXT = "# A dog\n\nIt runs.\r\n\n- täxt 文\n"


def test_encodings_and_empty_files(tmp_path: Path) -> None:
    named = {
        "bad.md": b"caf\xe9",
        "blank.md": b" \n",
        "bom.markdown": b"\xef\xbb\xbfa dog",
        "d/good.md": TEXT.encode(),
        "empty.md": b"",
        "z.md.gz": b"a bird",
    }
    for name, data in named.items():
        write_bytes(tmp_path / name, data)
    rows = read(tmp_path)
    assert rows.ids == ["bom.markdown", "d/good.md", "z.md.gz"]
    assert rows.texts == ["a dog", TEXT, "a bird"]
    assert {reject.id: reject.reason for reject in rows.rejects} == {
        "bad.md": "not UTF-8", "blank.md": "empty text", "empty.md": "empty text",
    }  # fmt: skip


def test_plain_text_is_a_row_a_line_unless_the_format_is_given(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "x.txt", ["one", "two"])
    assert read(path).ids == ["x.txt@0", "x.txt@4"]
    rows = read(path, "file")
    assert (rows.ids, rows.texts) == (["x.txt"], ["one\ntwo\n"])


def test_files_on_s3(s3: str) -> None:
    for name, text in (("a.md", TEXT), ("d/b.md", "a cat"), ("d/empty.md", "")):
        storage.overwrite(f"{s3}/in/{name}", text.encode())
    rows = read(f"{s3}/in")
    assert dict(zip(rows.ids, rows.texts, strict=True)) == {"a.md": TEXT, "d/b.md": "a cat"}
    assert rows.reasons == ["empty text"]


@pytest.mark.parametrize(
    ("name", "data", "error", "said"),
    [
        ("a.md.gz", gzip.compress(b"a dog" * 100)[:-9], SentenceBeamError, "cut short or corrupt"),
        ("a.md", b"x" * 2001, OptionError, "has more than 0 MB, too much for one row; cut it into"),
        ("a.md.gz", gzip.compress(b"x" * 2001), OptionError, "too much for one row"),
    ],
)
def test_files_that_cannot_be_rows(
    tmp_path: Path,
    name: str,
    data: bytes,
    error: type[Exception],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(document, "MOST_BYTES", 2000)
    (tmp_path / name).write_bytes(data)
    with refused(error, tmp_path / name, said):
        read(tmp_path / "*")
