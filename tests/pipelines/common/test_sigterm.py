"""SIGTERM: the first process of a container, second signals, imports, children, other programs."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers.commands import Run, code_process
from helpers.containers import NAMESPACE, needs_namespaces, terminated
from helpers.corpora import manifest_of, sentences, write_lines

from sentence_beam.pipelines.common.sigterm import interrupting_by_sigterm
from sentence_beam.transforms.store.runs import lease

LINE = "sentence-beam embed: interrupted; run the same command again to go on\n"
# Give the lease back only after a second signal, for which this waits.
SLOW_END = """
import os, signal, sys, time
from helpers.commands import in_child
from sentence_beam.transforms.store.runs import lease
place, *arguments = {arguments!r}
release = lease.release

def slow(*given):
    os.mkdir(place)
    while not os.path.exists(place + "/again"):
        time.sleep(0.01)
    release(*given)

lease.release = slow
in_child(arguments, {err!r})
"""


def wait_for(folder: Path, pattern: str) -> None:
    """Return when a folder has a file of this pattern."""
    for _ in range(6000):
        if any(folder.glob(pattern)):
            return
        time.sleep(0.01)
    raise AssertionError(f"{folder}/{pattern} never existed")


def embedding(inputs: Path, store: Path, model: Path) -> list[str]:
    """Return the arguments of a run of many small units."""
    file = write_lines(inputs / "a.txt", sentences(3000))
    named = ["--input", str(file), "--store", str(store), "--model", str(model)]
    return ["embed", *named, "--unit-tokens", "30", "--dtype", "float32"]


@needs_namespaces
def test_the_first_process_of_a_container_ends(
    inputs: Path, store: Path, model: Path, tmp_path: Path
) -> None:
    argv = embedding(inputs, store, model)
    with (tmp_path / "err").open("w") as err:
        process = subprocess.Popen(
            [*NAMESPACE, sys.executable, "-m", "sentence_beam", *argv], stderr=err
        )
    wait_for(store, "sidecars/*.json")
    assert terminated(process) == 143
    assert (tmp_path / "err").read_text() == LINE
    assert manifest_of(store) is None
    assert not (store / "lease.json").exists()


def test_a_second_signal_leaves_the_clean_up_alone(
    inputs: Path, store: Path, model: Path, tmp_path: Path
) -> None:
    ending = tmp_path / "ending"
    arguments = [str(ending), *embedding(inputs, store, model)]
    code = SLOW_END.format(arguments=arguments, err=str(tmp_path / "err"))
    process = code_process(code, tmp_path / "code")
    process.start()
    wait_for(store, "sidecars/*.json")
    os.kill(process.pid, signal.SIGTERM)
    wait_for(tmp_path, "ending")
    os.kill(process.pid, signal.SIGTERM)
    (ending / "again").touch()
    process.join(60)
    assert process.exitcode == 143
    assert (tmp_path / "err").read_text() == LINE
    assert not (store / "lease.json").exists()


def test_it_ends_an_import(tmp_path: Path) -> None:
    code = (
        "import importlib, os, signal\n"
        "from helpers.commands import in_child\n"
        "importlib.import_module = lambda _: os.kill(os.getpid(), signal.SIGTERM)\n"
        f"in_child(['embed', '--help'], {str(tmp_path / 'err')!r})\n"
    )
    process = code_process(code, tmp_path / "code")
    process.start()
    process.join(60)
    assert process.exitcode == 143
    assert (tmp_path / "err").read_text() == LINE


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_that_python_drops_is_raised_again(
    tmp_path: Path, number: signal.Signals
) -> None:
    code = (
        "import importlib, os, time\n"
        "from helpers.commands import in_child\n"
        "class Interrupts:\n"
        f"    def __del__(self): os.kill(os.getpid(), {number})\n"
        "def work(_):\n"
        "    Interrupts()\n"
        "    time.sleep(30)\n"
        "importlib.import_module = work\n"
        f"in_child(['embed', '--help'], {str(tmp_path / 'err')!r})\n"
    )
    process = code_process(code, tmp_path / "code")
    process.start()
    process.join(20)
    assert process.exitcode == 128 + number
    assert (tmp_path / "err").read_text() == LINE


def test_a_thread_that_never_ends_does_not_keep_an_interrupted_command(tmp_path: Path) -> None:
    code = (
        "import atexit, importlib, os, signal, threading\n"
        "from helpers.commands import in_child\n"
        "def work(_):\n"
        "    threading.Thread(target=threading.Event().wait).start()\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "importlib.import_module = work\n"
        f"atexit.register(open, {str(tmp_path / 'ended')!r}, 'w')\n"
        f"in_child(['embed', '--help'], {str(tmp_path / 'err')!r})\n"
    )
    process = code_process(code, tmp_path / "code")
    process.start()
    process.join(20)
    assert process.exitcode == 143
    assert (tmp_path / "err").read_text() == LINE
    assert (tmp_path / "ended").exists()


def test_forked_children_die_of_it() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with interrupting_by_sigterm():
        child = os.fork()
        if not child:
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_a_parent_had_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with interrupting_by_sigterm():
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_program_keeps_its_own_handler(
    embed: Run, inputs: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    acquire = lease.acquire

    def signalled(*given: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        acquire(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(lease, "acquire", signalled)
    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))
    try:
        embed(write_lines(inputs / "a.txt", sentences(3))).ok()
        assert seen == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)
