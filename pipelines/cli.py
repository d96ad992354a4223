"""The console command `sentence-beam`: the list of commands, and the module of the one that is run."""

import gc
import importlib
import logging
import sys

from transforms.imports import uncollected

COMMANDS = {
    "embed": "embed a collection into a store, or bring the store up to date",
    "plan": "what embed would do: files, rows, tokens, units, bytes, time",
    "fit": "fit a calibration on a store's vectors, or count the tokens of a corpus",
    "recalibrate": "apply a calibration to the vectors of a store",
    "index": "build the FAISS index of a store",
    "search": "find the rows nearest to a query",
    "pairs": "find the most similar pairs of texts in a collection",
    "files": "print or link a store's current shards",
    "evaluate": "score poolers on pairs of sentences that people have scored",
    "export": "write a store's encoder as a folder, for sentence-transformers too",
    "verify": "re-hash and re-count everything a store names",
    "rejects": "list the rows that could not be embedded, with the reasons",
    "history": "list every run of a store and how it ended",
    "diff": "list the rows in which two snapshots differ",
    "rollback": "make an earlier snapshot the current one again",
    "report": "write the nights of a store as a page with plots",
    "vacuum": "remove old snapshots and what no kept one names",
}
INTERRUPTED = "interrupted; run the same command again to go on"


def usage() -> str:
    """The list of commands, as text."""
    lines = [f"  {name:<11} {what}" for name, what in COMMANDS.items()]
    return "\n".join(
        ["usage: sentence-beam COMMAND [OPTIONS]", "", *lines, "", "`sentence-beam COMMAND --help` lists its options."]
    )


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit status."""
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage())
        return 0 if arguments else 2
    if arguments[0] not in COMMANDS:
        print(f"sentence-beam: no command {arguments[0]}; there are {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    logging.getLogger().setLevel(logging.ERROR)  # Beam warns of its own optional parts while it is imported
    try:
        with uncollected():
            command = importlib.import_module(f"pipelines.{arguments[0]}")
    except KeyboardInterrupt:
        print(f"sentence-beam {arguments[0]}: {INTERRUPTED}", file=sys.stderr)
        return 1
    return command.main(arguments[1:])


def run() -> int:
    """The exit status of `main`, for a process that ends with it."""
    code = main()
    gc.freeze()  # or Python looks through all that was imported for garbage once more, which takes seconds
    return code


if __name__ == "__main__":
    sys.exit(run())
