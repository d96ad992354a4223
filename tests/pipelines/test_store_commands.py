"""search, files, verify, index and plan: on good stores, on damaged ones, and where there is no
store.

Covers pipelines/index.py.
"""

import io
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from helpers.commands import Run
from helpers.corpora import (
    check_ledger,
    edit_manifest,
    files_in,
    manifest_of,
    sentences,
    write_lines,
    write_parquet,
)
from helpers.snapshots import units_of
from helpers.tiny_models import save_tiny_model

from sentence_beam.pipelines.cli import main
from sentence_beam.pipelines.common.embed_options import parser
from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.search import Searcher
from sentence_beam.transforms.steps.options import EmbedOptions
from sentence_beam.transforms.steps.options.resolve import resolve_run
from sentence_beam.transforms.steps.plan.look import look
from sentence_beam.transforms.store import open_store

READERS = {
    "search": ("--query", "dog", "--store"),
    "files": ("--store",),
    "verify": ("--store",),
    "index": ("--store",),
    "vacuum": ("--store",),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A store of 60 rows in several shards with an index and one rejected row; tests work on
    copies.
    """
    folder = tmp_path_factory.mktemp("made")
    texts = sentences(60)
    write_parquet(folder / "in" / "a.parquet", [*texts[:30], ""], n=list(range(31)))
    write_parquet(folder / "in" / "b.parquet", texts[30:], n=list(range(30)))
    where = f"--input {folder}/in/*.parquet --store {folder}/store --model {model}"
    how = "--index Flat --normalize --keep-columns text,n --unit-tokens 150 --max-rejects 0.5"
    assert main(["embed", *where.split(), *how.split()]) == 0
    return folder / "store"


@pytest.fixture
def copy(made: Path, store: Path) -> Path:
    """A copy of the store that a test may damage."""
    shutil.copytree(made, store)
    return store


def hits_in(path: Path) -> list[dict[str, Any]]:
    """The rows of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]


# --- starting


def test_no_beam_where_no_pipeline_runs(made: Path) -> None:
    # in one process: imports take long
    commands = [["history"], ["files"], ["verify"], ["search", "--query", "dog"]]
    code = "import json, sys; from sentence_beam.pipelines.cli import main\n"
    code += "for command in json.loads(sys.argv[1]):\n"
    code += "    print(command[0], main([*command, '--store', sys.argv[2]]), 'apache_beam' in sys.modules, flush=True)"
    process = [sys.executable, "-c", code, json.dumps(commands), str(made)]
    done = subprocess.run(process, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.endswith("0 False")] == [
        f"{name} 0 False" for name, *_ in commands
    ], done


# --- no store


@pytest.mark.parametrize("place", ["none", "empty", "file"])
def test_where_no_store_is(run: Run, tmp_path: Path, place: str) -> None:
    path = tmp_path / place
    if place == "empty":
        path.mkdir()
    if place == "file":
        path.write_text("x")
    before = files_in(tmp_path)
    for command, options in READERS.items():
        run(command, *options, path).failed(2, path, "holds no store", "sentence-beam embed")
    assert not (path / "lease.json").exists()
    assert files_in(tmp_path) == before


def test_a_damaged_manifest(run: Run, copy: Path) -> None:
    data = manifest_of(copy)
    (copy / "manifest.json").write_bytes(b"{")
    for command, options in READERS.items():
        run(command, *options, copy).failed(1, copy / "manifest.json")
    del data["units"]
    edit_manifest(copy / "manifest.json", data)
    for command, options in READERS.items():
        run(command, *options, copy).failed(1, copy / "manifest.json", "units")


# --- files


def test_files_prints_and_links_exactly_the_current_shards(
    run: Run, embed: Run, copy: Path, tmp_path: Path
) -> None:
    printed = run("files", "--store", copy).ok().out.split()
    assert printed == [str(copy / unit["path"]) for unit in units_of(copy) if unit["path"]]
    assert all(Path(path).is_file() for path in printed)
    folder = tmp_path / "links"
    run("files", "--store", copy, "--link", folder).ok()
    assert pq.read_table(folder).num_rows == 60
    lines = write_lines(tmp_path / "in" / "c.txt", ["one"])
    embed(lines, "--keep-columns", "text", "--max-deletes", 1).ok()
    run("files", "--store", copy, "--link", folder).ok()
    assert pq.read_table(folder).num_rows == 1
    run("files", "--store", copy, "--link", lines.parent).failed(2, "--link", lines.parent)
    run("files", "--store", copy, "--link", lines).failed(2, "--link", lines)
    assert lines.read_text() == "one\n"


