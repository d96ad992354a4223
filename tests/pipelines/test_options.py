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


@pytest.mark.parametrize("arguments", [["--help"], ["-h"]])
def test_the_list_of_commands(run: Run, arguments: list[str]) -> None:
    out = run(*arguments).ok().out
    assert all(f"  {command} " in out for command in COMMANDS)


def test_no_command_at_all_shows_the_list(run: Run) -> None:
    outcome = run()
    assert outcome.status == 2
    assert "embed" in outcome.out + outcome.err


def test_an_unknown_command_names_the_known_ones(run: Run) -> None:
    outcome = run("embedd")
    assert outcome.status == 2
    assert outcome.err.count("\n") == 1
    assert "embedd" in outcome.err
    assert "did you mean embed?" in outcome.err


# --- flags


def test_a_misspelt_flag_is_named_with_the_right_one(embed: Run, glob: Path, store: Path) -> None:
    said = embed(glob, "--poler", "mean").failed(2, "unknown option --poler")
    assert said.endswith("did you mean --pooler?")
    embed(glob, "--max-reject=0.5").failed(2, "--max-reject=0.5", "did you mean --max-rejects?")
    assert not store.exists()


def test_a_misspelt_flag_is_named_before_the_required_one_that_it_stands_for(
    run: Run, glob: Path, store: Path
) -> None:
    run("embed", "--imput", glob, "--store", store).failed(
        2, "unknown option --imput", "did you mean --input?"
    )
    run("search", "--stroe", store, "--query", "x").failed(2, "--stroe", "did you mean --store?")
    run("search", "--store", store, "--querry=x").failed(2, "--querry", "did you mean --query?")
    run("embed", "--store", store, "--job_name", "x").failed(2, "name one by --input")
    run("embed", "--store", store, "--xyzzy", "x").failed(2, "unknown option --xyzzy")


def test_an_abbreviation_is_refused(embed: Run, glob: Path) -> None:
    embed(glob, "--keep", "text").failed(2, "unknown option --keep")


@pytest.mark.parametrize("flag", ["--xyzzy", "--xyzzy=1", "-z"])
def test_an_unknown_flag(embed: Run, glob: Path, flag: str) -> None:
    embed(glob, flag).failed(2, "unknown", flag, "--help")


@pytest.mark.parametrize("option", ["--prompt", "--text-column", "--pooler"])
def test_arguments_that_are_not_utf8(embed: Run, glob: Path, store: Path, option: str) -> None:
    embed(glob, option, "caf\udce9").failed(2, r"caf\udce9", "UTF-8")
    assert not store.exists()


@pytest.mark.parametrize("option", ["--store", "--model"])
def test_arguments_that_an_unset_variable_left_empty(embed: Run, glob: Path, option: str) -> None:
    embed(glob, option, "").failed(2, option, "is empty")


def test_memory_that_is_no_amount(embed: Run, glob: Path) -> None:
    embed(glob, "--min-ram", "lots").failed(2, "--min-ram", "lots", "16GB")


