"""Pushes that are killed; imports little, since every child begins with it."""

import importlib
import multiprocessing
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path

from pipelines.cli import main

SPAWNS = multiprocessing.get_context("spawn")


def to_be_killed(store: str, to: str, ready: Connection) -> None:
    """Push as the whole work of a child process, from the moment that it says so."""
    module = {"postgresql": "postgres", "qdrant": "qdrant", "lance": "lance"}[to.partition(":")[0]]
    importlib.import_module(f"transforms.push.{module}")
    ready.send(True)
    main(["push", "--store", store, "--to", to, "--quiet"])


def killed(store: Path, to: str, seconds: float) -> bool:
    """Push, and kill that after so many seconds; False where it had ended."""
    here, there = SPAWNS.Pipe()
    process = SPAWNS.Process(target=to_be_killed, args=(str(store), to, there))
    process.start()
    there.close()
    here.recv()
    time.sleep(seconds)
    process.kill()
    process.join()
    return process.exitcode == -signal.SIGKILL
