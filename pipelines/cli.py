"""The console command `sentence-beam`: the list of commands, and their modules."""

import gc
import importlib
import sys
from importlib import metadata
from typing import TYPE_CHECKING

from sentence_beam.pipelines.common.sigterm import (
    end_interrupted,
    find_stopped_status,
    interrupting_by_sigterm,
    raising_lost_interrupts,
)
from sentence_beam.transforms.base.errors import STOPPED, TERMINATED
from sentence_beam.transforms.base.imports import keep_all, pause_collector
from sentence_beam.transforms.base.logs import keep_root_logger
from sentence_beam.transforms.base.values import find_nearest

if TYPE_CHECKING:
    import argparse

# The commands by purpose, in the order of every list of them.
GROUPS = {
    "make a store": {
        "embed": "embed a collection into a store, or bring the store up to date",
        "plan": "estimate what embed would do: files, rows, tokens, units, bytes, time",
        "index": "build the FAISS index of a store",
        "fit": "fit a calibration on a store's vectors, or count the tokens of a corpus",
        "recalibrate": "apply a calibration to the vectors of a store",
    },
    "use it": {
        "search": "find the rows nearest to a query",
        "serve": "search a store in a browser, or by HTTP as JSON",
        "neighbours": "find the nearest rows of many queries, or of every row of a store",
        "dedup": "find near-duplicate rows of a store",
        "cluster": "group the rows of a store by topic",
        "pairs": "find the most similar pairs of texts in a collection",
        "export": "write a store's encoder as a folder, for sentence-transformers too",
        "push": "bring a table of PostgreSQL, Qdrant or LanceDB up to a store",
        "files": "list or link a store's current shards",
    },
    "choose and train": {
        "evaluate": "score models, poolers and calibrations on tasks with labels",
        "diagnose": "compute figures of vectors, tokens and a model, mostly without labels",
        "train": "fine-tune a sentence encoder on pairs or triplets of texts",
        "distill": "turn a model into a lookup table of token vectors, which embeds faster",
    },
    "keep it": {
        "info": "show what a store is: model, rows, columns, bytes, index, last run",
        "history": "list every run of a store and how it ended",
        "diff": "list the rows in which two snapshots differ",
        "watch": "keep queries whose answers each run is compared by",
        "report": "write the nights of a store as a page with plots",
        "verify": "check every file of a store: hashes and counts",
        "forget": "erase rows from every file of a store, for good",
        "vacuum": "remove old snapshots, and files that no kept snapshot needs",
        "rollback": "make an earlier snapshot the current one again",
        "rejects": "list the rows that could not be embedded, with the reasons",
    },
}
COMMANDS = {name: what for commands in GROUPS.values() for name, what in commands.items()}
SHELLS = ("bash", "zsh", "fish")
INTERRUPTED = "interrupted; run the same command again to go on"


def list_usage() -> str:
    """The list of commands, as text."""
    lines = []
    for group, commands in GROUPS.items():
        lines += [f"{group}:", *(f"  {name:<11} {what}" for name, what in commands.items()), ""]
    return "\n".join(
        [
            "usage: sentence-beam COMMAND [OPTIONS]",
            "",
            *lines,
            "`sentence-beam COMMAND --help` lists its options, with examples. To begin:",
            "",
            "  sentence-beam embed --input 'corpus/*.parquet' --store store",
            "  sentence-beam search --store store --query 'a man is eating'",
            "",
            (
                f"`sentence-beam completion {'|'.join(SHELLS)}` prints a script that completes"
                " commands and options,"
            ),
            "`sentence-beam --version` the version. For programs: --json, and docs/llms.txt in the",
            "repository, which lists commands and pages.",
        ]
    )


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments:
        print(list_usage())
        return 2
    name, *rest = arguments
    if name == "help" and rest:
        name = rest[0]
        rest = ["--help"]
    if name in ("-h", "--help", "help"):
        print(list_usage())
        return 0
    if name in ("-V", "--version", "version"):
        print(f"sentence-beam {metadata.version('sentence-beam')}")
        return 0
    if name != "completion" and name not in COMMANDS:
        print(f"sentence-beam: {explain_unknown(name)}", file=sys.stderr)
        return 2
    try:
        if name == "completion":
            return complete(rest)
        with pause_collector(), keep_root_logger():
            command = importlib.import_module(f"sentence_beam.pipelines.{name}")
        return command.main(rest)
    except KeyboardInterrupt:  # before the command can handle it
        print(f"sentence-beam {name}: {INTERRUPTED}", file=sys.stderr)
        return find_stopped_status()


def explain_unknown(name: str) -> str:
    """Return the line about an unknown command."""
    if name.startswith("-"):
        return (
            f"a command comes before its options, as in sentence-beam embed {name}; there are"
            f" {', '.join(COMMANDS)}"
        )
    near = find_nearest(name, COMMANDS)
    if near:
        return f"no command {name}; did you mean {near}?"
    return f"no command {name}; there are {', '.join(COMMANDS)}"


def load_parser(command: str) -> "argparse.ArgumentParser":
    """The parser of a command, by its name in COMMANDS."""
    parser: argparse.ArgumentParser = importlib.import_module(
        f"sentence_beam.pipelines.{command}"
    ).parser()
    return parser


def complete(arguments: list[str]) -> int:
    """Print the script with which a shell completes commands and options."""
    import argparse

    import shtab

    if len(arguments) != 1 or arguments[0] not in SHELLS:
        print(f"sentence-beam completion: name one shell of {', '.join(SHELLS)}", file=sys.stderr)
        return 0 if arguments in (["-h"], ["--help"]) else 2
    everything = argparse.ArgumentParser("sentence-beam", allow_abbrev=False)
    commands = everything.add_subparsers()
    for name, what in COMMANDS.items():
        commands.add_parser(name, parents=[load_parser(name)], add_help=False, help=what)
    print(shtab.complete(everything, arguments[0]))
    return 0


def run(argv: list[str] | None = None) -> int:
    """Return the exit status of `main`, with which the process ends."""
    keep_all()  # no search for garbage in what commands import
    with interrupting_by_sigterm(), raising_lost_interrupts():
        code = main(argv)
    if code in (STOPPED, TERMINATED):
        end_interrupted(code)
    # without it Python searches all imported objects for garbage at the end, which takes seconds
    gc.freeze()
    return code


if __name__ == "__main__":
    sys.exit(run())