def test_a_pattern_that_the_shell_took_apart(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a dog")
    run("distill", "--output", tmp_path / "o", tmp_path / "a.txt").failed(
        2, f"unknown argument {tmp_path / 'a.txt'}"
    )


def test_a_value_that_beam_cannot_read(embed: Run, glob: Path) -> None:
    embed(glob, "--direct_num_workers=many").failed(2, "--direct_num_workers", "many")


def test_a_beam_flag_passes(embed: Run, glob: Path, store: Path) -> None:
    embed(
        glob, "--job_name=nightly", "--runner", "FnApiRunner", "--type_check_additional", "all"
    ).ok()
    check_ledger(store, 10)


def test_what_only_a_runner_knows_goes_behind_a_double_dash(
    embed: Run, glob: Path, store: Path
) -> None:
    embed(glob, "--flink_only_flag=3").failed(2, "unknown option --flink_only_flag=3")
    embed(glob, "--", "--flink_only_flag=3").ok()
    check_ledger(store, 10)


def test_a_runner_that_does_not_exist(embed: Run, glob: Path, store: Path) -> None:
    embed(glob, "--runner=SparkleRunner", "--dtype", "float32").failed(2, "SparkleRunner")
    assert not (store / "lease.json").exists()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--limit", "0"), ("--limit", "-3"), ("--limit", "ten"), ("--max-rejects", "2"), ("--max-rejects", "nan"),
        ("--max-rejects", "1%"), ("--max-deletes", "-1"), ("--unit-tokens", "0"), ("--unit-tokens", "1.5k"), ("--tokens-per-batch", "many"),
        ("--max-tokens", "0"), ("--dim", "-1"), ("--format", "xml"), ("--dtype", "int4"), ("--device", "tpu"),
        ("--partition", "rows"), ("--precision", "int1"),
    ],
)  # fmt: skip
def test_values_that_cannot_be(
    embed: Run, glob: Path, store: Path, option: str, value: str
) -> None:
    embed(glob, option, value).failed(2, option, value)
    assert not store.exists()


def test_a_flag_without_its_value(embed: Run, glob: Path) -> None:
    embed(glob, "--pooler").failed(2, "--pooler", "expected one argument")


def test_an_input_is_required(run: Run, store: Path) -> None:
    run("embed", "--store", store).failed(2, "a new store has no last input; name one by --input")


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


def test_two_prompts_at_once(embed: Run, glob: Path) -> None:
    embed(glob, "--prompt", "a", "--prompt-name", "query").failed(2, "--prompt-name", "--prompt")


@pytest.mark.parametrize(
    "spec", ["meen", "mean:", "mean+", "ditto", "ditto:9-9", "mean:foo=1", "", "tfidf:/nowhere"]
)
def test_a_pooler_that_cannot_be_built(embed: Run, glob: Path, store: Path, spec: str) -> None:
    embed(glob, "--pooler", spec).failed(2)
    assert manifest_of(store) is None


def test_an_empty_keep_list_keeps_nothing(embed: Run, glob: Path, store: Path) -> None:
    embed(glob, "--keep-columns", "text").ok()
    embed(glob, "--keep-columns", "").ok()
    assert manifest_of(store)["options"]["keep_columns"] == []


def test_truncate_dim_above_the_models(embed: Run, glob: Path, store: Path) -> None:
    embed(glob, "--dim", 100_000).failed(2, "100000")
    assert manifest_of(store) is None


def test_a_prompt_name_that_the_model_has_not(embed: Run, glob: Path) -> None:
    embed(glob, "--prompt-name", "query").failed(2, "query")


def test_a_dry_run_writes_nothing(plan: Run, glob: Path, store: Path) -> None:
    assert "10 to embed" in plan(glob).ok().out.replace("about ", "")
    assert not store.exists()


def test_a_dry_run_over_a_store_touches_nothing_of_it(
    embed: Run, plan: Run, glob: Path, store: Path
) -> None:
    embed(glob).ok()
    before = files_in(store)
    write_lines(glob.parent / "b.txt", sentences(5, 100))
    out = plan(glob.parent / "*.txt").ok().out
    assert "1 unchanged" in out
    assert files_in(store) == before


# --- the terminal


def command_line(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "sentence_beam", *map(str, arguments)]


def test_a_real_process_says_nothing_on_stderr_and_a_closed_pipe_is_no_error(
    glob: Path, store: Path, model: Path, tmp_path: Path
) -> None:
    start(["embed", "--input", glob, "--store", store, "--model", model]).ended().ok()
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as out:
        argv = command_line("files", "--store", store)
        done = subprocess.run(argv, stdout=out, stderr=subprocess.PIPE, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_mistake_in_a_real_process(store: Path, tmp_path: Path) -> None:
    argv = command_line("embed", "--input", tmp_path / "none*", "--store", store)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "no file matches" in done.stderr
