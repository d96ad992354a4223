"""Files that cannot be read to their end: named by one line, whatever their format is."""

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from helpers.corpora import COMPRESSORS, sentences, write_bytes, write_lines, write_parquet

from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError
from sentence_beam.transforms.corpus import Columns, Span
from sentence_beam.transforms.corpus.collection_rows import list_files, plan_reading, read_files
from sentence_beam.transforms.corpus.rows import read_span


def read(path: Path) -> int:
    """Return the number of rows of a file."""
    files = list_files([str(path)], "auto")
    return sum(len(unit.ids) for unit in read_files(files, Columns()))


def read_spans(spans: list[Span]) -> None:
    """Read planned spans to their end."""
    for span in spans:
        list(read_span(span, Columns(), 1000))


@pytest.mark.parametrize("suffix", ["txt", "jsonl", "txt.gz"])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_text_is_named_as_such(tmp_path: Path, suffix: str, encoding: str) -> None:
    path = write_bytes(tmp_path / f"a.{suffix}", "\ufeffone\ntwo\n".encode(encoding))
    with pytest.raises(SentenceBeamError, match=r"UTF-16.*convert it to UTF-8") as error:
        read(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    ("suffix", "cut"), [*((suffix, 0.5) for suffix in COMPRESSORS), (".gz", -1), (".zst", -1)]
)
def test_truncated_compressed_text(tmp_path: Path, suffix: str, cut: float) -> None:
    path = write_lines(tmp_path / f"a.txt{suffix}", sentences(300))
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * cut) if cut > 0 else int(cut)])
    with pytest.raises(SentenceBeamError, match=r"cut short or corrupt.*replace it") as error:
        read(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1, 2]),
        pa.array([1.5, None]),
        pa.array([["a"], ["b"]]),
        pa.array([{"a": "x"}, {"a": "y"}]),
        pa.array([b"a", b"b"], pa.binary(1)),
    ],
    ids=lambda values: str(values.type).split("<")[0],
)
def test_a_text_column_of_another_type(tmp_path: Path, values: pa.Array) -> None:
    path = write_parquet(tmp_path / "a.parquet", values)
    (file,) = list_files([str(path)], "auto")
    with pytest.raises(OptionError, match=r"column text is .*text_column") as error:
        plan_reading(file, Columns())
    assert f"{path}: column text is {values.type}".split("<")[0] in str(error.value)


def grow(path: Path) -> None:
    with path.open("ab") as f:
        f.write(b"more\n")


def replace_by_rename(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes()[::-1])
    os.replace(other, path)


def edit_in_place(path: Path) -> None:
    before = path.stat()
    with path.open("r+b") as f:
        f.write(b"X")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES = [grow, replace_by_rename, edit_in_place, Path.unlink]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.jsonl", "a.parquet"])
def test_a_file_that_changes_while_it_is_read(
    tmp_path: Path, name: str, change: Callable[[Path], None]
) -> None:
    path = tmp_path / name
    if name == "a.parquet":
        write_parquet(path, sentences(10))
    elif name == "a.jsonl":
        write_lines(path, [f'{{"text": "{text}"}}' for text in sentences(10)])
    else:
        write_lines(path, sentences(10))
    (file,) = list_files([str(path)], "auto")
    spans = plan_reading(file, Columns())
    change(path)
    with pytest.raises(SentenceBeamError, match=r"while the run read it; run again") as error:
        read_spans(spans)
    assert str(path) in str(error.value)
