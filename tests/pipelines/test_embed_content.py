"""Units by content: the rows decide them, never the files they stand in; a text is embedded once
wherever it is.
"""

import random
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.commands import Run
from helpers.corpora import (
    check_ledger,
    files_in,
    manifest_of,
    rejects_of,
    rows_of,
    sentences,
    vectors_of,
    write_jsonl,
    write_lines,
    write_parquet,
)
from helpers.layouts import Row, spread, write_layout
from helpers.snapshots import units_of

from sentence_beam.transforms.steps.options import resolve
from sentence_beam.transforms.store import open_store

UNIT = ("--unit-tokens", 200)
OWN_IDS = ("--id-column", "id", "--keep-columns", "lang", "--max-rejects", 1, *UNIT)


@pytest.fixture
def partition() -> str:
    """By content."""
    return "content"


def collection(n: int, start: int = 0) -> list[Row]:
    """Rows with ids of their own; every fifth text occurs twice, every tenth row is without text,
    one id is double.
    """
    texts = sentences(n, start)
    rows: list[Row] = [
        (f"i{start + i}", texts[i - 1] if i % 5 == 1 else texts[i], "de" if i % 3 else "en")
        for i in range(n)
    ]
    rows = [
        (i, None, lang) if k % 10 == 9 else (i, text, lang)
        for k, (i, text, lang) in enumerate(rows)
    ]
    return [*rows, *rows[:1], *((i, text, "fr") for i, text, _ in rows[1:2])]


def without_files(store: Path) -> dict[str, Any]:
    """What of every unit must not depend on files: all but where rejected rows were and who wrote
    it.
    """
    theirs = ("rejects", "rejects_sha256", "sha256", "bytes")
    return {u["unit"]: {k: v for k, v in u.items() if k not in theirs} for u in units_of(store)}


def content_of(store: Path) -> list[tuple[Any, ...]]:
    """Every row with its kept value, sorted."""
    return sorted(
        (row["id"], bytes(row["row_hash"]), row["lang"], row["tokens"]) for row in rows_of(store)
    )


# --- what a store looks like


def test_every_reader_reads_it(
    run: Run, embed: Run, inputs: Path, store: Path, tmp_path: Path
) -> None:
    write_layout(inputs, spread(collection(60), random.Random(2)), random.Random(2))
    embed(inputs / "**", *OWN_IDS, "--keep-columns", "lang,text", "--index", "auto").ok()
    manifest = check_ledger(store, 56, 6)
    assert manifest["index"]["rows"] == 56
    run("verify", "--store", store).ok()
    paths = run("files", "--store", store).ok().out.split()
    assert len(paths) == len([unit for unit in units_of(store, manifest) if unit["path"]])
    run("files", "--store", store, "--link", tmp_path / "links").ok()
    for flags in ((), ("--exact",)):
        text = sentences(1, 17)[0]
        assert text in run("search", "--store", store, "--query", text, "-k", 1, *flags).ok().out
    run("index", "--store", store, "--index", "IVF4,Flat").ok()
    assert manifest_of(store)["buckets"] == manifest["buckets"]
    run("verify", "--store", store).ok()
    assert open_store(str(store)).dataset().count_rows() == 56


def test_rejected_rows_are_in_a_unit_too_and_say_where_they_stand(
    embed: Run, inputs: Path, store: Path
) -> None:
    write_jsonl(inputs / "a.jsonl", [{"text": "one", "id": "a"}, {"text": 5, "id": "b"}, "{"])
    write_parquet(inputs / "b.parquet", ["two", None], id=["c", "d"])
    embed(inputs / "*", "--id-column", "id", "--max-rejects", 1).ok()
    check_ledger(store, 2, 3)
    assert {(r["id"], r["file"], r["row"], r["reason"]) for r in rejects_of(store)} == {
        ("b", "a.jsonl", 27, "text is not a string"),
        (None, "a.jsonl", 50, "not a JSON object"),
        ("d", "b.parquet", 1, "null text"),
    }
    shards = files_in(store, "embeddings")
    (inputs / "a.jsonl").rename(inputs / "z.jsonl")
    embed(inputs / "*", "--max-rejects", 1).ok()
    check_ledger(store, 2, 3, reused=2)
    assert files_in(store, "embeddings") == shards
    assert {r["file"] for r in rejects_of(store)} == {"z.jsonl", "b.parquet"}


# --- the input's layout does not show


def test_any_layout_of_the_same_rows_gives_the_same_shards(
    run: Run, model: Path, tmp_path: Path
) -> None:
    rng = random.Random(7)
    made = []
    for number in range(2):
        store, folder = tmp_path / f"store{number}", tmp_path / f"in{number}"
        write_layout(folder, spread(collection(40), rng), rng)
        options = ("--model", model, "--dtype", "float32", "--partition", "content", *OWN_IDS)
        run("embed", "--input", folder / "**", "--store", store, *options).ok()
        made.append((without_files(store), content_of(store), vectors_of(store)))
    assert made[0][:2] == made[1][:2]
    assert all(np.abs(np.subtract(made[0][2][i], made[1][2][i])).max() <= 2e-5 for i in made[0][2])
    # The other layout into the first store: nothing is new, nothing is written again.
    store, shards = tmp_path / "store0", files_in(tmp_path / "store0", "embeddings")
    run("embed", "--input", tmp_path / "in1/**", "--store", store, "--max-rejects", 1).ok()
    written = len(made[0][1])
    again = check_ledger(store, written, 4, embedded=0, duplicates=0)
    assert again["work"]["reused"] + again["work"]["carried"] == written
    assert files_in(store, "embeddings") == shards


