"""search --where, --min-score, --id and --query-vectors, on stores brought along over nights.

Covers pipelines/search.py.
Covers transforms/search/query_vectors.py.
"""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from helpers.commands import Run
from helpers.corpora import sentences, write_parquet

from sentence_beam.pipelines.cli import main
from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.index import filtered
from sentence_beam.transforms.search import Searcher
from sentence_beam.transforms.store import Store, open_store

LANGS = ["en", "de", "fr", None]


def rows(numbers: range) -> dict[str, Any]:
    """The columns of a file; the number of a row says all of it."""
    return {
        "lang": [LANGS[n % 4] for n in numbers],
        "year": [2000 + n for n in numbers],
        "key": [f"k{n}" for n in numbers],
    }


ONE_INDEX = pytest.mark.parametrize("made", ["IVF4,RaBitQ"], indirect=True)


@pytest.fixture(scope="module", params=["IVF4,RaBitQ", "IVF4,SQfp16", "none"])
def made(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, model: Path
) -> Path:
    """A store of two nights: of 80 rows 20 are deleted and 20 others added in the second."""
    folder = tmp_path_factory.mktemp("filtered")
    texts = sentences(120)
    where = f"--input {folder}/in/*.parquet --store {folder}/store --model {model}"
    how = f"--index {request.param} --id-column key --keep-columns lang,year --unit-tokens 150"
    ranges = {"a": range(40), "b": range(40, 80)}, {"b": range(60, 80), "c": range(80, 100)}
    for night in ranges:
        for name, numbers in night.items():
            path = folder / "in" / f"{name}.parquet"
            write_parquet(path, [texts[n] for n in numbers], **rows(numbers))
        assert main(["embed", *where.split(), *how.split(), "--dtype", "float32"]) == 0
    return folder / "store"


@pytest.fixture
def store(made: Path) -> Store:
    """The store, opened."""
    return open_store(str(made))


def cosines(store: Store, vector: np.ndarray) -> dict[str, float]:
    """The cosine of every row with a vector, by id."""
    ids, vectors = store.numpy()
    found = vectors @ vector / np.linalg.norm(vectors, axis=1) / np.linalg.norm(vector)
    return dict(zip(ids.tolist(), found.tolist(), strict=True))


def check(
    hits: list[dict[str, Any]], true: dict[str, float], wanted: set[str], within: float
) -> None:
    """All wanted rows are found once, each with its score but for rounding, best first."""
    assert sorted(hit["id"] for hit in hits) == sorted(wanted)
    assert [hit["rank"] for hit in hits] == list(range(1, len(hits) + 1))
    scores = [hit["score"] for hit in hits]
    assert scores == sorted(scores, reverse=True)
    np.testing.assert_allclose(scores, [true[hit["id"]] for hit in hits], atol=within)


@pytest.mark.parametrize(
    "where",
    [
        "lang = 'en' AND year >= 2060",
        "lang IS NULL",
        "NOT year IN (2001, 2002)",
        pc.field("year") < 2045,
    ],
)
@pytest.mark.parametrize("few", [True, False])
def test_the_best_of_the_rows_that_a_filter_wants(
    store: Store, where: Any, few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filtered, "FEW", 50_000 if few else 0)
    table = store.dataset().to_table(columns=["lang", "year"])
    lang, year = table["lang"].to_pylist(), np.array(table["year"])
    wanted = {
        "lang = 'en' AND year >= 2060": np.array([name == "en" for name in lang]) & (year >= 2060),
        "lang IS NULL": np.array([name is None for name in lang]),
        "NOT year IN (2001, 2002)": ~np.isin(year, [2001, 2002]),
    }.get(str(where), year < 2045)
    ids, vectors = store.numpy()
    for exact in (False, True):
        hits = store.search(vectors=vectors[7:8], k=200, where=where, exact=exact)[0]
        check(hits, cosines(store, vectors[7]), set(ids[wanted]), 1e-5 if exact else 0.01)


