"""Changed files: rows whose text was embedded before take their vectors from old shards, and only
new text is encoded.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers.commands import Run
from helpers.corpora import (
    check_ledger,
    manifest_of,
    rows_of,
    sentences,
    vectors_of,
    write_lines,
    write_parquet,
)
from helpers.snapshots import units_of
from helpers.variants import variants

from sentence_beam.pipelines.cli import main
from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.steps.embed import load_encoder
from sentence_beam.transforms.store.runs.canary import TEXTS

MADE_WITH = ("--unit-tokens", "100", "--id-column", "key", "--dtype", "float32")


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every text that goes through a tokenizer, in order, the canary's left out."""
    seen: list[str] = []
    original = Encoder.tokenize

    def tokenize(encoder: Encoder, texts: list[str]) -> object:
        seen.extend(text for text in texts if text not in TEXTS)
        return original(encoder, texts)

    monkeypatch.setattr(Encoder, "tokenize", tokenize)
    return seen


def forbid_model(patch: pytest.MonkeyPatch) -> None:
    """From its call on, loading a model fails the test."""
    patch.setattr(load_encoder, "load_encoder", lambda job: pytest.fail("the model was loaded"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A folder with an input file and a store of it; tests copy it."""
    folder = tmp_path_factory.mktemp("made")
    keys = [f"k{i}" for i in range(40)]
    path = write_parquet(folder / "in" / "a.parquet", sentences(40), 10, key=keys)
    named = ["--input", str(path), "--store", str(folder / "store"), "--model", str(model)]
    assert main(["embed", *named, *MADE_WITH]) == 0
    return folder


@pytest.fixture
def parquet(made: Path, tmp_path: Path, inputs: Path) -> Path:
    """A store of forty rows in one file of four row groups, in four units."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return inputs / "a.parquet"


def assert_as_anew(run: Run, store: Path, model: Path, inputs: object, *options: object) -> None:
    """The store has the rows of a run from nothing, and its vectors within the bound."""
    fresh = store.with_name("fresh")
    run("embed", "--input", inputs, "--store", fresh, "--model", model, *options).ok()
    mine, theirs = vectors_of(store), vectors_of(fresh)
    assert sorted(mine) == sorted(theirs)
    a, b = (np.array([found[i] for i in sorted(found)]) for found in (mine, theirs))
    assert np.abs(a - b).max() <= 2e-5 * np.abs(b).max()
    rest, others = (
        [{k: v for k, v in row.items() if k not in ("norm", "pooled")} for row in rows_of(place)]
        for place in (store, fresh)
    )
    assert rest == others


# --- new text is encoded, nothing else


def test_one_edited_row_is_the_only_one_encoded(
    run: Run, embed: Run, parquet: Path, store: Path, model: Path, encoded: list[str]
) -> None:
    before = vectors_of(store)
    rows = sentences(40)
    rows[23] = "a new red dog"
    write_parquet(parquet, rows, 10, key=[f"k{i}" for i in range(40)])
    embed(parquet).ok()
    assert encoded == ["a new red dog"]
    check_ledger(store, 40, embedded=1, reused=39)
    after = vectors_of(store)
    assert [i for i in before if before[i] != after[i]] == ["k23"]
    assert_as_anew(run, store, model, parquet, *MADE_WITH)


def test_copies_of_old_text_are_reused_copies_of_new_text_are_duplicates_and_files_are_apart(
    embed: Run, inputs: Path, store: Path, encoded: list[str]
) -> None:
    write_lines(inputs / "a.txt", ["old dog", "old cat"])
    embed(inputs / "*").ok()
    del encoded[:]
    write_lines(inputs / "a.txt", ["new dog", "old cat", "old cat", "new dog", "new dog", ""])
    write_lines(inputs / "b.txt", ["old dog"])
    embed(inputs / "*", "--max-rejects", 1).ok()
    check_ledger(store, 6, 1, embedded=2, reused=2, duplicates=2)
    assert sorted(encoded) == ["new dog", "old dog"]


def test_tokens_and_truncation_of_reused_rows_are_counted_as_before(
    embed: Run, inputs: Path, store: Path
) -> None:
    for others in (["a cat"], ["a cat", "a man"]):
        write_lines(inputs / "a.txt", [" ".join(["dog"] * 30), *others])
        embed(inputs / "*", "--max-tokens", 10).ok()
        tokens = manifest_of(store)["tokens"]
        assert (tokens["truncated_rows"], tokens["lost"]) == (1, 22)
        assert [(row["tokens"], row["truncated"]) for row in rows_of(store)] == [
            (32, True), *[(4, False)] * len(others)
        ]  # fmt: skip


# --- nothing to encode


@variants("options", [
        ("--keep-columns", "text,key"), ("--unit-tokens", 60), ("--id-column", ""),
        ("--no-normalize",), ("--dim", 8), ("--dim", 5, "--no-normalize"),
    ], kept=(0, 5))  # fmt: skip
def test_other_columns_units_and_output_need_no_model(
    run: Run, embed: Run, parquet: Path, store: Path, model: Path, options: tuple,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    with monkeypatch.context() as patch:
        forbid_model(patch)
        embed(parquet, *options).ok()
    check_ledger(store, 40, reused=40)
    assert_as_anew(run, store, model, parquet, *MADE_WITH, *options)


def test_rows_that_moved_within_their_file_and_have_other_kept_values_need_no_model(
    embed: Run, parquet: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid_model(monkeypatch)
    before = vectors_of(store)
    rows, keys = sentences(40), [f"k{i}" for i in range(40)]
    for more in (0, 5):
        values = [n + more for n in range(40)]
        write_parquet(parquet, rows[::-1], 7, key=keys[::-1], n=values)
        embed(parquet, "--keep-columns", "n").ok()
        check_ledger(store, 40, reused=40)
        assert vectors_of(store) == before
        assert {row["id"]: row["n"] for row in rows_of(store)} == dict(
            zip(keys[::-1], values, strict=True)
        )


# --- damage


def test_a_damaged_old_shard_is_not_reused(
    run: Run, embed: Run, parquet: Path, store: Path, model: Path, encoded: list[str]
) -> None:
    unit = units_of(store)[1]
    shard = store / unit["path"]
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    rows, keys = [*sentences(40), "one more dog"], [f"k{i}" for i in range(41)]
    write_parquet(parquet, rows, 10, key=keys)
    assert f"damaged     {unit['path']}" in embed(parquet).ok().out
    assert sorted(encoded) == sorted([*rows[10:20], "one more dog"])
    check_ledger(store, 41, reused=30, embedded=11)
    assert_as_anew(run, store, model, parquet, *MADE_WITH)


# --- embedding anew


def test_reembed_takes_nothing_over_in_the_same_space_either(
    run: Run, embed: Run, parquet: Path, store: Path, encoded: list[str]
) -> None:
    first = manifest_of(store)
    for night in (1, 2):
        del encoded[:]
        embed(parquet, "--reembed").ok()
        manifest = check_ledger(store, 40, embedded=40)
        assert len(encoded) == 40
        assert (manifest["space"], manifest["generation"]) == (first["space"], night)
        assert not {unit["path"] for unit in units_of(store, manifest)} & {
            unit["path"] for unit in units_of(store, first)
        }
        run("verify", "--store", store, "--snapshot", first["run"]).ok()
    embed(parquet).ok()
    assert check_ledger(store, 40, carried=40)["generation"] == 2
