"""A store of another format is one line and exit status 1, by every command that reads a store."""

import json
from pathlib import Path

import pytest
from helpers.commands import Run, runner
from helpers.corpora import write_lines
from helpers.snapshots import night, numbered, run_name

from sentence_beam.pipelines.cli import COMMANDS

pytestmark = pytest.mark.usefixtures("plain_beam")
COMMAND_LINES = {
    "embed": "--input INPUT",
    "plan": "--input INPUT",
    "index": "--index Flat",
    "fit": "--method whitening --output OUT",
    "recalibrate": "--calibration none",
    "search": "--query dog",
    "serve": "--port 0",
    "neighbours": "--of STORE --output OUT.jsonl",
    "dedup": "--min-score 0.9 --output OUT.jsonl",
    "cluster": "--clusters 2 --output OUT.jsonl",
    "export": "--output OUT",
    "push": "--to lance:OUT#rows",
    "files": "",
    "diagnose": "",
    "info": "",
    "history": "",
    "diff": f"{run_name(0)} {run_name(1)} --output OUT.jsonl",
    "watch": "--queries INPUT",
    "report": "--output OUT.html",
    "verify": "",
    "forget": "--ids INPUT",
    "vacuum": "--keep 1",
    "rollback": run_name(0),
    "rejects": "",
}
WITHOUT_A_STORE = {"pairs", "evaluate", "train", "distill"}


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command in this process."""
    return runner(capfd)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of two snapshots of another format."""
    root = tmp_path / "store"
    for number in range(2):
        night(str(root), number, numbered(number, 5))
    for path in (root / "manifest.json", *(root / "manifests").glob("*.json")):
        path.write_text(json.dumps({**json.loads(path.read_bytes()), "format": 4}))
    return root


def test_every_command_is_named() -> None:
    assert {*COMMAND_LINES} | WITHOUT_A_STORE == {*COMMANDS}


@pytest.mark.parametrize("command", COMMAND_LINES)
def test_a_store_of_another_format_is_one_line(
    run: Run, tmp_path: Path, store: Path, command: str
) -> None:
    names = {
        "INPUT": str(write_lines(tmp_path / "lines.txt", ["a dog"])),
        "STORE": str(store),
        "OUT": str(tmp_path / "out"),
    }
    line = COMMAND_LINES[command]
    for name, path in names.items():
        line = line.replace(name, path)
    words = [*line.split(), "--store", str(store)]
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    run(command, *words).failed(1, "format 4, this version reads 1: embed again")
    assert {path: path.read_bytes() for path in store.rglob("*") if path.is_file()} == before
