"""Rows that are good, rows that are rejected and why, ids, kept columns, limits: every row is
somewhere.
"""

import decimal
from pathlib import Path

import pyarrow as pa
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
    write_jsonl,
    write_lines,
    write_parquet,
)
from helpers.snapshots import units_of

from sentence_beam.transforms.store.runs import changes
from sentence_beam.transforms.store.runs.result import read_result

ALL = ("--max-rejects", 1)


@pytest.fixture(params=["file", pytest.param("content", marks=pytest.mark.slow)])
def partition(request: pytest.FixtureRequest) -> str:
    """Both."""
    return request.param


def reasons(store: Path) -> dict[str, str]:
    """Reason by id."""
    return {row["id"]: row["reason"] for row in rejects_of(store)}


# --- rejected rows


def test_null_empty_and_blank_texts(embed: Run, inputs: Path, store: Path) -> None:
    write_parquet(inputs / "a.parquet", ["one", None, "", " \t\u3000\n", "two", "\u200b"])
    embed(inputs / "*", *ALL).ok()
    check_ledger(store, 3, 3)
    assert reasons(store) == {
        "a.parquet#1": "null text",
        "a.parquet#2": "empty text",
        "a.parquet#3": "empty text",
    }
    assert sorted(ids_of(store)) == ["a.parquet#0", "a.parquet#4", "a.parquet#5"]


def test_reject_files_say_which_row_of_which_file_and_show_it(
    embed: Run, inputs: Path, store: Path
) -> None:
    write_jsonl(inputs / "sub/a.jsonl", [{"text": "one"}, {"text": 5}, "{" + "x" * 500])
    embed(inputs / "**", *ALL).ok()
    check_ledger(store, 1, 2)
    assert rejects_of(store) == [
        {"id": "sub/a.jsonl@16", "file": "sub/a.jsonl", "row": 16, "reason": "text is not a string",
         "excerpt": '{"text": 5}'},
        {"id": "sub/a.jsonl@28", "file": "sub/a.jsonl", "row": 28, "reason": "not a JSON object",
         "excerpt": ("{" + "x" * 500)[:80]},
    ]  # fmt: skip


def test_parquet_text_that_is_not_utf8(embed: Run, inputs: Path, store: Path) -> None:
    raw = pa.array([b"one", b"caf\xe9", b"two", None], pa.binary())
    write_parquet(inputs / "a.parquet", pa.Array.from_buffers(pa.string(), 4, raw.buffers()))
    embed(inputs / "*", *ALL, "--keep-columns", "text").ok()
    check_ledger(store, 2, 2)
    assert reasons(store) == {"a.parquet#1": "not UTF-8", "a.parquet#3": "null text"}


def test_ids_that_are_not_utf8(embed: Run, inputs: Path, store: Path) -> None:
    raw = pa.array([b"a", b"caf\xe9"], pa.binary())
    ids = pa.Array.from_buffers(pa.string(), 2, raw.buffers())
    write_parquet(inputs / "a.parquet", ["one", "two"], id=ids)
    embed(inputs / "*", *ALL, "--id-column", "id").ok()
    check_ledger(store, 1, 1)
    assert ids_of(store) == ["a"]


@pytest.mark.parametrize("nested", [False, True])
def test_kept_values_that_are_not_utf8(embed: Run, inputs: Path, store: Path, nested: bool) -> None:
    raw = pa.array([b"a", b"caf\xe9", b"c"], pa.binary())
    values = pa.Array.from_buffers(pa.string(), 3, raw.buffers())
    column = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3]), values) if nested else values
    write_parquet(inputs / "a.parquet", ["one", "two", "three"], k=column)
    embed(inputs / "*", *ALL, "--keep-columns", "k").ok()
    check_ledger(store, 2, 1)
    assert reasons(store) == {"a.parquet#1": "kept column not UTF-8"}
    assert sorted(row["k"] for row in rows_of(store)) == ([["a"], ["c"]] if nested else ["a", "c"])


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_text_lines_of_every_kind(embed: Run, inputs: Path, store: Path, suffix: str) -> None:
    data = b"\xef\xbb\xbffirst\r\n\r\n  \nnul \x00 inside\ncaf\xe9\n\xff\xfe\nlone cr\rstays\nlast without end"
    write_bytes(inputs / f"a.txt{suffix}", data)
    embed(inputs / "*", *ALL, "--keep-columns", "text").ok()
    check_ledger(store, 4, 4)
    name = f"a.txt{suffix}"
    assert {row["id"]: row["text"] for row in rows_of(store)} == {
        f"{name}@0": "first",
        f"{name}@15": "nul \x00 inside",
        f"{name}@36": "lone cr\rstays",
        f"{name}@50": "last without end",
    }
    assert reasons(store) == {
        f"{name}@10": "blank line",
        f"{name}@12": "blank line",
        f"{name}@28": "not UTF-8",
        f"{name}@33": "not UTF-8",
    }


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_the_end_of_the_last_line_makes_no_row(
    embed: Run, inputs: Path, store: Path, end: bytes
) -> None:
    write_bytes(inputs / "a.txt", b"one\ntwo" + end)
    embed(inputs / "*").ok()
    check_ledger(store, 2)


