"""A served store under clients at once, against one `search` of the same store in one process.

    python -m benchmarks.serve [--rows 10000] [--clients 50] [--requests 20]

Median and 95th percentile of a request's time, requests a second, and questions in a batch, for one
client and for many, each of which asks again as soon as it has its answer; beside it questions
asked one by one of a `Searcher` whose model and index are loaded, whose median all p95 are compared
with. Ratios are within this run. Server and clients share this machine's cores.

    python -m benchmarks.serve --units 200000 [--index IVF4096_HNSW32,SQ8]

The anonymous memory of a searcher of a made-up snapshot of so many units, and of it and that of the
next snapshot, in which one part of the manifest differs. There is no model, and an index only if it
is named: of 100,000 made-up rows in some sixteen ranges, of which each snapshot's search visits
every list; a row is edited between them.
"""

import argparse
import gc
import http.client
import json
import multiprocessing
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.common import SENTENCES, machine, real_texts
from benchmarks.index_nights import Nights
from sentence_beam.pipelines.cli import main as run
from sentence_beam.transforms.beam import IndexRequest
from sentence_beam.transforms.corpus.files import key_of
from sentence_beam.transforms.index import exact_search
from sentence_beam.transforms.search import Searcher
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.entries import TableEntry
from sentence_beam.transforms.store.manifest import Manifest, read_manifest
from sentence_beam.transforms.store.records import UnitRecord
from sentence_beam.transforms.store.tables.table_columns import units_table
from sentence_beam.transforms.store.tables.table_parts import write_table

K = 10
ROWS = 100_000  # of an index whose memory is measured


def ask(address: str, questions: list[str]) -> list[float]:
    """Seconds of each question, one after the other on one connection."""
    place, took = urlsplit(address), []
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=120)
    for text in questions:
        start = time.perf_counter()
        connection.request("GET", f"/search?{urlencode({'q': text, 'k': K})}")
        answer = connection.getresponse()
        hits = json.loads(answer.read())["hits"]
        took.append(time.perf_counter() - start)
        assert len(hits) == K, hits
    connection.close()
    return took


def batches(address: str) -> tuple[float, float]:
    """Questions and batches so far, as the server counts them."""
    place = urlsplit(address)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=120)
    connection.request("GET", "/metrics")
    lines = dict(
        line.rsplit(" ", 1) for line in connection.getresponse().read().decode().splitlines()
    )
    return tuple(
        float(lines[f"sentence_beam_serve_{name}_total"]) for name in ("questions", "batches")
    )  # type: ignore


def told(name: str, took: list[float], wall: float, alone: float, size: str = "") -> None:
    """Print a line of figures."""
    median, late = np.percentile(took, [50, 95])
    print(
        f"{name:<24}{1e3 * median:>9.1f} ms{1e3 * late:>9.1f}"
        f" ms{late / alone:>8.2f}x{len(took) / wall:>9.0f}/s  {size}"
    )


def measure(root: str, texts: list[str], clients: int, requests: int) -> None:
    """Print the table of a store."""
    searcher = Searcher(open_store(root).manifest)
    searcher.search(["warm"], K)
    took, start = [], time.perf_counter()
    for text in texts[:requests]:
        began = time.perf_counter()
        searcher.search([text], K)
        took.append(time.perf_counter() - began)
    alone = float(np.median(took))
    print(f"{'':<24}{'median':>12}{'p95':>12}{'of one':>9}{'rate':>11}  questions in a batch")
    told("search, in process", took, time.perf_counter() - start, alone)
    command = [
        sys.executable,
        "-m",
        "sentence_beam",
        "serve",
        "--store",
        root,
        "--port",
        "0",
    ]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stderr is not None
        address = server.stderr.readline().split(" is at ")[1].split()[0]
        try:
            for count in (1, clients):
                before, start = batches(address), time.perf_counter()
                parts = [
                    [texts[(c * requests + r) % len(texts)] for r in range(requests)]
                    for c in range(count)
                ]
                with ThreadPoolExecutor(count) as pool:
                    found = [s for took in pool.map(ask, [address] * count, parts) for s in took]
                questions, of = (
                    now - then for now, then in zip(batches(address), before, strict=True)
                )
                wall = time.perf_counter() - start
                told(f"serve, {count} clients", found, wall, alone, f"{questions / of:.1f}")
        finally:
            server.terminate()


class NoQueries:
    """In place of the encoder of queries."""

    def of(self, _: Manifest) -> "NoQueries":
        """Return itself for another snapshot."""
        return self


