"""forget on stores of every kind that embed makes: nothing is left, and nobody else's rows change.

Covers transforms/steps/forget/unit_eraser.py.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.commands import Outcome, Run
from helpers.corpora import sentences, write_lines, write_parquet
from helpers.store_scan import PlantedRow, codes_of, scan
from helpers.tiny_models import WORDS

from sentence_beam.transforms import storage
from sentence_beam.transforms.index import upkeep
from sentence_beam.transforms.store.manifest import Manifest, read_manifest, snapshots

pytest.importorskip("faiss")
pytestmark = pytest.mark.usefixtures("one_model")
INT8 = ("--precision", "int8")
CUT = ("--chunks", "budget:tokens=8")
MEANS = ("--chunks", "budget:tokens=8,combine=mean")
Rows = list[tuple[str, str]]


def own_sentences(n: int) -> list[str]:
    """At most 384 texts whose pieces differ too: three words of each four are a text's own."""
    words = WORDS.split()
    found = []
    for place in range(n):
        number = 97 * place % 384  # late ones are among all others
        own = (words[number // 48], words[8 + number // 6 % 8], words[16 + number % 6])
        turns = [" ".join((*own, words[22 + turn % 2])) for turn in range(2 + number % 5)]
        found.append(" ".join(turns))
    return found


def one_file(folder: Path, rows: Rows) -> None:
    """Write all rows into one table."""
    ids, words = (list(column) for column in zip(*rows, strict=True))
    groups = [f"group of {name}" for name in ids]
    write_parquet(folder / "a.parquet", words, 8, id=ids, who=pa.array(groups).dictionary_encode())


def small_files(folder: Path, rows: Rows) -> None:
    """Write each two rows into a table of their own, so that files share units."""
    for start in range(0, len(rows), 2):
        ids, words = (list(column) for column in zip(*rows[start : start + 2], strict=True))
        write_parquet(folder / f"{start:03d}.parquet", words, id=ids)


def lines(folder: Path, rows: Rows) -> None:
    """Write the texts alone, whose ids are then made of places."""
    write_lines(folder / "a.txt", [text for _, text in rows])


@dataclass(frozen=True)
class Kind:
    """A kind of store: options of embed, how the input is written, and if ids are a column."""

    options: tuple[object, ...] = ()
    write: Callable[[Path, Rows], None] = one_file
    has_ids: bool = True
    calibrated: bool = False
    index: str | None = "IVF2,SQ8"
    slow: bool = True
    texts: Callable[[int], list[str]] = sentences
    rows: int = 24
    warns: bool = False  # faiss says that it would like more rows to train with


CONTENT = ("--partition", "content")
FULL = {
    "SQ8, calibrated int8 of pieces": Kind((*CUT, *INT8), calibrated=True, index="IVF8,SQ8"),
    "RaBitQ, pieces by content": Kind((*CUT, *CONTENT), index="IVF8,RaBitQ"),
    "HNSW, calibrated": Kind(calibrated=True, index="IVF8_HNSW4,Flat"),
    "Flat, int8 by content": Kind((*INT8, *CONTENT), index="Flat"),
    "PQ by content": Kind(CONTENT, index="IVF8,PQ24x4", warns=True),
}
KINDS = {
    "calibrated int8 of pieces": Kind((*CUT, *INT8), calibrated=True, slow=False),
    "small files, made ids": Kind(("--keep-text",), small_files, has_ids=False, index=None),
    "calibrated int8": Kind(INT8, calibrated=True),
    "pieces": Kind(CUT, index=None),
    "calibrated": Kind(calibrated=True),
    "int8": Kind(INT8),
    "uint8": Kind(("--precision", "uint8")),
    "ubinary": Kind(("--precision", "ubinary")),
    "float16 by content": Kind(("--precision", "float16", *CONTENT)),
    "int8 by content": Kind((*INT8, *CONTENT)),
    "pieces by content": Kind((*CUT, *CONTENT)),
    "pieces with means": Kind(MEANS),
    "small files": Kind((), small_files),
    "small files by content": Kind(CONTENT, small_files),
    "small files in pieces": Kind(CUT, small_files),
    "lines": Kind((), lines, has_ids=False),
    "lines by content": Kind(CONTENT, lines, has_ids=False),
    "lines in pieces": Kind(CUT, lines, has_ids=False),
    "lines, means of pieces": Kind(MEANS, lines, has_ids=False),
    "kept columns": Kind(("--keep-columns", "who", "--keep-text")),
}


class Store:
    """A store of a kind with three snapshots, in the last of which rows were changed and added."""

    def __init__(self, run: Run, kind: Kind, model: Path, folder: Path, root: str) -> None:
        self.kind = kind
        self._run = run
        self.input = folder / "in"
        self.root = root
        self.copies = folder
        self.input.mkdir()
        self.command = ("embed", "--input", self.input / "*", "--store", root)
        made = ["--model", model, *kind.options]
        if kind.has_ids:
            made += ["--id-column", "id"]
        if kind.index:
            made += ["--index", kind.index]
        texts = kind.texts(kind.rows * 7 // 6)
        rows = [(f"person-{i:05d}", text) for i, text in enumerate(texts[: kind.rows])]
        kind.write(self.input, rows)
        self.run(*self.command, *made)
        self.fitted_on = next(self.manifests()).rows.stored
        if kind.calibrated:
            fitted = folder / "fitted"
            self.run("fit", "--store", root, "--method", "whitening", "--output", fitted)
            self.run("recalibrate", "--store", root, "--calibration", fitted)
        self.rows = [*rows[:3], (rows[3][0], f"{rows[3][1]} again"), *rows[4:]]
        self.rows += [(f"late-{n:02d}", text) for n, text in enumerate(texts[kind.rows :])]
        kind.write(self.input, self.rows)
        self.run(*self.command)

    def run(self, *arguments: object) -> Outcome:
        """Run a command; it succeeds and says nothing on stderr, except where faiss may warn."""
        outcome = self._run(*arguments)
        if self.kind.warns:
            outcome = replace(outcome, err="")
        return outcome.ok()

    def manifests(self) -> Iterator[Manifest]:
        """Yield the manifests of all kept snapshots."""
        for name in snapshots(self.root):
            manifest = read_manifest(self.root, name)
            assert manifest is not None
            yield manifest

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """Return all rows of each snapshot, in order."""
        return {
            one.run: [row for path in one.shard_paths for row in table_of(path).to_pylist()]
            for one in self.manifests()
        }

    def without(self, gone: set[bytes | str]) -> dict[str, list[dict[str, Any]]]:
        """Return the rows whose ids and hashes are not among some, of each snapshot."""
        keys = ("id", "row_hash", "doc_hash")
        return {
            name: [row for row in rows if not gone & {row.get(key) for key in keys}]
            for name, rows in self.tables().items()
        }

    def copy(self, name: str) -> Path:
        """Return a folder with the store's files, a copy if they are elsewhere."""
        if storage.is_local(self.root):
            return Path(self.root)
        for entry in storage.storage_of(self.root).below(self.root):
            path = self.copies / name / entry.path.removeprefix(f"{self.root}/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(storage.read_bytes(entry.path))
        return self.copies / name

    def codes_in(self, folder: Path, manifest: Manifest, ids: set[str]) -> dict[str, list[bytes]]:
        """Return the codes of some rows that no other row has; short ones occur by chance."""
        if manifest.index is None:
            return {}
        every = {row["id"] for row in self.tables()[manifest.run]}
        codes = codes_of(folder, manifest.data["index"], every)
        others = {code for name in every - ids for code in codes.get(name, ())}
        return {
            name: [code for code in codes.get(name, ()) if len(code) >= 8 and code not in others]
            for name in ids
        }

    def planted(self, ids: set[str]) -> list[PlantedRow]:
        """Return everything that the snapshots have of some rows."""
        found = []
        texts: dict[str, str] = dict(self.rows) if self.kind.has_ids else {}
        folder = self.copy("before")
        for manifest in self.manifests():
            codes = self.codes_in(folder, manifest, ids)
            for row in self.tables()[manifest.run]:
                if row["id"] in ids:
                    own = tuple(codes.get(row["id"], ()))
                    text = row.get("who") or texts.get(row["id"], "")
                    found += traces_of(row, text, own)
        return found


def table_of(path: str) -> pa.Table:
    return pq.read_table(pa.BufferReader(storage.read_bytes(path)))


def traces_of(row: dict[str, Any], text: str, codes: tuple[bytes, ...]) -> Iterable[PlantedRow]:
    """Yield what a row of a shard has: its vectors, and as whole numbers the bytes of these."""
    for column in ("embedding", "pooled"):
        if row.get(column) is None:
            continue
        array = np.asarray(row[column])
        own = codes
        if array.dtype.kind in "iu" and array.size >= 16:  # shorter ones occur by chance
            own += (array.astype(np.uint8).tobytes(),)
        yield PlantedRow(row["id"], text, row["row_hash"], array.astype(np.float32), own)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if kind.slow else ())
        for name, kind in KINDS.items()
    ],
)
def test_nothing_is_left(run: Run, model: Path, tmp_path: Path, name: str) -> None:
    store = Store(run, KINDS[name], model, tmp_path, str(tmp_path / "store"))
    check_erasure(store, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("service", ["gs", "s3"])
def test_nothing_is_left_in_a_bucket(
    run: Run, model: Path, tmp_path: Path, request: pytest.FixtureRequest, service: str
) -> None:
    root = f"{request.getfixturevalue(service)}/store"
    store = Store(run, KINDS["calibrated int8"], model, tmp_path, root)
    check_erasure(store, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", FULL)
def test_a_hundred_rows(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A hundred rows of a store with deltas and three kept snapshots or more."""
    monkeypatch.setattr(upkeep, "MOST_WORN", 1.0)  # deltas stay
    kind = replace(FULL[name], texts=own_sentences, rows=300)
    store = Store(run, kind, model, tmp_path, str(tmp_path / "store"))
    store.rows = store.rows[1:]
    store.kind.write(store.input, store.rows)
    store.run(*store.command)
    assert len(snapshots(store.root)) >= 3
    assert {segment["kind"] for segment in index_of(store)["segments"]} >= {"base", "delta"}
    people_gone = {f"person-{n:05d}" for n in range(10, 250, 3)}
    ids = {*people_gone, *(f"late-{n:02d}" for n in range(0, 40, 2))}
    assert len(ids) == 100
    check_erasure(store, tmp_path, ids)
    everybody = {name for name, _ in store.rows} - ids
    for place, rows in enumerate((store.rows, store.rows[::-1])):
        for path in store.input.iterdir():
            path.unlink()
        store.kind.write(store.input, rows)
        for path in store.input.iterdir():
            path.rename(path.with_name(f"named-{place}-{path.name}"))
        store.run(*store.command, "--max-rejects", 0)
        assert {row["id"] for row in store.tables()[latest(store).run]} == everybody


def latest(store: Store) -> Manifest:
    """The current snapshot."""
    found = read_manifest(store.root)
    assert found is not None
    return found


def index_of(store: Store) -> dict[str, Any]:
    """The entry of the current index."""
    return latest(store).data["index"]


def check_erasure(store: Store, folder: Path, ids: set[str] | None = None) -> None:
    root = store.root
    if ids is None:
        ids = {"person-00003", "person-00007", "late-01"}
    if not store.kind.has_ids:
        made = sorted({row["id"] for rows in store.tables().values() for row in rows})
        ids = {made[3], made[7]}
    every = [row for rows in store.tables().values() for row in rows if row["id"] in ids]
    gone: set[bytes | str] = set(ids)
    if not store.kind.has_ids:  # these rows are known by their texts, whatever their ids
        gone |= {row.get("doc_hash") or row["row_hash"] for row in every}
        gone -= ids
    traces, before = store.planted(ids), store.without(gone)
    assert len(traces_in(store, traces, "first")) > 5
    names = write_lines(folder / "ids.txt", sorted(ids))
    was = latest(store).run
    receipt = json.loads(store.run("forget", "--store", root, "--ids", names, "--json").out)
    assert receipt["rows"] > 0
    fitted = [line for line in receipt["fitted"] if line.startswith("calibration")]
    assert all(line.endswith(f": means over {store.fitted_on} rows") for line in fitted)
    assert len(fitted) == store.kind.calibrated
    assert traces_in(store, traces, "after") == []
    assert store.without(gone) == {receipt["run"]: before[was]}
    rows = latest(store).rows
    store.kind.write(store.input, store.rows[::-1])
    store.run(*store.command, "--max-rejects", 0)
    assert traces_in(store, traces, "again") == []
    assert latest(store).rows == rows
    store.run("verify", "--store", root)
    store.run("verify", "--store", root, "--forgotten")


def traces_in(store: Store, traces: Iterable[PlantedRow], name: str) -> list[str]:
    """Return the traces in the store; made ids are places, which other rows take."""
    found = scan(store.copy(name), traces)
    if store.kind.has_ids:
        return found
    return [line for line in found if ": id of " not in line and ": hash of id of " not in line]
