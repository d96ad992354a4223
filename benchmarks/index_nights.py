"""The cost of a night for an index that follows its store, against building it again.

    python -m benchmarks.index_nights --rows 200000 --changed 0.01
    python -m benchmarks.index_nights --rows 200000 --one-row
    python -m benchmarks.index_nights --rows 200000 --dim 64 --nights 14

Made-up vectors (as in benchmarks.index) are in a store of twenty shards. Three nights follow:
rows edited in place in every shard, as many rows added in one new shard, and the rows of every
shard in another order. Each night's index step runs as a Beam pipeline in this process, as in
`embed`, and so does the rebuild; a pipeline over an unchanged store is timed beside them and taken
off. With `--one-row` the index has sixteen ranges, one row is edited, and the bytes are counted
that the update reads of ranges: headers and lists, as they are requested from object storage.
With `--nights` other rows, drawn by chance, are edited in each of so many nights; the bytes of all
new files and the processor time are added up, less that of as many nights without a change.
"""

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import apache_beam as beam
import numpy as np

from benchmarks.common import report, timed
from benchmarks.index import synthetic
from sentence_beam.transforms.beam import BuildIndex, Commit, IndexRequest, Settle
from sentence_beam.transforms.corpus import InputFile, Span, UnitRows
from sentence_beam.transforms.index.range_file import RangeHeader
from sentence_beam.transforms.index.range_readers import MappedRange
from sentence_beam.transforms.space import Space, row_hashes
from sentence_beam.transforms.steps.plan.planned import OpenedFile, make_planned_rows
from sentence_beam.transforms.store.entries import RememberedOptions
from sentence_beam.transforms.store.manifest import read_manifest
from sentence_beam.transforms.store.records import UnitRecord
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.recorded_plan import PLAN, PlanNotes, write_plan
from sentence_beam.transforms.store.runs.run_result import now
from sentence_beam.transforms.store.shards.shard_bytes import compute_unit_digest
from sentence_beam.transforms.store.shards.unit_store import PreparedUnit, UnitCounts, UnitStore
from sentence_beam.transforms.store.shards.unit_vectors import Vectors

SHARDS = 20
RANGES = 16
Rows = list[tuple[str, str, int]]  # id, text, number of its vector


class Nights:
    """A store of made-up vectors, one snapshot after the other."""

    def __init__(self, root: Path, vectors: np.ndarray):
        self.root, self._vectors, self._count = root, vectors, 0
        self.space = Space(
            weights="w", tokenizer="t", architecture="bert:x", max_tokens=256, prompt="",
            pooler={"name": "mean"}, calibration=None, normalize=True, truncate_dim=None,
            precision="float32", dtype="float32", dim=vectors.shape[1],
        )  # fmt: skip

    def night(
        self, shards: list[Rows], request: IndexRequest
    ) -> tuple[tuple[float, float], dict[str, Any], int]:
        """Write the shards, then time the index step: wall and CPU seconds, the index, bytes of its
        new files.
        """
        units = [self._unit(number, rows) for number, rows in enumerate(shards)]
        self._count += 1
        before = read_manifest(str(self.root))
        run = Run(
            root=str(self.root), id=f"run{self._count}", space=self.space, partition="file",
            unit_tokens=1, globs=("/in/*",), options=RememberedOptions(), versions={},
            started=now(),
            previous=before.run if before else None, version=before.version if before else None,
        )  # fmt: skip
        planned = make_planned_rows([_plan_row(number, unit) for number, unit in enumerate(units)])
        write_plan(run.root, run.id, planned.select(PLAN.names), PlanNotes(written=now()))
        stood = set(before.index.files) if before and before.index else set()
        _, took = timed(lambda: self._build(run, units, request))
        manifest = read_manifest(str(self.root))
        assert manifest is not None
        assert manifest.run == run.id
        assert manifest.index is not None
        fresh = {path for path, _ in set(manifest.index.files) - stood}
        return (
            took,
            manifest.index.to_json(),
            sum((self.root / path).stat().st_size for path in fresh),
        )

    def _build(self, run: Run, units: list[UnitRecord], request: IndexRequest) -> None:
        with beam.Pipeline("FnApiRunner") as pipeline:
            made = (pipeline | "Units" >> beam.Create(units),) | "Commit/Settle" >> Settle(run)
            record = made | "Index" >> BuildIndex(run, request)
            _ = (made, record) | "Commit" >> Commit(run)

    def _unit(self, number: int, rows: Rows) -> UnitRecord:
        ids, texts, numbers = (list(column) for column in zip(*rows, strict=True))
        file, n = _file(number), len(rows)
        made = UnitRows(f"{file.key}-{0:012d}", file, 0, 100, ids, texts, list(range(n)), None, [])
        hashes = row_hashes(texts)
        unit = PreparedUnit(made, hashes, compute_unit_digest(self.space, made, hashes))
        store, ones = UnitStore(str(self.root), self.space), np.ones(n, np.int32)
        full = Vectors(self._vectors[numbers], ones.astype(np.float32), ones, ones < 0, ones * 0)
        return store.finished(unit) or store.write(unit, full, [], UnitCounts(n, 0, 0))