# --- verify


def _flip(path: Path, at: float = 0.5) -> None:
    data = bytearray(path.read_bytes())
    data[int(at * len(data))] ^= 1
    path.write_bytes(data)


def test_verify_names_each_damaged_file(run: Run, copy: Path) -> None:
    assert "is whole: 60 rows" in run("verify", "--store", copy).ok().out
    shards = sorted((copy / "embeddings").iterdir())
    segments, locators = (sorted((copy / "index").glob(f"*{end}")) for end in (".faiss", "parquet"))
    (rejects,) = (copy / "rejects").iterdir()
    shards[0].write_bytes(b"")
    shutil.copy(shards[1], shards[2])
    segments[0].unlink()
    _flip(segments[1])
    _flip(locators[0])
    _flip(rejects, 0.1)
    outcome = run("verify", "--store", copy)
    assert outcome.status == 1
    *faults, last = outcome.err.splitlines()
    for path in (shards[0], shards[2], *segments[:2], locators[0], rejects):
        assert any(str(path) in line for line in faults), (path, outcome.err)
    assert any(str(segments[0]) in line and "is missing" in line for line in faults)
    assert not any(str(shards[1]) in line for line in faults)
    assert last.startswith("sentence-beam verify: ")
    assert f"{len(faults)} fault" in last
    assert "Traceback" not in outcome.err
    rejects.write_bytes(b"PAR1")
    assert str(rejects) in run("verify", "--store", copy).err


# --- search