def test_a_text_is_embedded_once_in_all_files_and_a_renamed_file_is_carried(
    embed: Run, inputs: Path, store: Path
) -> None:
    for name in "abc":
        ids = [f"{name}{i}" for i in range(30)]
        write_parquet(inputs / f"{name}.parquet", sentences(30), id=ids, lang=["x"] * 30)
    embed(inputs / "*", *OWN_IDS).ok()
    check_ledger(store, 90, embedded=30, duplicates=60)
    (inputs / "a.parquet").rename(inputs / "z.parquet")
    embed(inputs / "*").ok()
    check_ledger(store, 90, carried=90)


# --- nights


def test_growth_splits_buckets_for_good_and_encodes_new_text_alone(
    embed: Run, inputs: Path, store: Path
) -> None:
    texts = sentences(101)
    bits, before = [], 0
    for rows in (50, 101, 20):
        write_lines(inputs / "a.txt", texts[:rows])
        embed(inputs / "*", "--unit-tokens", 300, "--max-deletes", 1).ok()
        check_ledger(store, rows, embedded=max(rows - before, 0), reused=min(before, rows))
        bits.append(manifest_of(store)["buckets"]["bits"])
        before = rows
    assert bits[0] < bits[1] == bits[2]
    embed(inputs / "*", "--reembed").ok()
    assert check_ledger(store, 20, embedded=20)["buckets"]["bits"] < bits[0]


# --- a text that too many rows share


@pytest.mark.slow
def test_a_heavy_bucket_is_cut_by_id_and_its_text_embedded_once_in_each_piece(
    embed: Run, inputs: Path, store: Path
) -> None:
    rows = [(str(i), text, "en") for i, text in enumerate(sentences(100))]
    rows += [(f"n{i}", "N/A", "en") for i in range(3000)]
    write_layout(inputs, spread(rows, random.Random(5)), random.Random(5))
    embed(inputs / "**", "--unit-tokens", 300, *OWN_IDS[:6]).ok()
    manifest = check_ledger(store, 3100)
    planned = 3100 / 2 ** manifest["buckets"]["bits"]
    names = {unit["unit"] for unit in units_of(store, manifest)}
    pieces = [name for name in names if re.fullmatch(r"\d+-[0-9a-f]+\.\d+", name)]
    assert len(pieces) == 2 ** (len(pieces) - 1).bit_length() >= 8
    assert len({name.partition(".")[0] for name in pieces}) == 1
    assert max(unit["rows"] for unit in units_of(store, manifest)) <= 4 * planned
    assert manifest["work"]["embedded"] == 100 + len(pieces)
    # More of them, in another order: their vectors are taken from any old piece, and the names are
    # as in a new store.
    rows = [*rows[50:], *((f"m{i}", "N/A", "en") for i in range(700)), ("x", "another text", "en")]
    shutil.rmtree(inputs)
    write_layout(inputs, spread(rows, random.Random(6)), random.Random(6))
    embed(inputs / "**").ok()
    later = check_ledger(store, 3751, embedded=1, reused=3750)
    assert later["buckets"]["bits"] == manifest["buckets"]["bits"]
    assert names == {unit["unit"] for unit in units_of(store)}


# --- refused, and looked at before


def test_text_that_memory_cannot_group_is_refused_before_anything_is_read(
    embed: Run, plan: Run, inputs: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_lines(inputs / "a.txt", sentences(200))
    with monkeypatch.context() as patch:
        patch.setattr(resolve, "measure_memory", lambda: 20_000)
        said = ("--partition content", "quarter", "--partition file", "--runner")
        embed(inputs / "*").failed(2, *said)
        assert manifest_of(store) is None
        plan(inputs / "*").failed(2, "--partition file")
    embed(inputs / "*").ok()
    monkeypatch.setattr(resolve, "measure_memory", lambda: 20_000)
    embed(inputs / "*").ok()  # nothing has changed, and nothing is grouped
    check_ledger(store, 200, carried=200)


def test_plan_says_how_many_buckets_and_writes_nothing(
    embed: Run, plan: Run, inputs: Path, store: Path
) -> None:
    write_parquet(inputs / "a.parquet", sentences(80))
    out = plan(inputs / "*", *UNIT).ok().out
    assert not store.exists()
    planned = int(re.search(r"units +about (\d+) to embed", out)[1])
    assert "80 to embed" in out
    embed(inputs / "*", *UNIT).ok()
    assert planned in (len(units_of(store)), 2 * len(units_of(store)))
    before = (store / "manifest.json").read_bytes()
    out = plan(inputs / "*").ok().out
    assert "1 unchanged" in out
    assert "0 to embed" in out
    write_parquet(inputs / "a.parquet", sentences(81))
    assert "at most 81 to embed" in plan(inputs / "*").ok().out
    assert (store / "manifest.json").read_bytes() == before
