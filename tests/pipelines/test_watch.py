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
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.watched import read_answers

GATE = ("--max-answer-change", "0.05")


def write(inputs: Path, texts: list[str], name: str = "a.parquet") -> None:
    """Rows with ids of a column."""
    write_parquet(inputs / name, texts, id=[f"{name[0]}{n}" for n in range(len(texts))])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A folder with a store of two files that watches ten queries; tests copy it."""
    folder = tmp_path_factory.mktemp("made")
    write(folder / "in", sentences(20))
    write(folder / "in", sentences(20, 20), "b.parquet")
    store = f"--store {folder}/store"
    how = f"--input {folder}/in/* --model {model} --id-column id {store}"
    assert main(["embed", *how.split()]) == 0
    write_lines(folder / "queries.txt", [*sentences(10, 5), "", sentences(1, 5)[0]])
    assert main(["watch", *f"{store} --queries {folder}/queries.txt -k 3".split()]) == 0
    return folder


@pytest.fixture
def watched(made: Path, tmp_path: Path, inputs: Path, store: Path) -> Path:
    """A store of two files that watches ten queries."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return store


def test_queries_of_a_file(run: Run, watched: Path, inputs: Path) -> None:
    manifest, watch = manifest_of(watched), ("watch", "--store", watched)
    entry = manifest["watch"]
    assert (entry["count"], entry["k"]) == (10, 3)
    named = sorted((entry["queries"]["path"], entry["answers"]["path"]))
    assert sorted(files_in(watched, "watch")) == named
    out = run(*watch, "--queries", inputs.parent / "queries.txt").ok().out
    assert "10 queries, 100 answers by exact search over all rows" in out
    assert "1 empty query of" in out
    assert "named twice, kept once" in out
    assert "10 queries, 10 answers each" in run(*watch).ok().out
    run("verify", "--store", watched).ok()
    run(*watch, "--remove").ok()
    assert "watch" not in manifest_of(watched)
    assert "nothing to do" in run(*watch, "--remove").ok().out
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
    last = max((watched / "runs").glob("*/result.json"), key=lambda path: path.parent.name)
    result = json.loads(last.read_text())["watch"]
    assert result["causes"]["file_gone"] > 10
    assert result["examples"]["file_gone"]["before"].startswith("a")
    out = embed(inputs / "*", "--max-deletes", "1", "--max-answer-change", "1").ok().out
    assert "file gone" in out
    assert manifest_of(watched)["options"]["max_answer_change"] == 0.05
    assert "file gone" in (watched / "report.html").read_text()
    metrics = run("report", "--store", watched, "--format", "openmetrics").ok().out
    assert 'sentence_beam_changed_answers{cause="file_gone"' in metrics
    assert "changed answers" in run("history", "--store", watched).ok().out
    assert "file gone" in run("diff", "--store", watched).ok().out
    page = inputs.parent / "answers.html"
    run("watch", "--store", watched, "--report", page).ok()
    assert "file gone" in page.read_text()
    assert sentences(1, 5)[0] in page.read_text()
    assert "answers" in run("rollback", "-1", "--store", watched).ok().out


def test_an_index_and_a_calibration_are_gated_too(run: Run, watched: Path, tmp_path: Path) -> None:
    out = run("index", "--store", watched, "--index", "Flat", *GATE).ok().out
    assert "0.0 % of 30 changed" in out
    assert manifest_of(watched)["options"]["max_answer_change"] == 0.05
    calibration = fit_on(watched, "whitening", tmp_path / "calibration")
    recalibrate = ("recalibrate", "--store", watched, "--calibration", calibration)
    run(*recalibrate, *GATE).failed(3, "vector moved though its text did not")
    out = run(*recalibrate, "--max-answer-change", "1").ok().out
    assert "compared by ids and texts alone" in out


def test_another_model_asks_with_new_vectors(
    run: Run, embed: Run, watched: Path, inputs: Path
) -> None:
    queries = manifest_of(watched)["watch"]["queries"]
    anew = (inputs / "*", "--reembed", "--pooler", "cls")
    embed(*anew, *GATE).failed(3, "vector moved")
    embed(*anew, "--max-answer-change", "1").ok()
    assert manifest_of(watched)["watch"]["queries"] != queries
    check_ledger(watched, 40, embedded=40)
    run("verify", "--store", watched).ok()
    assert "answers" not in embed(inputs / "*").ok().out


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
    pairs = zip(sentences(40), sentences(40, 40), strict=True)
    write(inputs, [f"{one} {other}" for one, other in pairs])
    embed(inputs / "*", "--id-column", "id").ok()
    draw = ("watch", "--store", store, "--draw", "8")
    out = run(*draw).ok().out
    assert "8 queries" in out
    assert "easier than people's" in out
    first = manifest_of(store)["watch"]
    run(*draw).ok()
    assert manifest_of(store)["watch"]["digest"] == first["digest"]
    assert len(units_of(store)) == 1


def test_bad_input(run: Run, embed: Run, watched: Path, inputs: Path, tmp_path: Path) -> None:
    watch = ("watch", "--store", watched)
    empty = write_lines(tmp_path / "empty.txt", ["", " "])
    run(*watch, "--queries", empty).failed(2, "holds no query")
    run(*watch, "--queries", tmp_path / "none.txt").failed(2, "there is no such file")
    run(*watch, "--draw", "2", "--remove").failed(2, "--draw")
    embed(inputs / "*", "--no-keep-text").ok()
    run(*watch, "--draw", "2").failed(2, "keeps no text")


@variants(
    "flags",
    [("--chunks", "sentences"), ("--partition", "content"), ("--precision", "int8"), ()],
    kept=(0, 3),
    ids=lambda flags: " ".join(flags),
)
def test_whatever_the_store_is(
    run: Run, embed: Run, inputs: Path, store: Path, flags: tuple[str, ...]
) -> None:
    for name, start in (("a.parquet", 0), ("b.parquet", 30)):
        pairs = zip(sentences(12, start), sentences(12, start + 12), strict=True)
        write(inputs, [f"{one.capitalize()}. {two.capitalize()}." for one, two in pairs], name)
    embed(inputs / "*", "--id-column", "id", *flags).ok()
    queries = write_lines(inputs.parent / "queries.txt", [*sentences(6), *sentences(6, 30)])
    run("watch", "--store", store, "--queries", queries, "-k", "4").ok()
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
    queries = write_lines(inputs.parent / "queries.txt", sentences(2))
    run("watch", "--store", store, "--queries", queries).ok()
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