def _plan_row(number: int, unit: UnitRecord) -> dict[str, Any]:
    file = _file(number)
    return OpenedFile(file, (Span(file, 0, 0, 100, rows=unit.read),)).row()


def _file(number: int) -> InputFile:
    name = f"{number:04d}.txt"
    return InputFile(f"/in/{name}", name, "text", "", 100, "sum", "v")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--changed", type=float, default=0.01)
    parser.add_argument("--index", default="auto")
    parser.add_argument(
        "--folder", help="where the stores are made; a RAM disk keeps the disk out of it"
    )
    parser.add_argument("--one-row", action="store_true", help="edit one row, and count bytes")
    parser.add_argument("--nights", type=int, help="edit other rows in each of so many nights")
    parser.add_argument("--output", help="also write the figures as JSON")
    args = parser.parse_args()
    new = max(1, int(args.rows * args.changed))
    vectors = synthetic(args.rows + max(2, args.nights or 0) * new, args.dim)[0]
    order = np.random.default_rng(2).permutation(len(vectors))
    rows = [(f"{n}", f"text {n}", int(order[n])) for n in range(len(vectors))]
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        if args.one_row:
            count_one_row(Path(folder), vectors, rows, args)
        elif args.nights:
            count_nights(Path(folder), vectors, rows, args)
        else:
            measure(Path(folder), vectors, rows, new, args)


