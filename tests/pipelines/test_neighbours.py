"""`sentence-beam neighbours` as a person runs it."""

import errno
import json
import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow.csv as csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from helpers.commands import Run, child_process, runner
from helpers.corpora import sentences, write_jsonl, write_lines, write_parquet
from helpers.faulty_disk import Disk, refuse
from helpers.tiny_models import save_tiny_model

from sentence_beam.transforms import storage

pytest.importorskip("faiss")

ASKED = [*sentences(4, start=200), "", "dog cat"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A store of 120 rows with an index, and in the same folder questions, with and without ids."""
    folder = tmp_path_factory.mktemp("made")
    corpus = write_parquet(
        folder / "corpus.parquet", sentences(120), key=[f"k{n}" for n in range(120)]
    )
    write_lines(folder / "questions.txt", ASKED)
    write_jsonl(
        folder / "named.jsonl", [{"body": text, "key": f"q{n}"} for n, text in enumerate(ASKED)]
    )
    from sentence_beam.pipelines.embed import main

    how = ["--model", str(model), "--id-column", "key", "--index", "IVF8,SQ8", "--quiet"]
    assert main(["--input", str(corpus), "--store", str(folder / "store"), *how]) == 0
    return folder


def rows_in(folder: Path) -> list[dict[str, Any]]:
    return ds.dataset(str(folder)).to_table().to_pylist()


def test_texts_find_what_a_search_finds_for_them(run: Run, made: Path, tmp_path: Path) -> None:
    out, hits = tmp_path / "out", tmp_path / "hits.jsonl"
    asked = ("neighbours", "--store", made / "store", "-k", 5)
    said = run(*asked, "--queries", made / "questions.txt", "--output", out).ok().out
    assert "5, 1 rejected" in said
    (out / "_neighbours.json").rename(tmp_path / "said.json")
    assert json.loads((tmp_path / "said.json").read_text())["rows"] == 25
    run(
        "search",
        "--store",
        made / "store",
        "-k",
        5,
        "--queries",
        made / "questions.txt",
        "--output",
        hits,
    ).ok()
    wanted = [json.loads(line) for line in hits.read_text().splitlines()]
    found = rows_in(out)
    assert [(row["query"], row["rank"], row["id"]) for row in found] == [
        (row["query"], row["rank"], row["id"]) for row in wanted
    ]
    assert [row["score"] for row in found] == pytest.approx(
        [row["score"] for row in wanted], abs=1e-5
    )


def test_queries_are_named_by_their_ids_and_rows_of_a_store_by_theirs(
    run: Run, made: Path, tmp_path: Path
) -> None:
    asked = ("neighbours", "--store", made / "store", "-k", 3, "--output")
    columns = ("--text-column", "body", "--id-column", "key")
    run(
        *asked,
        tmp_path / "a",
        "--queries",
        made / "named.jsonl",
        *columns,
        "--min-score",
        0.5,
        "--json",
    ).ok()
    assert {row["query"] for row in rows_in(tmp_path / "a")} <= {f"q{n}" for n in (0, 1, 2, 3, 5)}
    assert all(row["score"] >= 0.5 for row in rows_in(tmp_path / "a"))
    run(*asked, tmp_path / "b", "--of", made / "store").ok()
    found = rows_in(tmp_path / "b")
    assert len(found) == 360
    assert not [row for row in found if row["id"] == row["query"]]
    schema = pq.read_schema(next((tmp_path / "b").glob("*.parquet")))
    assert [(field.name, str(field.type)) for field in schema] == [
        ("query", "string"), ("rank", "int32"), ("id", "string"), ("score", "float"),
    ]  # fmt: skip


def test_a_folder_is_one_jobs(run: Run, made: Path, tmp_path: Path) -> None:
    asked = (
        "neighbours",
        "--store",
        made / "store",
        "--of",
        made / "store",
        "--output",
        tmp_path / "out",
    )
    run(*asked, "-k", 2).ok()
    stood = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.parquet")}
    assert "240 in 1 file" in run(*asked, "-k", 2).ok().out
    assert stood == {
        path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.parquet")
    }
    run(*asked, "-k", 3).failed(2, "--output", "(k differs)", "name a new folder")
    run(*asked[:-1], made, "-k", 3).failed(2, "--output", "was not made by neighbours")


@pytest.mark.parametrize("ending", [".csv", ".json", ".jsonl", ".parquet"])
def test_a_file_has_the_same_rows_with_their_texts(
    run: Run, made: Path, tmp_path: Path, ending: str
) -> None:
    asked = ("neighbours", "--store", made / "store", "--of", made / "store", "-k", 2, "--output")
    out, texts = (
        tmp_path / f"nb{ending}",
        dict(zip((f"k{n}" for n in range(120)), sentences(120), strict=True)),
    )
    said = run(*asked, out).ok().out
    run(*asked, tmp_path / "folder").ok()
    table = {
        ".csv": lambda: csv.read_csv(out).to_pylist(),
        ".json": lambda: json.loads(out.read_text()),
        ".jsonl": lambda: [json.loads(line) for line in out.read_text().splitlines()],
        ".parquet": lambda: pq.read_table(out).to_pylist(),
    }[ending]()
    assert [*table[0]] == ["query", "query_text", "rank", "id", "score", "text"]
    assert all(
        (row["query_text"], row["text"]) == (texts[row["query"]], texts[row["id"]]) for row in table
    )
    plain = [{name: row[name] for name in ("query", "rank", "id", "score")} for row in table]
    assert plain == [pytest.approx(row) for row in rows_in(tmp_path / "folder")]
    lines = said.splitlines()
    assert lines[0] == f"query: {table[0]['query']}: {table[0]['query_text']}"
    assert lines[2].split(None, 3)[2:] == [table[0]["id"], table[0]["text"]]
    assert [line for line in lines if line.startswith("query: ")] == lines[:12:5]
    assert lines[-3:] == ["queries     120", "rows        240 in 1 file", f"output      {out}"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", out.name]


def test_queries_of_files_have_texts_where_ids_name_them(
    run: Run, made: Path, tmp_path: Path
) -> None:
    asked = ("neighbours", "--store", made / "store", "-k", 1, "--queries", made / "named.jsonl")
    run(
        *asked, "--text-column", "body", "--id-column", "key", "--output", tmp_path / "a.jsonl"
    ).ok()
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert {row["query"]: row["query_text"] for row in rows} == {
        f"q{n}": ASKED[n] for n in (0, 1, 2, 3, 5)
    }
    run(*asked, "--text-column", "body", "--output", tmp_path / "b.jsonl").ok()
    rows = [json.loads(line) for line in (tmp_path / "b.jsonl").read_text().splitlines()]
    assert [*rows[0]] == ["query", "rank", "id", "score", "text"]


def test_a_store_that_keeps_no_text_has_ids_alone(
    run: Run, made: Path, model: Path, tmp_path: Path
) -> None:
    how = ("--model", model, "--no-keep-text", "--quiet")
    run("embed", "--input", made / "corpus.parquet", "--store", tmp_path / "s", *how).ok()
    run(
        "neighbours",
        "--store",
        tmp_path / "s",
        "--of",
        tmp_path / "s",
        "-k",
        1,
        "--output",
        tmp_path / "n.csv",
    ).ok()
    assert (tmp_path / "n.csv").read_text().splitlines()[0] == "query,rank,id,score"


def test_a_file_goes_on_where_its_job_was_interrupted(
    run: Run, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = (
        "neighbours",
        "--store",
        made / "store",
        "--of",
        made / "store",
        "--output",
        tmp_path / "nb.csv",
    )
    with monkeypatch.context() as patch:
        patch.setattr(
            "sentence_beam.pipelines.neighbours.write_tables",
            lambda *_: (_ for _ in ()).throw(KeyboardInterrupt),
        )
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
    asked = ("neighbours", "--store", made / "store", "--of", made / "store", "--output", out)

    def refuse_one(path: object) -> None:
        if Path(str(path)).name == stays:
            refuse(errno.EACCES)(path)

    disk = Disk(tmp_path, 0, frozenset({"delete"}), refuse_one, lasting=True)
    with disk.used():
        outcome = run(*asked)
    assert outcome.status == 0, outcome
    assert outcome.err.startswith(f"done, but {out}.parts cannot be removed (")
    assert outcome.err.count("\n") == 1
    whole = out.read_bytes()
    out.unlink()
    run(*asked).ok()
    assert [path.name for path in tmp_path.iterdir()] == [out.name]
    assert out.read_bytes() == whole


def test_a_file_is_written_here_by_a_command_that_waits(
    run: Run, made: Path, tmp_path: Path
) -> None:
    asked = ("neighbours", "--store", made / "store", "--of", made / "store", "-k", 2, "--output")
    run(*asked, "gs://bucket/nb.csv").failed(
        2, "--output gs://bucket/nb.csv", "on this machine alone; name a folder"
    )
    run(*asked, tmp_path / "n.csv", "--no_wait_until_finish").failed(
        2, "nobody waits", "name a folder"
    )
    (tmp_path / "old.parquet").mkdir()
    run(*asked, tmp_path / "old.parquet").failed(2, "old.parquet is a folder; name a file")


def test_mistakes_are_one_line(run: Run, made: Path, tmp_path: Path, model: Path) -> None:
    asked = ("neighbours", "--store", made / "store", "-k", 3, "--output", tmp_path / "out")
    other = save_tiny_model("roberta", tmp_path / "other")
    run(
        "embed",
        "--input",
        made / "questions.txt",
        "--store",
        tmp_path / "s",
        "--model",
        other,
        "--max-rejects",
        1,
    )
    run(*asked, "--of", tmp_path / "s").failed(
        2, f"--of {tmp_path}/s", "another space", "weights", "embed both alike"
    )
    run(*asked, "--of", tmp_path / "nowhere").failed(2, "holds no store")
    run(*asked, "--queries", tmp_path / "no.txt").failed(2, "--queries", "no file matches")
    run(*asked, "--queries", made / "named.jsonl", "--text-column", "absent").failed(
        2, "named.jsonl", "no column absent"
    )
    run(*asked, "--of", made / "store", "--text-column", "body").failed(
        2, "--text-column is for --queries"
    )
    run(*asked[:4], 0, *asked[5:], "--of", made / "store").failed(
        2, "-k", "not a whole number above zero"
    )
    run(*asked).failed(2, "--queries --of", "required")
    write_lines(tmp_path / "blank.txt", ["", " "])
    run(*asked, "--queries", tmp_path / "blank.txt").failed(2, "--queries holds no query with text")


def test_pieces_are_named_by_document_and_number(run: Run, model: Path, tmp_path: Path) -> None:
    texts = [". ".join(sentences(4, start=4 * n)) + "." for n in range(6)]
    corpus, store = (
        write_parquet(tmp_path / "in.parquet", texts, key=[f"d{n}" for n in range(6)]),
        tmp_path / "s",
    )
    how = ("--model", model, "--id-column", "key", "--chunks", "budget:tokens=8")
    run("embed", "--input", corpus, "--store", store, *how).ok()
    run("neighbours", "--store", store, "--of", store, "-k", 2, "--output", tmp_path / "out").ok()
    table = ds.dataset(str(tmp_path / "out")).to_table()
    assert table.column_names == ["query", "query_piece", "rank", "id", "piece", "score"]
    pieces = {(row["id"], row["piece"]) for row in rows_in(store / "embeddings")}
    rows = table.to_pylist()
    assert {(row["query"], row["query_piece"]) for row in rows} == pieces
    assert {(row["id"], row["piece"]) for row in rows} <= pieces
    assert not [
        row for row in rows if (row["query"], row["query_piece"]) == (row["id"], row["piece"])
    ]
    assert len(rows) == 2 * len(pieces)
    write_lines(tmp_path / "asked.txt", [texts[2].split(". ")[0]])
    run(
        "neighbours",
        "--store",
        store,
        "--queries",
        tmp_path / "asked.txt",
        "-k",
        1,
        "--output",
        tmp_path / "o",
    ).ok()
    (row,) = rows_in(tmp_path / "o")
    assert [*row] == ["query", "rank", "id", "piece", "score"]


def test_in_object_storage_it_is_as_in_a_folder(
    run: Run, made: Path, gs: str, model: Path, tmp_path: Path
) -> None:
    how = ("--model", model, "--id-column", "key", "--index", "IVF8,SQ8", "--quiet")
    run("embed", "--input", made / "corpus.parquet", "--store", f"{gs}/store", *how).ok()
    asked = ("neighbours", "-k", 3, "--output")
    run(*asked, f"{gs}/out", "--store", f"{gs}/store", "--of", f"{gs}/store").ok()
    run(*asked, tmp_path / "out", "--store", made / "store", "--of", made / "store").ok()
    place = storage.storage_of(gs)
    left = {
        entry.path.rpartition("/")[2]: storage.read_bytes(entry.path)
        for entry in place.below(f"{gs}/out")
    }
    assert sorted(left) == ["_neighbours.json", "neighbours-000000.parquet"]
    assert (
        left["neighbours-000000.parquet"]
        == (tmp_path / "out" / "neighbours-000000.parquet").read_bytes()
    )
    assert not (tmp_path / "out" / "_work").exists()


@pytest.mark.slow
def test_killed_and_run_again_it_is_the_same(
    made: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run, queries = runner(capfd), tmp_path / "queries"
    queries.mkdir()
    for number in range(12):
        write_lines(queries / f"{number}.txt", sentences(40, start=1000 + 40 * number))
    asked = [
        "neighbours",
        "--store",
        str(made / "store"),
        "-k",
        "5",
        "--queries",
        f"{queries}/*.txt",
        "--output",
    ]
    run(*asked, tmp_path / "whole").ok()
    whole = {path.name: path.read_bytes() for path in (tmp_path / "whole").glob("*.parquet")}
    killed = 0
    for wanted in (1, 6):
        out = tmp_path / f"out{wanted}"
        process = child_process([*asked, str(out)])
        process.start()
        while process.is_alive() and len(list(out.glob("*.parquet"))) < wanted:
            time.sleep(0.001)
        process.kill()
        process.join()
        killed += len(list(out.glob("*.parquet"))) < len(whole)
        run(*asked, out).ok()
        assert {path.name: path.read_bytes() for path in out.glob("*.parquet")} == whole
        assert not (out / "_work").exists()
        shutil.rmtree(out)
    assert killed
