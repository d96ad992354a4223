"""Pushes that are killed or frozen at one of their writes; imports little, since every child begins
with it.
"""

import contextlib
import importlib
import multiprocessing
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from sentence_beam.pipelines.cli import main

SPAWNS = multiprocessing.get_context("spawn")
MODULES = {"postgresql": "postgres", "qdrant": "qdrant", "lance": "lance"}
# The clients' calls that write, by the kind of database; the first one sends a batch of rows.
WRITES = {
    "postgresql": [
        ("psycopg.cursor", "Cursor", ["copy", "execute"]),
        ("psycopg", "Connection", ["commit"]),
    ],
    "qdrant": [
        (
            "qdrant_client",
            "QdrantClient",
            [
                "upsert",
                "delete",
                "update_collection",
                "update_collection_aliases",
                "create_collection",
            ],
        )
    ],
    "lance": [
        ("lancedb.merge", "LanceMergeInsertBuilder", ["execute"]),
        (
            "lancedb.table",
            "LanceTable",
            ["delete", "update_field_metadata", "restore", "add_columns", "drop_columns"],
        ),
        ("lancedb.db", "LanceDBConnection", ["create_table"]),
    ],
}


@dataclass(frozen=True)
class Moment:
    """The n-th write of a push, before it is sent or when it was answered; `batches` counts batches
    of rows alone.
    """

    number: int
    answered: bool = False
    batches: bool = False


def to_be_stopped(store: str, to: str, moment: Moment, sign: int) -> None:
    """Push as the whole work of a child process, which sends itself a signal at some moment."""
    kind = to.partition(":")[0]
    importlib.import_module(f"sentence_beam.transforms.push.{MODULES[kind]}")
    calls = [(module, name, method) for module, name, methods in WRITES[kind] for method in methods]
    count = 0

    def stopping(client: Any, method: str) -> None:
        call = getattr(client, method)

        def stopped(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            is_now = count == moment.number
            if is_now and not moment.answered:
                os.kill(os.getpid(), sign)
            answer = call(*args, **kwargs)
            if is_now and moment.answered:
                os.kill(os.getpid(), sign)
            return answer

        setattr(client, method, stopped)

    for module, name, method in calls[:1] if moment.batches else calls:
        stopping(getattr(importlib.import_module(module), name), method)
    raise SystemExit(main(["push", "--store", store, "--to", to, "--quiet", "--max-deletes", "1"]))


def _begun(store: Path, to: str, moment: Moment, sign: int) -> SpawnProcess:
    process = SPAWNS.Process(target=to_be_stopped, args=(str(store), to, moment, sign))
    process.start()
    return process


def killed(store: Path, to: str, moment: Moment) -> bool:
    """Push, and kill that at some moment; False if it ended before."""
    process = _begun(store, to, moment, signal.SIGKILL)
    process.join()
    return process.exitcode == -signal.SIGKILL


@contextlib.contextmanager
def frozen(store: Path, to: str, moment: Moment) -> Iterator[SpawnProcess | None]:
    """A push that is frozen at some moment, which `wake` wakes; None if it ended before. It is
    killed at the end.
    """
    process = _begun(store, to, moment, signal.SIGSTOP)
    try:
        _, status = os.waitpid(process.pid or 0, os.WUNTRACED)
        yield process if os.WIFSTOPPED(status) else None
    finally:
        process.kill()
        process.join()


def wake(process: SpawnProcess | None) -> int | None:
    """Let a frozen push go on to its end, and return its exit status."""
    assert process is not None
    assert process.pid is not None
    os.kill(process.pid, signal.SIGCONT)
    process.join(60)
    return process.exitcode
