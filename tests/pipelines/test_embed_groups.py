"""Small files: they share units by groups, and what changes in one of them touches its group
alone.
"""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from helpers.commands import Run
from helpers.corpora import (
    check_ledger,
    ids_of,
    manifest_of,
    rows_of,
    sentences,
    vectors_of,
    write_lines,
)
from helpers.snapshots import files_of, units_of

FILES = 100
OPTIONS = ("--unit-tokens", 800, "--dtype", "float32")


@pytest.fixture
def many(inputs: Path) -> str:
    """A pattern for a hundred files of two rows."""
    texts = sentences(2 * FILES)
    for number in range(FILES):
        write_lines(inputs / f"{number % 4}/{number:02d}.txt", texts[2 * number : 2 * number + 2])
    return f"{inputs}/*/*.txt"


def the_same(store: Path, other: Path) -> None:
    """Both stores have the same rows, and their vectors are equal within the bound."""
    mine, theirs = (
        {row["id"]: (row["text"], row["tokens"], row["row_hash"]) for row in rows_of(one)}
        for one in (store, other)
    )
    assert mine == theirs
    vectors, others = vectors_of(store), vectors_of(other)
    for name, vector in vectors.items():
        np.testing.assert_allclose(vector, others[name], atol=2e-5)


def anew(run: Run, store: Path, model: Path, many: str, *options: object) -> Path:
    """A store of the same files, made from nothing."""
    fresh = store.with_name("fresh")
    run("embed", "--input", many, "--store", fresh, "--model", model, *OPTIONS, *options).ok()
    return fresh


def test_small_files_share_shards_and_commands_that_read_no_input_carry_them(
    embed: Run, run: Run, store: Path, model: Path, inputs: Path, many: str
) -> None:
    said = run("plan", "--input", many, "--model", model, *OPTIONS, "--json").ok()
    assert json.loads(said.out)["units"] < FILES / 4
    write_lines(inputs / "2/02.txt", ["fine", "  "])
    embed(many, *OPTIONS, "--max-rejects", 0.5).ok()
    before, files, first = units_of(store), files_of(store), manifest_of(store)["run"]
    assert len({unit["path"] for unit in before}) < FILES / 4
    assert {unit["file"] for unit in before} == {None}
    assert len({unit["unit"].partition("-")[0] for unit in before}) == 1
    check_ledger(store, written=2 * FILES - 1, rejected=1, embedded=2 * FILES - 1)
    assert Counter(name.partition("@")[0] for name in ids_of(store)) == {
        f"{number % 4}/{number:02d}.txt": 2 - (number == 2) for number in range(FILES)
    }
    assert "2/02.txt" in run("rejects", "--store", store).ok().out
    again = json.loads(run("plan", "--input", many, "--store", store, "--json").ok().out)
    assert (again["units"], again["carried_files"]) == (0, FILES)

    run("index", "--store", store).ok()
    assert units_of(store) == before
    run("rollback", first, "--store", store).ok()
    assert (units_of(store), files_of(store)) == (before, files)
    check_ledger(store, written=2 * FILES - 1, rejected=1, carried=2 * FILES - 1)
    run("verify", "--store", store).ok()


def test_a_change_touches_one_group_and_embeds_its_own_rows(
    embed: Run, run: Run, store: Path, model: Path, inputs: Path, many: str
) -> None:
    embed(many, *OPTIONS).ok()
    path, written = inputs / "3/07.txt", 2 * FILES
    old = path.read_text().splitlines()
    changes = {
        "edited": (path, ["something quite new", old[1]], 1, 0),
        "added": (inputs / "1/new.txt", ["something quite new"], 1, 1),
        "removed": (inputs / "0/00.txt", None, 0, -2),
        "emptied": (inputs / "2/02.txt", [], 0, -2),
    }
    for changed, lines, embedded, more in changes.values():
        before = {unit["path"] for unit in units_of(store)}
        groups = {unit["unit"].partition(".")[0] for unit in units_of(store)}
        changed.unlink() if lines is None else write_lines(changed, lines)
        embed(many).ok()
        written += more
        work = check_ledger(store, written, embedded=embedded)["work"]
        assert work["carried"] > written / 2
        others = [unit for unit in units_of(store) if unit["path"] not in before]
        assert len({unit["unit"].partition(".")[0] for unit in others}) <= 1 < len(groups)

    write_lines(path, old + sentences(40, 1000))  # and leaves its group
    embed(many).ok()
    assert {unit["file"] for unit in units_of(store)} == {None, "3/07.txt"}
    check_ledger(store, written=written + 40, embedded=41)
    write_lines(path, old)
    embed(many).ok()
    assert {unit["file"] for unit in units_of(store)} == {None}
    check_ledger(store, written=written, embedded=0)
    the_same(store, anew(run, store, model, many))
    run("verify", "--store", store).ok()


def test_groups_grow_with_what_is_in_them(
    embed: Run, run: Run, store: Path, model: Path, inputs: Path
) -> None:
    for number in range(20):
        write_lines(inputs / f"{number:03d}.txt", sentences(1, 2 * number))
    many = f"{inputs}/*.txt"
    embed(many, *OPTIONS).ok()
    for number in range(20, 500):
        write_lines(inputs / f"{number:03d}.txt", sentences(1, 2 * number))
    embed(many).ok()
    bits = {unit["unit"].partition("-")[0] for unit in units_of(store)}
    assert len(bits) == 1
    assert int(bits.pop()[1:]) >= 3
    assert manifest_of(store)["work"] | {"carried": 0} == {  # type: ignore[index]
        "embedded": 480, "reused": 20, "duplicates": 0, "carried": 0,
    }  # fmt: skip
    the_same(store, anew(run, store, model, many))
