"""Every input format: the rows that Parquet of the same rows gives, whatever cuts them; damage is
one line.

Covers transforms/corpus/formats/avro.py.
Covers transforms/corpus/formats/json_objects.py.
Covers transforms/corpus/formats/parquet.py.
"""

import csv
import gzip
import io
import json
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.commands import Run
from helpers.corpora import (
    check_ledger,
    ids_of,
    manifest_of,
    rejects_of,
    rows_of,
    sentences,
    write_bytes,
    write_parquet,
)
from helpers.snapshots import units_of
from helpers.variants import variants
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
from sentence_beam.transforms.corpus.formats.registry import columns_of
from sentence_beam.transforms.corpus.row_counting import count_rows
from sentence_beam.transforms.store import open_store

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


@pytest.mark.parametrize("partition", ["file", "content"])
def test_all_formats_give_the_rows_and_vectors_of_parquet(
    embed: Run, inputs: Path, store: Path, partition: str
) -> None:
    for name, write in WRITERS.items():
        write_bytes(inputs / name, write(TABLE))
    write_parquet(inputs / "b.parquet", TEXTS, id=TABLE["id"], lang=TABLE["lang"])
    options = ("--id-column", "id", "--keep-columns", "text,lang", "--unit-tokens", 300)
    embed(inputs / "*", *options).ok()
    files, n = len(WRITERS) + 1, len(TEXTS)
    manifest = check_ledger(store, n * files)
    if partition == "file":
        units = Counter(unit["file"] for unit in units_of(store, manifest))
        assert units.keys() == {*WRITERS, "b.parquet"}
        assert min(units.values()) > 1
    found = Counter((row["id"], row["text"], row["lang"]) for row in rows_of(store))
    assert found == Counter(
        {(row["id"], row["text"], row["lang"]): files for row in TABLE.to_pylist()}
    )
    table = open_store(str(store)).dataset().to_table(columns=["id", "embedding"]).sort_by("id")
    vectors = np.array(table["embedding"].to_pylist()).reshape(n, files, -1)
    np.testing.assert_allclose(vectors, np.broadcast_to(vectors[:, :1], vectors.shape), atol=2e-5)
    embed(inputs / "*", *options).ok()
    check_ledger(store, n * files, carried=n * files)


NAMES = ["a.csv", "a.json", "a.arrow", "a.orc", "a.avro"]


@pytest.mark.parametrize("partition", ["file", "content"])
@pytest.mark.parametrize("name", ["a.csv", "a.orc"])
def test_made_ids_and_a_limit(embed: Run, inputs: Path, store: Path, name: str) -> None:
    write_bytes(inputs / name, WRITERS[name](TABLE))
    embed(inputs / name, "--limit", 11, "--id-column", "").ok()
    check_ledger(store, 11)
    assert sorted(ids_of(store)) == sorted(f"{name}#{i}" for i in range(11))


def test_a_limit_of_rows_that_have_to_be_counted(inputs: Path) -> None:
    for name, write in WRITERS.items():
        write_bytes(inputs / name, write(TABLE))
        (file,) = match_inputs(str(inputs / name))
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


def test_rejected_rows(embed: Run, inputs: Path, store: Path) -> None:
    table = pa.table({"id": ["1", None, "3", "4"], "text": ["one", "two", None, "  "]})
    for name in NAMES:
        write_bytes(inputs / name, WRITERS[name](table))
    embed(inputs / "*", "--id-column", "id", "--max-rejects", 1).ok()
    check_ledger(store, len(NAMES), 3 * len(NAMES))
    reasons = ("null id", "null text", "empty text")
    assert {(row["file"], row["row"], row["reason"]) for row in rejects_of(store)} == {
        (name, row, reason) for name in NAMES for row, reason in enumerate(reasons, 1)
    }


def test_rejected_rows_of_csv_alone(embed: Run, inputs: Path, store: Path) -> None:
    lines = [b"text,n", b"one,1", b"only this", b"caf\xe9,2", b"too,many,values", b"", b"last,3"]
    write_bytes(inputs / "a.csv", b"\n".join(lines))
    embed(inputs / "a.csv", "--max-rejects", 1).ok()
    check_ledger(store, 2, 3)
    assert [(row["row"], row["reason"]) for row in rejects_of(store)] == [
        (1, "not as many values as the header has names"),
        (2, "not UTF-8"),
        (3, "not as many values as the header has names"),
    ]
    assert ids_of(store) == ["a.csv#0", "a.csv#4"]


