"""The command serve: an address that answers, signals that end it, and options that cannot be."""

import os
import re
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from helpers.commands import Run, child_process
from helpers.corpora import sentences, write_lines


@pytest.fixture
def made(embed: Run, inputs: Path, store: Path) -> Path:
    """A store of a few rows."""
    embed(write_lines(inputs / "a.txt", sentences(5))).ok()
    return store


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_it_answers_until_a_signal_ends_it(
    made: Path, tmp_path: Path, number: signal.Signals
) -> None:
    err = tmp_path / "err"
    command = ["serve", "--store", str(made), "--port", "0", "--root-path", "/team/"]
    process = child_process(command, str(err))
    process.start()
    try:
        address = _address(err, process)
        assert len(httpx.get(f"{address}/search?q=dog", timeout=60).json()["hits"]) == 5
        assert 'href="/team/style.css"' in httpx.get(f"{address}/team", timeout=60).text
        os.kill(int(process.pid or 0), number)
        process.join(60)
        assert process.exitcode == 0
        assert err.read_text() == f"{made} is at {address} (Ctrl-C ends)\n"
    finally:
        process.kill()
        process.join()


def _address(err: Path, process: Any) -> str:
    for _ in range(1200):
        found = re.search(r"is at (\S+) ", err.read_text() if err.exists() else "")
        if found:
            return found[1]
        assert process.is_alive(), err.read_text()
        time.sleep(0.05)
    raise AssertionError("it never listened")


def test_options_that_cannot_be(run: Run, made: Path, store: Path) -> None:
    run("serve", "--store", store.parent / "none").failed(2, "holds no store")
    for port in ("65536", "-1", "http", "8" * 5000):
        run("serve", "--store", made, "--port", port).failed(2, "--port", port)
    for path in ("store", "//host", "/a b", "/a?b", "/a/../%2e", '/"'):
        run("serve", "--store", made, "--root-path", path).failed(2, "--root-path", path)
    run("serve", "--store", made, "--host", "").failed(2, "--host", "is empty")
    run("serve", "--store", made, "--host", "no such host").failed(2, "--host no such host")
    run("serve", "--store", made, "--model", store.parent).failed(2, "config.json is missing")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        run("serve", "--store", made, "--port", port).failed(2, f"--port {port}", "already in use")


def test_without_its_extra(run: Run, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    run("serve", "--store", made).failed(2, "pip install -c ", "[serve]")
