"""Columns that JSONL lacks, the reasons in the line of a run with too many rejected rows, and the
list of such rows.
"""

import json
from pathlib import Path

import pytest
from helpers.commands import Run
from helpers.corpora import check_ledger, manifest_of, write_jsonl, write_lines


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
@pytest.mark.parametrize("option", ["--text-column", "--id-column", "--keep-columns"])
def test_a_column_that_jsonl_lacks_is_refused_before_anything_is_embedded(
    embed: Run, inputs: Path, store: Path, option: str, name: str
) -> None:
    write_jsonl(inputs / "a.jsonl", [{"id": i, "text": "x", "meta": {}} for i in range(5)])
    if name.endswith(".gz"):
        import gzip

        (inputs / name).write_bytes(gzip.compress((inputs / "a.jsonl").read_bytes()))
        (inputs / "a.jsonl").unlink()
    line = embed(inputs / "*", option, "body").failed(
        2, inputs / name, f"has no column body ({option})"
    )
    assert "keys of its first rows: id, text, meta" in line
    assert manifest_of(store) is None


def test_a_key_of_some_rows_is_a_column(embed: Run, inputs: Path, store: Path) -> None:
    write_jsonl(inputs / "a.jsonl", [{"text": "x"}, "not json", {"text": "y", "lang": "en"}])
    embed(inputs / "*", "--keep-columns", "lang", "--max-rejects", 0.5).ok()
    check_ledger(store, 2, 1)


@pytest.mark.parametrize(
    ("row", "options", "said"),
    [
        ({"text": 5}, (), "column text is int in the first rows, not string"),
        (
            {"text": "x", "key": [1]},
            ("--id-column", "key"),
            "column key is list in the first rows; ids must be",
        ),
    ],
)
def test_a_column_of_the_wrong_type_in_jsonl(
    embed: Run, inputs: Path, row: dict[str, object], options: tuple[str, ...], said: str
) -> None:
    write_jsonl(inputs / "a.jsonl", [row, row])
    embed(inputs / "*", *options).failed(2, inputs / "a.jsonl", said)


def test_the_reasons_are_in_the_line_and_the_rows_are_listed(
    embed: Run, run: Run, inputs: Path, store: Path
) -> None:
    write_jsonl(inputs / "a.jsonl", [{"id": i, "text": None, "meta": 1} for i in range(5)])
    embed(inputs / "*").failed(
        3,
        "5 of 5 rows rejected",
        "5 null text (keys there: id, text, meta)",
        f"rejects --store {store}",
    )
    out = run("rejects", "--store", store).ok().out
    assert "5 rows rejected in run" in out
    assert [line.split()[:2] for line in out.splitlines()[2:]] == [
        ["a.jsonl", str(35 * i)] for i in range(5)
    ]


def test_reasons_are_counted_over_all_units_also_those_carried(embed: Run, inputs: Path) -> None:
    write_jsonl(inputs / "a.jsonl", [{"text": "one"}, *[{"text": " "}] * 7])
    write_lines(inputs / "c.txt", ["two", "", ""])
    embed(inputs / "*", "--max-rejects", 1).ok()
    write_jsonl(inputs / "b.jsonl", [{"text": "three"}, {"text": 5}, {"text": ""}, {}])
    embed(inputs / "*", "--max-rejects", 0.1).failed(
        3,
        "10 of 13 rows",
        ": 8 empty text, ",
        "1 text is not a string",
        "1 null text (keys there: text)",
    )


def test_the_list_is_of_the_last_run_that_committed_or_was_ended_by_rejects(
    embed: Run, run: Run, inputs: Path, store: Path, tmp_path: Path
) -> None:
    write_lines(inputs / "a.jsonl", ['{"text": "one"}', ""])
    embed(inputs / "*", "--max-rejects", 0).failed(3)
    failed = run("rejects", "--store", store).ok().out.split("in run ")[1].split(",")[0]
    embed(inputs / "*", "--max-rejects", 1).ok()
    committed = (manifest_of(store) or {})["run"]
    out = tmp_path / "rejects.jsonl"
    assert (
        f"1 rejected rows of run {committed}"
        in run("rejects", "--store", store, "--output", out).ok().out
    )
    (row,) = map(json.loads, out.read_text().splitlines())
    assert row == {
        "id": "a.jsonl@16",
        "row": 16,
        "reason": "empty text",
        "excerpt": "",
        "file": "a.jsonl",
    }
    write_jsonl(inputs / "a.jsonl", [{"text": "one"}])
    embed(inputs / "*").ok()
    assert "0 rows rejected" in run("rejects", "--store", store).ok().out
    for earlier in (failed, committed):
        assert (
            f"1 row rejected in run {earlier}"
            in run("rejects", "--store", store, "--snapshot", earlier).ok().out
        )
    run("rejects", "--store", store, "--snapshot", "no-such").failed(2, "no-such")
    run("rejects", "--store", tmp_path).failed(2, tmp_path)
