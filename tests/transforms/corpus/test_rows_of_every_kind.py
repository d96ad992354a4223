"""Rows that are good, rows that are rejected and why, ids and kept values: every row is somewhere.

Files that are empty, damaged or oddly named are read, or refused by one line.
"""

import decimal
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.corpora import (
    COMPRESSORS,
    sentences,
    write_bytes,
    write_jsonl,
    write_lines,
    write_parquet,
)
from helpers.reading import read, refused

from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError
from sentence_beam.transforms.corpus import Columns, list_files, read_files
from sentence_beam.transforms.corpus.formats.registry import open_columns


def not_utf8(*values: bytes | None) -> pa.Array:
    """Strings of Arrow of which some are not UTF-8."""
    raw = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())


# --- texts


def test_null_empty_and_blank_texts(tmp_path: Path) -> None:
    texts = ["one", None, "", " \t\u3000\n", "two", "\u200b"]
    rows = read(write_parquet(tmp_path / "a.parquet", texts))
    assert rows.ids == ["a.parquet#0", "a.parquet#4", "a.parquet#5"]
    assert [(reject.row, reject.reason) for reject in rows.rejects] == [
        (1, "null text"),
        (2, "empty text"),
        (3, "empty text"),
    ]


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    texts = not_utf8(b"one", b"caf\xe9", b"two", None)
    rows = read(write_parquet(tmp_path / "a.parquet", texts), keep=("text",))
    assert rows.texts == ["one", "two"]
    assert rows.reasons == ["not UTF-8", "null text"]


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["x y", None, "z"], pa.large_string()),
        pa.array(["x y", None, "z"]).dictionary_encode(),
        pa.array(["x y", None, "z"], pa.large_string()).dictionary_encode(),
        pa.array(["x y", None, "z"], pa.string_view()),
    ],
    ids=["large_string", "dictionary", "dictionary of large_string", "string_view"],
)
def test_text_in_every_string_type(tmp_path: Path, values: pa.Array) -> None:
    rows = read(write_parquet(tmp_path / "a.parquet", values), keep=("text",))
    assert rows.ids == ["a.parquet#0", "a.parquet#2"]
    assert rows.kept == [{"text": "x y"}, {"text": "z"}]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_text_lines_of_every_kind(tmp_path: Path, suffix: str) -> None:
    data = b"\xef\xbb\xbffirst\r\n\r\n  \nnul \x00 inside\ncaf\xe9\n\xff\xfe\nlone cr\rstays\nlast without end"
    rows = read(write_bytes(tmp_path / f"a.txt{suffix}", data))
    assert dict(zip(rows.ids, rows.texts, strict=True)) == {
        f"a.txt{suffix}@0": "first",
        f"a.txt{suffix}@15": "nul \x00 inside",
        f"a.txt{suffix}@36": "lone cr\rstays",
        f"a.txt{suffix}@50": "last without end",
    }
    assert {reject.row: reject.reason for reject in rows.rejects} == {
        10: "blank line",
        12: "blank line",
        28: "not UTF-8",
        33: "not UTF-8",
    }


# --- JSON lines


def test_jsonl_rows_of_every_kind(tmp_path: Path) -> None:
    good = [
        {"text": "one"},
        {"text": "two", "n": 1},
        '{"text": "a", "text": "the last key counts"}',
        {"text": "é文😀"},
    ]
    bad = [
        "not json", "[1]", "null", '"text"', "{", '{"text": "x"} {"text": "y"}', {"txt": "x"}, {"text": None},
        {"text": 5}, {"text": ["x"]}, {"text": True}, {"text": "  "}, '{"text": "\\ud800"}', "", "   ",
        '{"text": "caf\udce9"}',
    ]  # fmt: skip
    path = write_jsonl(tmp_path / "a.jsonl", [*bad, *good])
    (file,) = list_files([str(path)], "auto")
    assert open_columns(file).lacking(("text", "n", "m")) == ("m",)
    rows = read(path, keep=("text", "n"))
    assert rows.texts == ["one", "two", "the last key counts", "é文😀"]
    assert rows.reasons == [
        *["not a JSON object"] * 6, "null text", "null text", *["text is not a string"] * 3, "empty text", "not UTF-8",
        "empty text", "empty text", "not UTF-8",
    ]  # fmt: skip