def test_rejected_values_of_a_json_array(embed: Run, inputs: Path, store: Path) -> None:
    write_bytes(
        inputs / "a.json", b'[{"text": "one"}, 5, {"text": 7}, {"other": 1}, {"text": "two"}]'
    )
    embed(inputs / "a.json", "--max-rejects", 1).ok()
    check_ledger(store, 2, 3)
    assert [(row["row"], row["reason"]) for row in rejects_of(store)] == [
        (1, "not a JSON object"),
        (2, "text is not a string"),
        (3, "null text"),
    ]


def test_quotes_that_are_plain_characters(embed: Run, inputs: Path, store: Path) -> None:
    texts = ['"Hello', 'say "x"', '"so" it goes', "plain", '"World']
    write_bytes(
        inputs / "a.tsv", "".join(["text\tn\n", *(f"{text}\t1\n" for text in texts)]).encode()
    )
    embed(inputs / "a.tsv", "--keep-columns", "text").ok()
    check_ledger(store, 5)
    assert [row["text"] for row in rows_of(store)] == texts


def test_quotes_that_make_no_sense_far_into_a_file(embed: Run, inputs: Path, store: Path) -> None:
    rows = ['"a, b",1\n'] + ["some text,2\n"] * 40_000 + ['"open,3\n', 'two" words,4\n']
    write_bytes(inputs / "a.csv", "".join(["text,n\n", *rows]).encode())
    embed(inputs / "a.csv", "--limit", 3).ok()
    embed(inputs / "a.csv", "--limit", 50_000).ok()
    assert [(row["row"], row["reason"]) for row in rejects_of(store)] == [(40_001, "wrong quotes")]


def test_a_delimiter_that_is_given(embed: Run, inputs: Path, store: Path) -> None:
    write_bytes(inputs / "a.csv", b"text:a, b, c\none:1\ntwo:2\n")
    embed(inputs / "a.csv").failed(2, "no column text", "text:a")
    embed(inputs / "a.csv", "--delimiter", ":").ok()
    check_ledger(store, 2)
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
    assert "blanks around" not in embed(inputs / "a.csv").ok().out
    embed(inputs / "a.csv", "--text-column", " text").ok()  # as the file has it
    embed(inputs / "a.csv", "--keep-columns", "b").failed(
        2, 'its columns, by its first row: id, text, "a, b"'
    )
    write_bytes(inputs / "b.csv", b"id,text, text\n1,one,two\n")  # which stay two columns
    embed(inputs / "b.csv", "--keep-columns", "txet").failed(
        2, "did you mean text? its columns", 'text, " text"'
    )


def test_plain_text_has_no_columns_to_name(embed: Run, inputs: Path) -> None:
    write_bytes(inputs / "x.txt", b"one\n")
    embed(inputs / "x.txt", "--id-column", "id").failed(
        2, "x.txt is plain text", "--store of its own without --id-column"
    )


def test_columns_that_are_missing_or_doubled(embed: Run, inputs: Path) -> None:
    write_bytes(inputs / "a.csv", b"body,n,n\none,1,2\n")
    embed(inputs / "a.csv").failed(2, inputs / "a.csv", "no column text", "body 'one', n '1'")
    embed(inputs / "a.csv", "--text-column", "body", "--keep-columns", "n").failed(
        2, "2 columns n", "--keep-columns"
    )
    write_bytes(inputs / "b.csv", b"body\none\n")
    embed(inputs / "b.csv").failed(2, inputs / "b.csv", "no column text", "--delimiter")
    for name in ("a.json", "a.arrow", "a.orc", "a.avro"):
        write_bytes(inputs / name, WRITERS[name](pa.table({"body": ["one"]})))
        (file,) = match_inputs(str(inputs / name))
        with pytest.raises(OptionError, match=f"{name} has no column text.*body"):
            columns_of(file).kept_types("text", None, ())


