"""A real store made by the real pipeline with the real model: read by everybody, searched, indexed,
described.
"""

import functools
import importlib.util
import json
from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.snapshots import units_of

from sentence_beam.pipelines import cli
from sentence_beam.pipelines.embed import build, parser
from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.search import Searcher
from sentence_beam.transforms.steps.options import EmbedOptions
from sentence_beam.transforms.steps.options.resolve import resolve_run
from sentence_beam.transforms.store import Store, open_store

pytestmark = pytest.mark.usefixtures("plain_beam")

SUBJECTS = [
    "a man",
    "a woman",
    "the old dog",
    "a small child",
    "my neighbour",
    "the orchestra",
    "a red car",
]
VERBS = ["plays", "sings about", "runs after", "looks at", "repairs", "forgets", "paints"]
OBJECTS = [
    "the guitar",
    "a river",
    "the moon",
    "his bicycle",
    "an apple tree",
    "the quarterly report",
    "a cat",
]
TEXTS = [f"{s} {v} {o}" for s in SUBJECTS for v in VERBS for o in OBJECTS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Input files and a store of them, float32, with an IVF index."""
    folder = tmp_path_factory.mktemp("end")
    half = len(TEXTS) // 2
    for name, start, stop in (("a", 0, half), ("b", half, len(TEXTS))):
        rows = {
            "text": TEXTS[start:stop],
            "key": list(range(start, stop)),
            "tags": [["x", None]] * (stop - start),
        }
        pq.write_table(pa.table(rows), folder / f"{name}.parquet", row_group_size=50)
    assert cli.main([*command(folder), "--index", "IVF8,Flat"]) == 0
    return folder


def command(folder: Path) -> list[str]:
    """The embed command that made the store."""
    return [
        "embed", "--input", f"{folder}/*.parquet", "--store", f"{folder}/store", "--id-column", "key",
        "--keep-columns", "text,tags", "--dtype", "float32", "--unit-tokens", "900",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def store(folder: Path) -> Store:
    """The store, opened."""
    return open_store(str(folder / "store"))


@functools.cache
def encoder() -> Encoder:
    """The real model."""
    return Encoder.load("minilm", dtype="float32")


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    """All texts encoded in one go."""
    return encoder().encode(TEXTS)


def test_vectors_are_the_encoders_own_in_input_order(store: Store, vectors: np.ndarray) -> None:
    table = store.dataset().to_table()
    order = np.argsort([int(i) for i in table.column("id").to_pylist()])
    assert sorted(table.column("id").to_pylist(), key=int) == [str(i) for i in range(len(TEXTS))]
    found = np.array(table.column("embedding").to_pylist(), np.float32)[order]
    assert np.abs(found - vectors).max() <= 2e-5 * np.abs(vectors).max()
    assert table.column("tags").to_pylist()[0] == ["x", None]
    norms = np.array(table.column("norm"))
    assert (norms > 1).all()


def test_units_and_manifest(store: Store) -> None:
    data = store.manifest.data
    assert data["rows"] == {"read": 343, "written": 343, "rejected": 0}
    assert data["work"]["embedded"] == 343
    units = units_of(store.root)
    assert len(units) > 4
    assert len({unit["unit"] for unit in units}) == len(units)
    assert data["space"]["id"] == encoder().space.id
    assert data["tokens"]["padded"] >= data["tokens"]["real"] > 343 * 6


@pytest.fixture(scope="module")
def linked(folder: Path) -> Path:
    """The current shards as a folder."""
    assert cli.main(["files", "--store", f"{folder}/store", "--link", f"{folder}/current"]) == 0
    return folder / "current"


def test_read_by_pandas(linked: Path) -> None:
    import pandas as pd

    frame = pd.read_parquet(linked)
    assert len(frame) == 343
    assert np.stack(frame["embedding"]).shape == (343, 384)


def test_read_by_duckdb(linked: Path) -> None:
    import duckdb

    query = f"select count(*), min(len(embedding)), sum(tokens) from '{linked}/*.parquet' where not truncated"
    assert duckdb.sql(query).fetchall()[0][:2] == (343, 384)


def test_read_by_polars(linked: Path) -> None:
    import polars as pl

    frame = pl.scan_parquet(linked / "*.parquet").select("id", "embedding").collect()
    assert frame["embedding"].to_numpy().shape == (343, 384)


def test_read_by_datasets(linked: Path, tmp_path: Path) -> None:
    import datasets

    files = [str(p) for p in linked.glob("*.parquet")]
    found = datasets.load_dataset(
        "parquet", data_files=files, split="train", cache_dir=str(tmp_path)
    )
    assert found.num_rows == 343
    assert len(found[0]["embedding"]) == 384


@pytest.mark.skipif(
    importlib.util.find_spec("autofaiss") is None,
    reason="autofaiss does not install beside numpy 2",
)
def test_read_by_autofaiss(linked: Path, tmp_path: Path) -> None:
    import autofaiss

    index, _ = autofaiss.build_index(
        str(linked),
        file_format="parquet",
        embedding_column_name="embedding",
        save_on_disk=False,
        max_index_memory_usage="1G",
    )
    assert index.ntotal == 343


QUERIES = ["someone repairing a bike", "music", "an animal under the moon", TEXTS[17], TEXTS[200]]


def brute_force(vectors: np.ndarray, query: str, k: int) -> tuple[list[float], set[str]]:
    """Scores of the k best, and the ids that may stand among them."""
    scores = vectors @ encoder().encode([query])[0]
    best = np.sort(scores)[::-1][:k]
    return best.tolist(), {str(i) for i in np.flatnonzero(scores >= best[-1] - 1e-5)}


def test_exact_search_is_brute_force(store: Store, vectors: np.ndarray) -> None:
    for query, rows in zip(QUERIES, store.search(QUERIES, k=7, exact=True), strict=True):
        scores, ids = brute_force(vectors, query, 7)
        assert np.allclose([row["score"] for row in rows], scores, atol=1e-5)
        assert {row["id"] for row in rows} <= ids
        assert [row["rank"] for row in rows] == list(range(1, 8))
        assert all(row["text"] == TEXTS[int(row["id"])] for row in rows)


def test_an_index_probed_everywhere_is_brute_force_and_finds_every_row(
    store: Store, vectors: np.ndarray
) -> None:
    everywhere = dict(store.manifest.data["index"], nprobe=8)
    store = Store(
        type(store.manifest).from_data(store.root, {**store.manifest.data, "index": everywhere})
    )
    for query, rows in zip(QUERIES, store.search(QUERIES, k=5), strict=True):
        assert {row["id"] for row in rows} <= brute_force(vectors, query, 5)[1]
    searcher = Searcher(store.manifest)
    found = searcher.rows.describe(searcher.nearest(vectors, 1))
    assert [row[0]["id"] for row in found] == [str(i) for i in range(len(TEXTS))]


def test_the_index_is_described_and_its_recall_was_measured_on_rows_left_out(store: Store) -> None:
    index = store.manifest.data["index"]
    assert (index["factory"], index["metric"], index["rows"]) == ("IVF8,Flat", "cosine", 343)
    kinds = [segment["kind"] for segment in index["segments"]]
    assert kinds.count("held-out") == 1
    recall = index["recall"]
    assert recall["k"] == 10
    assert 0.5 < recall["low"] <= recall["value"] <= recall["high"] <= 1
    assert sum(segment["rows"] for segment in index["segments"]) == 343


def test_search_command(folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    queries = tmp_path / "queries.txt"
    queries.write_text("the moon\n\na cat\n")
    assert (
        cli.main(["search", "--store", f"{folder}/store", "--queries", str(queries), "-k", "3"])
        == 0
    )
    out = capsys.readouterr().out
    assert out.count("query: ") == 2
    assert "the moon" in out.splitlines()[2]
    for name in ("out.parquet", "out.jsonl"):
        options = ["--query", "the moon", "-k", "4", "--output", str(tmp_path / name)]
        assert cli.main(["search", "--store", f"{folder}/store", *options]) == 0
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["rank"] for row in rows] == [1, 2, 3, 4]
    assert pq.read_table(tmp_path / "out.parquet").column("id").to_pylist() == [
        row["id"] for row in rows
    ]


def test_an_unchanged_night_loads_no_model_and_keeps_shards_and_index(
    folder: Path, store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr("sentence_beam.transforms.steps.embed.load_encoder.load_encoder", refuse)
    assert cli.main(["embed", "--input", f"{folder}/*.parquet", "--store", f"{folder}/store"]) == 0
    again = open_store(str(folder / "store")).manifest
    assert again.data["previous"] == store.manifest.run
    assert units_of(store.root) == units_of(store.root, store.manifest.data)
    assert again.data["index"] == store.manifest.data["index"]
    assert again.data["work"] == {"embedded": 0, "reused": 0, "duplicates": 0, "carried": 343}
    assert "343 carried" in capsys.readouterr().out


@pytest.mark.slow
def test_index_command_and_its_options(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for options, factory in (
        (["--index", "Flat"], "Flat"),
        (["--index", "IVF4,SQ8", "--retrain"], "IVF4,SQ8"),
    ):
        assert cli.main(["index", "--store", f"{folder}/store", *options]) == 0
        found = open_store(str(folder / "store"))
        assert found.manifest.data["index"]["factory"] == factory
        assert found.search([TEXTS[5]], k=1)[0][0]["id"] == "5"
    assert "recall@10" in capsys.readouterr().out
    assert cli.main(["verify", "--store", f"{folder}/store"]) == 0
    assert cli.main(["index", "--store", f"{folder}/store", "--index", "HNSW32"]) == 2


def test_the_graph_reads_like_the_design(folder: Path, tmp_path: Path) -> None:
    arguments = [*command(folder)[1:], "--index", "auto", "--accelerator", "type:nvidia-l4;count:1"]
    arguments[arguments.index("--store") + 1] = str(tmp_path / "new")
    resolved = resolve_run(
        EmbedOptions(**vars(parser().parse_args(arguments))), None, "run", local=True
    )
    pipeline = beam.Pipeline("FnApiRunner")
    build(
        pipeline,
        resolved,
        {"accelerator": "type:nvidia-l4;count:1"},
        {"accelerator": "type:nvidia-t4;count:1"},
    )
    proto = pipeline.to_runner_api()
    names = {t.unique_name for t in proto.components.transforms.values() if t.unique_name}
    assert {"Plan", "Embed", "Index", "Commit"} <= {name.split("/")[0] for name in names}
    hinted = {
        (value.decode()[12:14], "/".join(t.unique_name.split("/")[:2]))
        for t in proto.components.transforms.values()
        for urn, value in proto.components.environments[t.environment_id].resource_hints.items()
        if "accelerator" in urn and not t.subtransforms
    }
    assert hinted == {("l4", "Embed/EmbedUnits"), ("t4", "Index/Train")}, hinted