def test_search_finds_a_row_by_its_own_text_with_and_without_the_index(
    run: Run, made: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    asked = ("search", "--store", made, "--query", sentences(60)[41], "-k", 5, "--output", out)
    for extra in ([], ["--exact"]):
        run(*asked, *extra).ok()
        rows = hits_in(out)
        assert [row["rank"] for row in rows] == [1, 2, 3, 4, 5]
        assert rows[0]["score"] >= rows[1]["score"] >= rows[4]["score"]
        best = {row["id"] for row in rows if row["score"] >= rows[0]["score"] - 1e-6}
        assert "b.parquet#11" in best or len(best) == 5
        assert set(rows[0]) == {"query", "rank", "score", "id", "text", "n"}


def test_search_without_a_row_to_find(
    run: Run, embed: Run, inputs: Path, store: Path, tmp_path: Path
) -> None:
    write_parquet(inputs / "a.parquet", [])
    embed(inputs / "*", "--index", "auto").ok()
    check_ledger(store, 0)
    assert "no rows" in run("search", "--store", store, "--query", "dog").ok().out
    run("search", "--store", store, "--query", "dog", "--output", tmp_path / "o.parquet").ok()
    run("index", "--store", store).ok()
    run("verify", "--store", store).ok()
    assert run("files", "--store", store).ok().out == ""


def test_odd_queries(run: Run, made: Path, tmp_path: Path) -> None:
    queries = ["\u200b", "x" * 100_000, "a\nb", 'dog, "cat"']
    named = [part for query in queries for part in ("--query", query)]
    out = tmp_path / "o.parquet"
    assert "rank" in run("search", "--store", made, *named, "-k", 1).ok().out
    run("search", "--store", made, *named, "-k", 1000, "--output", out).ok()
    assert pq.read_table(out)["query"].to_pylist() == [
        query for query in queries for _ in range(60)
    ]
    with pytest.raises(OptionError, match="query 2 of 2 is empty"):
        open_store(str(made)).search(["dog", "\t"])


def test_a_search_alone_in_its_process_finds_the_same(made: Path) -> None:
    manifest = open_store(str(made)).manifest
    alone = Searcher(manifest, alone=True).search(["a red dog"], 5)
    assert [hit["id"] for hit in alone[0]] == [
        hit["id"] for hit in open_store(str(made)).search("a red dog", 5)
    ]


def test_queries_from_standard_input_and_from_plain_text(
    run: Run, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("search", "--store", made, "-k", 1, "--queries")
    for content in ("dög\n\r\ncat".encode(), b"\n"):
        stream = io.TextIOWrapper(io.BytesIO(content), encoding="ascii")
        monkeypatch.setattr("sys.stdin", stream)
        if content == b"\n":
            run(*asked, "-").failed(2, "--queries -", "no query")
        else:
            lines = run(*asked, "-").ok().out.splitlines()
            assert [line for line in lines if line.startswith("query")] == [
                "query: dög", "query: cat",
            ]  # fmt: skip
    path = tmp_path / "q.txt"
    path.write_bytes(b"\xef\xbb\xbfdog\r\n\ncat\n")
    run(*asked, path, "--output", tmp_path / "o.jsonl").ok()
    assert [row["query"] for row in hits_in(tmp_path / "o.jsonl")] == ["dog", "cat"]
    run(*asked, path, "--text-column", "t").failed(2, path, "plain text", "--format")
    run(*asked[:-1], "--query", "x", "--text-column", "t").failed(
        2, "--text-column is for --queries"
    )
    run(*asked, tmp_path / "none.txt").failed(2, "--queries", "none.txt", "there is no such file")
    for data, word in ((b"", "no query"), (b"\xff\n", "UTF-8")):
        path.write_bytes(data)
        run(*asked, path).failed(2, "--queries", path, word)


def test_queries_from_a_table(run: Run, made: Path, tmp_path: Path) -> None:
    path, out = tmp_path / "q.csv", tmp_path / "o.jsonl"
    asked = ("search", "--store", made, "-k", 1, "--queries", path)
    pacsv.write_csv(pa.table({"n": ["one", "two", "three"], "ask": ["dog", "", "a, cat"]}), path)
    run(*asked).failed(2, path, "no column text")
    found = run(*asked, "--text-column", "ask")
    assert (found.status, found.err) == (0, f"note: 1 row of {path} without a text left out\n")
    assert [line for line in found.out.splitlines() if line.startswith("query")] == [
        "query: dog", "query: a, cat",
    ]  # fmt: skip
    run(*asked, "--text-column", "ask", "--id-column", "n", "--output", out)
    assert [(row["query"], row["query_text"]) for row in hits_in(out)] == [
        ("one", "dog"), ("three", "a, cat"),
    ]  # fmt: skip
    (tmp_path / "q.jsonl").write_text('{"text": "dog"}\n{"text": 7}\n')
    run(*asked[:-1], tmp_path / "q.jsonl").failed(2, "q.jsonl", "not a string")


def test_rows_with_a_prompt_and_queries_without_one_are_said_until_the_store_knows_it(
    run: Run, embed: Run, inputs: Path, store: Path, tmp_path: Path
) -> None:
    write_lines(inputs / "a.txt", sentences(5))
    embed(inputs / "*", "--dtype", "float32", "--normalize", "--prompt", "a cat ").ok()
    output = tmp_path / "o.jsonl"

    def scores(*arguments: object) -> tuple[list[float], str]:
        found = run("search", "--store", store, "--query", "horse", "--output", output, *arguments)
        assert found.status == 0
        return [row["score"] for row in hits_in(output)], found.err

    bare, said = scores()
    assert "none is known for queries" in said
    assert len(said.strip().splitlines()) == 1
    given, said = scores("--query-prompt", "the red dog ")
    assert said == ""
    assert not np.allclose(given, bare, atol=1e-4)
    run("embed", "--input", inputs / "*", "--store", store, "--query-prompt", "the red dog ").ok()
    assert check_ledger(store, 5, carried=5)["space"]["prompt"] == "a cat "
    assert scores() == (given, "")
    assert scores("--query-prompt", "")[0] == bare


def test_search_where_the_model_has_gone_or_is_another(
    run: Run, inputs: Path, store: Path, tmp_path: Path
) -> None:
    own = save_tiny_model("bert", tmp_path / "own")
    other = save_tiny_model("bert", tmp_path / "other", num_hidden_layers=2)
    write_lines(inputs / "a.txt", sentences(3))
    run("embed", "--input", inputs / "*", "--store", store, "--model", own).ok()
    moved = own.rename(tmp_path / "moved")
    asked = ("search", "--store", store, "--query", "x")
    run(*asked).failed(2, own)
    run(*asked, "--model", moved).ok()
    run(*asked, "--model", other).failed(2, other, "weights", "--model")
    run(*asked, "--model", tmp_path / "none").failed(2, tmp_path / "none")


def test_search_over_damaged_shards_ends_with_one_line(run: Run, copy: Path) -> None:
    shards = {path: path.read_bytes() for path in (copy / "embeddings").iterdir()}
    for damage in (_flip, lambda path: path.write_bytes(b""), Path.unlink):
        for path, whole in shards.items():
            path.write_bytes(whole)
            damage(path)
        outcome = run("search", "--store", copy, "--query", "dog")
        if outcome.status != 0:  # a changed byte may be one that is not read
            outcome.failed(1, f"{copy}/embeddings/", "verify")
        assert damage is _flip or outcome.status == 1


# --- index


def test_an_index_of_another_kind_or_metric(run: Run, copy: Path) -> None:
    built: dict[str, Any] = {}
    for flags, factory, metric in (
        (["--index", "SQ8"], "SQ8", "cosine"),
        (["--index", "IVF2,Flat", "--metric", "cosine"], "IVF2,Flat", "cosine"),
        # rows have length 1: their inner product is the cosine, and the files stay
        (["--index", "IVF2,Flat", "--metric", "ip"], "IVF2,Flat", "ip"),
        (["--index", "IVF2,Flat"], "IVF2,Flat", "ip"),
        (["--metric", "l2", "--retrain"], "IVF2,Flat", "l2"),
    ):
        run("index", "--store", copy, *flags).ok()
        index = check_ledger(copy, 60, 1, carried=60)["index"]
        assert (index["factory"], index["metric"]) == (factory, metric)
        if metric == "ip":
            assert index["segments"] == built["segments"]
        built = index
    run("search", "--store", copy, "--query", "dog").ok()


def test_an_index_that_cannot_be_built_changes_nothing(
    run: Run, embed: Run, copy: Path, inputs: Path, tmp_path: Path
) -> None:
    before = (copy / "manifest.json").read_bytes()
    for factory in ("Flut", "", "PQ7", "IVF1000000,Flat"):
        run("index", "--store", copy, "--index", factory).failed(2, "--index", factory)
    assert (copy / "manifest.json").read_bytes() == before
    assert not (copy / "lease.json").exists()
    write_lines(inputs / "a.txt", sentences(3))
    new = ("embed", "--input", inputs / "*", "--store", tmp_path / "new", "--index", "Flut")
    run(*new).failed(2, "--index", "Flut")
    assert not (tmp_path / "new").exists()


# --- plan


def test_plan_counts_what_embed_then_does(plan: Run, embed: Run, inputs: Path, store: Path) -> None:
    write_parquet(inputs / "a.parquet", sentences(30), row_group_size=5)
    arguments = (inputs / "*", "--unit-tokens", 100)
    out = plan(*arguments).ok().out
    assert "30 to embed" in out
    assert not store.exists()
    embed(*arguments).ok()
    units = len(units_of(store))
    assert f"units       {units} to embed, 0 carried over" in out
    out = plan(*arguments).ok().out
    assert "1 unchanged" in out
    assert f"{units} carried over" in out


def test_planning_reads_footers_alone(
    inputs: Path, store: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_parquet(inputs / "a.parquet", sentences(30), row_group_size=5)
    for name in ("iter_batches", "read", "read_row_group", "read_row_groups"):
        monkeypatch.setattr(pq.ParquetFile, name, lambda *_, **__: pytest.fail("rows were read"))
    arguments = f"--input {inputs}/* --store {store} --model {model} --unit-tokens 100"
    columns = ["--text-column", "text", "--id-column", ""]  # else their values are looked at
    options = EmbedOptions(**vars(parser().parse_args([*arguments.split(), *columns])))
    found = look(resolve_run(options, None, "run", local=True).job)
    assert found.rows == 30
    assert found.units > 1


def test_plan_meets_the_mistakes_of_embed(plan: Run, inputs: Path) -> None:
    path = write_parquet(inputs / "a.parquet", ["one"])
    plan(path, "--text-column", "x").failed(2, path, "--text-column")
    path.write_bytes(b"PAR1")
    plan(path).failed(1, path)
    write_lines(inputs / "c.txt", [""])
    plan(inputs / "c.txt").ok()
