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
    write_bytes,
    write_lines,
)
from helpers.snapshots import files_of, units_of
from helpers.variants import variants

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
        sorted(
            (row["id"], row["text"], row["tokens"], row["row_hash"], row.get("lang"))
            for row in rows_of(one)
        )
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


def test_small_files_share_shards(embed: Run, run: Run, store: Path, many: str) -> None:
    embed(many, *OPTIONS).ok()
    units = units_of(store)
    assert len({unit["path"] for unit in units}) < FILES / 4
    assert {unit["file"] for unit in units} == {None}
    assert {unit["unit"].partition("-")[0] for unit in units} == {
        units[0]["unit"].partition("-")[0]
    }
    check_ledger(store, written=2 * FILES, embedded=2 * FILES)
    assert Counter(name.partition("@")[0] for name in ids_of(store)) == {
        f"{number % 4}/{number:02d}.txt": 2 for number in range(FILES)
    }
    run("verify", "--store", store).ok()


def test_commands_that_read_no_input_carry_groups_over(
    embed: Run, run: Run, store: Path, many: str
) -> None:
    embed(many, *OPTIONS).ok()
    first, files, before = manifest_of(store)["run"], files_of(store), units_of(store)
    run("index", "--store", store).ok()
    assert units_of(store) == before
    run("rollback", first, "--store", store).ok()
    assert units_of(store) == before
    check_ledger(store, written=2 * FILES, carried=2 * FILES)
    assert files_of(store) == files
    run("verify", "--store", store).ok()


@variants("change", ["edited", "added", "removed", "emptied"], kept=(0,))
def test_a_change_touches_one_group_and_embeds_its_own_rows(
    embed: Run, run: Run, store: Path, model: Path, inputs: Path, many: str, change: str
) -> None:
    embed(many, *OPTIONS).ok()
    before = {unit["path"] for unit in units_of(store)}
    groups = len({unit["unit"].partition(".")[0] for unit in units_of(store)})
    written, embedded = 2 * FILES, 1
    if change == "edited":
        text = (inputs / "3/07.txt").read_text()
        write_lines(inputs / "3/07.txt", ["something quite new", text.splitlines()[1]])
    elif change == "added":
        write_lines(inputs / "1/new.txt", ["something quite new"])
        written += 1
    elif change == "removed":
        (inputs / "3/07.txt").unlink()
        written, embedded = written - 2, 0
    else:
        write_bytes(inputs / "3/07.txt", b"")
        written, embedded = written - 2, 0
    embed(many).ok()
    work = manifest_of(store)["work"]  # type: ignore[index]
    assert work["embedded"] == embedded
    assert work["carried"] > written / 2
    assert work["embedded"] + work["reused"] + work["carried"] == written
    changed = {
        unit["unit"].partition(".")[0] for unit in units_of(store) if unit["path"] not in before
    }
    assert len(changed) <= 1 < groups
    the_same(store, anew(run, store, model, many))
    run("verify", "--store", store).ok()


def test_a_file_that_grows_leaves_its_group(
    embed: Run, run: Run, store: Path, model: Path, inputs: Path, many: str
) -> None:
    embed(many, *OPTIONS).ok()
    old = (inputs / "3/07.txt").read_text().splitlines()
    write_lines(inputs / "3/07.txt", old + sentences(40, 1000))
    embed(many).ok()
    assert {unit["file"] for unit in units_of(store)} == {None, "3/07.txt"}
    check_ledger(store, written=2 * FILES + 40, **_work(store, embedded=40))
    write_lines(inputs / "3/07.txt", old)
    embed(many).ok()
    assert {unit["file"] for unit in units_of(store)} == {None}
    assert "embedded" not in _work(store)
    the_same(store, anew(run, store, model, many))


def _work(store: Path, **expected: int) -> dict[str, int]:
    work = manifest_of(store)["work"]  # type: ignore[index]
    for name, count in expected.items():
        assert work[name] == count
    return {name: count for name, count in work.items() if count}


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


def test_appending_carries_groups_and_leaves_new_files_alone(
    embed: Run, run: Run, store: Path, model: Path, inputs: Path, many: str
) -> None:
    embed(many, *OPTIONS).ok()
    write_lines(inputs / "1/new.txt", ["something quite new"])
    embed(many, "--append").ok()
    check_ledger(store, written=2 * FILES + 1, carried=2 * FILES, embedded=1)
    assert "1/new.txt" in {unit["file"] for unit in units_of(store)}
    embed(many, "--append").ok()
    check_ledger(store, written=2 * FILES + 1, carried=2 * FILES + 1)
    embed(many).ok()
    the_same(store, anew(run, store, model, many))


def test_rejected_rows_of_a_group_name_their_file(
    embed: Run, run: Run, store: Path, inputs: Path, many: str
) -> None:
    write_lines(inputs / "2/02.txt", ["fine", "  "])
    embed(many, *OPTIONS, "--max-rejects", 0.5).ok()
    check_ledger(store, written=2 * FILES - 1, rejected=1, embedded=2 * FILES - 1)
    assert "2/02.txt" in run("rejects", "--store", store).ok().out


def test_plan_counts_groups(embed: Run, run: Run, store: Path, model: Path, many: str) -> None:
    said = run("plan", "--input", many, "--model", model, *OPTIONS, "--json").ok()
    assert json.loads(said.out)["units"] < FILES / 4
    embed(many, *OPTIONS).ok()
    again = json.loads(run("plan", "--input", many, "--store", store, "--json").ok().out)
    assert (again["units"], again["carried_files"]) == (0, FILES)
