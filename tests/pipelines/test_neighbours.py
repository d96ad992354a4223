"""`sentence-beam neighbours` as a person runs it."""

import errno
import json
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from helpers.commands import Run
from helpers.corpora import sentences, write_jsonl, write_lines, write_parquet
from helpers.faulty_disk import Disk, refuse
from helpers.tiny_models import save_tiny_model

from sentence_beam.pipelines.cli import main
from sentence_beam.transforms import storage

pytest.importorskip("faiss")

ASKED = [*sentences(4, start=200), "", "dog cat"]
INDEXED = ("--id-column", "key", "--index", "IVF8,SQ8", "--quiet")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A store of 120 rows with an index, and in the same folder questions, with and without ids."""
    folder = tmp_path_factory.mktemp("made")
    keys = [f"k{n}" for n in range(120)]
    write_parquet(folder / "corpus.parquet", sentences(120), key=keys)
    write_lines(folder / "questions.txt", ASKED)
    named = [{"body": text, "key": f"q{n}"} for n, text in enumerate(ASKED)]
    write_jsonl(folder / "named.jsonl", named)
    where = f"--input {folder}/corpus.parquet --store {folder}/store --model {model}"
    assert main(["embed", *where.split(), *INDEXED]) == 0
    return folder


def rows_in(path: Path) -> list[dict[str, Any]]:
    """The rows of a folder of Parquet files or of a file of JSON lines."""
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    return ds.dataset(str(path)).to_table().to_pylist()


def of_itself(made: Path, *options: object) -> tuple[object, ...]:
    """The command line for the neighbours of a store's own rows."""
    return ("neighbours", "--store", made / "store", "--of", made / "store", *options)


def test_texts_find_what_a_search_finds_for_them(run: Run, made: Path, tmp_path: Path) -> None:
    out, hits = tmp_path / "out", tmp_path / "hits.jsonl"
    asked = ("--store", made / "store", "-k", 5, "--queries", made / "questions.txt", "--output")
    assert "5, 1 rejected" in run("neighbours", *asked, out).ok().out
    (out / "_neighbours.json").rename(tmp_path / "said.json")
    assert json.loads((tmp_path / "said.json").read_text())["rows"] == 25
    run("search", *asked, hits).ok()
    wanted, found = rows_in(hits), rows_in(out)
    assert [(row["query"], row["rank"], row["id"]) for row in found] == [
        (row["query"], row["rank"], row["id"]) for row in wanted
    ]
    scores = [row["score"] for row in wanted]
    assert [row["score"] for row in found] == pytest.approx(scores, abs=1e-5)


def test_queries_are_named_by_their_ids_and_rows_of_a_store_by_theirs(
    run: Run, made: Path, tmp_path: Path
) -> None:
    queries = ("--queries", made / "named.jsonl", "--text-column", "body")
    asked = ("neighbours", "--store", made / "store", *queries, "--output")
    names = {f"q{n}" for n in (0, 1, 2, 3, 5)}
    ids = ("--id-column", "key", "-k")
    run(*asked, tmp_path / "a", *ids, 3, "--min-score", 0.5, "--json").ok()
    assert {row["query"] for row in rows_in(tmp_path / "a")} <= names
    assert all(row["score"] >= 0.5 for row in rows_in(tmp_path / "a"))
    run(*asked, tmp_path / "c.jsonl", *ids, 1).ok()
    rows = rows_in(tmp_path / "c.jsonl")
    texts = {f"q{n}": text for n, text in enumerate(ASKED)}
    assert {row["query"]: row["query_text"] for row in rows} == {n: texts[n] for n in names}
    run(*asked, tmp_path / "d.jsonl", "-k", 1).ok()
    assert [*rows_in(tmp_path / "d.jsonl")[0]] == ["query", "rank", "id", "score", "text"]
    run(*of_itself(made, "-k", 3, "--output", tmp_path / "b")).ok()
    found = rows_in(tmp_path / "b")
    assert len(found) == 360
    assert not [row for row in found if row["id"] == row["query"]]
    schema = pq.read_schema(next((tmp_path / "b").glob("*.parquet")))
    assert [(field.name, str(field.type)) for field in schema] == [
        ("query", "string"), ("rank", "int32"), ("id", "string"), ("score", "float"),
    ]  # fmt: skip


