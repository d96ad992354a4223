"""watch: queries of a store are asked before each commit, and gate it.

Covers transforms/steps/watch/snapshots.py.
Covers transforms/steps/watch/watch_run.py.
Covers transforms/store/watched.py.
"""

import json
import shutil
from pathlib import Path

import pytest
from helpers.calibrations import fit_on
from helpers.commands import Run
from helpers.corpora import (
    check_ledger,
    files_in,
    manifest_of,
    sentences,
    write_lines,
    write_parquet,
)
from helpers.snapshots import units_of
from helpers.variants import variants

from sentence_beam.pipelines.cli import main
from sentence_beam.transforms.report.run_history import RunSummary, recommend_answer_change
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.runs.run_result import COMMITTED
from sentence_beam.transforms.store.watched import read_answers

GATE = ("--max-answer-change", "0.05")


def write(inputs: Path, texts: list[str], name: str = "a.parquet") -> None:
    """Rows with ids of a column."""
    write_parquet(inputs / name, texts, id=[f"{name[0]}{n}" for n in range(len(texts))])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A folder with a store of two files that watches ten queries; tests copy it."""
    folder = tmp_path_factory.mktemp("made")
    store, inputs = str(folder / "store"), folder / "in"
    write(inputs, sentences(20))
    write(inputs, sentences(20, 20), "b.parquet")
    own = ["--store", store, "--model", str(model), "--id-column", "id"]
    assert main(["embed", "--input", str(inputs / "*"), *own]) == 0
    queries = write_lines(folder / "queries.txt", [*sentences(10, 5), "", sentences(1, 5)[0]])
    assert main(["watch", "--store", store, "--queries", str(queries), "-k", "3"]) == 0
    return folder


@pytest.fixture
def watched(made: Path, tmp_path: Path, inputs: Path, store: Path) -> Path:
    """A store of two files that watches ten queries."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return store


def test_queries_of_a_file(run: Run, watched: Path, inputs: Path) -> None:
    manifest = manifest_of(watched)
    entry = manifest["watch"]
    assert (entry["count"], entry["k"]) == (10, 3)
    assert sorted(files_in(watched, "watch")) == sorted(
        {entry["queries"]["path"], entry["answers"]["path"]}
    )
    out = run("watch", "--store", watched, "--queries", inputs.parent / "queries.txt").ok().out
    assert "10 queries, 100 answers by exact search over all rows" in out
    assert "1 empty query of" in out
    assert "1 query of" in out
    assert "named twice, kept once" in out
    assert "10 queries, 10 answers each" in run("watch", "--store", watched).ok().out
    run("verify", "--store", watched).ok()
    run("watch", "--store", watched, "--remove").ok()
    assert "watch" not in manifest_of(watched)
    assert "nothing to do" in run("watch", "--store", watched, "--remove").ok().out
    run("vacuum", "--store", watched, "--keep", "1").ok()
    assert files_in(watched, "watch") == {}


