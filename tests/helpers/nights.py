"""Stores whose rows are made up, brought from night to night with their index, without any
model.
"""

import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from helpers.settled import finish, settled
from helpers.snapshots import PlannedFile, write_plan

from sentence_beam.transforms.beam import BuildIndex, Commit, IndexRequest, Settle
from sentence_beam.transforms.corpus import InputFile, Span, UnitRows
from sentence_beam.transforms.index.cells import PASSES
from sentence_beam.transforms.search import Searcher
from sentence_beam.transforms.space import Space, row_hashes
from sentence_beam.transforms.steps.commit import count_changes
from sentence_beam.transforms.steps.commit.commit_run import commit_run
from sentence_beam.transforms.steps.index import (
    decisions,
    index_build,
    index_training,
    segments,
    training_sample,
)
from sentence_beam.transforms.steps.index import (
    update_rows as rows,
)
from sentence_beam.transforms.steps.index.decisions import RequestedIndex
from sentence_beam.transforms.store.entries import RememberedOptions
from sentence_beam.transforms.store.manifest import Manifest, read_manifest
from sentence_beam.transforms.store.records import UnitRecord
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.run_facts import RunFact
from sentence_beam.transforms.store.runs.run_result import now
from sentence_beam.transforms.store.shards.shard_bytes import compute_unit_digest
from sentence_beam.transforms.store.shards.unit_store import PreparedUnit, UnitCounts, UnitStore
from sentence_beam.transforms.store.shards.unit_vectors import Vectors

DIM = 16
Files = Mapping[str, Iterable[tuple[str, str]]]  # rows (id, text) by file; a file is a unit


def space_of(dim: int = DIM) -> Space:
    """The space of the made-up vectors."""
    return Space(
        weights="w", tokenizer="t", architecture="bert:x", max_tokens=16, prompt="", pooler={"name": "mean"},
        calibration=None, normalize=True, truncate_dim=None, precision="float32", dtype="float32", dim=dim,
    )  # fmt: skip


@functools.lru_cache(100_000)
def vector_of(text: str, dim: int = DIM) -> np.ndarray:
    """The vector of a text: of length 1, near to those of texts with the same first letter; the
    same array each time.
    """
    vector = _drawn(text[:1], dim) + 0.7 * _drawn(text, dim)
    found: np.ndarray = (vector / np.linalg.norm(vector)).astype(np.float32)
    found.flags.writeable = False
    return found


@functools.lru_cache(100_000)
def _drawn(text: str, dim: int) -> np.ndarray:
    seed = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
    return np.random.default_rng(seed).standard_normal(dim)


NO_TEXT = RememberedOptions(keep_text=False)


