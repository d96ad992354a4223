"""Arrow, ORC and Avro files are cut between their blocks, each row once.

Covers transforms/corpus/formats/arrow.py.
Covers transforms/corpus/formats/blocked.py.
"""

import contextlib
import io
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pytest
from helpers.block_files import MARKER, as_arrow, as_avro, as_orc
from helpers.corpora import sentences, write_bytes
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import orc

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.corpus import (
    Columns,
    InputFile,
    Span,
    match_inputs,
    plan_file,
    read_span,
)
from sentence_beam.transforms.corpus.formats.arrow import Arrow
from sentence_beam.transforms.corpus.formats.orc import Orc
from sentence_beam.transforms.corpus.formats.registry import open_columns
from sentence_beam.transforms.corpus.spans import estimate_tokens

UNIT = 2000  # tokens
TEXTS = sentences(3000)


WRITERS: dict[str, Callable[[list[str]], bytes]] = {
    "a.arrow": as_arrow,
    "old.arrow": lambda texts: as_arrow(texts, use_legacy_format=True),
    "a.feather": lambda texts: as_arrow(texts, compression="lz4"),
    "a.orc": as_orc,
    "a.avro": as_avro,
}
ARROW = as_arrow(TEXTS[:400])
NAMES = pytest.mark.parametrize("name", WRITERS)


def written(folder: Path, name: str, texts: list[str]) -> InputFile:
    (file,) = match_inputs(str(write_bytes(folder / name, WRITERS[name](texts))))
    return file


def texts_of(span: Span) -> list[str]:
    units = list(read_span(span, Columns(), UNIT))
    assert units[0].start == span.start
    return [text for unit in units for text in unit.texts]


def rows_of(file: InputFile) -> list[tuple[int, str, str]]:
    found: list[tuple[int, str, str]] = []
    for span in plan_file(file, "text", UNIT):
        for unit in read_span(span, Columns(), UNIT):
            found += zip(unit.positions, unit.ids, unit.texts, strict=True)
    return found


def message_of(read: Callable[[], Any]) -> str:
    """The message of reading a file; "" without an error."""
    try:
        read()
    except SentenceBeamError as error:
        return str(error)
    return ""


@NAMES
def test_spans_have_the_rows_of_the_file_each_once(tmp_path: Path, name: str) -> None:
    file = written(tmp_path, name, TEXTS)
    spans = plan_file(file, "text", UNIT)
    assert len(spans) > 5
    assert len({span.name for span in spans}) == len(spans)
    assert [span.start for span in spans] == [0, *(span.stop for span in spans[:-1])]
    assert [texts_of(span) for span in spans] == [TEXTS[s.start : s.stop] for s in spans]
    rows = rows_of(file)
    assert rows == [(i, f"{name}#{i}", text) for i, text in enumerate(TEXTS)]
    assert rows_of(replace(file, cut=0)) == rows
    assert len(plan_file(replace(file, cut=0), "text", UNIT)) == 1


@NAMES
def test_spans_have_about_the_tokens_of_a_unit(tmp_path: Path, name: str) -> None:
    spans = plan_file(written(tmp_path, name, TEXTS), "text", UNIT)
    for span in spans[:-1]:
        texts = TEXTS[span.start : span.stop]
        tokens = sum(estimate_tokens(len(text.encode()), 1) for text in texts)
        assert 0.5 * UNIT < tokens < 1.6 * UNIT
        assert 0.5 * tokens < span.tokens < 1.6 * tokens


@NAMES
def test_an_edit_and_new_rows_move_no_cut(tmp_path: Path, name: str) -> None:
    file = written(tmp_path, name, TEXTS)
    before = plan_file(file, "text", UNIT)
    edited = [TEXTS[0] + " more", *TEXTS[1:], *sentences(200)]
    changed = replace(written(tmp_path, name, edited), cut=before[0].file.cut)
    after = plan_file(changed, "text", UNIT)
    assert [span.name for span in after[: len(before)]] == [span.name for span in before]
    moved = [a.start - b.start for a, b in zip(after, before, strict=False)]
    assert max(map(abs, moved)) <= 64  # rows of a block
    assert rows_of(changed) == [(i, f"{name}#{i}", text) for i, text in enumerate(edited)]


