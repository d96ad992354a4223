"""Flags, help texts, and what a terminal sees."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.commands import Run
from helpers.corpora import check_ledger, files_in, manifest_of, sentences, write_lines
from helpers.engines import start

from sentence_beam.pipelines.cli import COMMANDS


@pytest.fixture
def glob(inputs: Path) -> Path:
    """A file of ten rows."""
    return write_lines(inputs / "a.txt", sentences(10))


# --- help


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(run: Run, command: str) -> None:
    outcome = run(command, "--help").ok()
    assert outcome.out.startswith(f"usage: sentence-beam {command}")
    assert "Traceback" not in outcome.out


def test_help_says_what_its_own_command_does(run: Run) -> None:
    assert "Embed a collection" in run("embed", "--help").ok().out
    out = " ".join(run("plan", "--help").ok().out.split())
    assert "Estimate the work and time" in out
    assert "Embed a collection" not in out


def test_an_interrupt_while_modules_are_imported_is_one_line(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("importlib.import_module", interrupted)
    outcome = run("embed", "--input", "x")
    assert (outcome.status, outcome.out) == (130, "")
    assert outcome.err == "sentence-beam embed: interrupted; run the same command again to go on\n"


def test_the_list_of_commands(run: Run) -> None:
    for arguments in (["--help"], ["-h"]):
        out = run(*arguments).ok().out
        assert all(f"  {command} " in out for command in COMMANDS)
    outcome = run()
    assert outcome.status == 2
    assert "embed" in outcome.out + outcome.err


# --- flags


@pytest.mark.parametrize("option", ["--prompt", "--text-column", "--pooler"])
def test_arguments_that_are_not_utf8(embed: Run, glob: Path, store: Path, option: str) -> None:
    embed(glob, option, "caf\udce9").failed(2, r"caf\udce9", "UTF-8")
    assert not store.exists()


def test_beams_flags_pass_and_what_only_a_runner_knows_goes_behind_a_double_dash(
    embed: Run, glob: Path, store: Path
) -> None:
    beam = ("--job_name=nightly", "--runner", "FnApiRunner", "--type_check_additional", "all")
    embed(glob, *beam, "--", "--flink_only_flag=3").ok()
    check_ledger(store, 10)


def test_a_runner_that_does_not_exist(embed: Run, glob: Path, store: Path) -> None:
    embed(glob, "--runner=SparkleRunner", "--dtype", "float32").failed(2, "SparkleRunner")
    assert not (store / "lease.json").exists()


def test_three_words(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("a dog\na cat\n")
    assert str(tmp_path / "store") in run("embed", "--model", model, "in/").ok().out
    found = run("search", "-k", "1", "a dog", "a cat").ok().out
    assert found.index("query: a dog") < found.index("query: a cat")
    assert "a dog" in run("pairs", "in/a.txt", "--model", model).ok().out
    assert "a dog" in run("pairs", "-k", "1").ok().out  # of the store
    monkeypatch.setenv("SENTENCE_BEAM_STORE", "other")
    run("search", "a dog").failed(2, "other holds no store")
    assert str(tmp_path / "other") in run("plan", "--runner", "FnApiRunner", "in/").ok().out
    run("info", "--store", "store").ok()


def test_arguments_without_a_flag_replace_those_of_a_file(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "o.toml").write_text('[embed]\ninput = "absent.txt"\n[search]\nqueries = "q"\n')
    run("embed", "--config", "o.toml").failed(2, "absent.txt")
    said = run("embed", "nowhere.txt", "--config", "o.toml", "--input", "n.txt").failed(2)
    assert "absent" not in said
    run("search", "--config", "o.toml", "a dog").failed(2, "holds no store")


def test_an_empty_keep_list_keeps_nothing(embed: Run, glob: Path, store: Path) -> None:
    embed(glob, "--keep-columns", "text").ok()
    embed(glob, "--keep-columns", "").ok()
    assert manifest_of(store)["options"]["keep_columns"] == []


def test_a_plan_writes_nothing(embed: Run, plan: Run, glob: Path, store: Path) -> None:
    assert "10 to embed" in plan(glob).ok().out.replace("about ", "")
    assert not store.exists()
    embed(glob).ok()
    before = files_in(store)
    write_lines(glob.parent / "b.txt", sentences(5, 100))
    assert "1 unchanged" in plan(glob.parent / "*.txt").ok().out
    assert files_in(store) == before


# --- the terminal


def test_a_real_process_says_nothing_on_stderr_and_a_closed_pipe_is_no_error(
    glob: Path, store: Path, model: Path
) -> None:
    start(["embed", "--input", glob, "--store", store, "--model", model]).ended().ok()
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as out:
        argv = [sys.executable, "-m", "sentence_beam", "files", "--store", str(store)]
        done = subprocess.run(argv, stdout=out, stderr=subprocess.PIPE, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
