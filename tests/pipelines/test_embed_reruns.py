"""Night after night: what is carried, what is embedded anew, what a store remembers, and inputs
that move meanwhile.

Covers pipelines/embed.py.
"""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
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
from helpers.variants import variants

WRITE_PLAN = "sentence_beam.transforms.steps.plan.whole_plan.write_plan"
PARTS = ("embeddings", "sidecars", "rejects")


@pytest.fixture
def two_files(inputs: Path) -> Path:
    """Ten rows in each of two files, and the glob that names them."""
    write_lines(inputs / "a.txt", sentences(10))
    write_parquet(inputs / "b.parquet", sentences(10, 10))
    return inputs / "*"


def test_an_unchanged_corpus_is_carried_and_committed_again(
    embed: Run, two_files: Path, store: Path
) -> None:
    embed(two_files).ok()
    first, written = check_ledger(store, 20, embedded=20), files_in(store, *PARTS)
    assert "20 carried" in embed(two_files).ok().out
    second = check_ledger(store, 20, carried=20)
    assert files_in(store, *PARTS) == written
    assert units_of(store, second) == units_of(store, first)
    assert second["previous"] == first["run"]
    assert second["tokens"]["real"] == 0
    assert len(list((store / "manifests").glob("*.json"))) == 2


def test_an_edit_of_equal_length_with_its_time_put_back_is_seen(
    embed: Run, two_files: Path, store: Path
) -> None:
    embed(two_files, "--keep-columns", "text").ok()
    path = two_files.parent / "a.txt"
    before, data = path.stat(), path.read_bytes()
    path.write_bytes(data.replace(b"s5 ", b"S5 "))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    embed(two_files).ok()
    check_ledger(store, 20, embedded=1, reused=9, carried=10)
    texts = [row["text"] for row in rows_of(store)]
    assert sum(text.startswith("S") for text in texts) == 1


def test_added_edited_and_removed_files(embed: Run, two_files: Path, store: Path) -> None:
    embed(two_files).ok()
    folder = two_files.parent
    write_lines(folder / "c.txt", sentences(3, 50))
    embed(two_files).ok()
    check_ledger(store, 23, embedded=3, carried=20)
    write_lines(folder / "c.txt", sentences(4, 50))
    embed(two_files).ok()
    check_ledger(store, 24, embedded=1, reused=3, carried=20)
    (folder / "a.txt").unlink()
    embed(two_files).ok()
    manifest = check_ledger(store, 14, embedded=0, carried=14)
    assert [file["path"] for file in files_of(store, manifest)] == ["b.parquet", "c.txt"]
    assert not any(i.startswith("a.txt") for i in ids_of(store))


def test_the_glob_may_move_as_long_as_relative_paths_stay(
    embed: Run, two_files: Path, store: Path
) -> None:
    embed(two_files).ok()
    moved = two_files.parent.parent / "moved"
    two_files.parent.rename(moved)
    embed(moved / "*").ok()
    check_ledger(store, 20, carried=20)


# --- what a store remembers


def test_flags_are_remembered(run: Run, model: Path, inputs: Path, store: Path) -> None:
    write_parquet(
        inputs / "a.parquet",
        pa.array(sentences(5)),
        name=["a", "b", "c", "d", "e"],
        n=[1, 2, 3, 4, 5],
    )
    given = ("--input", inputs / "*", "--store", store)
    chosen = {
        "--pooler": "max",
        "--prompt": "say: ",
        "--max-tokens": 9,
        "--dim": 12,
        "--id-column": "name",
    }
    chosen |= {"--keep-columns": "n", "--unit-tokens": 20, "--model": model, "--dtype": "float32"}
    run("embed", *given, *(part for pair in chosen.items() for part in pair), "--no-normalize").ok()
    first = check_ledger(store, 5)
    run("embed", *given).ok()
    second = check_ledger(store, 5, carried=5)
    assert {k: second[k] for k in ("space", "options", "unit_tokens")} == {
        k: first[k] for k in ("space", "options", "unit_tokens")
    }
    write_parquet(inputs / "b.parquet", pa.array(["one"]), name=["f"], n=[6])
    run("embed", *given).ok()
    check_ledger(store, 6, embedded=1, carried=5)
    assert [(row["id"], row["n"]) for row in rows_of(store)][-1] in [("f", 6), ("e", 5)]


@variants(
    ("option", "field"),
    [
        (("--pooler", "max"), "pooler"),
        (("--prompt", "query: ", "--max-tokens", "7"), "max_tokens"),
        (("--dtype", "bfloat16"), "dtype"),
    ],
    kept=(0,),
)
def test_another_space_is_refused_by_field_and_reembed_goes_through(
    embed: Run, two_files: Path, store: Path, option: tuple[str, ...], field: str
) -> None:
    embed(two_files, "--dtype", "float32").ok()
    before = (store / "manifest.json").read_bytes()
    line = embed(two_files, *option).failed(2, store, "another space", "--reembed")
    assert field in line.partition("another space: ")[2].partition(" would change")[0].split(", ")
    assert (store / "manifest.json").read_bytes() == before
    embed(two_files, *option, "--reembed").ok()
    check_ledger(store, 20, embedded=20, carried=0)
    embed(two_files).ok()
    check_ledger(store, 20, carried=20)


def test_the_models_files_replaced_in_place_are_seen(
    run: Run, two_files: Path, store: Path, tmp_path: Path
) -> None:
    own = save_tiny_model("bert", tmp_path / "own")
    run("embed", "--input", two_files, "--store", store, "--model", own).ok()
    save_tiny_model("bert", own, num_hidden_layers=2)
    line = run("embed", "--input", two_files, "--store", store).failed(
        2, "weights", f"put the files of {own} back", "--reembed"
    )
    assert "leave the option out" not in line
    run("embed", "--input", two_files, "--store", store, "--pooler", "max").failed(
        2, "leave the option out"
    )
    again = ("--model", own, "--pooler", "auto")  # as the store has them
    line = run("embed", "--input", two_files, "--store", store, *again).failed(2, "weights")
    assert f"put the files of {own} back" in line