@NAMES
def test_a_span_reads_its_own_blocks(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path, name, TEXTS)
    spans = plan_file(file, "text", UNIT)
    read = 0

    class Counted(io.FileIO):
        """A file that counts the bytes that are read."""

        def readinto(self, buffer: Any) -> int:
            nonlocal read
            size = super().readinto(buffer) or 0
            read += size
            return size

        def read(self, size: int | None = -1) -> bytes:
            nonlocal read
            data = super().read(size) or b""
            read += len(data)
            return data

    @contextlib.contextmanager
    def counted(file: InputFile) -> Iterator[BinaryIO]:
        with Counted(file.path) as raw:
            yield raw  # type: ignore[misc]

    texts_of(spans[0])  # reads the schema
    monkeypatch.setattr(
        "sentence_beam.transforms.corpus.formats.table_formats.open_unchanged", counted
    )
    for span in spans[1:4]:
        read = 0
        texts_of(span)
        assert read < 0.6 * file.size


@pytest.mark.parametrize(("name", "size"), [("a.orc", 3000), ("a.avro", 60), ("a.feather", 60)])
def test_a_damaged_block_is_one_line_of_its_span(tmp_path: Path, name: str, size: int) -> None:
    file = written(tmp_path, name, TEXTS)
    spans = plan_file(file, "text", UNIT)
    data = bytearray(Path(file.path).read_bytes())
    middle = len(data) // 2
    if name == "a.avro":
        middle = data.index(MARKER, middle) + 40  # not the marker, which is checked in the plan
    data[middle : middle + size] = b"\xff" * size
    write_bytes(Path(file.path), bytes(data))
    (changed,) = match_inputs(file.path)
    messages = [message_of(lambda s=span: texts_of(replace(s, file=changed))) for span in spans]
    damaged = [message for message in messages if message]
    assert 1 <= len(damaged) <= 2
    assert damaged[0].startswith(f"{file.path} is not a readable")
    assert "\n" not in damaged[0]


@settings(max_examples=100, deadline=None)
@given(place=st.integers(1, 4000), value=st.integers(0, 255))
def test_a_damaged_footer_is_one_line(
    tmp_path_factory: pytest.TempPathFactory, place: int, value: int
) -> None:
    damaged = bytearray(ARROW)
    damaged[-place] = value
    path = write_bytes(tmp_path_factory.getbasetemp() / "footer" / "a.arrow", bytes(damaged))
    (file,) = match_inputs(str(path))
    message = message_of(lambda: plan_file(file, "text", UNIT))
    if message:
        assert message.startswith(f"{file.path} is not a readable Arrow IPC or Feather file (")
        assert "\n" not in message


@pytest.mark.parametrize("sizes", [[], [0], [3, 0, 5], [1] * 100])
def test_the_rows_of_record_batches(tmp_path: Path, sizes: list[int]) -> None:
    schema = pa.schema([("text", pa.string()), ("tag", pa.dictionary(pa.int8(), pa.string()))])
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, schema) as writer:
        for size in sizes:
            tags = pa.DictionaryArray.from_arrays(pa.array([0] * size, pa.int8()), ["a"])
            columns = [pa.array(["x"] * size, pa.string()), tags]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    (file,) = match_inputs(str(write_bytes(tmp_path / "a.arrow", sink.getvalue())))
    blocks = Arrow().list_table_blocks(file) or []
    assert [(block.offset, block.rows) for block in blocks] == list(enumerate(sizes))


def test_the_rows_of_stripes(tmp_path: Path) -> None:
    data = as_orc(TEXTS)
    (file,) = match_inputs(str(write_bytes(tmp_path / "a.orc", data)))
    stripes = orc.ORCFile(io.BytesIO(data))
    rows = [block.rows for block in Orc().list_table_blocks(file)]
    assert rows == [stripes.read_stripe(number).num_rows for number in range(stripes.nstripes)]
    assert sum(rows) == len(TEXTS)