def test_queries_that_are_cut_are_counted(run: Run, watched: Path, inputs: Path) -> None:
    longest = open_store(str(watched)).manifest.space.max_tokens
    named = ("--store", watched, "--queries", inputs.parent / "queries.txt")
    write_lines(named[-1], ["a man " * longest, "a man " * (longest // 4), "dog " * 2 * longest])
    out = run("watch", *named).ok().out
    assert f"2 queries are longer than the model takes, and cut at {longest} tokens" in out
    write_lines(named[-1], ["a man " * (longest // 4)])
    assert "longer than the model takes" not in run("watch", *named).ok().out


def test_a_worse_night_does_not_go_live(run: Run, embed: Run, watched: Path, inputs: Path) -> None:
    embed(inputs / "*", *GATE).ok()
    before = manifest_of(watched)["run"]
    (inputs / "a.parquet").unlink()
    said = embed(inputs / "*", "--max-deletes", "1")
    line = said.failed(3, "watched queries", "--max-answer-change 0.05", "file gone")
    assert "whose first hit was a" in line
    assert manifest_of(watched)["run"] == before
    result = json.loads(
        max((watched / "runs").glob("*/result.json"), key=lambda path: path.parent.name).read_text()
    )
    assert result["watch"]["causes"]["file_gone"] > 10
    assert result["watch"]["examples"]["file_gone"]["before"].startswith("a")
    out = embed(inputs / "*", "--max-deletes", "1", "--max-answer-change", "1").ok().out
    assert "file gone" in out
    assert manifest_of(watched)["options"]["max_answer_change"] == 0.05
    assert "file gone" in (watched / "report.html").read_text()
    metrics = run("report", "--store", watched, "--format", "openmetrics").ok().out
    assert 'sentence_beam_changed_answers{cause="file_gone"' in metrics
    assert "changed answers" in run("history", "--store", watched).ok().out
    out = run("diff", "--store", watched).ok().out
    assert "file gone" in out
    page = inputs.parent / "answers.html"
    run("watch", "--store", watched, "--report", page).ok()
    text = page.read_text()
    assert "file gone" in text
    assert sentences(1, 5)[0] in text
    back = run("rollback", "-1", "--store", watched).ok().out
    assert "answers" in back


def test_an_index_is_gated_too(run: Run, watched: Path) -> None:
    out = run("index", "--store", watched, "--index", "Flat", *GATE).ok().out
    assert "0.0 % of 30 changed" in out
    assert manifest_of(watched)["options"]["max_answer_change"] == 0.05


def test_a_calibration_moves_vectors(run: Run, watched: Path, tmp_path: Path) -> None:
    calibration = fit_on(watched, "whitening", tmp_path / "calibration")
    said = run("recalibrate", "--store", watched, "--calibration", calibration, *GATE)
    said.failed(3, "vector moved though its text did not")
    out = (
        run(
            "recalibrate",
            "--store",
            watched,
            "--calibration",
            calibration,
            "--max-answer-change",
            "1",
        )
        .ok()
        .out
    )
    assert "compared by ids and texts alone" in out


def test_another_model_asks_with_new_vectors(
    run: Run, embed: Run, watched: Path, inputs: Path
) -> None:
    queries = manifest_of(watched)["watch"]["queries"]
    embed(inputs / "*", "--reembed", "--pooler", "cls", *GATE).failed(3, "vector moved")
    embed(inputs / "*", "--reembed", "--pooler", "cls", "--max-answer-change", "1").ok()
    assert manifest_of(watched)["watch"]["queries"] != queries
    check_ledger(watched, 40, embedded=40)
    run("verify", "--store", watched).ok()
    out = embed(inputs / "*").ok().out
    assert "answers" not in out


def test_no_model_is_loaded_for_an_unchanged_set(
    embed: Run, watched: Path, inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the model is loaded")

    monkeypatch.setattr("sentence_beam.transforms.search.query_vectors.QueryEncoder.pooled", refuse)
    write(inputs, sentences(20, 60), "c.parquet")
    assert "beyond growth" in embed(inputs / "*").ok().out


def test_drawn_queries_are_the_same_in_each_draw(
    run: Run, embed: Run, inputs: Path, store: Path
) -> None:
    write(inputs, [f"{a} {b}" for a, b in zip(sentences(40), sentences(40, 40), strict=True)])
    embed(inputs / "*", "--id-column", "id").ok()
    out = run("watch", "--store", store, "--draw", "8").ok().out
    assert "8 queries" in out
    assert "easier than people's" in out
    first = manifest_of(store)["watch"]
    run("watch", "--store", store, "--draw", "8").ok()
    assert manifest_of(store)["watch"]["digest"] == first["digest"]
    assert len(units_of(store)) == 1


def test_bad_input(run: Run, embed: Run, watched: Path, inputs: Path, tmp_path: Path) -> None:
    def refused(*arguments: object) -> str:
        return run("watch", "--store", watched, *arguments).failed(2)

    empty, twice = tmp_path / "empty.txt", tmp_path / "twice.tsv"
    write_lines(empty, ["", " "])
    write_lines(twice, ["id\ttext", "q1\ta text", "q1\tanother text"])
    assert "holds no query" in refused("--queries", empty)
    assert "two queries have the id 'q1'" in refused("--queries", twice)
    assert "there is no such file" in refused("--queries", tmp_path / "none.txt")
    assert "--draw" in refused("--draw", "2", "--remove")
    embed(inputs / "*", "--no-keep-text").ok()
    assert "keeps no text" in refused("--draw", "2")


def test_a_gate_is_recommended_after_seven_runs() -> None:
    def nights(*beyond: float) -> list[RunSummary]:
        return [
            RunSummary(f"r{n}", COMMITTED, "", command="embed", answers_beyond=value)
            for n, value in enumerate(beyond)
        ]

    assert recommend_answer_change(nights(*[0.01] * 6)) is None
    assert recommend_answer_change(nights(0.5, *[0.01] * 6, 0.03)) == 0.08
    assert recommend_answer_change(nights(*[0.6] * 7)) == 1.0


@variants(
    "flags",
    [("--chunks", "sentences"), ("--partition", "content"), ("--precision", "int8"), ()],
    kept=(0, 3),
    ids=lambda flags: " ".join(flags),
)
def test_whatever_the_store_is(
    run: Run, embed: Run, inputs: Path, store: Path, flags: tuple[str, ...]
) -> None:
    def write_documents(name: str, start: int) -> None:
        texts = [
            f"{one.capitalize()}. {other.capitalize()}."
            for one, other in zip(sentences(12, start), sentences(12, start + 12), strict=True)
        ]
        write(inputs, texts, name)

    write_documents("a.parquet", 0)
    write_documents("b.parquet", 30)
    embed(inputs / "*", "--id-column", "id", *flags).ok()
    write_lines(inputs.parent / "queries.txt", [*sentences(6), *sentences(6, 30)])
    run("watch", "--store", store, "--queries", inputs.parent / "queries.txt", "-k", "4").ok()
    assert answers_of(store) == 48
    (inputs / "a.parquet").unlink()
    out = embed(inputs / "*", "--max-deletes", "1").ok().out
    assert "file gone" in out
    assert "row deleted" not in out
    run("verify", "--store", store).ok()
    assert "file gone" in run("diff", "--store", store).ok().out


def answers_of(store: Path) -> int:
    """The number of answers that the current snapshot has on record."""
    manifest = open_store(store).manifest
    assert manifest.watch is not None
    return sum(len(answers) for answers in read_answers(manifest.root, manifest.watch))


def test_a_store_without_rows(run: Run, embed: Run, inputs: Path, store: Path) -> None:
    write_lines(inputs / "a.txt", [])
    embed(inputs / "*").ok()
    write_lines(inputs.parent / "queries.txt", sentences(2))
    run("watch", "--store", store, "--queries", inputs.parent / "queries.txt").ok()
    run("watch", "--store", store, "--draw", "2").failed(2, "holds no rows")
    write_lines(inputs / "a.txt", sentences(5))
    assert "0.0 % of 0 changed" in embed(inputs / "*", *GATE).ok().out
    assert answers_of(store) == 10


def test_a_damaged_file_ends_a_run_in_one_line_and_is_written_again(
    run: Run, embed: Run, watched: Path, inputs: Path
) -> None:
    path = watched / manifest_of(watched)["watch"]["answers"]["path"]
    path.write_bytes(b"x")
    assert "was changed after it was written" in run("verify", "--store", watched).err
    write(inputs, sentences(3, 60), "c.parquet")
    embed(inputs / "*").failed(1, path, "sentence-beam watch")
    queries = inputs.parent / "queries.txt"
    run("watch", "--store", watched, "--queries", queries, "-k", "3").ok()
    run("verify", "--store", watched).ok()
    embed(inputs / "*").ok()
