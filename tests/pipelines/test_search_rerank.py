"""search --rerank: the best 100 rows in the order of a cross-encoder, beside sentence-transformers'
own scores.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from helpers.commands import Run
from helpers.corpora import sentences, write_parquet
from helpers.cross_encoders import save_cross_encoder

from sentence_beam.pipelines.cli import main
from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.store import open_store

ROWS, WANTED = 130, 5


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A store with texts and one without, and a cross-encoder."""
    folder = tmp_path_factory.mktemp("reranked")
    columns = {"key": [f"k{n}" for n in range(ROWS)], "rerank": list(range(ROWS))}
    write_parquet(folder / "in.parquet", sentences(ROWS), **columns)
    command = f"embed --input {folder}/in.parquet --model {model} --id-column key".split()
    assert main([*command, "--store", f"{folder}/store", "--keep-columns", "rerank"]) == 0
    assert main([*command, "--store", f"{folder}/bare", "--no-keep-text"]) == 0
    save_cross_encoder(folder / "cross")
    return folder


def test_hits_are_those_that_the_library_scores_highest(made: Path) -> None:
    from sentence_transformers import CrossEncoder

    store = open_store(str(made / "store"))
    queries = ["a dog in the park", "the woman is eating"]
    near = store.search(queries, k=100)
    found = store.search(queries, k=WANTED, rerank=made / "cross")
    model = CrossEncoder(str(made / "cross"), device="cpu", local_files_only=True)
    for query, hits, all_hits in zip(queries, found, near, strict=True):
        pairs = [(query, hit["text"]) for hit in all_hits]
        scores = model.predict(pairs, show_progress_bar=False).astype(float)
        order = np.argsort(-scores, kind="stable")[:WANTED]
        assert [hit["id"] for hit in hits] == [all_hits[at]["id"] for at in order]
        assert [hit["rerank"] for hit in hits] == pytest.approx(scores[order], abs=1e-6)
        assert [hit["score"] for hit in hits] == [all_hits[at]["score"] for at in order]
        assert [hit.rank for hit in hits] == [1, 2, 3, 4, 5]
        assert list(hits[0])[:3] == ["rank", "score", "rerank"]
        assert isinstance(hits[0]["kept_rerank"], int)


def test_tables_and_json_have_both_scores(run: Run, made: Path, tmp_path: Path) -> None:
    command = ("search", "--store", made / "store", "--query", "a dog", "-k", 2)
    lines = run(*command, "--rerank", made / "cross").ok().out.splitlines()
    assert lines[1].split()[:4] == ["rank", "score", "rerank", "id"]
    out = tmp_path / "hits.jsonl"
    run(*command, "--rerank", made / "cross", "--output", out).ok()
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [list(row)[:4] for row in rows] == [["query", "rank", "score", "rerank"]] * 2
    assert rows[0]["rerank"] >= rows[1]["rerank"]
    printed = [float(line.split()[2]) for line in lines[2:]]
    assert printed == [round(row["rerank"], 4) for row in rows]


def test_a_filter_and_a_least_score_come_first(made: Path) -> None:
    store = open_store(str(made / "store"))
    near = store.search("a dog", k=20, where="rerank < 20")
    least = near[10]["score"]
    found = store.search("a dog", k=50, where="rerank < 20", min_score=least, rerank=made / "cross")
    assert {hit["id"] for hit in found} == {hit["id"] for hit in near if hit["score"] >= least}
    assert [hit["rerank"] for hit in found] == sorted(
        (hit["rerank"] for hit in found), reverse=True
    )


def test_what_cannot_be_read_is_refused(run: Run, made: Path, model: Path) -> None:
    asked = ("search", "--query", "a dog", "--rerank")
    run(*asked, made / "cross", "--store", made / "bare").failed(2, "does not keep (--keep-text)")
    run(*asked, model, "--store", made / "store").failed(2, "holds no cross-encoder")
    with pytest.raises(OptionError, match="rerank reads the query's text"):
        open_store(str(made / "store")).search(ids="k1", rerank=made / "cross")
