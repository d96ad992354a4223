"""Made-up stores with rows to erase, and what their shards and codes have of these rows."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from helpers.commands import Outcome, Run
from helpers.nights import Files
from helpers.store_scan import PlantedRow, codes_of
from helpers.watching import WatchedNights, watched_nights

from sentence_beam.transforms.beam import IndexRequest
from sentence_beam.transforms.store.manifest import Manifest, read_manifest, snapshots

GONE = ["person-0-00003", "person-1-00017", "person-2-00031", "late-00005", "left-00002"]


class KeptTexts(WatchedNights):
    """A store that keeps its rows' texts; its runs are named as those of commands are."""

    def kept(self, texts: list[str]) -> pa.Table:
        return pa.table({"text": pa.array(texts, pa.string())})

    def begin(self, files: Files) -> Any:
        run, units = super().begin(files)
        return run, units


def rows(name: str, n: int) -> list[tuple[str, str]]:
    """Rows whose ids and texts occur nowhere else."""
    return [(f"{name}-{i:05d}", f"{'abcd'[i % 4]} {name} wrote entry {i:05d}") for i in range(n)]


def files(n: int = 80) -> dict[str, list[tuple[str, str]]]:
    """Three files of a first night."""
    return {f"f{i}": rows(f"person-{i}", n) for i in range(3)}


def three_nights(folder: Path, factory: str, n: int = 80) -> KeptTexts:
    """A store with three snapshots, ranges of lists, deltas, deleted rows and watched queries."""
    nights = KeptTexts(folder / "store", options=watched_nights(folder).options)
    request = IndexRequest(factory, range_bytes=1500)
    first = {**files(n), "left": rows("left", 12)}
    nights.commit(first, request)
    nights.commit({**files(n), "late": rows("late", 12)}, request)
    nights.watch([text for _, text in rows("person-1", 20)[15:]])
    changed = files(n)
    changed["f0"] = changed["f0"][1:]
    nights.night({**changed, "late": rows("late", 14)}, request=request)
    return nights


def planted(store: Path, wanted: Iterable[str]) -> list[PlantedRow]:
    """Return rows of all kept snapshots, with all that their shards have of them."""
    names = set(wanted)
    found = []
    for run in snapshots(str(store)):
        manifest = read_manifest(str(store), run)
        assert manifest is not None
        codes = codes_of(store, manifest.data["index"], names) if manifest.index else {}
        for path in manifest.shard_paths:
            for row in pq.read_table(path).to_pylist():
                if row["id"] in names:
                    own = tuple(code for code in codes.get(row["id"], ()) if len(code) >= 8)
                    vector = np.array(row["embedding"], np.float32)
                    found.append(PlantedRow(row["id"], row["text"], row["row_hash"], vector, own))
    return found


def others(store: Path, gone: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return everything of the other rows of each snapshot, in order."""
    found = {}
    for run in snapshots(str(store)):
        manifest = read_manifest(str(store), run)
        assert manifest is not None
        tables = [pq.read_table(path) for path in manifest.shard_paths]
        found[run] = [row for one in tables for row in one.to_pylist() if row["id"] not in gone]
    return found


def forget(run: Run, store: Path, *names: str, options: tuple[object, ...] = ()) -> Outcome:
    """Erase rows by id."""
    return run("forget", "--store", store, "--id", *names, *options)


def read(store: Path, name: str | None = None) -> Manifest:
    """Return the manifest of a snapshot."""
    found = read_manifest(str(store), name)
    assert found is not None
    return found
