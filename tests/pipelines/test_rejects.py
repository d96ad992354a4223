"""Columns that JSONL lacks, the reasons in the line of a run with too many rejected rows, and the
list of such rows.
"""

import json
from pathlib import Path

from helpers.commands import Run
from helpers.corpora import manifest_of, write_jsonl, write_lines


def test_a_column_that_jsonl_lacks_or_of_the_wrong_type_is_refused_before_anything_is_embedded(
    embed: Run, inputs: Path, store: Path
) -> None:
    row = {"id": 1, "text": "x", "meta": {}, "n": [1], "m": 5}
    path = write_jsonl(inputs / "a.jsonl.gz", [row] * 5)
    for option in ("--text-column", "--id-column", "--keep-columns"):
        line = embed(path, option, "body").failed(2, path, f"has no column body ({option})")
        assert "keys of its first rows: id, text, meta, n, m" in line
    embed(path, "--text-column", "m").failed(
        2, path, "column m is int in the first rows, not string"
    )
    embed(path, "--id-column", "n").failed(
        2, path, "column n is list in the first rows; ids must be"
    )
    assert manifest_of(store) is None


def test_the_reasons_are_in_the_line_and_the_rows_are_listed(
    embed: Run, run: Run, inputs: Path, store: Path
) -> None:
    write_jsonl(inputs / "a.jsonl", [{"id": i, "text": None, "meta": 1} for i in range(5)])
    reason = "5 null text (keys there: id, text, meta)"
    embed(inputs / "*").failed(3, "5 of 5 rows rejected", reason, f"rejects --store {store}")
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
    reasons = (": 8 empty text, ", "1 text is not a string", "1 null text (keys there: text)")
    embed(inputs / "*", "--max-rejects", 0.1).failed(3, "10 of 13 rows", *reasons)


def test_the_list_is_of_the_last_run_that_committed_or_was_ended_by_rejects(
    embed: Run, run: Run, inputs: Path, store: Path, tmp_path: Path
) -> None:
    rejects, out = ("rejects", "--store", store), tmp_path / "rejects.jsonl"
    write_lines(inputs / "a.jsonl", ['{"text": "one"}', ""])
    embed(inputs / "*", "--max-rejects", 0).failed(3)
    failed = run(*rejects).ok().out.split("in run ")[1].split(",")[0]
    embed(inputs / "*", "--max-rejects", 1).ok()
    committed = (manifest_of(store) or {})["run"]
    said = run(*rejects, "--output", out).ok().out
    assert f"1 rejected rows of run {committed}" in said
    (row,) = map(json.loads, out.read_text().splitlines())
    place = {"id": "a.jsonl@16", "row": 16, "file": "a.jsonl"}
    assert row == {**place, "reason": "empty text", "excerpt": ""}
    write_jsonl(inputs / "a.jsonl", [{"text": "one"}])
    embed(inputs / "*").ok()
    assert "0 rows rejected" in run(*rejects).ok().out
    for earlier in (failed, committed):
        said = run(*rejects, "--snapshot", earlier).ok().out
        assert f"1 row rejected in run {earlier}" in said
    run(*rejects, "--snapshot", "no-such").failed(2, "no-such")
    run("rejects", "--store", tmp_path).failed(2, tmp_path)
