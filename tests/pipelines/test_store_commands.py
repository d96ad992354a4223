"""search, files, verify, index and plan: on good stores, on damaged ones, and where there is no
store.

Covers pipelines/index.py.
"""

import csv
import io
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
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
    ids_of,
    manifest_of,
    sentences,
    vectors_of,
    write_lines,
    write_parquet,
)
from helpers.snapshots import changed, edit_units, units_of
from helpers.tiny_models import save_tiny_model

from sentence_beam.pipelines.common.embed_options import parser
from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.encoder import Encoder
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
    from sentence_beam.pipelines.cli import main

    arguments = [
        "--model",
        str(model),
        "--index",
        "Flat",
        "--normalize",
        "--keep-columns",
        "text,n",
        "--unit-tokens",
        "150",
    ]
    arguments += ["--max-rejects", "0.5", "--store", str(folder / "store")]
    assert main(["embed", "--input", str(folder / "in" / "*.parquet"), *arguments]) == 0
    return folder / "store"


@pytest.fixture
def copy(made: Path, store: Path) -> Path:
    """A copy of the store that a test may damage."""
    shutil.copytree(made, store)
    return store


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


@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize("place", ["none", "empty", "file"])
def test_where_no_store_is(run: Run, tmp_path: Path, command: str, place: str) -> None:
    path = tmp_path / place
    if place == "empty":
        path.mkdir()
    if place == "file":
        path.write_text("x")
    before = files_in(tmp_path)
    run(command, *READERS[command], path).failed(2, path, "holds no store", "sentence-beam embed")
    assert not (path / "lease.json").exists()
    assert files_in(tmp_path) == before


@pytest.mark.parametrize("command", ["search", "files", "verify"])
def test_a_snapshot_that_is_not_there(run: Run, made: Path, command: str) -> None:
    run(command, *READERS[command], made, "--snapshot", "2020").failed(2, made, "no snapshot 2020")
    run(command, *READERS[command], made, "--snapshot", "../../etc/passwd").failed(2, made)


@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"format": 99}', b"\xff"])
def test_a_damaged_manifest(run: Run, copy: Path, command: str, content: bytes) -> None:
    (copy / "manifest.json").write_bytes(content)
    run(command, *READERS[command], copy).failed(1, copy / "manifest.json")


@pytest.mark.parametrize(
    "key", ["run", "space", "rows", "work", "tokens", "files", "units", "input", "options", "index"]
)
def test_a_manifest_that_lacks_a_part(run: Run, copy: Path, key: str) -> None:
    data = manifest_of(copy)
    assert data is not None
    del data[key]
    edit_manifest(copy / "manifest.json", data)
    for command in READERS:
        outcome = run(command, *READERS[command], copy)
        outcome.failed(1, copy / "manifest.json", key)


def test_a_flag_of_another_command(run: Run, made: Path) -> None:
    run("files", "--store", made, "--query", "x").failed(2, "--query")


# --- files


def test_files_prints_the_current_shards(run: Run, made: Path) -> None:
    printed = run("files", "--store", made).ok().out.split()
    assert printed == [str(made / unit["path"]) for unit in units_of(made) if unit["path"]]
    assert all(Path(path).is_file() for path in printed)