def test_a_stream_is_read_by_one_worker(tmp_path: Path) -> None:
    table = pa.table({"text": TEXTS})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=50)
    (file,) = match_inputs(str(write_bytes(tmp_path / "a.arrows", sink.getvalue())))
    (span,) = plan_file(file, "text", UNIT)
    assert texts_of(span) == TEXTS


@pytest.mark.parametrize("name", ["a.arrow", "a.orc", "a.avro"])
def test_a_file_without_rows_has_a_cut_all_the_same(tmp_path: Path, name: str) -> None:
    file = written(tmp_path, name, [])
    assert plan_file(file, "text", UNIT) == []
    cut = replace(written(tmp_path, name, TEXTS), cut=UNIT // 2)
    assert len(plan_file(cut, "text", UNIT)) == 3


INNER = pa.array([[f"{row % 10}"] for row in range(50)])
ONE_EACH = np.arange(51, dtype=np.int32).tobytes()  # offsets of texts or lists of one each
KINDS = np.tile(np.arange(5, dtype=np.int32), 10).tobytes()
DAMAGES = {
    "texts": (pa.array([f"{row % 10}" for row in range(50)]), ONE_EACH),
    "lists": (pa.LargeListArray.from_arrays(range(51), pa.array(["a"] * 50)), ONE_EACH),
    "structs": (pa.StructArray.from_arrays([INNER], ["inner"]), ONE_EACH),
    "dictionaries": (pa.array(list("abcde") * 10).dictionary_encode(), KINDS),
}


@pytest.mark.parametrize("name", DAMAGES)
@pytest.mark.parametrize("wrong", [-5, 51, 1 << 30])
def test_damaged_offsets_of_arrow_are_one_line(tmp_path: Path, name: str, wrong: int) -> None:
    """pyarrow does not check them as it reads, and ends the process when it follows them."""
    kept, pattern = DAMAGES[name]
    table = pa.table({"text": ["a row"] * 50, "kept": kept})
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    data = sink.getvalue()
    place = data.rindex(pattern) + 4 * 25
    damaged = data[:place] + wrong.to_bytes(4, "little", signed=True) + data[place + 4 :]
    (file,) = match_inputs(str(write_bytes(tmp_path / "a.arrow", damaged)))

    def read() -> None:
        columns = Columns(keep=("kept",))
        for span in plan_file(file, "text", UNIT):
            list(read_span(span, columns, UNIT))

    message = message_of(read)
    assert message.startswith(f"{file.path} is not a readable Arrow IPC or Feather file (")
    assert "\n" not in message


def test_text_of_arrow_that_is_not_utf8_is_a_rejected_row(tmp_path: Path) -> None:
    bad = pa.array([b"good", b"\xff bad"])
    columns = {
        "text": bad.view(pa.string()),
        "list": pa.ListArray.from_arrays([0, 1, 2], bad.view(pa.string())),
    }
    table = pa.table({"text": ["a", "b"]} | {"kept": columns["list"]})
    for some in (table, pa.table({"text": columns["text"], "kept": ["a", "b"]})):
        sink = io.BytesIO()
        with pa.ipc.new_file(sink, some.schema) as writer:
            writer.write_table(some)
        (file,) = match_inputs(str(write_bytes(tmp_path / "a.arrow", sink.getvalue())))
        (span,) = plan_file(file, "text", UNIT)
        (unit,) = read_span(span, Columns(keep=("kept",)), UNIT)
        assert unit.positions == [0]
        assert "not UTF-8" in unit.rejects[0].reason


@pytest.mark.parametrize("name", ["a.arrow", "a.orc"])
def test_a_name_of_a_column_that_is_not_utf8_is_one_line(tmp_path: Path, name: str) -> None:
    table = pa.table({"text": ["a"], "another": ["b"]})
    sink = io.BytesIO()
    if name == "a.orc":
        orc.write_table(table, sink, compression="uncompressed")
    else:
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    data = sink.getvalue().replace(b"another", b"an\xffther")
    (file,) = match_inputs(str(write_bytes(tmp_path / name, data)))
    message = message_of(lambda: open_columns(file).kept_types(Columns()))
    assert message.startswith(f"{file.path} is not a readable ")
    assert "utf-8" in message