@ONE_INDEX
def test_filters_on_the_command_line(run: Run, made: Path) -> None:
    asked = ("search", "--store", made, "--query", "dog", "--json", "--where")
    german = (*asked, "lang = 'de' AND year < 2040")

    def rows_of(*command: object) -> list[dict[str, Any]]:
        return json.loads(run(*command).ok().out)["results"][0]["rows"]

    found = rows_of(*german, "-k", 100)
    assert {hit["lang"] for hit in found} == {"de"}
    assert len(found) == 10
    least = rows_of(*german, "--min-score", found[3]["score"] - 1e-6)
    assert [hit["rank"] for hit in least] == [1, 2, 3, 4]
    nothing = run("search", "--store", made, "--query", "dog", "--where", "year = 1066")
    assert (nothing.status, "no rows" in nothing.out) == (0, True)
    assert "note: no row matches --where year = 1066" in nothing.err
    columns = "lang (string), year (int64)"
    run(*asked, "town = 'x'").failed(2, "--where", "no column town", columns)
    run(*asked[:-1], "--min-score", "high").failed(2, "--min-score", "high")


@ONE_INDEX
def test_kept_columns_are_shown_in_full_and_where_a_filter_names_them(run: Run, made: Path) -> None:
    shown: list[tuple[tuple[str, ...], list[str]]] = [
        (("--where", "lang = 'de' AND year BETWEEN 2001 AND 2090"), ["lang", "year"]),
        (("--where", "id LIKE 'k%' AND text IS NOT NULL"), []),
        (("--where", "year > 0", "--full"), ["lang", "year"]),
        (("--full",), ["lang", "year"]),
        ((), []),
    ]
    for options, columns in shown:
        asked = ("search", "--store", made, "--query", "dog", "-k", 4, *options)
        rows = json.loads(run(*asked, "--json").ok().out)["results"][0]["rows"]
        head, *lines = run(*asked).ok().out.splitlines()[1:]
        assert head.split() == ["rank", "score", "id", *columns, "text"]
        starts = [head.index(name) for name in columns] + [head.index("text")]
        cells = [[line[one:other].strip() for one, other in pairwise(starts)] for line in lines]
        assert cells == [
            ["" if row[name] is None else str(row[name]) for name in columns] for row in rows
        ]
        assert len(lines) == 4


def test_the_neighbours_of_stored_rows(run: Run, made: Path, store: Store) -> None:
    ids, vectors = store.numpy()
    own = vectors[ids.tolist().index("k5")]
    hits = store.search(ids=["k5", "k90"], k=99)
    check(hits[0], cosines(store, own), set(ids) - {"k5"}, 0.01)
    assert len(hits[1]) == len(ids) - 1
    asked = ("search", "--store", made, "--id", "k5", "--id")
    told = json.loads(run(*asked, "k90", "-k", 3, "--json").ok().out)["results"]
    assert [each["query"] for each in told] == ["k5", "k90"]
    assert [hit["id"] for hit in told[0]["rows"]] == [hit["id"] for hit in hits[0][:3]]
    run(*asked, "k55").failed(2, "--id", "no row with the id 'k55'")
    only = store.search(ids=["k5"], where="lang = 'de'", k=3)[0]
    assert {hit["lang"] for hit in only} == {"de"}
    assert "k5" not in {hit["id"] for hit in only}
    with pytest.raises(OptionError, match="either texts, ids or vectors"):
        store.search(["dog"], ids=["k5"])


@ONE_INDEX
def test_vectors_of_a_file_are_queries(run: Run, made: Path, store: Store, tmp_path: Path) -> None:
    ids, vectors = store.numpy()
    np.save(tmp_path / "q.npy", vectors[:2].astype(np.float64))
    pq.write_table(store.dataset().to_table().slice(0, 2), tmp_path / "q.parquet")
    lists = pa.table({"embedding": pa.array(vectors[:2].tolist(), pa.list_(pa.float64()))})
    pq.write_table(lists, tmp_path / "lists.parquet")
    numbers = ["0", "1"]
    files = {"q.npy": numbers, "q.parquet": ids[:2].tolist(), "lists.parquet": numbers}
    for name, called in files.items():
        asked = ("search", "--store", made, "--query-vectors", tmp_path / name, "-k", 1, "--json")
        told = json.loads(run(*asked).ok().out)["results"]
        assert [each["query"] for each in told] == called
        assert [each["rows"][0]["id"] for each in told] == ids[:2].tolist()


