"""Every input format: the rows that Parquet of the same rows gives, whatever cuts them; damage is
one line.

Covers transforms/corpus/formats/avro.py.
Covers transforms/corpus/formats/json_objects.py.
Covers transforms/corpus/formats/jsonl.py.
Covers transforms/corpus/formats/parquet.py.
"""

import csv
import gzip
import io
import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.corpora import (
    sentences,
    write_bytes,
    write_parquet,
)
from helpers.reading import read, refused
from pyarrow import orc

from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError
from sentence_beam.transforms.corpus import (
    Columns,
    InputFile,
    limit_spans,
    match_inputs,
    plan_file,
    read_span,
)
from sentence_beam.transforms.corpus.formats.registry import open_columns
from sentence_beam.transforms.corpus.row_counting import count_rows

TEXTS = [
    *sentences(60),
    "a, b; c",
    'she said "no"',
    "two\nlines",
    "tab\there",
    "täxt 文",
    sentences(1)[0],
]
TABLE = pa.table(
    {
        "id": [f"r{i}" for i in range(len(TEXTS))],
        "text": TEXTS,
        "lang": ["en", None] * (len(TEXTS) // 2),
    }
)


def separated(delimiter: str, encoding: str = "utf8") -> Callable[[pa.Table], bytes]:
    def write(table: pa.Table) -> bytes:
        out = io.StringIO(newline="")
        writer = csv.writer(out, delimiter=delimiter)
        writer.writerow(table.column_names)
        writer.writerows(zip(*table.to_pydict().values(), strict=True))
        return out.getvalue().encode(encoding)

    return write


def as_json(table: pa.Table) -> bytes:
    return json.dumps(table.to_pylist(), indent=1, ensure_ascii=False).encode()


def as_jsonl(table: pa.Table) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode()


def as_arrow(stream: bool, **options: Any) -> Callable[[pa.Table], bytes]:
    def write(table: pa.Table) -> bytes:
        sink, how = io.BytesIO(), pa.ipc.IpcWriteOptions(**options)
        new = pa.ipc.new_stream if stream else pa.ipc.new_file
        with new(sink, table.schema, options=how) as writer:
            writer.write_table(table, max_chunksize=7)
        return sink.getvalue()

    return write


def as_orc(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    orc.write_table(table, sink)
    return sink.getvalue()


def as_avro(table: pa.Table, **options: Any) -> bytes:
    fields = [{"name": name, "type": ["null", "string"]} for name in table.column_names]
    sink = io.BytesIO()
    fastavro.writer(
        sink, {"type": "record", "name": "row", "fields": fields}, table.to_pylist(), **options
    )
    return sink.getvalue()


WRITERS: dict[str, Callable[[pa.Table], bytes]] = {
    "a.csv": separated(","),
    "semicolons.csv": separated(";"),
    "excel.csv": separated(";", "utf-8-sig"),
    "a.tsv": separated("\t"),
    "excel.tsv": separated("\t", "utf-16"),
    "a.csv.gz": separated(","),
    "a.tsv.zst": separated("\t"),
    "a.json": as_json,
    "lines.json": as_jsonl,
    "a.json.bz2": as_json,
    "a.arrow": as_arrow(stream=False),
    "a.arrows": as_arrow(stream=True),
    "a.feather": as_arrow(stream=False, compression="lz4"),
    "a.orc": as_orc,
    "a.avro": as_avro,
}


@pytest.mark.parametrize("name", WRITERS)
def test_all_formats_give_the_same_rows(tmp_path: Path, name: str) -> None:
    write_bytes(tmp_path / name, WRITERS[name](TABLE))
    rows = read(tmp_path / name, id="id", keep=("text", "lang"))
    assert rows.ids == TABLE["id"].to_pylist()
    assert rows.kept == TABLE.select(["text", "lang"]).to_pylist()
    assert read(tmp_path / name).ids == [f"{name}#{row}" for row in range(len(TEXTS))]
    (file,) = match_inputs(str(tmp_path / name))
    units = [
        unit for span in plan_file(file, "text", 300) for unit in read_span(span, Columns(), 300)
    ]
    assert len(units) > 1
    assert [text for unit in units for text in unit.texts] == TEXTS


NAMES = ["a.csv", "a.json", "a.arrow", "a.orc", "a.avro"]


def test_a_limit_of_rows_that_have_to_be_counted(tmp_path: Path) -> None:
    for name, write in WRITERS.items():
        write_bytes(tmp_path / name, write(TABLE))
        (file,) = match_inputs(str(tmp_path / name))
        spans = plan_file(file, "text", 100)
        for limit in (1, 7, len(TEXTS), len(TEXTS) + 1):
            units = [
                unit
                for span in limit_spans(spans, limit)
                for unit in read_span(span, Columns(), 100)
            ]
            texts = [text for unit in units for text in unit.texts]
            assert texts == TEXTS[:limit]
            assert sum(map(count_rows, limit_spans(spans, limit))) == len(texts)


@pytest.mark.parametrize("name", NAMES)
def test_rejected_rows(tmp_path: Path, name: str) -> None:
    table = pa.table({"id": ["1", None, "3", "4"], "text": ["one", "two", None, "  "]})
    rows = read(write_bytes(tmp_path / name, WRITERS[name](table)), id="id")
    assert rows.ids == ["1"]
    assert [(reject.file, reject.row, reject.reason) for reject in rows.rejects] == [
        (name, 1, "null id"),
        (name, 2, "null text"),
        (name, 3, "empty text"),
    ]


def test_rejected_rows_of_csv_alone(tmp_path: Path) -> None:
    lines = [b"text,n", b"one,1", b"only this", b"caf\xe9,2", b"too,many,values", b"", b"last,3"]
    rows = read(write_bytes(tmp_path / "a.csv", b"\n".join(lines)))
    assert rows.ids == ["a.csv#0", "a.csv#4"]
    assert [(reject.row, reject.reason) for reject in rows.rejects] == [
        (1, "not as many values as the header has names"),
        (2, "not UTF-8"),
        (3, "not as many values as the header has names"),
    ]


def test_rejected_values_of_a_json_array(tmp_path: Path) -> None:
    data = b'[{"text": "one"}, 5, {"text": 7}, {"other": 1}, {"text": "two"}]'
    rows = read(write_bytes(tmp_path / "a.json", data))
    assert rows.texts == ["one", "two"]
    assert [(reject.row, reject.reason) for reject in rows.rejects] == [
        (1, "not a JSON object"),
        (2, "text is not a string"),
        (3, "null text"),
    ]


def test_quotes_that_are_plain_characters(tmp_path: Path) -> None:
    texts = ['"Hello', 'say "x"', '"so" it goes', "plain", '"World']
    data = "".join(["text\tn\n", *(f"{text}\t1\n" for text in texts)]).encode()
    assert read(write_bytes(tmp_path / "a.tsv", data)).texts == texts


def test_quotes_that_make_no_sense_far_into_a_file(tmp_path: Path) -> None:
    rows = ['"a, b",1\n'] + ["some text,2\n"] * 40_000 + ['"open,3\n', 'two" words,4\n']
    path = write_bytes(tmp_path / "a.csv", "".join(["text,n\n", *rows]).encode())
    assert [(reject.row, reject.reason) for reject in read(path).rejects] == [
        (40_001, "wrong quotes")
    ]


def test_columns_that_are_missing_or_doubled(tmp_path: Path) -> None:
    path = write_bytes(tmp_path / "a.csv", b"body,n,n\none,1,2\n")
    with refused(OptionError, path, "no column text", "body, n, n"):
        read(path)
    with refused(OptionError, path, "2 columns n", "(keep_columns)"):
        read(path, text="body", keep=("n",))
    path = write_bytes(tmp_path / "b.csv", b"body\none\n")
    with refused(OptionError, path, "no column text", "say delimiter"):
        read(path)
    for name in ("a.json", "a.arrow", "a.orc", "a.avro"):
        path = write_bytes(tmp_path / name, WRITERS[name](pa.table({"body": ["one"]})))
        with refused(OptionError, f"{name} has no column text", "body"):
            read(path)


def read_all(file: InputFile) -> None:
    open_columns(file).kept_types(Columns())
    for span in plan_file(file, "text", 100):
        list(read_span(span, Columns(), 100))


@pytest.mark.parametrize(
    "name", ["a.csv.gz", "a.json", "a.json.bz2", "a.arrow", "a.arrows", "a.orc", "a.avro"]
)
@pytest.mark.parametrize("damage", ["cut", "other"])
def test_damaged_files(tmp_path: Path, name: str, damage: str) -> None:
    path = write_bytes(tmp_path / name, WRITERS[name](TABLE))
    whole = path.read_bytes()
    path.write_bytes(
        whole[: int(0.7 * len(whole))] if damage == "cut" else b"{no such thing at all\n" * 40
    )
    (file,) = match_inputs(str(path))
    with pytest.raises(SentenceBeamError, match="leave it out of input") as caught:
        read_all(file)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_empty_files(tmp_path: Path) -> None:
    for name in ("a.csv", "a.tsv", "a.json", "a.csv.gz", "b.json"):
        write_bytes(tmp_path / name, b"[]" if name == "b.json" else b"")
    write_bytes(tmp_path / "c.csv", b"text\n")
    for name in ("a.arrow", "a.orc", "a.avro"):
        write_bytes(tmp_path / name, WRITERS[name](pa.table({"text": pa.array([], pa.string())})))
    assert read(tmp_path / "*") == ([], [], [], [])
    for name in ("a.csv", "a.json"):  # whose columns nobody can tell
        (file,) = match_inputs(str(tmp_path / name))
        assert open_columns(file).lacking(("text", "n")) == ()


def test_documents_of_megabytes(tmp_path: Path) -> None:
    texts = ["word " * 300_000, "short", "w" * 2_000_000]
    for name in ("a.csv", "a.json", "a.avro"):
        path = write_bytes(tmp_path / name, WRITERS[name](pa.table({"text": texts})))
        assert read(path).texts == texts


# --- columns inside of others, ids of other types

NESTED = [
    {"meta": {"id": i, "doc": {"body": text}}, "a.b": "flat"} for i, text in enumerate(sentences(5))
]


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl", "a.json", "a.arrow", "a.orc", "a.avro"])
def test_columns_by_dotted_names(tmp_path: Path, name: str) -> None:
    table = pa.Table.from_pylist(NESTED)
    if name == "a.parquet":
        pq.write_table(table, tmp_path / name)
    elif name == "a.avro":
        doc = {"type": "record", "name": "doc", "fields": [{"name": "body", "type": "string"}]}
        meta = {
            "type": "record",
            "name": "meta",
            "fields": [{"name": "id", "type": "long"}, {"name": "doc", "type": doc}],
        }
        schema = {"type": "record", "name": "row", "fields": [{"name": "meta", "type": meta}]}
        with open(tmp_path / name, "wb") as f:
            fastavro.writer(f, schema, [{"meta": row["meta"]} for row in NESTED])
    else:
        write_bytes(tmp_path / name, {**WRITERS, "a.jsonl": as_jsonl}[name](table))
    keep = ("meta.doc.body",) if name == "a.avro" else ("meta.doc.body", "a.b")
    rows = read(tmp_path / name, text="meta.doc.body", id="meta.id", keep=keep)
    assert dict(zip(rows.ids, rows.texts, strict=True)) == dict(
        zip("01234", sentences(5), strict=True)
    )
    flat = {} if name == "a.avro" else {"a.b": "flat"}
    assert rows.kept == [{"meta.doc.body": text, **flat} for text in rows.texts]
    with refused(OptionError, "no column meta.doc.title", "meta.doc.body"):
        read(tmp_path / name, text="meta.doc.title")


def test_ids_of_other_types(tmp_path: Path) -> None:
    some = [uuid.UUID(int=n * 2**70 + 5) for n in range(3)]
    raw = [one.bytes for one in some]
    columns = {
        "uuid": (pa.array(raw, pa.uuid()), [str(one) for one in some]),
        "bytes": (pa.array(raw, pa.binary(16)), [one.hex for one in some]),
        "uint64": (pa.array([0, 2**64 - 1, 7], pa.uint64()), ["0", str(2**64 - 1), "7"]),
    }
    values = {name: column for name, (column, _) in columns.items()}
    path = write_parquet(tmp_path / "a.parquet", sentences(3), **values)
    for name, (_, ids) in columns.items():
        assert read(path, id=name).ids == ids


def test_a_gzip_of_a_csv_is_read_as_a_stream(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "a.csv.gz", "wt") as f:
        f.write("text\n" + "some words of a sentence\n" * 200_000)
    (file,) = match_inputs(str(tmp_path / "a.csv.gz"))
    (span,) = plan_file(file, "text", 1000)
    units = read_span(span, Columns(), 1000)
    first, second = next(units), next(units)
    assert 0 < len(first.ids) < 2000
    assert second.start == len(first.ids)
    units.close()  # type: ignore[attr-defined]


def read_rows(path: Path) -> int:
    """The number of rows of a file, read to its end."""
    (file,) = match_inputs(str(path))
    return sum(
        len(unit.ids)
        for span in plan_file(file, "text", 10**6)
        for unit in read_span(span, Columns(), 10**6)
    )


def places(data: bytes, mark: bytes) -> list[int]:
    """Where a mark begins."""
    return [at for at in range(len(data)) if data.startswith(mark, at)]


def test_an_arrow_stream_that_is_cut_short_is_noticed(tmp_path: Path) -> None:
    data, path = as_arrow(stream=True)(TABLE), tmp_path / "a.arrows"
    path.write_bytes(data)
    assert read_rows(path) == len(TEXTS)
    # between two messages
    for cut in (end + more for end in places(data, b"\xff" * 4)[1:] for more in (0, 4)):
        path.write_bytes(data[:cut])
        with pytest.raises(SentenceBeamError, match="a.arrows is not a readable Arrow IPC"):
            read_rows(path)


def test_an_avro_file_that_is_cut_inside_of_a_block_is_noticed(tmp_path: Path) -> None:
    out = io.BytesIO()
    schema = {"type": "record", "name": "r", "fields": [{"name": "text", "type": "string"}]}
    fastavro.writer(out, schema, [{"text": text} for text in TEXTS], sync_interval=300)
    data, path = out.getvalue(), tmp_path / "a.avro"
    for end in places(data, data[-16:])[:-1]:
        for cut in (end + 15, end + 17):  # at `end + 16` it is a whole file of fewer rows
            path.write_bytes(data[:cut])
            with pytest.raises(SentenceBeamError, match="a.avro is not a readable Avro file"):
                read_rows(path)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.month_day_nano_interval(), [pa.MonthDayNano([1, 2, 3])] * 2),
        (pa.struct([]), [{}, {}]),
        (pa.dense_union([pa.field("a", pa.int64())]), None),
    ],
    ids=str,
)
def test_types_that_parquet_cannot_hold_are_not_kept(
    tmp_path: Path, kind: pa.DataType, values: list[Any] | None
) -> None:
    column = pa.nulls(2, kind) if values is None else pa.array(values, kind)
    table = pa.table({"text": sentences(2), "odd": column})
    (tmp_path / "a.arrow").write_bytes(as_arrow(stream=False)(table))
    (file,) = match_inputs(str(tmp_path / "a.arrow"))
    with pytest.raises(
        OptionError, match=r"a.arrow: column odd is .* \(keep_columns\); cast it or leave it out"
    ):
        open_columns(file).kept_types(Columns(keep=("odd",)))


def test_a_kept_list_of_a_fixed_number_that_is_null(tmp_path: Path) -> None:
    kept = pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int32(), 2))
    table = pa.table({"text": sentences(3), "kept": kept})
    path = write_bytes(tmp_path / "a.arrow", as_arrow(stream=False)(table))
    rows = read(path, keep=("kept",))
    assert rows.kept == [{"kept": [1, 2]}, {"kept": [3, 4]}]
    assert [reason.startswith("kept column null") for reason in rows.reasons] == [True]
