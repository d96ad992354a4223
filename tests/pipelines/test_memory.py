"""Memory of a process that runs many jobs, one after the other."""

import gc
import os
from pathlib import Path

import pytest
from apache_beam.utils import shared

import sentence_beam as sb


@pytest.fixture(scope="module", autouse=True)
def _plain_beam(cached_beam_options: None) -> None:
    """Beam's own runner: it is part of what is tested."""


@pytest.fixture(autouse=True)
def _kept_models() -> None:
    """Every run loads its model: it is part of what is tested."""


RUNS, WARM = 100, 40
GROWTH = 5_000_000  # bytes, over the runs after the warm ones


def resident_bytes() -> int:
    """Return the bytes of memory that this process holds."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def text(inputs: Path) -> Path:
    """A file of nine texts."""
    path = inputs / "a.txt"
    path.write_text("".join(f"text number {number}\n" for number in range(9)))
    return path


def test_runs_of_a_process_share_one_handle(text: Path, model: Path, tmp_path: Path) -> None:
    handles = []
    for store in ("first", "second", "third"):
        sb.embed(text, store=tmp_path / store, model=model)
        handles.append(len(shared._shared_map._cache_map))
    assert handles[0] == handles[2]


@pytest.mark.slow
def test_unchanged_runs_do_not_grow(
    text: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "sentence_beam.transforms.base.memory.gc", gc
    )  # which all tests else go without
    held = []
    for _ in range(RUNS):
        sb.embed(text, store=tmp_path / "store", model=model)
        held.append(resident_bytes())
    assert held[-1] - held[WARM - 1] < GROWTH
