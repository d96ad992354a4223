"""`sentence-beam dedup` and `sentence-beam cluster` as a person runs them.

Covers pipelines/cluster.py.
Covers pipelines/dedup.py.
"""

import csv
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from helpers.commands import Run
from helpers.corpora import sentences, write_parquet

from sentence_beam.pipelines.cli import main

pytest.importorskip("faiss")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A store of 40 rows, the last four of which have the texts of the first four, and one without
    any.
    """
    folder = tmp_path_factory.mktemp("made")
    texts = sentences(36)
    write_parquet(folder / "a.parquet", [*texts, *texts[:4]], key=[f"k{n:02d}" for n in range(40)])
    write_parquet(folder / "b.parquet", [""])
    for name, how in (("a", "--id-column key"), ("b", "--max-rejects 1")):
        where = f"--input {folder}/{name}.parquet --store {folder}/{name} --model {model}"
        assert main(["embed", *where.split(), *how.split()]) == 0
    return folder


def test_copies_are_found_and_the_smallest_id_is_kept(run: Run, made: Path, tmp_path: Path) -> None:
    out = tmp_path / "d.csv"
    said = run("dedup", "--store", made / "a", "--min-score", 0.999, "--output", out).ok().out
    assert "40, 36 to keep" in said
    assert "4 in 4 groups" in said
    assert said.splitlines()[0].split() == ["component", "keep", "score", "id", "text"]
    assert said.splitlines()[2].split(None, 4) == ["0", "no", "1.0000", "k36", sentences(36)[0]]
    rows = list(csv.DictReader(out.open()))
    assert [row["text"] for row in rows] == [*sentences(36), *sentences(4)]
    assert [row["id"] for row in rows] == [f"k{n:02d}" for n in range(40)]
    assert [row["id"] for row in rows if row["keep"] == "False"] == ["k36", "k37", "k38", "k39"]
    assert [row["component"] for row in rows[36:]] == [row["component"] for row in rows[:4]]
    assert min(float(row["score"]) for row in rows) > 0.999


def test_clusters_are_named_by_the_texts_nearest_to_their_centres(
    run: Run, made: Path, tmp_path: Path
) -> None:
    out = tmp_path / "c.parquet"
    said = run("cluster", "--store", made / "a", "--clusters", 3, "--output", out).ok().out
    clusters = pq.read_table(tmp_path / "c-clusters.parquet").to_pylist()
    assert [cluster["label"] for cluster in clusters] == [0, 1, 2]
    assert clusters[0]["names"][0] in sentences(36)
    assert clusters[0]["names"][0][:30] in said
    assert "40 rows in" in said
    schema = pq.read_schema(out)
    assert [(field.name, str(field.type)) for field in schema] == [
        ("id", "string"), ("label", "int32"), ("distance", "float"),
    ]  # fmt: skip


def test_mistakes_are_one_line(run: Run, made: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.parquet"
    cluster, dedup = ((name, "--output", out, "--store") for name in ("cluster", "dedup"))
    run(*cluster, made / "a", "--clusters", 41).failed(2, "--clusters 41", "there are 40 rows")
    run(*cluster, made / "a").failed(2, "--clusters --min-score")
    run(*cluster, made / "b", "--min-score", 0.5).failed(2, "holds no rows")
    run(*dedup, made / "b", "--min-score", 0.5).failed(2, "holds no rows")
    run(*dedup, made / "a", "--min-score", 1.1).failed(2, "--min-score", "not a cosine")
    run(*dedup, made / "no", "--min-score", 0.9).failed(2, "holds no store")
    text = ("dedup", "--output", tmp_path / "x.txt", "--store", made / "a", "--min-score", 0.9)
    run(*text).failed(2, "must end in")
    assert not out.exists()
