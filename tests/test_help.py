"""The help of every command: examples that work, every default, every word of a SPEC.

Covers pipelines/common/options.py.
Covers pipelines/common/specs.py.
"""

import argparse
import shlex
from pathlib import Path

import pyarrow as pa
import pytest
from helpers.commands import Outcome, Run, runner
from helpers.corpora import sentences, write_lines, write_parquet

from sentence_beam.pipelines import train
from sentence_beam.pipelines.cli import COMMANDS, load_parser
from sentence_beam.pipelines.common import beam_flags
from sentence_beam.pipelines.common.options import EXAMPLES
from sentence_beam.transforms.calibration.calibration_spec import CALIBRATIONS
from sentence_beam.transforms.index.index_spec import FACTORIES
from sentence_beam.transforms.space.chunks_spec import CHUNKS
from sentence_beam.transforms.space.pooler_spec import POOLERS
from sentence_beam.transforms.space.token_table import METHODS

LONG = ("embed", "plan")  # commands with so many options that --help shows some
OPTIONS = [(command, action) for command in COMMANDS for action in load_parser(command)._actions]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return runner(capfd)


def examples_of(command: str) -> list[str]:
    """The command lines that a command's help ends with."""
    return [
        line.strip()
        for line in str(load_parser(command).epilog).partition(f"{EXAMPLES}\n")[2].splitlines()
    ]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_ends_with_a_few_examples_that_are_understood(run: Run, command: str) -> None:
    shown = run("help", command).ok().out
    assert "--runner" not in shown  # Beam's flags have a help of their own
    examples = examples_of(command)
    assert sum(example.startswith(f"sentence-beam {command} ") for example in examples) in (2, 3)
    for example in examples:
        assert f"  {example}\n" in shown
        program, named, *arguments = shlex.split(example)
        assert program == "sentence-beam"
        assert (train.with_recipe if named == "train" else beam_flags.parse)(
            load_parser(named), arguments
        )


@pytest.mark.parametrize(("command", "action"), OPTIONS, ids=[f"{c}-{a.dest}" for c, a in OPTIONS])
def test_every_default_is_stated(command: str, action: argparse.Action) -> None:
    own = load_parser(command).own.get(action.dest)
    is_needed = action.required or (own is not None and own.is_needed)
    if is_needed or action.dest == "bare" or isinstance(action, argparse._HelpAction):
        return
    said = action.help or ""
    assert "default:" in said, f"{command} {action.option_strings or action.dest}: {said}"
    if isinstance(action, argparse._StoreTrueAction):
        assert said.endswith("(default: no)"), said
    elif action.default not in (None, argparse.SUPPRESS, ()):
        whole = said.partition("default: ")[2].strip(")")
        stated = whole.partition(",")[0]
        assert str(action.default) in (stated, whole) or float(stated) == action.default, said


@pytest.mark.parametrize(
    ("command", "words"),
    [("embed", POOLERS), ("plan", POOLERS), ("pairs", POOLERS), ("evaluate", POOLERS)]
    + [("embed", CHUNKS), ("plan", CHUNKS)]
    + [("fit", {**CALIBRATIONS, **{method: {} for method in METHODS}})],
)
def test_help_has_every_word_of_a_spec_with_its_keys(
    run: Run, command: str, words: dict[str, dict[str, object]]
) -> None:
    shown = run(command, "--help-all" if command in LONG else "--help").ok().out
    lines = shown.partition("SPEC of --")[2].splitlines()
    for word, keys in words.items():
        start = next(number for number, line in enumerate(lines) if line.startswith(f"  {word} "))
        stop = next(n for n, line in enumerate(lines) if n > start and not line.startswith("     "))
        told = " ".join(lines[start:stop])
        assert all(f"{key}=" in told or f"[{key}=]" in told for key in keys), told
    assert max(map(len, shown.partition("SPEC of")[2].partition(EXAMPLES)[0].splitlines())) < 80


@pytest.mark.parametrize("command", LONG)
def test_help_is_short_and_help_all_has_every_option(run: Run, command: str) -> None:
    short, whole = (run(command, flag).ok().out for flag in ("--help", "--help-all"))
    assert len(short.splitlines()) <= 100
    assert "--help-all" in short
    words = set(whole.replace(",", " ").replace("[", " ").split())
    flags = {flag for action in load_parser(command)._actions for flag in action.option_strings[:1]}
    assert flags <= words
    assert "--max-drift" not in short
    assert "--input" in short


@pytest.mark.parametrize("command", ["embed", "plan", "index"])
def test_help_says_what_a_factory_is(run: Run, command: str) -> None:
    assert "".join(FACTORIES.split()) in "".join(run(command, "--help").ok().out.split())


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("cached_beam_options")
def test_every_example_runs(run: Run, tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    texts = sentences(400)
    years = pa.array([2000 + n % 40 for n in range(len(texts))])
    write_parquet(
        tmp_path / "corpus" / "a.parquet", texts, lang=pa.array(["en", "de"] * 200), year=years
    )
    write_lines(tmp_path / "notes.txt", texts[:20])
    write_lines(tmp_path / "corpus.txt", texts[:50])
    write_lines(tmp_path / "questions.txt", texts[:3])
    for name in ("stsb", "2012", "2013"):
        pairs = [
            f"{i % 5}.0\t{a}\t{b}"
            for i, (a, b) in enumerate(zip(texts[:40], texts[1:41], strict=True))
        ]
        write_lines(tmp_path / f"{name}.tsv", ["score\tsentence1\tsentence2", *pairs])

    def example(line: str) -> Outcome:
        for there, here in {
            "BAAI/bge-small-en-v1.5": "minilm", "my-model": "minilm", "gs://bucket/": "", " --project p": "",
            "20260314T031500_123Z-4f1d2a": "-1", "--output encoder": "--output encoder --quiet",
            # 400 rows are too few for codes of less
            "--max-bytes-per-row 150": "--max-bytes-per-row 250",
        }.items():  # fmt: skip
            line = line.replace(there, here)
        return run(*shlex.split(line)[1:])

    # so that there are snapshots before, and the columns that a filter names
    example(f"{examples_of('embed')[0]} --keep-columns lang,year").ok()
    for command in (
        "embed",
        "embed",
        *(command for command in COMMANDS if command not in ("train", "serve")),
    ):
        for line in examples_of(command):
            if "notes.txt --store store" in line:
                line = line.replace("--store store", "--store other")
            example(line).ok()


def test_the_list_of_commands_is_by_what_people_want(run: Run) -> None:
    lines = run("--help").ok().out.splitlines()
    headings = [
        line for line in lines if line.endswith(":") and not line.startswith((" ", "usage", "`"))
    ]
    assert headings == ["make a store:", "use it:", "choose and train:", "keep it:"]
    assert [
        line.split()[0] for line in lines if line.startswith("  ") and "sentence-beam" not in line
    ] == [*COMMANDS]
