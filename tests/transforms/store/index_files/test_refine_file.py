"""The vectors beside a segment, read from local disk and by ranges."""

from pathlib import Path

import numpy as np
import pytest

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import DamagedIndexError
from sentence_beam.transforms.index.exact_vectors import RefineWriter
from sentence_beam.transforms.store.index_files import refine_file
from sentence_beam.transforms.store.index_files.refine_file import RefineFile

DIM, ROWS = 8, 1000
VECTORS = np.random.default_rng(0).standard_normal((ROWS, DIM)).astype(np.float32)
CHOSEN = np.array([3, 4, 7, 200, 500, 501, 999])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    writer = RefineWriter(DIM)
    writer.add(VECTORS)
    found = tmp_path / "a.refine"
    found.write_bytes(writer.to_bytes())
    return found


@pytest.fixture(params=["local", "remote"])
def asked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The ranges that are asked for, where the file counts as remote."""
    found: list[tuple[int, int]] = []
    original = storage.read_range

    def read_range(path: str, start: int, stop: int) -> bytes:
        found.append((start, stop))
        return original(path, start, stop)

    monkeypatch.setattr(refine_file, "GAP", 10 * 24)
    monkeypatch.setattr(storage, "read_range", read_range)
    if request.param == "remote":
        monkeypatch.setattr(storage, "is_local", lambda path: False)
        monkeypatch.setattr(
            "sentence_beam.transforms.storage.dispatch.storage_of",
            lambda path: storage.local.LocalStorage(),
        )
    return found


def test_the_rows_asked_for_are_read_by_few_ranges(
    path: Path, asked: list[tuple[int, int]]
) -> None:
    file = RefineFile(str(path), DIM, ROWS)
    for _ in range(2):
        np.testing.assert_allclose(file.vectors(CHOSEN), VECTORS[CHOSEN], atol=2e-3)
    assert (
        sorted(asked)
        == sorted(
            2
            * [(3 * 24, 8 * 24), (200 * 24, 201 * 24), (500 * 24, 502 * 24), (999 * 24, ROWS * 24)]
        )[: len(asked)]
    )
    assert file.vectors(np.empty(0, np.int64)).shape == (0, DIM)


@pytest.mark.usefixtures("asked")
def test_damage_is_named_where_it_is_read(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[200 * 24 + 5] ^= 1
    path.write_bytes(data)
    file = RefineFile(str(path), DIM, ROWS)
    file.vectors(np.array([1, 2]))
    with pytest.raises(DamagedIndexError, match=r"a\.refine was changed after it was written"):
        file.vectors(CHOSEN)
    path.write_bytes(data[:-30])
    with pytest.raises(DamagedIndexError, match=r"a\.refine was changed after it was written"):
        RefineFile(str(path), DIM, ROWS).vectors(CHOSEN)
    path.unlink()
    with pytest.raises(DamagedIndexError, match=r"a\.refine is missing"):
        RefineFile(str(path), DIM, ROWS).vectors(CHOSEN)