def measure_memory(count: int, index: str) -> None:
    """Print the anonymous memory of one opened snapshot, and of two."""
    with tempfile.TemporaryDirectory() as folder:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            pool.submit(two_nights, folder, index).result()
            first, second = pool.map(made_up_units, [folder] * 2, [count] * 2, [0, 1])
        previous, current = (made_up(folder, run, index) for run in ("run1", "run2"))
        exact_search([(np.eye(16, dtype=np.float32), 0)], np.eye(16, dtype=np.float32), 1, "ip")
        before = anonymous()
        searcher = Searcher(replace(previous, units=first), queries=NoQueries())  # type: ignore
        units = len(visited(searcher).manifest.shards)
        one = anonymous() - before
        following = visited(searcher.of(replace(current, units=second)))
        following_units = len(following.manifest.shards)
        both = anonymous() - before
        assert following_units == units == count
        print(
            f"{count:,} units, index {index or 'none'}: {one / 1e6:.1f} MB; with the next snapshot"
            f" {both / one:.2f} times"
        )


def two_nights(root: str, index: str) -> None:
    """Write two snapshots of a store; in the second, one row is edited."""
    vectors = np.random.default_rng(0).standard_normal((ROWS + 1, 16)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    nights = Nights(Path(root), vectors)
    rows = [(f"{n}", f"text {n}", n) for n in range(ROWS if index else 1)]
    size = -(-len(rows) // 20)
    shards = [rows[start : start + size] for start in range(0, len(rows), size)]
    request = IndexRequest(index or "Flat", range_bytes=ROWS * 24 // 16)
    nights.night(shards, request)
    shards[0][0] = ("0", "edited", ROWS)
    nights.night(shards, request)


def made_up(root: str, run: str, index: str) -> Manifest:
    """Return a snapshot without units, and without its index unless that is named."""
    found = read_manifest(root, run)
    assert found is not None
    found = replace(found, files=TableEntry(), units=TableEntry())
    if not index:
        return replace(found, index=None)
    assert found.index is not None
    print(f"{run}: {len(found.index.segments)} segments")
    return found


def visited(searcher: Searcher, nprobe: int = 1 << 30) -> Searcher:
    """Search lists of the index, if there is one."""
    if searcher.manifest.index is not None:
        queries = np.eye(16, dtype=np.float32)[:4]
        searcher.index.whole_index.search(queries, 10, nprobe=nprobe)
    return searcher


def made_up_units(root: str, count: int, edited: int) -> TableEntry:
    """Write the table of so many units, each of a file, some with another shard."""
    names = [f"{number}.txt" for number in range(count)]
    units = [
        UnitRecord(
            path=f"embeddings/{key_of(name)}-{0:012d}-{number < edited:016x}.parquet",
            unit=f"{key_of(name)}-{0:012d}",
            file=name, range=(0, 1), rows=1, read=1, rejected=0, rejects=None, tokens=1,
            truncated=0, lost=0, bytes=1, sha256=f"{number:064x}",
        ) for number, name in enumerate(names)
    ]  # fmt: skip
    return write_table(root, "units", units_table(units), TableEntry())


def anonymous() -> int:
    """The bytes of this process's anonymous memory."""
    gc.collect()
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("Anonymous:"))
    return int(line.split()[1]) << 10


def main() -> None:
    """Make a store without and with an index, and measure both."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--requests", type=int, default=20, help="of each client")
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--store", help="measure this store instead of making one")
    parser.add_argument("--sentences", type=Path, help=SENTENCES)
    parser.add_argument("--units", type=int, help="measure memory, of so many units")
    parser.add_argument("--index", default="", help="with --units: and of this index")
    args = parser.parse_args()
    print(json.dumps(machine()))
    if args.units:
        measure_memory(args.units, args.index)
        return
    texts = real_texts(args.sentences, args.rows)
    if args.store:
        measure(args.store, texts[:: max(1, len(texts) // 1000)], args.clients, args.requests)
        return
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(pa.table({"text": texts}), f"{folder}/in.parquet")
        for index in ("none", "auto"):
            command = [
                "embed",
                "--input",
                f"{folder}/in.parquet",
                "--store",
                f"{folder}/store",
                "--model",
                args.model,
            ]
            assert run([*command, "--index", index, "--quiet"]) == 0
            print(f"\n{args.rows:,} rows, --index {index}")
            measure(
                f"{folder}/store", texts[:: max(1, len(texts) // 1000)], args.clients, args.requests
            )


if __name__ == "__main__":
    main()
