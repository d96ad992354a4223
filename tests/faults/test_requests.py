"""Requests to s3:// of which some fail, are cut short or are slow: the same shards as on a calm
day.

`tests/pipelines/test_gs.py` has the same for gs://.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.commands import Run
from helpers.corpora import sentences, write_parquet
from helpers.s3 import disturbed
from helpers.snapshots import units_of

from sentence_beam.transforms import storage

pytest.importorskip("faiss")
pytestmark = [pytest.mark.usefixtures("one_model"), pytest.mark.timeout(7200)]


def shards(root: str) -> list[tuple[Any, ...]]:
    return [
        tuple(unit[name] for name in ("unit", "path", "rows", "sha256")) for unit in units_of(root)
    ]


def night(root: str, folder: Path, number: int) -> None:
    """The inputs of a night: of three files one changes."""
    for name in range(3):
        texts = sentences(20, 100 * name + (1000 * number if name == 0 else 0))
        path = write_parquet(folder / f"{name}.parquet", texts, row_group_size=10)
        storage.overwrite(f"{root}/in/{name}.parquet", path.read_bytes())


def nights(
    run: Run, model: Path, root: str, folder: Path, count: int
) -> list[list[tuple[Any, ...]]]:
    """The shards of some nights of a store."""
    made = []
    named = ("--input", f"{root}/in/*", "--store", f"{root}/store", "--model", model)
    for number in range(count):
        night(root, folder, number)
        run(
            "embed",
            *named,
            "--unit-tokens",
            300,
            "--dtype",
            "float32",
            "--index",
            "Flat",
            "--max-deletes",
            1,
        ).ok()
        run("verify", "--store", f"{root}/store").ok()
        made.append(shards(f"{root}/store"))
    return made


def try_nights(run: Run, model: Path, root: str, folder: Path, count: int) -> str:
    """Nights on a calm day and on another one give equal shards; a line with what was tried."""
    calm = nights(run, model, f"{root}/calm", folder, count)
    with disturbed(unavailable=0.05, cut=0.05, slow=0.05, wait=0.3) as service:
        other = nights(run, model, f"{root}/other", folder, count)
    assert other == calm
    return f"requests, s3://: {count} nights, {len(service.requests)} requests, {service.faults.happened} of them disturbed"


@pytest.mark.slow
def test_nights(
    run: Run,
    model: Path,
    s3: str,
    tmp_path: Path,
    tell: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    size: float,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    tell(try_nights(run, model, s3, tmp_path / "in", max(1, int(10 * size))))