@ONE_INDEX
def test_a_shard_of_another_space_is_no_query(
    run: Run, made: Path, store: Store, tmp_path: Path
) -> None:
    table = store.dataset().to_table().slice(0, 2)
    metadata = {**table.schema.metadata, b"space": json.dumps({"id": "another"}).encode()}
    asked = ("search", "--store", made, "--query-vectors", tmp_path / "q.parquet")
    pq.write_table(table.replace_schema_metadata(metadata), asked[-1])
    run(*asked).failed(2, "--query-vectors", "another space")
    pq.write_table(table.select(["id"]), asked[-1])
    run(*asked).failed(2, "no column embedding")


def test_only_the_columns_of_a_filter_are_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    searcher = Searcher(store.manifest)
    searcher.nearest(store.numpy()[1][:1], 3, where="lang = 'en'")
    if store.manifest.index is None:
        return
    for name in ("read_shard", "read_wanted", "take_numbered"):
        # a second search by the filter opens no shard
        monkeypatch.setattr(f"sentence_beam.transforms.search.snapshot_rows.{name}", None)
    assert searcher.nearest(store.numpy()[1][:1], 3, where="lang = 'en'").row.shape == (1, 3)


def test_pieces_have_the_columns_of_their_document(run: Run, tmp_path: Path, model: Path) -> None:
    texts = [". ".join(f"{text} number {part}" for part in range(12)) for text in sentences(12)]
    path, store = write_parquet(tmp_path / "in.parquet", texts, **rows(range(12))), tmp_path / "s"
    how = ("--id-column", "key", "--keep-columns", "lang,year", "--index", "Flat")
    where = ("--input", path, "--store", store, "--model", model)
    run("embed", *where, *how, "--chunks", "sentences").ok()
    opened = open_store(str(store))
    hits = opened.search("number 3", k=10, where="lang = 'en'")
    assert {hit["id"] for hit in hits} == {"k0", "k4", "k8"}
    assert all(hit["passage"] for hit in hits)
    like = opened.search(ids=["k4"], k=20)[0]
    assert sorted(hit["id"] for hit in like) == sorted(f"k{n}" for n in range(12) if n != 4)
    pieces = opened.search(ids=["k4"], k=5, fold="none", where="piece = 0")[0]
    assert {hit["piece"] for hit in pieces} == {0}


def test_kept_columns_named_as_what_a_hit_says_itself(
    run: Run, tmp_path: Path, model: Path
) -> None:
    texts, store = sentences(12), tmp_path / "store"
    columns = {"score": [f"s{n}" for n in range(12)], "rank": [100 * n for n in range(12)]}
    path = tmp_path / "in.parquet"
    write_parquet(path, ["no text"] * 12, **columns, query=texts, kept_score=list(range(12)))
    how = ("--text-column", "query", "--keep-columns", "query,rank,score,kept_score")
    run("embed", "--input", path, "--store", store, "--model", model, *how).ok()
    (hit,) = open_store(str(store)).search(texts[3], k=1, where="score = 's3'")
    assert (hit["rank"], hit["score"]) == (1, pytest.approx(1, abs=1e-3))
    kept = {name: hit[f"kept_{name}"] for name in ("rank", "query", "score", "kept_score")}
    assert kept == {"rank": 300, "query": texts[3], "score": 3, "kept_score": "s3"}
    shown = run("search", "--store", store, "--query", texts[3], "-k", 1).ok().out
    assert texts[3] in shown.splitlines()[-1]
    asked = ("search", "--store", store, "--query", "what was asked")
    run(*asked, "--output", tmp_path / "hits.jsonl").ok()
    written = [json.loads(line) for line in (tmp_path / "hits.jsonl").read_text().splitlines()]
    assert {row["query"] for row in written} == {"what was asked"}
    assert [row["rank"] for row in written] == list(range(1, 11))
