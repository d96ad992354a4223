"""--csv and --json-rows by the command: what a store remembers, and who else reads so."""

import json
from pathlib import Path

import pytest
from helpers.commands import Run
from helpers.corpora import check_ledger, manifest_of, rejects_of, rows_of, write_bytes

ROWS = b"".join(b"%d\tpassage %d\n" % (number, number) for number in range(20)) + b"20\tNA\n"


def texts_in(store: Path) -> list[str]:
    return sorted(row["text"] for row in rows_of(store))


@pytest.mark.parametrize("partition", ["file", "content"])
def test_a_store_remembers_the_syntax_of_csv(
    embed: Run, inputs: Path, store: Path, partition: str
) -> None:
    path = write_bytes(inputs / "a.tsv", ROWS)
    spec = "columns=id/text"
    embed(path, "--csv", spec, "--id-column", "id", "--partition", partition).ok()
    assert len(texts_in(store)) == 21
    assert embed(path).ok().out.count("21 carried") == 1
    embed(path, "--csv", f"{spec},null=NA", "--max-rejects", 1, "--max-deletes", 1).ok()
    check_ledger(store, 20, 1, embedded=0, reused=20)
    assert manifest_of(store)["options"]["csv"] == f"{spec},null=NA"
    assert [row["reason"] for row in rejects_of(store)] == ["null text"]
    write_bytes(path, ROWS + b"21\tone more\n")
    embed(path).ok()
    check_ledger(store, 21, 1)
    write_bytes(path, b"id\ttext\n" + ROWS)
    out = embed(path, "--csv", "", "--max-deletes", 1).ok().out
    check_ledger(store, 21)
    assert "csv" not in manifest_of(store)["options"]
    assert "tsv         tab no quotes" in out


def test_files_that_stay_are_not_read_another_way(embed: Run, inputs: Path, store: Path) -> None:
    write_bytes(inputs / "a.csv", b"id,text\n1,one\n2,two\n")
    write_bytes(inputs / "b.csv", b"made by hand\nid,text\n3,three\n")
    embed(inputs / "a.csv", "--id-column", "id").ok()
    embed(inputs / "b.csv", "--append", "--csv", "skip=1").failed(2, "--append", "csv")
    (inputs / "a.csv").unlink()
    write_bytes(inputs / "a.csv", b"1,\x00\n")
    assert texts_in(store) == ["one", "two"]


def test_a_row_with_wrong_quotes_ends_no_run(embed: Run, inputs: Path, store: Path) -> None:
    rows = b"".join(b'%d,"row %d"\n' % (number, number) for number in range(200))
    write_bytes(inputs / "a.csv", b"id,text\n" + rows + b'200,"5" pipe"\n201,last\n')
    embed(inputs / "a.csv", "--id-column", "id").ok()
    check_ledger(store, 201, 1)
    (reject,) = rejects_of(store)
    assert (reject["row"], reject["reason"]) == (200, "wrong quotes")
    assert reject["excerpt"] == '200,"5" pipe"'
    embed(inputs / "a.csv", "--max-rejects", 0, "--csv", 'quote="').failed(3, "1 of 202")


def test_json_rows_by_name(embed: Run, run: Run, inputs: Path, store: Path) -> None:
    rows = [{"id": "1", "text": "one two"}, {"id": "2", "text": "three"}]
    path = write_bytes(inputs / "a.json", json.dumps({"n": 2, "data": {"items": rows}}).encode())
    embed(path, "--id-column", "id").failed(2, "--json-rows data.items")
    embed(path, "--id-column", "id", "--json-rows", "data.items").ok()
    assert texts_in(store) == ["one two", "three"]
    assert manifest_of(store)["options"]["json_rows"] == "data.items"
    out = run(
        "search", "--store", store, "--queries", path, "--json-rows", "data.items", "--id-column", "id",
        "--json",
    ).ok().out  # fmt: skip
    assert '"1"' in out
    run("search", "--store", store, "--query", "a", "--json-rows", "d").failed(2, "--json-rows")
    write_bytes(path, json.dumps(rows).encode())
    embed(path).failed(2, "--json-rows")
    embed(path, "--json-rows", "").ok()
    check_ledger(store, 2)


def test_a_plan_says_the_dialect(run: Run, model: Path, inputs: Path) -> None:
    path = write_bytes(inputs / "a.csv", b'id;text\n1;"a\nb"\n2;"c ""d"""\n3;e\n')
    other = write_bytes(inputs / "b.tsv", b"id\ttext\n4\tone\n")
    out = run("plan", "--input", path, "--model", model, "--id-column", "id").ok().out
    assert 'csv         ; " quoted, 1 value of several lines\n' in out
    out = run("plan", "--input", path, other, "--model", model).ok().out
    assert 'csv         ; " quoted, 1 value of several lines (a.csv)\n' in out
    assert "tsv         tab no quotes (b.tsv)\n" in out


def test_tasks_are_read_with_the_syntax(run: Run, model: Path, tmp_path: Path) -> None:
    rows = [f'{number}.0,"a man, {number}",a dog\n' for number in range(6)]
    path = tmp_path / "sts.csv"
    path.write_text("by hand\n" + "".join(rows))
    spec = "skip=1,columns=score/sentence1/sentence2"
    run("evaluate", "--model", model, "--task", f"t={path}").failed(2, "sts.csv")
    assert "t" in run("evaluate", "--model", model, "--task", f"t={path}", "--csv", spec).ok().out
    path.rename(tmp_path / "sts.tsv")
    words = ("--task", f"t={tmp_path}/sts.tsv", "--csv", spec, "--delimiter", ",")
    run("evaluate", "--model", model, *words).ok()
