"""What is shown of work under way: on a terminal, in a notebook, in a pipe.

Covers transforms/base/progress.py.
"""

import contextlib
import io
import os
import pty
import re
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers.commands import Run
from helpers.corpora import sentences, write_lines

import sentence_beam.pipelines.common.progress as shown
from sentence_beam.pipelines.common.stdin import as_typed
from sentence_beam.transforms.base import progress


class Terminal:
    """A pseudo-terminal of 72 columns, and all that was written to it."""

    def __init__(self) -> None:
        self._reading, writing = pty.openpty()
        os.set_blocking(self._reading, False)
        self.out = os.fdopen(writing, "w", encoding="utf8")
        self._seen = b""

    def seen(self) -> str:
        """Everything that came so far."""
        self.out.flush()
        try:
            while part := os.read(self._reading, 1 << 16):
                self._seen += part
        except BlockingIOError:
            pass
        return self._seen.decode("utf8")

    def wait_for(self, pattern: str) -> None:
        """Wait until something is to be seen."""
        for _ in range(3000):
            if re.search(pattern, self.seen()):
                return
            time.sleep(0.01)
        raise AssertionError(f"{pattern} is not in {self.seen()!r}")

    def left(self) -> str:
        """What is on the line in the end."""
        cells: dict[int, str] = {}
        for part in re.split(r"(?=\r)", self.seen().rpartition("\n")[2]):
            cells.update(enumerate(part.removeprefix("\r")))
        return "".join(cells[place] for place in sorted(cells)).strip()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setattr(shown, "SECONDS", 0.005)
    found = Terminal()
    yield found
    found.out.close()


def test_a_terminal_shows_a_bar_or_a_clock_and_nothing_of_it_stays(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr", terminal.out)
    with shown.watching(terminal.out):
        terminal.wait_for("getting ready, 0s")
        with progress.stage(progress.LOADING):
            terminal.wait_for("loading the model, 0s")
        with progress.stage("verifying", 4, "shards"):
            progress.step(2)
            terminal.wait_for(r"verifying:  50%\|█+ +\| 2/4 \[")
            shown.print_aside("a line that stays")
        progress.planned(1000)
        terminal.wait_for("waiting for the first batch")
        progress.advance(10, 250)
        terminal.wait_for(r"embedding:  25%\|.*10 rows\]")
    assert re.search(r"\ra line that stays\r?\n", terminal.seen())  # it takes the place of the bar
    assert terminal.left() == ""


def test_nothing_moves_while_a_command_goes_on_until_somebody_ends_it(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr", terminal.out)
    with shown.watching(terminal.out), progress.stage(progress.LOADING):
        terminal.wait_for("loading the model, 0s")
        with shown.hiding_progress(), progress.stage("searching the index"):
            shown.print_news("it answers now")
            assert "it answers now" in terminal.seen()
            while terminal.left():
                time.sleep(0.01)
            assert "searching the index" not in terminal.seen()
        told = len(terminal.seen())
        while "loading the model" not in terminal.seen()[told:]:
            time.sleep(0.01)


def test_nothing_is_written_over_what_somebody_types(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr", terminal.out)
    monkeypatch.setattr(
        "sys.stdin", SimpleNamespace(isatty=lambda: True, buffer=io.BytesIO(b"one\ntwo\n"))
    )
    with shown.watching(terminal.out):
        terminal.wait_for("getting ready, 0s")
        with as_typed() as typed:
            terminal.wait_for("reading standard input; Ctrl-D on a line of its own ends it")
            for _ in range(20):
                told = len(terminal.seen())
                time.sleep(0.1)
                if len(terminal.seen()) == told:
                    break
            else:
                raise AssertionError("the clock goes on")
            assert typed.read() == b"one\ntwo\n"
        while "getting ready" not in terminal.seen()[told:]:
            time.sleep(0.01)


def test_a_bar_goes_on_where_the_last_piece_of_the_work_ended() -> None:
    progress.clear()
    for done in (1, 2):
        with progress.stage("adding rows", 2, "rows"):
            progress.step()
            assert progress.current().done == done
    with progress.stage("adding rows", 3, "rows"):
        assert progress.current().done == 0
    assert list(progress.count_over([1, 2], "reading", "shards")) == [1, 2]
    assert progress.current().stage == ""


def test_a_notebook_has_a_line_that_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "SECONDS", 0.005)
    stream = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})
    with stream() as out:
        with shown.watching(out), progress.stage(progress.LOADING):
            while "\rloading the model, 0s" not in out.getvalue():
                time.sleep(0.01)
        assert out.getvalue().rpartition("\r")[0].rpartition("\r")[2].strip() == ""
        assert "\n" not in out.getvalue()