def test_only_newlines_are_blank_rows(embed: Run, inputs: Path, store: Path) -> None:
    write_bytes(inputs / "a.txt", b"\n\n\n")
    embed(inputs / "*", *ALL).ok()
    check_ledger(store, 0, 3)
    assert units_of(store)[0]["path"] is None


def test_utf16_text_is_named_as_such(embed: Run, inputs: Path, store: Path) -> None:
    path = write_bytes(inputs / "a.txt", "\ufeffone\ntwo\n".encode("utf-16-le"))
    embed(path, *ALL).failed(1, path, "UTF-16", "convert it to UTF-8")
    embed(path, *ALL, "--limit", 1).failed(1, path, "UTF-16")
    assert manifest_of(store) is None


def test_a_line_of_two_megabytes(embed: Run, inputs: Path, store: Path) -> None:
    write_lines(inputs / "a.txt", ["one", "a man " * (2 * 2**20 // 6), "two"])
    embed(inputs / "*", "--unit-tokens", "200k").ok()
    manifest = check_ledger(store, 3)
    assert manifest["tokens"]["truncated_rows"] == 1
    assert manifest["tokens"]["lost"] > 600_000
    assert [row["truncated"] for row in rows_of(store)].count(True) == 1


def test_jsonl_rows_of_every_kind(embed: Run, inputs: Path, store: Path) -> None:
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
    write_jsonl(inputs / "a.jsonl", [*good, *bad])
    embed(inputs / "*", *ALL, "--keep-columns", "text,n").ok()
    check_ledger(store, len(good), len(bad))
    assert {row["text"] for row in rows_of(store)} == {"one", "two", "the last key counts", "é文😀"}
    assert [row["reason"] for row in rejects_of(store)] == [
        *["not a JSON object"] * 6, "null text", "null text", *["text is not a string"] * 3, "empty text", "not UTF-8",
        "empty text", "empty text", "not UTF-8",
    ]  # fmt: skip


def test_json_of_a_depth_that_python_refuses_and_a_number_of_many_digits(
    embed: Run, inputs: Path, store: Path
) -> None:
    write_jsonl(
        inputs / "a.jsonl",
        [
            '{"text": ' + "[" * 100_000,
            '{"text": "x", "n": ' + "9" * 5000 + "}",
            {"text": "ok", "n": 1},
        ],
    )
    embed(inputs / "*", *ALL, "--keep-columns", "n").ok()
    check_ledger(store, 2, 1)
    assert [row["reason"] for row in rejects_of(store)] == ["not a JSON object"]


def test_lone_surrogates_in_jsonl(embed: Run, inputs: Path, store: Path) -> None:
    rows = [
        '{"text": "a\\ud800"}',
        '{"text": "b", "n": "\\udfff"}',
        '{"text": "c", "n": [{"\\ud800": 1}]}',
        '{"text": "\\ud83d\\ude00"}',
    ]
    write_jsonl(inputs / "a.jsonl", rows)
    embed(inputs / "*", *ALL, "--keep-columns", "n").ok()
    check_ledger(store, 1, 3)
    assert [row["reason"] for row in rejects_of(store)] == [
        "not UTF-8",
        *["kept column not UTF-8"] * 2,
    ]


def test_json_constants_in_kept_values(embed: Run, inputs: Path, store: Path) -> None:
    write_jsonl(
        inputs / "a.jsonl",
        ['{"text": "x", "n": NaN}', '{"text": "y", "n": 1e999}', '{"text": "z", "n": [1, "é"]}'],
    )
    embed(inputs / "*", "--keep-columns", "n").ok()
    check_ledger(store, 3)
    assert sorted(row["n"] for row in rows_of(store))[-1] == '[1,"é"]'


@pytest.mark.parametrize(("limit", "status"), [("0.24", 3), ("0.25", 0), ("0", 3), ("1", 0)])
def test_max_rejects(embed: Run, inputs: Path, store: Path, limit: str, status: int) -> None:
    write_parquet(inputs / "a.parquet", [*sentences(30), *[""] * 10])
    outcome = embed(inputs / "*", "--max-rejects", limit)
    if status == 0:
        outcome.ok()
        check_ledger(store, 30, 10)
        return
    outcome.failed(
        3, "10 of 40 rows rejected", "--max-rejects", "10 empty text", f"rejects --store {store}"
    )
    assert manifest_of(store) is None
    assert not (store / "lease.json").exists()
    result = read_result(str(store), next((store / "runs").iterdir()).name)
    assert result is not None
    assert (result.status, result.exit_code) == ("failed", 3)
    assert len(list((store / "rejects").iterdir())) == 1
    embed(inputs / "*", "--max-rejects", 1).ok()
    check_ledger(store, 30, 10, embedded=30)


def test_a_looser_gate_holds_for_one_run_and_a_tighter_one_is_remembered(
    embed: Run, inputs: Path, store: Path
) -> None:
    write_parquet(inputs / "a.parquet", [*sentences(30), *[""] * 10])
    embed(inputs / "*", "--max-rejects", "0.3").ok()
    assert check_ledger(store, 30, 10)["options"]["max_rejects"] == 0.01
    embed(inputs / "*").failed(3, "10 of 40", "--max-rejects 0.01")
    write_parquet(inputs / "a.parquet", [*sentences(300), ""])
    embed(inputs / "*", "--max-rejects", "0.005").ok()
    embed(inputs / "*", "--max-rejects", "1").ok()
    assert check_ledger(store, 300, 1)["options"]["max_rejects"] == 0.005
    write_parquet(inputs / "a.parquet", [*sentences(1990), *[""] * 12])
    embed(inputs / "*").failed(3, "12 of 2002", "--max-rejects 0.005")


@pytest.mark.parametrize("grouped", [False, True])
def test_essays_are_embedded_though_blank_lines_part_their_paragraphs(
    embed: Run, inputs: Path, store: Path, partition: str, grouped: bool
) -> None:
    for number in range(20 if grouped else 2):  # sixteen small files share units
        write_lines(
            inputs / f"{number}.txt",
            ["", *(line for text in sentences(12, 12 * number) for line in (text, ""))],
        )
    said = embed(inputs, "--max-rejects", 0).ok().out
    essays = len(list(inputs.iterdir()))
    check_ledger(store, 12 * essays, 13 * essays)
    assert f"\nblank       {13 * essays} of the rejected rows are blank lines; " in said
    assert "say --format file" in said
    assert set(reasons(store).values()) == {"blank line"}
    embed(inputs, "--max-rejects", 0).ok()
    check_ledger(
        store, 12 * essays, 13 * essays, **({"carried": 12 * essays} if partition == "file" else {})
    )
    write_bytes(inputs / "bad.txt", b"caf\xe9\n\n")
    line = embed(inputs, "--max-rejects", 0).failed(
        3, f"1 of {12 * essays + 1} rows rejected", ": 1 not UTF-8;"
    )
    assert "blank" not in line


def test_a_failed_gate_leaves_the_last_snapshot(embed: Run, inputs: Path, store: Path) -> None:
    write_lines(inputs / "a.txt", sentences(5))
    embed(inputs / "*").ok()
    before = (store / "manifest.json").read_bytes()
    write_jsonl(inputs / "b.jsonl", [{"text": "a dog"}, *[""] * 10])
    embed(inputs / "*").failed(3, "10 of 16")
    assert (store / "manifest.json").read_bytes() == before


# --- ids


@pytest.mark.parametrize("kind", [pa.int8(), pa.int32(), pa.int64(), pa.uint64()], ids=str)
def test_integer_ids_become_decimal_strings(
    embed: Run, inputs: Path, store: Path, kind: pa.DataType
) -> None:
    largest = 2**64 - 1 if kind == pa.uint64() else 2 ** (kind.bit_width - 1) - 1
    write_parquet(
        inputs / "a.parquet", ["one", "two", "three"], id=pa.array([0, largest, None], kind)
    )
    embed(inputs / "*", "--id-column", "id", *ALL).ok()
    check_ledger(store, 2, 1)
    assert sorted(ids_of(store)) == ["0", str(largest)]
    assert [(row["id"], row["row"], row["reason"]) for row in rejects_of(store)] == [
        (None, 2, "null id")
    ]


@pytest.mark.parametrize(
    "values",
    [pa.array([1.0, 2.0]), pa.array([True, False]), pa.array([[1], [2]]), pa.array([decimal.Decimal("1.5")] * 2)],
    ids=lambda values: str(values.type).split("<")[0],
)  # fmt: skip
def test_ids_of_other_types_are_refused(
    embed: Run, inputs: Path, store: Path, values: pa.Array
) -> None:
    path = write_parquet(inputs / "a.parquet", ["one", "two"], id=values)
    embed(path, "--id-column", "id").failed(2, path, "column id is", "--id-column")
    assert manifest_of(store) is None


@pytest.mark.parametrize(
    "ids",
    [
        pa.array(["a", None, "", " "]).dictionary_encode(),
        pa.array(["a", None, "", " "], pa.string_view()),
        pa.array(["a", None, "", " "], pa.large_string()),
    ],
    ids=["dictionary", "string_view", "large_string"],
)
def test_ids_in_every_string_type(embed: Run, inputs: Path, store: Path, ids: pa.Array) -> None:
    write_parquet(inputs / "a.parquet", ["one", "two", "three", "four"], id=ids)
    embed(inputs / "*", "--id-column", "id", *ALL).ok()
    check_ledger(store, 3, 1)
    assert sorted(ids_of(store)) == ["", " ", "a"]


def test_jsonl_ids(embed: Run, inputs: Path, store: Path) -> None:
    ids = ["a", 7, 10**30, None, 1.5, True, ["x"], "\ud800"]
    write_jsonl(inputs / "a.jsonl", [*({"text": "one", "id": i} for i in ids), {"text": "no id"}])
    embed(inputs / "*", "--id-column", "id", *ALL).ok()
    check_ledger(store, 3, 6)
    assert sorted(ids_of(store)) == [str(10**30), "7", "a"]
    assert [row["reason"] for row in rejects_of(store)] == [
        "null id", *["id is neither string nor integer"] * 3, "not UTF-8", "null id",
    ]  # fmt: skip


def test_the_id_column_may_be_the_text_column_and_be_kept(
    embed: Run, inputs: Path, store: Path
) -> None:
    write_parquet(inputs / "a.parquet", ["one", "two"])
    embed(inputs / "*", "--id-column", "text", "--keep-columns", "text").ok()
    assert sorted((row["id"], row["text"]) for row in rows_of(store)) == [
        ("one", "one"),
        ("two", "two"),
    ]


def test_duplicate_ids_are_kept_and_counted(embed: Run, inputs: Path, store: Path) -> None:
    write_parquet(inputs / "a.parquet", ["one", "two", "three"], id=["x", "x", "y"])
    write_parquet(inputs / "b.parquet", ["one", "four"], id=["x", "z"])
    outcome = embed(inputs / "*", "--id-column", "id").ok()
    assert "2 rows have an id that an earlier row has" in outcome.out
    check_ledger(store, 5)
    assert sorted(ids_of(store)) == ["x", "x", "x", "y", "z"]


def test_duplicate_ids_are_counted_whatever_the_number_of_buckets(
    embed: Run, inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "BUCKET_ROWS", 10)
    ids = [f"id{i % 23}" for i in range(40)]
    write_parquet(inputs / "a.parquet", sentences(40), row_group_size=8, id=ids)
    outcome = embed(inputs / "*", "--id-column", "id", "--unit-tokens", 60).ok()
    assert "17 rows have an id that an earlier row has" in outcome.out


def test_copies_of_a_text_are_embedded_once_in_a_unit_and_written_each(
    embed: Run, inputs: Path, store: Path
) -> None:
    write_lines(inputs / "a.txt", ["one", "two", "one", "one"])
    embed(inputs / "*").ok()
    check_ledger(store, 4, embedded=2, duplicates=2)
    vectors = vectors_of(store)
    assert vectors["a.txt@0"] == vectors["a.txt@8"] == vectors["a.txt@12"]


@pytest.mark.parametrize("option", [("--id-column", "id"), ("--keep-columns", "n")])
def test_text_files_have_no_other_column(embed: Run, inputs: Path, option: tuple[str, str]) -> None:
    path = write_lines(inputs / "a.txt", ["one"])
    embed(path, *option).failed(2, path, "plain text", *option)
