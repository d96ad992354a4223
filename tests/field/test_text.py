"""Text, documents and JSON lines as people have them: their encodings.

Covers transforms/corpus/formats/encoding.py.
"""

from pathlib import Path

import pytest
from helpers.examples import examples
from helpers.field import file_of
from hypothesis import given, settings
from hypothesis import strategies as st

from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError
from sentence_beam.transforms.corpus import Columns, read_files
from sentence_beam.transforms.corpus.formats.encoding import find_encoding
from sentence_beam.transforms.corpus.formats.registry import open_columns

TEXT = "first line\r\nsecond line\r\n"
LETTERS = "Привет, мир\nкак дела сегодня\n"


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.jsonl"])
@pytest.mark.parametrize("text", [TEXT, LETTERS, "ab\n"], ids=["Latin", "Cyrillic", "short"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf16_is_refused_by_name(tmp_path: Path, name: str, text: str, encoding: str) -> None:
    file = file_of(tmp_path / name, text.encode(encoding))
    with pytest.raises(SentenceBeamError, match=rf"{name} is UTF-16 \(by its .*\); convert it"):
        list(read_files([file], Columns()))


@pytest.mark.parametrize(
    ("data", "texts"),
    [
        (b"a\0b\nplain\n", ["a\0b", "plain"]),
        (b"one\ntwo \0 three \0\0\n", ["one", "two \0 three \0\0"]),
        ("日本語の文\n".encode(), ["日本語の文"]),
    ],
    ids=["one NUL", "some NULs", "Japanese"],
)
def test_other_text_is_read(tmp_path: Path, data: bytes, texts: list[str]) -> None:
    file = file_of(tmp_path / "a.txt", data)
    assert [text for unit in read_files([file], Columns()) for text in unit.texts] == texts


@settings(max_examples=examples(100))
@given(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=40),
    st.sampled_from(["utf-16-le", "utf-16-be"]),
)
def test_text_with_line_ends_is_told_apart(text: str, encoding: str) -> None:
    lines = f"id,text\n1,{text}\n2,{text}\n"
    assert find_encoding(lines.encode(encoding)) == encoding
    assert find_encoding(lines.encode("utf-16")) == "utf-16"
    assert find_encoding(lines.encode()) in ("utf-8", "utf-8-sig")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("id,größe\n1,x\n".encode("latin-1"), "the file is not UTF-8"),
        ("id,größe\n1,x\n".encode("cp850"), "the file is not UTF-8"),
        ("id,text\n1,x\n".encode("utf-32-le"), "the file is not UTF-8"),
    ],
    ids=["Latin-1", "DOS", "UTF-32"],
)
def test_a_missing_column_of_another_encoding_is_said(
    tmp_path: Path, data: bytes, said: str
) -> None:
    file = file_of(tmp_path / "a.csv", data)
    with pytest.raises(OptionError, match=said):
        open_columns(file).check(Columns("größe"))
