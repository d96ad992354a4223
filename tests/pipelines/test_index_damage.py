"""Changed bytes in the files of an index: each command gives the right answer, builds it again, or
ends with one line.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.commands import Run
from helpers.corpora import manifest_of, sentences, write_parquet
from helpers.variants import variants

from sentence_beam.pipelines.cli import main

pytest.importorskip("faiss")


KINDS = ("segment", "locator", "held-out", "held-out locator", "trained", "queries")
PLACES = (0.0, 0.02, 0.5, 0.98)
TEXTS = sentences(300)
# so many that every list is searched
QUERIES = [part for text in TEXTS[::10] for part in ("--query", text)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A store of 300 rows with an index of lists; beside it its input. Tests work on copies."""
    folder = tmp_path_factory.mktemp("made")
    write_parquet(folder / "in" / "a.parquet", TEXTS, key=[f"k{n}" for n in range(300)])
    where = f"--input {folder}/in/* --store {folder}/store --model {model}"
    how = "--id-column key --index IVF4,SQ8 --unit-tokens 700 --dtype float32"
    assert main(["embed", *where.split(), *how.split()]) == 0
    return folder


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    """A copy of the store that a test may damage."""
    shutil.copytree(made / "store", tmp_path / "store")
    return tmp_path / "store"


def path_of(store: Path, kind: str) -> Path:
    index = (manifest_of(store) or {})["index"]
    if kind in index:
        return store / index[kind]["path"]
    held_out = "held-out" in kind
    segment = next(s for s in index["segments"] if (s["kind"] == "held-out") == held_out)
    return store / segment["locator" if "locator" in kind else "path"]


def flip(path: Path, at: float) -> None:
    data = bytearray(path.read_bytes())
    data[int(at * len(data))] ^= 64
    path.write_bytes(data)


@pytest.fixture
def hits(run: Run, tmp_path: Path) -> Callable[..., list[tuple[str, str]]]:
    """The hits that a search of a store writes down: query and id of each."""

    def search(store: Path, *options: object) -> list[tuple[str, str]]:
        out = tmp_path / "hits.jsonl"
        run("search", "--store", store, *QUERIES, "-k", 5, "--output", out, *options).ok()
        return [(row["query"], row["id"]) for row in map(json.loads, out.read_text().splitlines())]

    return search


@variants("kind", KINDS, kept=(0, 4))
def test_search_answers_rightly_or_names_the_file(
    run: Run, store: Path, made: Path, kind: str, hits: Callable[..., list[tuple[str, str]]]
) -> None:
    path, right = path_of(store, kind), hits(made / "store")
    whole = path.read_bytes()
    for at in PLACES:
        flip(path, at)
        # no search reads the queries, nor the letters that a Parquet file begins with
        if kind == "queries" or (at == 0 and "locator" in kind):
            assert hits(store) == right
        else:
            search = run("search", "--store", store, *QUERIES, "-k", 300)
            line = search.failed(1, f"{path} was changed after")
            builds = f"; `sentence-beam index --store {store}` builds it again"
            assert line.endswith(f"{builds}, search --exact does without it")
            assert len(hits(store, "--exact")) == len(right)
        path.write_bytes(whole)
    path.unlink()
    if kind != "queries":
        said = f"{path} is missing; `sentence-beam index --store {store}`"
        run("search", "--store", store, "--query", TEXTS[3]).failed(1, said)


@variants(("command", "kind"), zip(["embed", "index"] * 3, KINDS, strict=True), kept=(0, 3))
def test_embed_and_index_make_a_changed_file_of_unchanged_rows_again(
    run: Run,
    store: Path,
    made: Path,
    kind: str,
    command: str,
    hits: Callable[..., list[tuple[str, str]]],
) -> None:
    path, right = path_of(store, kind), hits(made / "store")
    whole = path.read_bytes()
    flip(path, 0.5)
    faults = run("verify", "--store", store)
    assert faults.status == 1
    assert f"{path}: the index file was changed" in faults.err
    given = ("--input", made / "in" / "*") if command == "embed" else ()
    out = run(command, "--store", store, *given).ok().out
    line = f"index/{path.name} was changed after it was written"
    if kind == "trained":
        assert f"trained     again: {line}" in out
    else:
        assert f"rewritten   {line}" in out
    assert path.read_bytes() == whole
    run("verify", "--store", store).ok()
    assert hits(store) == right


def test_index_over_a_damaged_shard_names_it_and_embed_mends_it(
    run: Run, store: Path, made: Path
) -> None:
    shard = sorted((store / "embeddings").iterdir())[0]
    whole = shard.read_bytes()
    flip(shard, 0.999)
    before = (store / "manifest.json").read_bytes()
    mend = "(sha256 differs); remove it and run embed, which makes it again"
    index = ("index", "--store", store, "--index", "SQ8")
    run(*index).failed(1, f"{shard} was changed after it was written {mend}")
    shard.unlink()
    run(*index).failed(1, shard)
    assert (store / "manifest.json").read_bytes() == before
    run("embed", "--store", store, "--input", made / "in" / "*").ok()
    assert shard.read_bytes() == whole
    run(*index).ok()
    run("verify", "--store", store).ok()