class RangeBytes:
    """Counts the bytes of ranges that are read while it is in place."""

    def __init__(self) -> None:
        self.headers = 0
        self.lists = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count inside the block."""
        header, at_hand = MappedRange.header, MappedRange.at_hand

        def counted_header(reader: MappedRange) -> RangeHeader:
            found = header(reader)
            self.headers += int(found.offsets[0])
            return found

        def counted_lists(
            reader: MappedRange, of: RangeHeader, places: np.ndarray
        ) -> list[np.ndarray]:
            found = at_hand(reader, of, places)
            self.lists += sum(map(len, found))
            return found

        with mock.patch.multiple(MappedRange, header=counted_header, at_hand=counted_lists):
            yield


def count_one_row(folder: Path, vectors: np.ndarray, rows: Rows, args: argparse.Namespace) -> None:
    """Build an index of sixteen ranges, edit a row, and report the bytes read of ranges."""
    size = args.rows
    request = IndexRequest(args.index, range_bytes=size * (args.dim + 8) // RANGES)
    first = _in_shards(rows[:size])
    edited = [[rows[size], *first[0][1:]], *first[1:]]
    store, read = Nights(folder / "store", vectors), RangeBytes()
    _, index, _ = store.night(first, request)
    with read.counted():
        _, after, _ = store.night(edited, request)
    ranges = [segment for segment in index["segments"] if segment.get("lists")]
    whole = sum(segment["bytes"] for segment in ranges)
    lines = [
        ("ranges", f"{len(ranges)}, {whole:,} bytes", after["change"]["what"]),
        ("lists read", f"{read.lists:,} bytes", f"{read.lists / whole:.2%}"),
        ("headers read", f"{read.headers:,} bytes", f"{read.headers / whole:.2%}"),
    ]
    title = f"one row of {size:,} x {args.dim} edited, {index['factory']}"
    figures = {"rows": size, "bytes": whole, "lists": read.lists, "headers": read.headers}
    report(title, lines, args.output, figures)


def count_nights(folder: Path, vectors: np.ndarray, rows: Rows, args: argparse.Namespace) -> None:
    """Build an index of sixteen ranges, and follow it for some nights of edits drawn by chance."""
    size = args.rows
    new = (len(vectors) - size) // args.nights
    request = IndexRequest(args.index, range_bytes=size * (args.dim + 8) // RANGES)
    store = Nights(folder / "store", vectors)
    texts = list(rows[:size])
    built = store.night(_in_shards(texts), request)
    empty = store.night(_in_shards(texts), request)[0][1]
    rng = np.random.default_rng(3)
    lines = [("built", f"{built[0][1]:.1f} s CPU", f"{built[2]:,} bytes")]
    written, spent, every = 0, 0.0, []
    for night in range(args.nights):
        for place, which in enumerate(rng.choice(size, new, replace=False).tolist()):
            fresh = rows[size + night * new + place]
            texts[which] = (texts[which][0], *fresh[1:])
        (_, cpu), index, size_new = store.night(_in_shards(texts), request)
        written += size_new
        spent += cpu - empty
        every.append(index["recall"]["value"])
        change = index["change"]
        what = f"{size_new:,} bytes, {change['what']} {change['why']}"
        lines.append((f"night {night + 1}", f"{cpu - empty:.2f} s CPU", what))
    share = f"{written:,} bytes, {written / built[2]:.2f} of the index"
    lines.append(("all nights", f"{spent:.1f} s CPU", share))
    recalls = f"built {built[1]['recall']['value']:.4f}"
    lines.append(("recall@10", f"{min(every):.4f} to {max(every):.4f}", recalls))
    title = f"{args.nights} nights, {new:,} of {size:,} x {args.dim} edited, {built[1]['factory']}"
    figures = {"rows": size, "bytes": written, "cpu": spent, "recall": every}
    report(title, lines, args.output, figures)


def _in_shards(rows: Rows) -> list[Rows]:
    size = -(-len(rows) // SHARDS)
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def measure(
    folder: Path, vectors: np.ndarray, rows: Rows, new: int, args: argparse.Namespace
) -> None:
    """Build, follow three nights, and build the last one again in a store of its own."""
    request, size = IndexRequest(args.index), args.rows
    first = _in_shards(rows[:size])
    step = size // new
    edited = [
        [rows[size + int(r[0]) // step % new] if int(r[0]) % step == 0 else r for r in shard]
        for shard in first
    ]
    added = [*edited, rows[size + new :]]
    nights: dict[str, list[Rows]] = {
        f"{new:,} rows edited in place": edited,
        f"{new:,} rows added in one shard": added,
        "all rows in another order": [shard[::-1] for shard in added],
    }
    store = Nights(folder / "store", vectors)
    built = store.night(first, request)
    empty = store.night(first, request)[0]
    figures = {"built": built} | {
        name: store.night(shards, request) for name, shards in nights.items()
    }
    figures["the last night built anew"] = Nights(folder / "fresh", vectors).night(
        [*nights.values()][-1], request
    )
    lines = [("nothing changed (taken off)", f"{empty[0]:.2f} s, {empty[1]:.2f} s CPU", "")]
    for name, (took, index, size_new) in figures.items():
        wall, cpu = (
            (mine - none) / (all_ - none)
            for mine, none, all_ in zip(took, empty, built[0], strict=True)
        )
        shares = (
            f"{wall:6.1%} of building, {cpu:6.1%} of its CPU time, {size_new / built[2]:6.1%} of"
            " its bytes"
        )
        found = (
            f"{index['change']['what']}, recall@10 {index['recall']['value']:.4f},"
            f" {len(index['segments'])} segments"
        )
        lines.append((name, f"{took[0]:.2f} s, {took[1]:.2f} s CPU", f"{shares}; {found}"))
    title = f"index nights, {args.rows:,} x {args.dim}, {built[1]['factory']}"
    report(title, lines, args.output, {"rows": args.rows, "changed": new})


if __name__ == "__main__":
    main()
