"""Columns that are carried along, and runs over the first rows only."""

import datetime
import decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.commands import Run
from helpers.corpora import (
    check_ledger,
    files_in,
    ids_of,
    manifest_of,
    rows_of,
    sentences,
    write_bytes,
    write_jsonl,
    write_lines,
    write_parquet,
)
from helpers.variants import variants

from sentence_beam.transforms.store import open_store

ALL = ("--max-rejects", 1)


@pytest.fixture(params=["file", pytest.param("content", marks=pytest.mark.slow)])
def partition(request: pytest.FixtureRequest) -> str:
    """Both."""
    return request.param


@pytest.mark.parametrize(
    "name", ["id", "embedding", "norm", "row_hash", "tokens", "truncated", "pooled", "piece"]
)
def test_kept_columns_that_a_shard_has_already(
    embed: Run, inputs: Path, store: Path, name: str
) -> None:
    write_parquet(inputs / "a.parquet", ["one"], **{name: ["x"]})
    mend = "say --id-column id" if name == "id" else "rename"
    embed(inputs / "*", "--keep-columns", f"text,{name}").failed(2, f"--keep-columns {name}", mend)
    assert not store.exists()


def test_kept_columns_of_many_types_with_nulls(embed: Run, inputs: Path, store: Path) -> None:
    when = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901)
    values = {
        "a_null": pa.array([None] * 4, pa.null()),
        "b_bool": pa.array([True, None, False, True]),
        "c_uint": pa.array([1, None, 2**64 - 1, 3], pa.uint64()),
        "d_float": pa.array([1.5, None, float("nan"), float("inf")]),
        "e_time": pa.array([when, None, when, when], pa.timestamp("us", "Europe/Berlin")),
        "f_date": pa.array([when.date(), None, when.date(), when.date()]),
        "g_list": pa.array([[1, 2], None, [], [3]]),
        "h_struct": pa.array(
            [{"x": 1, "y": ["a"]}, None, {"x": None, "y": []}, {"x": 2, "y": None}]
        ),
        "i_map": pa.array([[("k", 1)], None, [], [("k", 2)]], pa.map_(pa.string(), pa.int64())),
        "j_decimal": pa.array([decimal.Decimal("1.10"), None, decimal.Decimal("-2.25"), None]),
        "k_binary": pa.array([b"\x00\xff", None, b"", b"x"]),
        "l_dictionary": pa.array(["u", None, "v", "u"]).dictionary_encode(),
        "m_large": pa.array(["u", None, "v", "u"], pa.large_string()),
        "n_fixed": pa.array(
            [[1.0, 2.0], [0.0, None], [3.0, 4.0], [5.0, 6.0]], pa.list_(pa.float32(), 2)
        ),
        "o_view": pa.array([b"u", None, b"v", b"w"], pa.binary_view()),
    }
    write_parquet(inputs / "a.parquet", ["one", "two", "", "four"], **values)
    embed(inputs / "*", *ALL, "--keep-columns", ",".join(values)).ok()
    check_ledger(store, 3, 1)
    table = open_store(str(store)).dataset().to_table().sort_by("id")
    for name, column in values.items():
        assert table.column(name).to_pylist() == [column[i].as_py() for i in (0, 1, 3)], name


def test_kept_times_beyond_those_of_python(embed: Run, inputs: Path, store: Path) -> None:
    times = pa.array([10**18, 1, None], pa.int64())
    write_parquet(
        inputs / "a.parquet",
        ["one", "two", ""],
        far=times.cast(pa.timestamp("us")),
        fine=times.cast(pa.timestamp("ns")),
    )
    embed(inputs / "*", *ALL, "--keep-columns", "far,fine").ok()
    table = open_store(str(store)).dataset().to_table().sort_by("id")
    assert [table.column(name).cast(pa.int64()).to_pylist() for name in ("far", "fine")] == [
        [10**18, 1]
    ] * 2


def test_a_changed_kept_value_alone_is_written_anew(embed: Run, inputs: Path, store: Path) -> None:
    write_parquet(inputs / "a.parquet", ["one", "two"], n=[1, 2])
    embed(inputs / "*", "--keep-columns", "n").ok()
    write_parquet(inputs / "a.parquet", ["one", "two"], n=[1, 3])
    embed(inputs / "*").ok()
    check_ledger(store, 2)
    assert sorted(row["n"] for row in rows_of(store)) == [1, 3]


def test_kept_columns_whose_types_differ_between_files(
    embed: Run, inputs: Path, store: Path
) -> None:
    write_parquet(inputs / "a.parquet", ["one"], n=[1])
    write_parquet(inputs / "b.parquet", ["two"], n=["x"])
    write_parquet(inputs / "c.parquet", ["three"])
    assert "n in 1 file" in embed(inputs / "*", "--keep-columns", "n").ok().out
    check_ledger(store, 3)
    assert {row["text"]: row["n"] for row in rows_of(store)} == {
        "one": "1",
        "two": "x",
        "three": None,
    }


