"""Work that kills its process is found out, named, and kills nothing else."""

import faulthandler
import multiprocessing
import os
import signal
from functools import partial
from pathlib import Path

import pytest
from helpers import fake_storage

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.steps.embed import crash_guard
from sentence_beam.transforms.steps.embed.crash_guard import Death, Tell, find_death, mark_work
from sentence_beam.transforms.storage.local import LocalStorage


def steps(fatal: int | None, by: int, tell: Tell) -> None:
    faulthandler.disable()  # what a forked child would print is of no use
    for step in range(3):
        tell(f"step {step}")
        if step == fatal:
            os.kill(os.getpid(), by)


def failing(tell: Tell) -> None:
    tell("step 0")
    raise ValueError("an error that is none of the process's")


@pytest.fixture
def _forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that begin at once: these tests are of the marks, not of how a process begins."""
    monkeypatch.setattr(crash_guard, "PROCESSES", multiprocessing.get_context("fork"))


@pytest.mark.parametrize(
    "by", [signal.SIGSEGV, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)]
)
def test_the_step_that_a_process_died_of(by: signal.Signals) -> None:
    assert find_death(partial(steps, 1, int(by))) == Death("step 1", by.name)


@pytest.mark.usefixtures("_forked")
def test_work_that_ends(capfd: pytest.CaptureFixture[str]) -> None:
    assert find_death(partial(steps, None, 0)) is None
    assert find_death(failing) is None
    assert "an error that is none" in capfd.readouterr().err


@pytest.mark.usefixtures("_forked")
def test_only_work_that_was_begun_twice_before_is_done_alone(tmp_path: Path) -> None:
    work = partial(steps, 2, int(signal.SIGSEGV))
    with mark_work(str(tmp_path), "run", "element", work):
        assert len(list((tmp_path / "runs" / "run").iterdir())) == 1
    assert not list((tmp_path / "runs" / "run").iterdir())

    for _ in range(2):
        with pytest.raises(ZeroDivisionError), mark_work(str(tmp_path), "run", "element", work):
            _ = 1 / 0  # the worker is lost on the way
    with pytest.raises(SentenceBeamError, match=r"step 2: the worker died of it \(SIGSEGV\)"):
        with mark_work(str(tmp_path), "run", "element", work):
            pytest.fail("it would die again")
    with mark_work(str(tmp_path), "run", "element", partial(steps, None, 0)):
        pass
    assert not list((tmp_path / "runs" / "run").iterdir())


class TakesEqualBytesForItsOwn(LocalStorage):
    """As gs:// does, where the answer to a write may have been lost."""

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return super().put_if_absent(path, data) or Path(path).read_bytes() == data


@pytest.mark.usefixtures("_forked")
def test_a_mark_is_found_where_equal_bytes_count_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_storage.replace_storage(monkeypatch, TakesEqualBytesForItsOwn())
    check_that_a_mark_is_found(str(tmp_path))


@pytest.mark.usefixtures("_forked")
def test_a_mark_is_found_on_gs(gs: str) -> None:
    check_that_a_mark_is_found(gs)


def check_that_a_mark_is_found(root: str) -> None:
    """Work that was begun twice and never ended is done alone the third time."""
    work = partial(steps, 2, int(signal.SIGSEGV))
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), mark_work(root, "run", "element", work):
            _ = 1 / 0  # the worker is lost on the way
    with pytest.raises(SentenceBeamError, match="step 2: the worker died of it"):
        with mark_work(root, "run", "element", work):
            pytest.fail("it would die again")