def read_all(file: InputFile) -> None:
    columns_of(file).kept_types("text", None, ())
    for span in plan_file(file, "text", 100):
        list(read_span(span, Columns(), 100))


@pytest.mark.parametrize(
    "name", ["a.csv.gz", "a.json", "a.json.bz2", "a.arrow", "a.arrows", "a.orc", "a.avro"]
)
@pytest.mark.parametrize("damage", ["cut", "other"])
def test_damaged_files(inputs: Path, name: str, damage: str) -> None:
    path = write_bytes(inputs / name, WRITERS[name](TABLE))
    whole = path.read_bytes()
    path.write_bytes(
        whole[: int(0.7 * len(whole))] if damage == "cut" else b"{no such thing at all\n" * 40
    )
    (file,) = match_inputs(str(path))
    with pytest.raises(SentenceBeamError, match="leave it out of --input") as caught:
        read_all(file)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["a.csv.gz", "a.orc"])
def test_a_damaged_file_commits_nothing(embed: Run, inputs: Path, store: Path, name: str) -> None:
    path = write_bytes(inputs / name, WRITERS[name](TABLE))
    path.write_bytes(path.read_bytes()[:-30])
    embed(path).failed(1, path, "leave it out of --input")
    assert manifest_of(store) is None


def test_empty_files(embed: Run, inputs: Path, store: Path) -> None:
    names = ["a.csv", "a.tsv", "a.json", "a.csv.gz", "b.json"]
    for name in names:
        write_bytes(inputs / name, b"[]" if name == "b.json" else b"")
    write_bytes(inputs / "c.csv", b"text\n")
    for name in ("a.arrow", "a.orc", "a.avro"):
        write_bytes(inputs / name, WRITERS[name](pa.table({"text": pa.array([], pa.string())})))
    embed(inputs / "*").ok()
    check_ledger(store, 0)


@pytest.mark.slow
def test_documents_of_megabytes(embed: Run, inputs: Path, store: Path) -> None:
    texts = ["word " * 300_000, "short", "w" * 2_000_000]
    table = pa.table({"text": texts})
    for name in ("a.csv", "a.json", "a.avro"):
        write_bytes(inputs / name, WRITERS[name](table))
    embed(inputs / "*", "--keep-columns", "text").ok()
    assert [row["text"] for row in rows_of(store)] == 3 * texts


# --- columns inside of others, ids of other types

NESTED = [
    {"meta": {"id": i, "doc": {"body": text}}, "a.b": "flat"} for i, text in enumerate(sentences(5))
]


@variants("name", ["a.parquet", "a.jsonl", "a.json", "a.arrow", "a.orc", "a.avro"], kept=(0, 1))
def test_columns_by_dotted_names(embed: Run, inputs: Path, store: Path, name: str) -> None:
    table = pa.Table.from_pylist(NESTED)
    if name == "a.parquet":
        pq.write_table(table, inputs / name)
    elif name == "a.avro":
        doc = {"type": "record", "name": "doc", "fields": [{"name": "body", "type": "string"}]}
        meta = {
            "type": "record",
            "name": "meta",
            "fields": [{"name": "id", "type": "long"}, {"name": "doc", "type": doc}],
        }
        schema = {"type": "record", "name": "row", "fields": [{"name": "meta", "type": meta}]}
        with open(inputs / name, "wb") as f:
            fastavro.writer(f, schema, [{"meta": row["meta"]} for row in NESTED])
    else:
        write_bytes(inputs / name, {**WRITERS, "a.jsonl": as_jsonl}[name](table))
    keep = "meta.doc.body" if name == "a.avro" else "meta.doc.body,a.b"
    options = ("--text-column", "meta.doc.body", "--id-column", "meta.id", "--keep-columns", keep)
    embed(inputs / name, *options).ok()
    check_ledger(store, 5)
    assert {row["id"]: row["meta.doc.body"] for row in rows_of(store)} == dict(
        zip("01234", sentences(5), strict=True)
    )
    assert {row.get("a.b", "flat") for row in rows_of(store)} == {"flat"}
    embed(inputs / name, "--text-column", "meta.doc.title").failed(
        2, "no column meta.doc.title", "meta.doc.body"
    )