def test_json_of_a_depth_that_python_refuses_and_a_number_of_many_digits(tmp_path: Path) -> None:
    lines = [
        '{"text": ' + "[" * 100_000,
        '{"text": "x", "n": ' + "9" * 5000 + "}",
        {"text": "ok", "n": 1},
    ]
    rows = read(write_jsonl(tmp_path / "a.jsonl", lines), keep=("n",))
    assert rows.texts == ["x", "ok"]
    assert rows.reasons == ["not a JSON object"]


def test_lone_surrogates_in_jsonl(tmp_path: Path) -> None:
    lines = [
        '{"text": "a\\ud800"}',
        '{"text": "b", "n": "\\udfff"}',
        '{"text": "c", "n": [{"\\ud800": 1}]}',
        '{"text": "\\ud83d\\ude00"}',
    ]
    rows = read(write_jsonl(tmp_path / "a.jsonl", lines), keep=("n",))
    assert rows.texts == ["😀"]
    assert rows.reasons == ["not UTF-8", *["kept column not UTF-8"] * 2]


def test_json_constants_in_kept_values(tmp_path: Path) -> None:
    lines = [
        '{"text": "x", "n": NaN}',
        '{"text": "y", "n": 1e999}',
        '{"text": "z", "n": [1, "é"]}',
    ]
    rows = read(write_jsonl(tmp_path / "a.jsonl", lines), keep=("n",))
    assert rows.kept == [{"n": "NaN"}, {"n": "Infinity"}, {"n": '[1,"é"]'}]


# --- ids


def test_ids_of_jsonl(tmp_path: Path) -> None:
    ids = ["a", 7, 10**30, None, 1.5, True, ["x"], "\ud800"]
    lines = [*({"text": "one", "id": row_id} for row_id in ids), {"text": "no id"}]
    rows = read(write_jsonl(tmp_path / "a.jsonl", lines), id="id")
    assert rows.ids == ["a", "7", str(10**30)]
    assert rows.reasons == [
        "null id", *["id is neither string nor integer"] * 3, "not UTF-8", "null id",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", [pa.int8(), pa.int64(), pa.uint64()], ids=str)
def test_integer_ids_become_decimal_strings(tmp_path: Path, kind: pa.DataType) -> None:
    largest = 2**64 - 1 if kind == pa.uint64() else 2 ** (kind.bit_width - 1) - 1
    ids = pa.array([0, largest, None], kind)
    rows = read(write_parquet(tmp_path / "a.parquet", ["one", "two", "three"], id=ids), id="id")
    assert rows.ids == ["0", str(largest)]
    assert [(reject.id, reject.row, reject.reason) for reject in rows.rejects] == [
        (None, 2, "null id")
    ]


@pytest.mark.parametrize(
    "ids",
    [
        pa.array(["a", None, "", " "]).dictionary_encode(),
        pa.array(["a", None, "", " "], pa.string_view()),
        pa.array(["a", None, "", " "], pa.large_string()),
    ],
    ids=["dictionary", "string_view", "large_string"],
)
def test_ids_in_every_string_type(tmp_path: Path, ids: pa.Array) -> None:
    rows = read(write_parquet(tmp_path / "a.parquet", sentences(4), id=ids), id="id")
    assert rows.ids == ["a", "", " "]
    assert rows.reasons == ["null id"]


@pytest.mark.parametrize(
    "ids",
    [pa.array([1.0, 2.0]), pa.array([True, False]), pa.array([[1], [2]]), pa.array([decimal.Decimal("1.5")] * 2)],
    ids=lambda ids: str(ids.type).split("<")[0],
)  # fmt: skip
def test_ids_of_other_types_are_refused(tmp_path: Path, ids: pa.Array) -> None:
    path = write_parquet(tmp_path / "a.parquet", ["one", "two"], id=ids)
    with refused(OptionError, path, "column id is", "(id_column)"):
        read(path, id="id")


def test_ids_that_are_not_utf8(tmp_path: Path) -> None:
    ids = not_utf8(b"a", b"caf\xe9")
    rows = read(write_parquet(tmp_path / "a.parquet", ["one", "two"], id=ids), id="id")
    assert (rows.ids, rows.reasons) == (["a"], ["not UTF-8"])


def test_the_column_of_ids_may_be_that_of_texts_and_be_kept(tmp_path: Path) -> None:
    rows = read(write_parquet(tmp_path / "a.parquet", ["one", "two"]), id="text", keep=("text",))
    assert rows.ids == rows.texts == [row["text"] for row in rows.kept] == ["one", "two"]


# --- kept values


@pytest.mark.parametrize("nested", [False, True])
def test_kept_values_that_are_not_utf8(tmp_path: Path, nested: bool) -> None:
    values = not_utf8(b"a", b"caf\xe9", b"c")
    column = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3]), values) if nested else values
    rows = read(write_parquet(tmp_path / "a.parquet", sentences(3), k=column), keep=("k",))
    assert [(reject.row, reject.reason) for reject in rows.rejects] == [
        (1, "kept column not UTF-8")
    ]
    assert [row["k"] for row in rows.kept] == ([["a"], ["c"]] if nested else ["a", "c"])


