"""Night after night: what is carried, what is embedded anew, what a store remembers, and inputs
that change meanwhile.

Covers pipelines/embed.py.
"""

import os
from pathlib import Path

import pytest
from helpers.commands import Run
from helpers.corpora import (
    check_ledger,
    files_in,
    ids_of,
    manifest_of,
    rows_of,
    sentences,
    write_lines,
    write_parquet,
)
from helpers.snapshots import files_of, units_of
from helpers.tiny_models import save_tiny_model

from sentence_beam.transforms.steps.plan import whole_plan

PARTS = ("embeddings", "sidecars", "rejects")


@pytest.fixture
def two_files(inputs: Path) -> Path:
    """Ten rows in each of two files, and the glob that names them."""
    write_lines(inputs / "a.txt", sentences(10))
    write_parquet(inputs / "b.parquet", sentences(10, 10))
    return inputs / "*"


def test_unchanged_edited_added_removed_and_moved_files(
    embed: Run, two_files: Path, store: Path
) -> None:
    embed(two_files, "--keep-columns", "text").ok()
    first, written = check_ledger(store, 20, embedded=20), files_in(store, *PARTS)
    assert "20 carried" in embed(two_files).ok().out
    second = check_ledger(store, 20, carried=20)
    assert files_in(store, *PARTS) == written
    assert units_of(store, second) == units_of(store, first)
    assert (second["previous"], second["tokens"]["real"]) == (first["run"], 0)
    assert len(list((store / "manifests").glob("*.json"))) == 2

    path, folder = two_files.parent / "a.txt", two_files.parent
    before, data = path.stat(), path.read_bytes()
    path.write_bytes(data.replace(b"s5 ", b"S5 "))  # of equal length
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    embed(two_files).ok()
    check_ledger(store, 20, embedded=1, reused=9, carried=10)
    assert sum(row["text"].startswith("S") for row in rows_of(store)) == 1

    write_lines(folder / "c.txt", sentences(3, 50))
    embed(two_files).ok()
    check_ledger(store, 23, embedded=3, carried=20)
    moved = folder.rename(folder.with_name("moved"))
    (moved / "a.txt").unlink()
    embed(moved / "*").ok()
    manifest = check_ledger(store, 13, embedded=0, carried=13)
    assert [file["path"] for file in files_of(store, manifest)] == ["b.parquet", "c.txt"]
    assert not any(i.startswith("a.txt") for i in ids_of(store))


# --- what a store remembers


def test_flags_are_remembered(run: Run, model: Path, inputs: Path, store: Path) -> None:
    write_parquet(inputs / "a.parquet", sentences(5), name=list("abcde"), n=[1, 2, 3, 4, 5])
    given = ("--input", inputs / "*", "--store", store)
    chosen = {"--pooler": "max", "--prompt": "say: ", "--max-tokens": 9, "--dim": 12}
    chosen |= {"--id-column": "name", "--keep-columns": "n", "--unit-tokens": 20}
    chosen |= {"--model": model, "--dtype": "float32"}
    run("embed", *given, *(part for pair in chosen.items() for part in pair), "--no-normalize").ok()
    first = check_ledger(store, 5)
    write_parquet(inputs / "b.parquet", ["one"], name=["f"], n=[6])
    run("embed", *given).ok()
    second = check_ledger(store, 6, embedded=1, carried=5)
    assert all(second[name] == first[name] for name in ("space", "options", "unit_tokens"))
    assert ("f", 6) in [(row["id"], row["n"]) for row in rows_of(store)]


def test_another_space_is_refused_by_field_and_reembed_goes_through(
    run: Run, two_files: Path, store: Path, tmp_path: Path
) -> None:
    own = save_tiny_model("bert", tmp_path / "own")
    how = ("embed", "--input", two_files, "--store", store)
    run(*how, "--model", own, "--dtype", "float32").ok()
    before = manifest_of(store)
    run(*how, "--pooler", "max").failed(
        2, store, "another space: pooler", "would change; leave the option out", "--reembed"
    )
    save_tiny_model("bert", own, num_hidden_layers=2)
    for again in ((), ("--model", own, "--pooler", "auto")):  # as the store has them
        line = run(*how, *again).failed(2, "weights", f"put the files of {own} back", "--reembed")
        assert "leave the option out" not in line
    assert manifest_of(store) == before
    run(*how, "--pooler", "max", "--reembed").ok()
    check_ledger(store, 20, embedded=20, carried=0)
    run(*how).ok()
    check_ledger(store, 20, carried=20)
    for command in ("verify", "files"):
        run(command, "--store", store, "--snapshot", before["run"]).ok()


def test_a_limit_takes_the_first_rows_and_is_not_remembered(
    embed: Run, inputs: Path, store: Path
) -> None:
    write_lines(inputs / "a.txt.gz", sentences(20))
    for limit in (5, 12):
        embed(inputs / "*", "--limit", limit, "--keep-columns", "text").ok()
        check_ledger(store, limit, carried=0)
        assert sorted(row["text"] for row in rows_of(store)) == sorted(sentences(limit))
    embed(inputs / "*").ok()
    check_ledger(store, 20, embedded=8, reused=12)
    embed(inputs / "*", "--limit", 5).failed(2, "--limit 5", "20 rows")  # no trial of a whole store


# --- inputs that change while they are read


@pytest.mark.parametrize("change", ["edited", "grown"])
def test_a_file_that_changes_after_it_was_planned_ends_the_run_and_costs_no_other_unit(
    embed: Run, inputs: Path, store: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    for i in range(4):
        write_lines(inputs / f"{i}.txt", sentences(5, 5 * i))
    path, write_plan = inputs / "3.txt", whole_plan.write_plan
    before = path.stat()

    def changed(*arguments: object, **options: object) -> object:
        path.write_bytes(b"X" + path.read_bytes()[change == "edited" :])
        if change == "edited":
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        return write_plan(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(whole_plan, "write_plan", changed)
        embed(inputs / "*").failed(1, path, "while the run read it", "run again")
    assert manifest_of(store) is None
    assert not (store / "lease.json").exists()
    made = files_in(store, "embeddings")
    embed(inputs / "*").ok()
    check_ledger(store, 20)
    assert made
    assert made.items() <= files_in(store, "embeddings").items()