def test_ids_of_other_types(embed: Run, inputs: Path, store: Path) -> None:
    some = [uuid.UUID(int=n * 2**70 + 5) for n in range(3)]
    raw = [one.bytes for one in some]
    columns = {
        "uuid": (pa.array(raw, pa.uuid()), [str(one) for one in some]),
        "bytes": (pa.array(raw, pa.binary(16)), [one.hex for one in some]),
        "uint64": (pa.array([0, 2**64 - 1, 7], pa.uint64()), ["0", str(2**64 - 1), "7"]),
    }
    path = write_parquet(
        inputs / "a.parquet",
        sentences(3),
        **{name: column for name, (column, _) in columns.items()},
    )
    for name, (_, ids) in columns.items():
        embed(path, "--id-column", name).ok()
        assert ids_of(store) == ids


def test_a_gzip_of_a_csv_is_read_as_a_stream(inputs: Path) -> None:
    with gzip.open(inputs / "a.csv.gz", "wt") as f:
        f.write("text\n" + "some words of a sentence\n" * 200_000)
    (file,) = match_inputs(str(inputs / "a.csv.gz"))
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


def test_an_arrow_stream_that_is_cut_short_is_noticed(inputs: Path) -> None:
    data, path = as_arrow(stream=True)(TABLE), inputs / "a.arrows"
    path.write_bytes(data)
    assert read_rows(path) == len(TEXTS)
    # between two messages
    for cut in (end + more for end in places(data, b"\xff" * 4)[1:] for more in (0, 4)):
        path.write_bytes(data[:cut])
        with pytest.raises(SentenceBeamError, match="a.arrows is not a readable Arrow IPC"):
            read_rows(path)


def test_an_avro_file_that_is_cut_inside_of_a_block_is_noticed(inputs: Path) -> None:
    out = io.BytesIO()
    schema = {"type": "record", "name": "r", "fields": [{"name": "text", "type": "string"}]}
    fastavro.writer(out, schema, [{"text": text} for text in TEXTS], sync_interval=300)
    data, path = out.getvalue(), inputs / "a.avro"
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
    inputs: Path, kind: pa.DataType, values: list[Any] | None
) -> None:
    column = pa.nulls(2, kind) if values is None else pa.array(values, kind)
    table = pa.table({"text": sentences(2), "odd": column})
    (inputs / "a.arrow").write_bytes(as_arrow(stream=False)(table))
    (file,) = match_inputs(str(inputs / "a.arrow"))
    with pytest.raises(
        OptionError, match=r"a.arrow: column odd is .* \(--keep-columns\); cast it or leave it out"
    ):
        columns_of(file).kept_types("text", None, ("odd",))


def test_a_run_that_cannot_keep_a_column_ends_before_it_embeds(
    embed: Run, inputs: Path, store: Path
) -> None:
    table = pa.table({"text": sentences(2), "odd": pa.array([pa.MonthDayNano([1, 2, 3])] * 2)})
    (inputs / "a.arrow").write_bytes(as_arrow(stream=False)(table))
    embed(inputs / "a.arrow", "--keep-columns", "odd").failed(
        2, "a.arrow: column odd is", "--keep-columns", "cast it"
    )
    assert manifest_of(store) is None
    embed(inputs / "a.arrow").ok()
    check_ledger(store, 2)


def test_a_kept_list_of_a_fixed_number_that_is_null(
    embed: Run, inputs: Path, store: Path, run: Run
) -> None:
    kept = pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int32(), 2))
    (inputs / "a.arrow").write_bytes(
        as_arrow(stream=False)(pa.table({"text": sentences(3), "kept": kept}))
    )
    embed(inputs / "a.arrow", "--keep-columns", "kept", "--max-rejects", 0.5).ok()
    check_ledger(store, 2, rejected=1)
    assert rejects_of(store)[0]["reason"].startswith("kept column null")
    # the shard can be read
    assert sorted(row["kept"] for row in rows_of(store)) == [[1, 2], [3, 4]]
    run("verify", "--store", store).ok()