def test_an_adapter_beside_the_stores_model_is_refused_by_every_command(
    run: Run, two_files: Path, store: Path, tmp_path: Path
) -> None:
    own = save_tiny_model("bert", tmp_path / "own")
    run("embed", "--input", two_files, "--store", store, "--model", own).ok()
    (own / "adapter_config.json").write_text('{"base_model_name_or_path": "org/base"}')
    asked = {
        "embed": ("--input", two_files, "--store", store),
        "search": ("--store", store, "--query", "a dog"),
    }
    for command, options in asked.items():
        run(command, *options).failed(
            2, own / "adapter_config.json", "adapter of org/base", "merge_and_unload"
        )


def test_earlier_snapshots_can_be_read(run: Run, embed: Run, two_files: Path, store: Path) -> None:
    embed(two_files).ok()
    first = manifest_of(store)["run"]
    embed(two_files, "--pooler", "max", "--reembed", "--keep-columns", "text").ok()
    for command in ("verify", "files"):
        run(command, "--store", store, "--snapshot", first).ok()
    old = run("search", "--store", store, "--query", "dog", "--snapshot", first).ok().out
    assert old != run("search", "--store", store, "--query", "dog").ok().out


def test_a_trial_does_not_shrink_a_store(embed: Run, inputs: Path, store: Path) -> None:
    write_lines(inputs / "a.txt", sentences(30))
    embed(inputs / "*").ok()
    before = (store / "manifest.json").read_bytes()
    embed(inputs / "*", "--limit", 5).failed(2, "--limit 5", "30 rows")
    assert (store / "manifest.json").read_bytes() == before


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


# --- inputs that change while they are read


def grow(path: Path) -> None:
    with path.open("ab") as f:
        f.write(b"more\n")


def replace_by_rename(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes()[::-1])
    os.replace(other, path)


def edit_in_place(path: Path) -> None:
    before = path.stat()
    with path.open("r+b") as f:
        f.write(b"X")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize(
    ("partition", "name", "change"),
    [
        ("file", "a.txt", edit_in_place),
        ("content", "a.parquet", replace_by_rename),
    ],
)
def test_a_file_that_changes_while_it_is_read(
    embed: Run,
    inputs: Path,
    store: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    change: Callable[[Path], None],
) -> None:
    path = inputs / name
    _ = (
        write_parquet(path, sentences(10))
        if name == "a.parquet"
        else write_lines(path, sentences(10))
    )
    hook = "formats.parquet._blocks" if name == "a.parquet" else "formats.text_lines._within"
    _once_before(monkeypatch, f"sentence_beam.transforms.corpus.{hook}", lambda: change(path))
    embed(inputs / "*").failed(1, path, "while the run read it", "run again")
    assert manifest_of(store) is None
    assert not (store / "lease.json").exists()


@variants("partition", ["file", "content"], kept=(0,))
@variants("change", [edit_in_place, Path.unlink], kept=(0,))
def test_a_file_that_changes_between_plan_and_reading(
    embed: Run,
    inputs: Path,
    store: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path], None],
    partition: str,
) -> None:
    path = write_lines(inputs / "a.txt", sentences(10))
    write_lines(inputs / "b.txt", sentences(10))
    embed(inputs / "b.txt").ok()
    before = (store / "manifest.json").read_bytes()
    _once_before(monkeypatch, WRITE_PLAN, lambda: change(path))
    embed(inputs / "*").failed(1, path, "while the run read it")
    assert (store / "manifest.json").read_bytes() == before


def test_rows_of_a_folder_that_cannot_be_listed_are_not_taken_for_deleted(
    embed: Run, inputs: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (inputs / "deep").mkdir()
    write_lines(inputs / "a.txt", sentences(5))
    write_lines(inputs / "deep" / "b.txt", sentences(5, 5))
    embed(inputs / "**.txt").ok()
    before, scan = (store / "manifest.json").read_bytes(), os.scandir

    def stale(path: object) -> object:
        if path == str(inputs / "deep"):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), path)
        return scan(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", stale)
        embed(inputs / "**.txt").failed(1, inputs / "deep", "cannot be read (Stale file handle)")
    assert (store / "manifest.json").read_bytes() == before
    embed(inputs / "**.txt").ok()
    check_ledger(store, 10, carried=10)


def test_after_a_change_the_next_run_keeps_the_units_of_the_other_files(
    embed: Run, inputs: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(4):
        write_lines(inputs / f"{i}.txt", sentences(5, 5 * i))
    path = inputs / "3.txt"
    with monkeypatch.context() as patch:
        _once_before(patch, WRITE_PLAN, lambda: grow(path))
        embed(inputs / "*").failed(1, path)
    made = files_in(store, "embeddings")
    embed(inputs / "*").ok()
    check_ledger(store, 21)
    assert made
    assert made.items() <= files_in(store, "embeddings").items()


def _once_before(patch: pytest.MonkeyPatch, name: str, action: Callable[[], None]) -> None:
    """Do something right before the first call of a function."""
    module, _, function = name.rpartition(".")
    original = getattr(__import__(module, fromlist=[function]), function)
    done: list[bool] = []

    def wrapped(*args: object, **kwargs: object) -> object:
        if not done:
            done.append(True)
            action()
        return original(*args, **kwargs)

    patch.setattr(name, wrapped)