def test_a_kept_column_that_a_table_lacks_is_null_there(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", ["one"], n=[1])
    write_parquet(tmp_path / "b.parquet", ["two"])
    assert read(tmp_path / "*", keep=("n",)).kept == [{"n": 1}, {"n": None}]


def test_columns_in_another_order_and_more_of_them(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", ["one"], n=[1], m=["x"])
    other = pa.table({"z": [0.5], "n": [2], "m": ["y"], "text": ["two"]})
    pq.write_table(other, tmp_path / "b.parquet")
    rows = read(tmp_path / "*", keep=("m", "n"))
    assert rows.kept == [{"m": "x", "n": 1}, {"m": "y", "n": 2}]


# --- files without rows, and damaged ones


def test_empty_files_are_files_without_rows(tmp_path: Path) -> None:
    names = ["a.txt", "a.jsonl", "a.txt.gz", "a.txt.zst", "a.jsonl.bz2", "a.txt.xz"]
    for name in names:
        write_bytes(tmp_path / name, b"")
    (tmp_path / "no bytes.gz.txt.gz").touch()
    files = list_files([str(tmp_path / "*")], "auto")
    assert [file.relative for file in files] == sorted([*names, "no bytes.gz.txt.gz"])
    assert not [row_id for unit in read_files(files, Columns()) for row_id in unit.ids]


def test_row_groups_without_a_row(tmp_path: Path) -> None:
    full, empty = pa.table({"text": sentences(3)}), pa.table({"text": pa.array([], pa.string())})
    with pq.ParquetWriter(tmp_path / "a.parquet", full.schema) as writer:
        for table in (empty, full, empty, full, empty):
            writer.write_table(table)
    assert read(tmp_path / "a.parquet").ids == [f"a.parquet#{row}" for row in range(6)]


@pytest.mark.parametrize("keep", [0, 4, 50, -1, -9])
def test_truncated_parquet(tmp_path: Path, keep: int) -> None:
    path = write_parquet(tmp_path / "a.parquet", sentences(50))
    path.write_bytes(path.read_bytes()[:keep])
    with refused(SentenceBeamError, path, "replace it"):
        read(path)


def test_text_that_calls_itself_parquet(tmp_path: Path) -> None:
    path = write_bytes(tmp_path / "a.parquet", b"not parquet at all\n" * 20)
    with refused(SentenceBeamError, path, "not a readable Parquet file"):
        read(path)


def test_a_damaged_page_of_parquet(tmp_path: Path) -> None:
    path, table = tmp_path / "a.parquet", pa.table({"text": sentences(2000)})
    pq.write_table(table, path, compression="zstd", use_dictionary=False)
    data = bytearray(path.read_bytes())
    data[200:260] = bytes(60)
    path.write_bytes(data)
    with refused(SentenceBeamError, path, "replace"):
        read(path)


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_text_that_calls_itself_compressed(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.txt{suffix}"
    path.write_text("plain\n" * 10)
    with refused(SentenceBeamError, path, "replace it"):
        read(path)


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_compressed_text_in_several_members(tmp_path: Path, suffix: str) -> None:
    lines = sentences(20)
    parts = ["".join(f"{line}\n" for line in lines[at : at + 10]).encode() for at in (0, 10)]
    (tmp_path / f"a.txt{suffix}").write_bytes(b"".join(map(COMPRESSORS[suffix], parts)))
    assert read(tmp_path / "*").texts == lines


# --- columns that a file lacks


def test_a_column_that_a_file_lacks_is_named_beside_those_it_has(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"sentence": ["x"], "n": [1]}), path)
    with refused(OptionError, path, "column text", "(text_column)", "sentence, n"):
        read(path)
    assert read(path, text="sentence").texts == ["x"]
    with refused(OptionError, path, "no column m", "(id_column)"):
        read(path, text="sentence", id="m")


# --- names of files

ODD = [
    "täxt 文.txt",
    "a b  c.txt",
    "a#1@2.txt",
    "100%.txt",
    'it\'s "quoted".txt',
    "a.b.c.txt",
    "-flag.txt",
    "A.TXT",
    "a\\b.txt",
]


def test_odd_names(tmp_path: Path) -> None:
    for name in ODD:
        write_lines(tmp_path / "sub folder é" / name, ["one", "two"])
    ids = [f"sub folder é/{name}@{at}" for name in ODD for at in (0, 4)]
    assert sorted(read(tmp_path / "**").ids) == sorted(ids)


@pytest.mark.parametrize("pattern", ["a[1].txt", "a*.txt"])
def test_a_name_that_looks_like_a_pattern(tmp_path: Path, pattern: str) -> None:
    write_lines(tmp_path / "a[1].txt", ["one"])
    assert read(tmp_path / pattern).ids == ["a[1].txt@0"]


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    with open(os.path.join(os.fsencode(tmp_path), b"caf\xe9.txt"), "wb") as f:
        f.write(b"one\n")
    with refused(OptionError, "caf\\udce9.txt", "UTF-8", "rename"):
        read(tmp_path / "*.txt")


def test_links(tmp_path: Path) -> None:
    write_lines(tmp_path / "elsewhere" / "real.txt", ["one", "two"])
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "link.txt").symlink_to(tmp_path / "elsewhere" / "real.txt")
    (tmp_path / "in" / "folder").symlink_to(tmp_path / "elsewhere")
    assert read(tmp_path / "in" / "*.txt").texts == ["one", "two"]
    assert read(tmp_path / "in" / "folder" / "*.txt").texts == ["one", "two"]


def nothing(folder: Path) -> Path:
    return folder / "absent.txt"


def link_to_nothing(folder: Path) -> Path:
    (folder / "b.txt").symlink_to(folder / "gone.txt")
    return folder / "b.txt"


def empty_folder(folder: Path) -> Path:
    return folder


@pytest.mark.parametrize("make", [nothing, link_to_nothing, empty_folder])
def test_what_names_no_file(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    pattern = make(tmp_path)
    with refused(OptionError, f"input {pattern}", "no file matches"):
        read(pattern)


def test_files_without_an_ending_need_a_format(tmp_path: Path) -> None:
    write_lines(tmp_path / "part-0", sentences(3))
    with refused(OptionError, tmp_path, "known format", tmp_path / "part-0", "say format"):
        read(tmp_path)
    assert read(tmp_path, "text").texts == sentences(3)
    write_lines(tmp_path / "a.txt", ["one"])
    with refused(OptionError, tmp_path / "part-0", "say format", "narrow input"):
        read(tmp_path / "*")