def test_files_with_columns_in_another_order_and_more_of_them(
    embed: Run, inputs: Path, store: Path
) -> None:
    write_parquet(inputs / "a.parquet", ["one"], n=[1], m=["x"])
    pq.write_table(
        pa.table({"z": [0.5], "n": [2], "m": ["y"], "text": ["two"]}), inputs / "b.parquet"
    )
    embed(inputs / "*", "--keep-columns", "m,n").ok()
    assert [(row["n"], row["m"]) for row in sorted(rows_of(store), key=lambda row: row["n"])] == [
        (1, "x"),
        (2, "y"),
    ]


def test_jsonl_and_parquet_in_one_run(embed: Run, inputs: Path, store: Path) -> None:
    write_parquet(inputs / "a.parquet", ["one"])
    write_jsonl(inputs / "b.jsonl", [{"text": "two"}])
    write_lines(inputs / "c.txt", ["three"])
    embed(inputs / "*", "--keep-columns", "text").ok()
    assert sorted(row["text"] for row in rows_of(store)) == ["one", "three", "two"]


@pytest.mark.parametrize("value", ["n,n", "text,n,text"])
def test_a_kept_column_named_twice(embed: Run, inputs: Path, value: str) -> None:
    write_parquet(inputs / "a.parquet", ["one"], n=[1])
    embed(inputs / "*", "--keep-columns", value).failed(2, "--keep-columns", value, "twice")


# --- limits


@variants("name", ["a.parquet", "a.txt", "a.txt.gz", "a.jsonl"], kept=(0, 2))
def test_limit_takes_the_first_rows_and_is_not_remembered(
    embed: Run, inputs: Path, store: Path, name: str
) -> None:
    texts = sentences(60)
    for file in (f"1{name}", f"2{name}"):
        if name == "a.parquet":
            write_parquet(inputs / file, texts, row_group_size=7)
        elif name == "a.jsonl":
            write_jsonl(inputs / file, [{"text": text} for text in texts])
        else:
            write_lines(inputs / file, texts)
    options = ("--unit-tokens", 100, "--keep-columns", "text")
    embed(inputs / "*", *options, "--limit", 65).ok()
    check_ledger(store, 65)
    assert sorted(row["text"] for row in rows_of(store)) == sorted([*texts, *texts[:5]])
    made = files_in(store, "embeddings")
    embed(inputs / "*", *options).ok()
    check_ledger(store, 120)
    again = files_in(store, "embeddings")
    kept = [path for path in made if again.get(path) == made[path]]
    assert len(kept) >= len(made) - 1


def test_a_limit_above_the_corpus(embed: Run, inputs: Path, store: Path) -> None:
    write_lines(inputs / "a.txt.gz", sentences(5))
    embed(inputs / "*", "--limit", 50).ok()
    check_ledger(store, 5)


def test_found_columns_are_said_and_remembered(
    embed: Run, plan: Run, inputs: Path, store: Path
) -> None:
    path = inputs / "a.csv"
    rows = "".join(f"R{n},{text}\n" for n, text in enumerate(sentences(4)))
    write_bytes(path, f"review_id,body\n{rows}".encode())
    line = (
        "columns     text body; ids from file and row (review_id would do: --id-column review_id)\n"
    )
    assert line in plan(path).ok().out
    assert line in embed(path).ok().out
    options = manifest_of(store)["options"]
    assert (options["text_column"], options["id_column"]) == ("body", None)
    more = rows.replace("\n", ",a b c,7\n")
    write_bytes(path, f"review_id,body,title,id\n{more}".encode())
    assert "\ncolumns " not in embed(path).ok().out
    assert sorted(ids_of(store)) == [f"a.csv#{n}" for n in range(4)]


def test_a_null_in_a_found_column_of_ids_is_a_rejected_row(
    embed: Run, inputs: Path, store: Path
) -> None:
    path = inputs / "a.csv"
    texts = "".join(f"{n},{text}\n" for n, text in enumerate(sentences(1200)))
    write_bytes(path, f"id,remark\n{texts},one more row\n".encode())
    out = embed(path, "--max-rejects", 0.1).ok().out
    assert "columns     text remark; ids from id\n" in out
    rows = manifest_of(store)["rows"]
    assert (rows["read"], rows["rejected"]) == (1201, 1)


def test_no_column_is_guessed_and_no_store_begun(embed: Run, inputs: Path, store: Path) -> None:
    path = inputs / "a.csv"
    write_bytes(path, b"title,body\na title of it,a body of some words\n")
    embed(path).failed(2, "title 'a title of it'", "--text-template '{title}\\n\\n{body}'")
    assert not store.exists()
    embed(path, "--text-template", "{title} {body}").ok()