def test_a_folder_is_one_jobs(run: Run, made: Path, tmp_path: Path) -> None:
    asked = of_itself(made, "--output", tmp_path / "out")
    run(*asked, "-k", 2).ok()

    def written() -> dict[str, int]:
        return {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.parquet")}

    before = written()
    assert "240 in 1 file" in run(*asked, "-k", 2).ok().out
    assert written() == before
    run(*asked, "-k", 3).failed(2, "--output", "(k differs)", "name a new folder")
    run(*asked[:-1], made, "-k", 3).failed(2, "--output", "was not made by neighbours")


def test_a_file_has_the_same_rows_with_their_texts(run: Run, made: Path, tmp_path: Path) -> None:
    asked, out = of_itself(made, "-k", 2, "--output"), tmp_path / "nb.jsonl"
    texts = {f"k{n}": text for n, text in enumerate(sentences(120))}
    lines = run(*asked, out).ok().out.splitlines()
    run(*asked, tmp_path / "folder").ok()
    table = rows_in(out)
    assert [*table[0]] == ["query", "query_text", "rank", "id", "score", "text"]
    for row in table:
        assert (row["query_text"], row["text"]) == (texts[row["query"]], texts[row["id"]])
    plain = [{name: row[name] for name in ("query", "rank", "id", "score")} for row in table]
    assert plain == [pytest.approx(row) for row in rows_in(tmp_path / "folder")]
    assert lines[0] == f"query: {table[0]['query']}: {table[0]['query_text']}"
    assert lines[2].split(None, 3)[2:] == [table[0]["id"], table[0]["text"]]
    assert [line for line in lines if line.startswith("query: ")] == lines[:12:5]
    assert lines[-3:] == ["queries     120", "rows        240 in 1 file", f"output      {out}"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", out.name]


def test_a_store_that_keeps_no_text_has_ids_alone(
    run: Run, made: Path, model: Path, tmp_path: Path
) -> None:
    store, out = tmp_path / "s", tmp_path / "n.csv"
    how = ("--model", model, "--no-keep-text", "--quiet")
    run("embed", "--input", made / "corpus.parquet", "--store", store, *how).ok()
    run("neighbours", "--store", store, "--of", store, "-k", 1, "--output", out).ok()
    assert out.read_text().splitlines()[0] == "query,rank,id,score"


def test_a_file_goes_on_where_its_job_was_interrupted(
    run: Run, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    asked = of_itself(made, "--output", tmp_path / "nb.csv")
    with monkeypatch.context() as patch:
        patch.setattr("sentence_beam.pipelines.neighbours.write_tables", interrupt)
        run(*asked, "-k", 2).failed(130, "interrupted")
    assert len(list((tmp_path / "nb.csv.parts").glob("*.parquet"))) == 1
    run(*asked, "-k", 3).failed(2, f"{tmp_path}/nb.csv.parts", "(k differs)")
    monkeypatch.setattr(
        "sentence_beam.transforms.steps.joins.nearest_rows.NeighbourSearch.finish_block",
        lambda *_: pytest.fail("made again"),
    )
    run(*asked, "-k", 2).ok()
    assert [path.name for path in tmp_path.iterdir()] == ["nb.csv"]


@pytest.mark.parametrize(
    "stays", ["._neighbours.json.lock", "neighbours-000000.parquet", "_neighbours.json"]
)
def test_a_file_that_is_written_is_a_success_whatever_stays_of_the_work(
    run: Run, made: Path, tmp_path: Path, stays: str
) -> None:
    out = tmp_path / "nb.csv"

    def refuse_one(path: object) -> None:
        if Path(str(path)).name == stays:
            refuse(errno.EACCES)(path)

    with Disk(tmp_path, 0, frozenset({"delete"}), refuse_one, lasting=True).used():
        outcome = run(*of_itself(made, "--output", out))
    assert outcome.status == 0, outcome
    assert outcome.err.startswith(f"done, but {out}.parts cannot be removed (")
    assert outcome.err.count("\n") == 1
    whole = out.read_bytes()
    out.unlink()
    run(*of_itself(made, "--output", out)).ok()
    assert [path.name for path in tmp_path.iterdir()] == [out.name]
    assert out.read_bytes() == whole


def test_mistakes_are_one_line(run: Run, made: Path, tmp_path: Path) -> None:
    itself = of_itself(made, "-k", 2, "--output")
    run(*itself, "gs://bucket/nb.csv").failed(
        2, "--output gs://bucket/nb.csv", "on this machine alone; name a folder"
    )
    waits = run(*itself, tmp_path / "n.csv", "--no_wait_until_finish")
    waits.failed(2, "nobody waits", "name a folder")
    (tmp_path / "old.parquet").mkdir()
    run(*itself, tmp_path / "old.parquet").failed(2, "old.parquet is a folder; name a file")
    run(*itself, tmp_path / "o", "--text-column", "body").failed(
        2, "--text-column is for --queries"
    )
    asked = ("neighbours", "--store", made / "store", "-k", 3, "--output", tmp_path / "out")
    other, store = save_tiny_model("roberta", tmp_path / "other"), tmp_path / "s"
    queries = write_lines(tmp_path / "q.txt", ["a dog"])
    run("embed", "--input", queries, "--store", store, "--model", other).ok()
    run(*asked, "--of", store).failed(
        2, f"--of {store}", "another space", "weights", "embed both alike"
    )
    run(*asked, "--of", tmp_path / "nowhere").failed(2, "holds no store")
    run(*asked, "--queries", tmp_path / "no.txt").failed(2, "--queries", "no file matches")
    absent = ("--queries", made / "named.jsonl", "--text-column", "absent")
    run(*asked, *absent).failed(2, "named.jsonl", "no column absent")
    run(*asked).failed(2, "--queries --of", "required")
    write_lines(tmp_path / "blank.txt", ["", " "])
    run(*asked, "--queries", tmp_path / "blank.txt").failed(2, "--queries holds no query with text")


def test_pieces_are_named_by_document_and_number(run: Run, model: Path, tmp_path: Path) -> None:
    texts = [". ".join(sentences(4, start=4 * n)) + "." for n in range(6)]
    keys, store = [f"d{n}" for n in range(6)], tmp_path / "s"
    corpus = write_parquet(tmp_path / "in.parquet", texts, key=keys)
    how = ("--model", model, "--id-column", "key", "--chunks", "budget:tokens=8")
    run("embed", "--input", corpus, "--store", store, *how).ok()
    run("neighbours", "--store", store, "--of", store, "-k", 2, "--output", tmp_path / "out").ok()
    rows = rows_in(tmp_path / "out")
    assert [*rows[0]] == ["query", "query_piece", "rank", "id", "piece", "score"]
    pieces = {(row["id"], row["piece"]) for row in rows_in(store / "embeddings")}
    pairs = [((row["query"], row["query_piece"]), (row["id"], row["piece"])) for row in rows]
    assert {query for query, _ in pairs} == pieces
    assert {found for _, found in pairs} <= pieces
    assert not [query for query, found in pairs if query == found]
    assert len(rows) == 2 * len(pieces)
    asked = write_lines(tmp_path / "asked.txt", [texts[2].split(". ")[0]])
    queries = ("--queries", asked, "-k", 1, "--output", tmp_path / "o")
    run("neighbours", "--store", store, *queries).ok()
    (row,) = rows_in(tmp_path / "o")
    assert [*row] == ["query", "rank", "id", "piece", "score"]


def test_in_object_storage_it_is_as_in_a_folder(
    run: Run, made: Path, gs: str, model: Path, tmp_path: Path
) -> None:
    there = ("--input", made / "corpus.parquet", "--store", f"{gs}/store", "--model", model)
    run("embed", *there, *INDEXED).ok()
    asked = ("neighbours", "-k", 3, "--output")
    run(*asked, f"{gs}/out", "--store", f"{gs}/store", "--of", f"{gs}/store").ok()
    run(*asked, tmp_path / "out", *of_itself(made)[1:]).ok()
    entries = storage.storage_of(gs).below(f"{gs}/out")
    left = {entry.path.rpartition("/")[2]: storage.read_bytes(entry.path) for entry in entries}
    name = "neighbours-000000.parquet"
    assert sorted(left) == ["_neighbours.json", name]
    assert left[name] == (tmp_path / "out" / name).read_bytes()
    assert not (tmp_path / "out" / "_work").exists()