def test_files_links_exactly_the_current_shards(
    run: Run, embed: Run, copy: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "links"
    run("files", "--store", copy, "--link", folder).ok()
    assert pq.read_table(folder).num_rows == 60
    write_lines(tmp_path / "in" / "c.txt", ["one"])
    embed(tmp_path / "in" / "c.txt", "--keep-columns", "text", "--max-deletes", 1).ok()
    run("files", "--store", copy, "--link", folder).ok()
    assert pq.read_table(folder).num_rows == 1


@pytest.mark.parametrize("what", ["file", "full"])
def test_files_does_not_link_over_anything(run: Run, made: Path, tmp_path: Path, what: str) -> None:
    target = tmp_path / what
    if what == "file":
        target.write_text("mine")
    else:
        target.mkdir()
        (target / "mine.txt").write_text("mine")
    run("files", "--store", made, "--link", target).failed(2, "--link", target)
    assert "mine" in (target if what == "file" else target / "mine.txt").read_text()


# --- verify


def test_verify_of_a_whole_store(run: Run, made: Path) -> None:
    assert "is whole: 60 rows" in run("verify", "--store", made).ok().out


def _first(store: Path, folder: str, suffix: str = "") -> Path:
    return sorted(path for path in (store / folder).iterdir() if path.suffix.endswith(suffix))[0]


def _flip(path: Path, at: float = 0.5) -> None:
    data = bytearray(path.read_bytes())
    data[int(at * len(data))] ^= 1
    path.write_bytes(data)


def _edit(store: Path, *keys: Any, value: Any) -> None:
    data = manifest_of(store)
    assert data is not None
    place: Any = data
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    edit_manifest(store / "manifest.json", data)


FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a byte of a shard": (lambda s: _flip(_first(s, "embeddings")), "embeddings/"),
    "no shard": (lambda s: _first(s, "embeddings").unlink(), "is missing"),
    "an empty shard": (lambda s: _first(s, "embeddings").write_bytes(b""), "embeddings/"),
    "a byte of a segment": (lambda s: _flip(_first(s, "index", ".faiss")), "index/"),
    "no segment": (lambda s: _first(s, "index", ".faiss").unlink(), "is missing"),
    "a byte of a locator": (lambda s: _flip(_first(s, "index", ".parquet")), "index/"),
    "no rejects": (lambda s: _first(s, "rejects").unlink(), "reject file"),
    "a byte of rejects": (lambda s: _flip(_first(s, "rejects"), 0.1), "rejects/"),
    "cut rejects": (lambda s: _first(s, "rejects").write_bytes(b"PAR1"), "rejects/"),
    "a shard in place of another": (
        lambda s: shutil.copy(
            sorted((s / "embeddings").iterdir())[0], sorted((s / "embeddings").iterdir())[1]
        ),
        "embeddings/",
    ),
    "another count": (lambda s: edit_units(s, changed(0, rows=3)), "rows"),
    "another sum": (lambda s: _edit(s, "rows", "written", value=61), "ledger"),
    "another sum of work": (lambda s: _edit(s, "work", "embedded", value=61), "ledger"),
    "no manifest of the run": (lambda s: _first(s, "manifests").unlink(), "manifest"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_verify_finds(run: Run, copy: Path, fault: str) -> None:
    damage, named = FAULTS[fault]
    damage(copy)
    outcome = run("verify", "--store", copy)
    assert outcome.status == 1
    *faults, last = outcome.err.splitlines()
    assert any(named in line for line in faults), outcome.err
    assert last.startswith("sentence-beam verify: ")
    assert f"{len(faults)} fault" in last
    assert "Traceback" not in outcome.err


# --- search


def test_search_finds_a_row_by_its_own_text_with_and_without_the_index(
    run: Run, made: Path, tmp_path: Path
) -> None:
    text = sentences(60)[41]
    for extra in ([], ["--exact"]):
        run(
            "search",
            "--store",
            made,
            "--query",
            text,
            "-k",
            5,
            "--output",
            tmp_path / "out.jsonl",
            *extra,
        ).ok()
        rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
        assert [row["rank"] for row in rows] == [1, 2, 3, 4, 5]
        assert rows[0]["score"] >= rows[1]["score"] >= rows[4]["score"]
        best = {row["id"] for row in rows if row["score"] >= rows[0]["score"] - 1e-6}
        assert "b.parquet#11" in best or len(best) == 5
        assert set(rows[0]) == {"query", "rank", "score", "id", "text", "n"}


def test_search_for_more_rows_than_there_are(run: Run, made: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    run(
        "search", "--store", made, "--query", "dog", "--query", "cat", "-k", 1000, "--output", out
    ).ok()
    table = pq.read_table(out)
    assert table.num_rows == 120
    assert sorted(table.column("id").to_pylist()) == sorted(ids_of(made) * 2)


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


def test_search_shows_the_text_under_the_name_that_it_has(
    run: Run, embed: Run, inputs: Path, store: Path
) -> None:
    table = pa.table({"body": sentences(3), "text": ["no", "not", "nor"]})
    pq.write_table(table, inputs / "a.parquet")
    embed(inputs / "*", "--text-column", "body", "--keep-columns", "text,body").ok()
    out = run("search", "--store", store, "--query", "dog").ok().out
    assert all(text in out for text in sentences(3))
    assert "nor" not in out


TIMES = [
    pa.timestamp("us"), pa.timestamp("s"), pa.timestamp("us", "UTC"), pa.timestamp("us", "Nowhere/Else"),
    pa.timestamp("ns"), pa.date64(), pa.duration("s"), pa.list_(pa.timestamp("us")),
]  # fmt: skip


def test_search_over_times_that_python_cannot_hold(
    run: Run, embed: Run, inputs: Path, store: Path
) -> None:
    columns = {f"when{number}": late_times(kind) for number, kind in enumerate(TIMES)}
    write_parquet(inputs / "a.parquet", sentences(3), **columns)
    embed(inputs / "*", "--keep-columns", ",".join(columns)).ok()
    run("search", "--store", store, "--query", "dog").ok()
    for suffix in ("jsonl", "parquet"):
        out = inputs.parent / f"out.{suffix}"
        run("search", "--store", store, "--query", "dog", "--output", out).ok()
        rows = (
            pq.read_table(out).to_pylist()
            if suffix == "parquet"
            else [json.loads(line) for line in out.read_text().splitlines()]
        )
        by_id = {row["id"]: row for row in rows}
        for name, values in columns.items():
            assert by_id["a.parquet#2"][name] in (None, [None]), (suffix, values.type)
            assert by_id["a.parquet#1"][name] not in (None, [None]), (suffix, values.type)


def late_times(kind: pa.DataType) -> pa.Array:
    """The first time there is, one that Python cannot hold, and none."""
    late = 10**12 if getattr(kind, "unit", "") == "s" else 2**62 // 86_400_000 * 86_400_000
    numbers = pa.array([0, late, None], pa.int64())
    if not pa.types.is_list(kind):
        return numbers.view(kind)
    return pa.ListArray.from_arrays([0, 1, 2, 3], numbers.view(kind.value_type))


@pytest.mark.parametrize("query", ["\u200b", "x" * 100_000, "a\nb"])
def test_odd_queries(run: Run, made: Path, query: str) -> None:
    outcome = run("search", "--store", made, "--query", query)
    assert "rank" in outcome.ok().out


@pytest.mark.parametrize("query", ["", " ", "\t\n"])
def test_an_empty_query_is_refused_before_anything_is_loaded(
    run: Run, made: Path, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "sentence_beam.transforms.encoder.Encoder.from_recipe",
        lambda *_, **__: pytest.fail("the model was loaded"),
    )
    run("search", "--store", made, "--query", "dog", "--query", query).failed(
        2, "--query", "is empty"
    )
    with pytest.raises(OptionError, match="query 2 of 2 is empty"):
        open_store(str(made)).search(["dog", query])


def test_a_search_alone_in_its_process_finds_the_same(made: Path) -> None:
    manifest = open_store(str(made)).manifest
    alone = Searcher(manifest, alone=True).search(["a red dog"], 5)
    assert [hit["id"] for hit in alone[0]] == [
        hit["id"] for hit in open_store(str(made)).search("a red dog", 5)
    ]


def test_queries_from_standard_input(run: Run, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "sys.stdin", io.TextIOWrapper(io.BytesIO("dög\n\r\ncat".encode()), encoding="ascii")
    )
    out = run("search", "--store", made, "--queries", "-", "-k", 1).ok().out
    assert [line for line in out.splitlines() if line.startswith("query")] == [
        "query: dög",
        "query: cat",
    ]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\n")))
    run("search", "--store", made, "--queries", "-").failed(2, "--queries -", "no query")


def test_the_files_of_a_search_hold_the_same_rows(run: Run, made: Path, tmp_path: Path) -> None:
    found = {}
    for suffix in ("parquet", "csv", "json", "jsonl"):
        path = tmp_path / f"o.{suffix}"
        run(
            "search",
            "--store",
            made,
            "--query",
            'dog, "cat"',
            "--query",
            "x",
            "-k",
            2,
            "--output",
            path,
        ).ok()
        found[suffix] = path
    rows = pq.read_table(found["parquet"]).to_pylist()
    assert [row["query"] for row in rows] == ['dog, "cat"', 'dog, "cat"', "x", "x"]
    assert json.loads(found["json"].read_text()) == rows
    assert [json.loads(line) for line in found["jsonl"].read_text().splitlines()] == rows
    with found["csv"].open(newline="") as f:
        assert list(csv.DictReader(f)) == [
            {name: str(value) for name, value in row.items()} for row in rows
        ]


def test_queries_from_a_file(run: Run, made: Path, tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_bytes(b"\xef\xbb\xbfdog\r\n\ncat\n")
    run(
        "search",
        "--store",
        made,
        "--queries",
        tmp_path / "q.txt",
        "-k",
        1,
        "--output",
        tmp_path / "o.jsonl",
    ).ok()
    rows = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert [row["query"] for row in rows] == ["dog", "cat"]


@pytest.mark.parametrize("name", ["q.csv", "q.jsonl", "q.parquet"])
def test_queries_from_a_table(run: Run, made: Path, tmp_path: Path, name: str) -> None:
    path, asked = (
        tmp_path / name,
        ("search", "--store", made, "-k", 1, "--queries", tmp_path / name),
    )
    rows = {"n": ["one", "two", "three"], "ask": ["dog", "", "a, cat"]}
    write = {"q.csv": pacsv.write_csv, "q.parquet": pq.write_table, "q.jsonl": write_json_lines}[
        name
    ]
    write(pa.table(rows), path)
    run(*asked).failed(2, name, "no column text")
    out = run(*asked, "--text-column", "ask")
    assert (out.status, out.err) == (0, f"note: 1 row of {path} without a text left out\n")
    assert [line for line in out.out.splitlines() if line.startswith("query")] == [
        "query: dog",
        "query: a, cat",
    ]
    run(*asked, "--text-column", "ask", "--id-column", "n", "--output", tmp_path / "o.jsonl")
    found = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert [(row["query"], row["query_text"]) for row in found] == [
        ("one", "dog"),
        ("three", "a, cat"),
    ]


def write_json_lines(table: pa.Table, path: Path) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))


def test_a_row_that_is_no_query_is_named(run: Run, made: Path, tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text('{"text": "dog"}\n{"text": 7}\n')
    run("search", "--store", made, "--queries", tmp_path / "q.jsonl").failed(
        2, "q.jsonl", "not a string"
    )


def test_columns_are_for_files_of_queries(run: Run, made: Path, tmp_path: Path) -> None:
    run("search", "--store", made, "--query", "x", "--text-column", "t").failed(
        2, "--text-column is for --queries"
    )
    (tmp_path / "asked").write_text("dog\n")
    plain = ("search", "--store", made, "-k", 1, "--queries", tmp_path / "asked")
    run(*plain).ok()
    run(*plain, "--text-column", "t").failed(2, "asked", "plain text", "--format")


@pytest.mark.parametrize(
    ("data", "word"), [(None, "there is no such file"), (b"", "no query"), (b"\xff\n", "UTF-8")]
)
def test_query_files_that_cannot_be_used(
    run: Run, made: Path, tmp_path: Path, data: bytes | None, word: str
) -> None:
    path = tmp_path / "q.txt"
    if data is not None:
        path.write_bytes(data)
    run("search", "--store", made, "--queries", path).failed(2, "--queries", path, word)


@pytest.mark.parametrize("output", ["out.xlsx", "none/out.jsonl", "none/out.parquet"])
def test_search_output_that_cannot_be_written(
    run: Run, made: Path, tmp_path: Path, output: str
) -> None:
    run("search", "--store", made, "--query", "x", "--output", tmp_path / output).failed(
        2, "--output", tmp_path / output
    )


@pytest.mark.parametrize(
    "arguments", [(), ("--query", "a", "--queries", "f"), ("--query", "a", "-k", "0")]
)
def test_search_options(run: Run, made: Path, arguments: tuple[str, ...]) -> None:
    run("search", "--store", made, *arguments).failed(2)


def test_search_with_another_model_is_refused(run: Run, made: Path, tmp_path: Path) -> None:
    other = save_tiny_model("bert", tmp_path / "other", num_hidden_layers=2)
    run("search", "--store", made, "--query", "x", "--model", other).failed(
        2, other, "weights", "--model"
    )
    run("search", "--store", made, "--query", "x", "--model", tmp_path / "none").failed(
        2, tmp_path / "none"
    )


def test_queries_get_the_models_prompt_for_queries(
    run: Run, inputs: Path, store: Path, tmp_path: Path
) -> None:
    folder = save_tiny_model("bert", tmp_path / "own")
    prompts = {
        "prompts": {"query": "the red dog ", "passage": "a cat "},
        "default_prompt_name": "passage",
    }
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    write_lines(inputs / "a.txt", sentences(5))
    options = ("--model", folder, "--dtype", "float32", "--normalize")
    run("embed", "--input", inputs / "*", "--store", store, *options).ok()
    run(
        "search", "--store", store, "--query", "horse", "-k", 5, "--output", tmp_path / "o.jsonl"
    ).ok()
    rows = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    scores = {}
    for prompt in ("the red dog ", "a cat ", ""):
        query = Encoder.load(str(folder), prompt=prompt, dtype="float32", normalize=True).encode(
            ["horse"]
        )[0]
        scores[prompt] = [float(query @ np.array(vectors_of(store)[row["id"]])) for row in rows]
    found = [row["score"] for row in rows]
    assert np.allclose(found, scores["the red dog "], atol=1e-5)
    assert not np.allclose(found, scores["a cat "], atol=1e-3)
    assert not np.allclose(found, scores[""], atol=1e-3)


def test_a_store_remembers_the_prompt_for_queries(
    run: Run, inputs: Path, store: Path, tmp_path: Path, model: Path
) -> None:
    write_lines(inputs / "a.txt", sentences(5))
    options = ("--model", model, "--dtype", "float32", "--normalize", "--prompt", "a cat ")
    embed = run("embed", "--input", inputs / "*", "--store", store, *options).ok
    embed()
    note = "none is known for queries"

    def scores(*arguments: object) -> tuple[list[float], str]:
        output = tmp_path / "o.jsonl"
        outcome = run(
            "search", "--store", store, "--query", "horse", "--output", output, *arguments
        )
        assert outcome.status == 0
        return [json.loads(line)["score"] for line in output.read_text().splitlines()], outcome.err

    bare, said = scores()
    assert note in said
    assert len(said.strip().splitlines()) == 1
    given, said = scores("--query-prompt", "the red dog ")
    assert note not in said
    assert not np.allclose(given, bare, atol=1e-4)
    before = manifest_of(store)["space"]
    run("embed", "--input", inputs / "*", "--store", store, "--query-prompt", "the red dog ").ok()
    after = manifest_of(store)
    assert after["space"] == before
    assert after["work"]["carried"] == 5
    assert scores() == (given, "")
    assert scores("--query-prompt", "")[0] == bare


def test_search_where_the_model_has_gone(
    run: Run, embed: Run, inputs: Path, store: Path, tmp_path: Path
) -> None:
    own = save_tiny_model("bert", tmp_path / "own")
    write_lines(inputs / "a.txt", sentences(3))
    run("embed", "--input", inputs / "*", "--store", store, "--model", own).ok()
    moved = own.rename(tmp_path / "moved")
    run("search", "--store", store, "--query", "x").failed(2, own)
    run("search", "--store", store, "--query", "x", "--model", moved).ok()


@pytest.mark.parametrize(
    ("what", "mend"), [("embeddings", "verify"), ("index", "`sentence-beam index --store")]
)
@pytest.mark.parametrize(
    "damage",
    [Path.unlink, _flip, lambda path: path.write_bytes(b"")],
    ids=["gone", "flip", "empty"],
)
def test_search_over_damage_ends_with_one_line_or_an_answer(
    run: Run, copy: Path, what: str, mend: str, damage: Callable[[Path], object]
) -> None:
    for path in sorted((copy / what).iterdir()):
        if what == "embeddings" or path.suffix == ".faiss":
            damage(path)
    outcome = run("search", "--store", copy, "--query", "dog")
    if outcome.status == 0:
        return
    outcome.failed(1, f"{copy}/{what}/", mend)


def test_the_python_interface_searches_too(made: Path) -> None:
    from sentence_beam.transforms.store import open_store

    found = open_store(str(made)).search(["dog", "cat"], k=3)
    assert [len(rows) for rows in found] == [3, 3]
    assert open_store(str(made)).dataset().count_rows() == 60


# --- index


def test_index_again_and_of_other_kinds(run: Run, copy: Path) -> None:
    for factory in ("Flat", "SQ8", "IVF2,Flat"):
        run("index", "--store", copy, "--index", factory).ok()
        manifest = check_ledger(copy, 60, 1, carried=60)
        assert manifest["index"]["factory"] == factory
    run("index", "--store", copy, "--metric", "l2", "--retrain").ok()
    assert check_ledger(copy, 60, 1)["index"]["metric"] == "l2"
    run("search", "--store", copy, "--query", "dog").ok()


def test_a_metric_that_ranks_alike_is_only_put_on_record(run: Run, copy: Path) -> None:
    """Rows have length 1: their inner product is the cosine, and the files stay."""
    run("index", "--store", copy, "--index", "IVF2,Flat", "--metric", "cosine").ok()
    built = manifest_of(copy)["index"]
    for flags in (["--metric", "ip"], []):
        run("index", "--store", copy, "--index", "IVF2,Flat", *flags).ok()
        index = manifest_of(copy)["index"]
        assert index["metric"] == "ip"
        assert index["segments"] == built["segments"]


@pytest.mark.parametrize("factory", ["Flut", "IVF", "IVF-3,Flat", "", "PQ7", "IVF1000000,Flat"])
def test_an_index_that_cannot_be_built(run: Run, embed: Run, copy: Path, factory: str) -> None:
    before = (copy / "manifest.json").read_bytes()
    run("index", "--store", copy, "--index", factory).failed(2, "--index", factory)
    assert (copy / "manifest.json").read_bytes() == before
    assert not (copy / "lease.json").exists()


def test_an_index_that_cannot_be_built_ends_before_a_row_is_embedded(
    embed: Run, inputs: Path, store: Path
) -> None:
    write_lines(inputs / "a.txt", sentences(3))
    embed(inputs / "*", "--index", "Flut").failed(2, "--index", "Flut")
    assert not store.exists()
    embed(inputs / "*", "--index", "IVF1000000,Flat").failed(2, "--index", "IVF1000000,Flat")
    assert not (store / "embeddings").exists()
    embed(inputs / "*", "--index", "Flat").ok()
    check_ledger(store, 3, embedded=3)


def test_an_index_follows_the_rows(run: Run, embed: Run, inputs: Path, store: Path) -> None:
    write_lines(inputs / "a.txt", sentences(40))
    embed(inputs / "*", "--index", "auto", "--unit-tokens", 100).ok()
    first = check_ledger(store, 40)["index"]
    embed(inputs / "*").ok()
    assert check_ledger(store, 40)["index"] == first
    write_lines(inputs / "b.txt", sentences(5, 100))
    embed(inputs / "*").ok()
    assert check_ledger(store, 45)["index"]["rows"] == 45
    (inputs / "a.txt").unlink()
    embed(inputs / "*", "--max-deletes", 1).ok()
    assert check_ledger(store, 5)["index"]["rows"] == 5
    embed(inputs / "*", "--index", "none").ok()
    assert check_ledger(store, 5)["index"] is None
    embed(inputs / "*").ok()
    assert check_ledger(store, 5)["index"] is None


def test_index_of_a_store_whose_shard_is_gone(run: Run, copy: Path) -> None:
    before = (copy / "manifest.json").read_bytes()
    gone = _first(copy, "embeddings")
    gone.unlink()
    run("index", "--store", copy, "--retrain").failed(1, gone)
    assert (copy / "manifest.json").read_bytes() == before


def test_index_while_another_writes(run: Run, copy: Path) -> None:
    import time

    from sentence_beam.transforms.store.runs import lease

    lease.acquire(
        str(copy), lease.Lease("run-1", "elsewhere", 17, "FlinkRunner", "job-1", time.time())
    )
    run("index", "--store", copy).failed(1, "run-1", "job-1")


# --- plan


def test_plan_counts_what_embed_then_does(run: Run, inputs: Path, store: Path, model: Path) -> None:
    write_parquet(inputs / "a.parquet", sentences(30), row_group_size=5)
    arguments = ("--input", inputs / "*", "--store", store, "--model", model, "--unit-tokens", 100)
    out = run("plan", *arguments).ok().out
    assert "30 to embed" in out
    assert not store.exists()
    run("embed", *arguments).ok()
    units = len(units_of(store))
    assert f"units       {units} to embed, 0 carried over" in out
    out = run("plan", *arguments).ok().out
    assert "1 unchanged" in out
    assert f"{units} carried over" in out


def test_planning_reads_footers_alone(
    run: Run, inputs: Path, store: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_parquet(inputs / "a.parquet", sentences(30), row_group_size=5)
    for name in ("iter_batches", "read", "read_row_group", "read_row_groups"):
        monkeypatch.setattr(pq.ParquetFile, name, lambda *_, **__: pytest.fail("rows were read"))
    arguments = [
        "--input",
        str(inputs / "*"),
        "--store",
        str(store),
        "--model",
        str(model),
        "--unit-tokens",
        "100",
        "--text-column",  # else its values are looked at
        "text",
        "--id-column",
        "",
    ]
    found = look(
        resolve_run(
            EmbedOptions(**vars(parser().parse_args(arguments))), None, "run", local=True
        ).job
    )
    assert found.rows == 30
    assert found.units > 1


def test_plan_meets_the_same_mistakes(run: Run, inputs: Path, store: Path, model: Path) -> None:
    arguments = ("--store", store, "--model", model)
    run("plan", "--input", inputs / "*.txt", *arguments).failed(2, "no file matches")
    path = write_parquet(inputs / "a.parquet", ["one"])
    run("plan", "--input", path, *arguments, "--text-column", "x").failed(2, path, "--text-column")
    path.write_bytes(b"PAR1")
    run("plan", "--input", path, *arguments).failed(1, path)
    (inputs / "b.txt.gz").write_bytes(b"\x1f\x8bnonsense")
    run("plan", "--input", inputs / "b.txt.gz", *arguments).failed(1, inputs / "b.txt.gz")
    write_lines(inputs / "c.txt", [""])
    run("plan", "--input", inputs / "c.txt", *arguments).ok()