def test_a_pipe_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "SECONDS_APART", 0.005)
    with io.StringIO() as out:
        with shown.watching(out), progress.stage("verifying", 4, "shards"):
            progress.step(2)
            while "verifying: 2 of 4 shards, about 0s left\n" not in out.getvalue():
                time.sleep(0.01)
        assert "\r" not in out.getvalue()


def test_a_stream_that_is_gone_is_no_error() -> None:
    with shown.watching(None):
        pass


# --- commands


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> list[progress.Progress]:
    """The stages of a command, as each of them ended."""
    ended: list[progress.Progress] = []
    whole = progress.stage

    class Recorded(contextlib.ContextDecorator):
        def __init__(self, what: str, total: int = 0, things: str = "") -> None:
            self._made = partial(whole, what, total, things)

        def __enter__(self) -> None:
            self._stage = self._made()
            self._stage.__enter__()

        def __exit__(self, *error: object) -> None:
            ended.append(progress.current())
            self._stage.__exit__(*error)  # type: ignore[arg-type]

    monkeypatch.setattr(progress, "stage", Recorded)
    return ended


def test_every_command_says_what_it_does_and_bars_come_to_their_end(
    run: Run, embed: Run, inputs: Path, store: Path, tmp_path: Path, stages: list[progress.Progress]
) -> None:
    glob = write_lines(inputs / "a.txt", sentences(40))
    write_lines(tmp_path / "q.txt", ["a dog"])

    def said(outcome: object) -> set[str]:
        last = {found.stage: found for found in stages}
        assert all(found.done == found.total for found in last.values() if found.total), last
        stages.clear()
        return set(last)

    assert {"listing the input", "planning", progress.LOADING, "committing"} <= said(
        embed(glob).ok()
    )
    assert {
        "index: sampling",
        "index: training",
        "index: adding rows",
        "index: measuring recall",
    } <= said(run("index", "--store", store).ok())
    assert {
        progress.LOADING,
        "embedding the queries",
        "opening the index",
        "searching the index",
    } <= said(run("search", "--store", store, "--query", "a dog").ok())
    assert "comparing with every row" in said(
        run("search", "--store", store, "--query", "a dog", "--exact").ok()
    )
    assert {"reading the store", "fitting standardize"} <= said(
        run("fit", "--store", store, "--method", "standardize", "--output", tmp_path / "c").ok()
    )
    assert "recalibrating" in said(
        run("recalibrate", "--store", store, "--calibration", tmp_path / "c").ok()
    )
    assert {"verifying", "verifying the index"} <= said(run("verify", "--store", store).ok())
    assert {"listing the store's files", "removing"} <= said(
        run("vacuum", "--store", store, "--keep", 1).ok()
    )
    assert "counting tokens" in said(
        run("fit", "--input", glob, "--method", "tfidf", "--output", tmp_path / "t").ok()
    )


def test_a_command_on_a_terminal_leaves_its_result_alone(
    run: Run,
    embed: Run,
    inputs: Path,
    store: Path,
    terminal: Terminal,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stderr", terminal.out)
    embed(write_lines(inputs / "a.txt", sentences(10)), "--quiet")
    assert terminal.seen() == ""
    found = run("search", "--store", store, "--query", "a dog")
    assert (found.status, found.err) == (0, "")
    assert "loading the model" in terminal.seen()
    assert terminal.left() == ""
    assert "loading" not in found.out