@dataclass
class Nights:
    """A store and the number of its snapshots."""

    root: Path
    space: Space = field(default_factory=space_of)
    count: int = 0
    options: RememberedOptions = NO_TEXT
    run_name: Callable[[int], str] = "run{}".format

    @property
    def manifest(self) -> Manifest:
        """The current snapshot."""
        manifest = read_manifest(str(self.root))
        assert manifest is not None
        return manifest

    @property
    def index(self) -> dict[str, Any]:
        """The current index."""
        return self.manifest.data["index"]

    def commit(
        self,
        files: Files,
        request: IndexRequest | None = None,
        retrain: str = "",
        pipeline: beam.Pipeline | None = None,
    ) -> dict[str, Any]:
        """Make a snapshot of these rows with its index, by a pipeline or step by step; the
        index.
        """
        run, units = self.begin(files)
        asked = request or self._asked()
        if pipeline is None:
            record = run_steps(run, units, asked, retrain)
            assert record.problem is None, record
            commit_run([settled(run, units), record], run)
        else:
            with pipeline:
                made = (pipeline | "Units" >> beam.Create(units),) | "Commit/Settle" >> Settle(run)
                record = made | "Index" >> BuildIndex(run, asked, retrain=retrain)
                _ = (made, record) | "Commit" >> Commit(run)
        assert self.manifest.run == run.id
        return self.index

    def commit_without_index(self, files: Files) -> None:
        """Make a snapshot of these rows that has no index."""
        run, units = self.begin(files)
        finish(run, units, [])

    def commit_counted(self, files: Files) -> Manifest:
        """Make a snapshot of these rows that has no index, and record what it changes."""
        run, units = self.begin(files)
        buckets: dict[count_changes.CountKey, list[Any]] = {}
        for element in count_changes.list_rows_to_count(settled(run, units), run, ids=False):
            for key, value in count_changes.read_by_bucket(element, run.key):
                buckets.setdefault(key, []).append(value)
        facts = []
        for bucket in buckets.items():
            facts += count_changes.count_bucket(bucket, run.key)
        assert commit_run(facts, run).exit_code == 0
        return self.manifest

    def begin(self, files: Files) -> tuple[Run, list[UnitRecord]]:
        """A run with its plan and its shards, up to the index."""
        self.count += 1
        before = read_manifest(str(self.root))
        units = [self._unit(name, list(rows)) for name, rows in sorted(files.items())]
        run = Run(
            root=str(self.root), id=self.run_name(self.count), space=self.space, partition="file", unit_tokens=100,
            globs=("/in/*",), options=self.options, versions={}, started=now(),
            previous=before.run if before else None, version=before.version if before else None,
        )  # fmt: skip
        planned = [
            PlannedFile(file, (Span(file, 0, 0, 100, rows=unit.read),))
            for file, unit in zip(map(input_file, sorted(files)), units, strict=True)
        ]
        write_plan(run.root, run.id, planned)
        return run, units

    def _asked(self) -> IndexRequest:
        standing = read_manifest(str(self.root))
        return standing.index.request if standing and standing.index else IndexRequest()

    def _unit(self, name: str, rows: list[tuple[str, str]]) -> UnitRecord:
        ids, texts = [i for i, _ in rows], [text for _, text in rows]
        file, n = input_file(name), len(rows)
        made = UnitRows(
            f"{file.key}-{0:012d}", file, 0, 100, ids, texts, list(range(n)), self.kept(texts), []
        )
        hashes = row_hashes(texts)
        prepared = PreparedUnit(made, hashes, compute_unit_digest(self.space, made, hashes))
        store = UnitStore(str(self.root), self.space)
        vectors = np.array([vector_of(text, self.space.dim) for text in texts], np.float32).reshape(
            n, self.space.dim
        )
        ones = np.ones(n, np.int32)
        full = Vectors(vectors, ones.astype(np.float32), ones, ones < 0, ones * 0)
        return store.finished(prepared) or store.write(prepared, full, [], UnitCounts(n, 0, 0))

    def kept(self, texts: list[str]) -> pa.Table | None:
        """What is kept of rows with these texts: nothing, unless a store of another kind says
        so.
        """
        return None

    def search(
        self, texts: list[str], k: int, run: str | None = None, **changed: Any
    ) -> list[list[tuple[float, str]]]:
        """Score and id of the k rows nearest to each text, by the index of a snapshot with some
        values changed.
        """
        manifest = read_manifest(str(self.root), run)
        assert manifest is not None
        data = {**manifest.data, "index": {**manifest.data["index"], **changed}}
        searcher = Searcher(Manifest.from_data(str(self.root), data))
        hits = searcher.nearest(np.array([vector_of(text, self.space.dim) for text in texts]), k)
        return [
            [(row["score"], row["id"]) for row in rows] for rows in searcher.rows.describe(hits)
        ]


def input_file(name: str) -> InputFile:
    """A file that is nowhere."""
    return InputFile(f"/in/{name}", name, "text", "", 100, "sum", "v")


def run_steps(run: Run, units: list[Any], request: IndexRequest, retrain: str = "") -> Any:
    """What BuildIndex gives, every step called once in order: a RunFact or None."""
    asked = RequestedIndex(request, retrain=retrain)
    found = list(decisions.choose_work(settled(run, units), run, asked))
    if found and isinstance(found[0], tuple):
        found = list(decisions.list_buckets_to_match(_sending(rows.read, found)))
    if found and isinstance(found[0], tuple):
        targets = segments.decide(_sending(rows.match, found))
        ranges = segments.cut(_done(segments.build, targets))
        found = list(decisions.conclude(_done(segments.write, ranges)))
    if found and isinstance(found[0], index_build.TrainingGroup):
        works = train_steps([training_sample.sample(group) for group in found])
        if isinstance(works[0], RunFact):
            return works[0]
        items = index_build.cut([index_build.build(work) for work in works])
        return next(index_build.conclude([index_build.write(item) for item in items]))
    return found[0] if found else None


def train_steps(sampled: list[Any]) -> list[Any]:
    """What the training of sampled groups gives, every step called once in order."""
    works = list(index_training.divide(sampled))
    clustered: list[Any] = []
    for turn in range(1 + PASSES if works else 0):
        works = list(index_training.again(clustered)) if turn else works
        clustered = [
            index_training.cluster(work)
            for work in index_training.allot([index_training.assign(w) for w in works])
        ]
    return list(index_training.finish([*sampled, *clustered]))


def _done(step: Any, works: Iterable[Any]) -> list[Any]:
    return [(work[0], step(*work)) for work in works]


def _sending(step: Any, works: Iterable[Any]) -> list[Any]:
    """What a step makes of each, once the rows that it sends have been written."""
    made = _done(step, works)
    gathered: dict[rows.Reader, list[rows.SentRows]] = {}
    for _, (_, sent) in made:
        for one in sent:
            gathered.setdefault(one.reader, []).append(one)
    for reader, found in gathered.items():
        rows.gather(reader, found)
    return [(job, result) for job, (result, _) in made]


def nearest(files: Files, text: str, k: int) -> list[float]:
    """Scores of the k rows nearest to a text, by brute force."""
    vectors = np.array([vector_of(t) for rows in files.values() for _, t in rows])
    return np.sort(vectors @ vector_of(text))[::-1][:k].tolist() if len(vectors) else []
