"""Ask a snapshot the watched queries."""

from dataclasses import dataclass, replace

import numpy as np

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.arrow_arrays import make_mask_array
from sentence_beam.transforms.search import Searcher
from sentence_beam.transforms.search.hits import Hits
from sentence_beam.transforms.search.query_vectors import QueryEncoder
from sentence_beam.transforms.space.identity import SHORTEST
from sentence_beam.transforms.store.calibrations import read_kept_calibration
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.shards.shard_files import take_numbered
from sentence_beam.transforms.store.verification import place
from sentence_beam.transforms.store.watched import Answer, Answers, WatchedQueries

EXACT_ROWS = 1_000_000  # above so many rows without an index, some units are searched
HALVES = 20  # at most: a sample has at least a millionth of the units


@dataclass(frozen=True)
class Asked:
    """The answers of a snapshot, and how they were found.

    `indexed`: by its index. `rows`: the part of the units that was searched exactly, 1 for all.
    """

    answers: Answers
    indexed: bool
    rows: float = 1.0


def name_hash_column(manifest: Manifest) -> str:
    """Return the column with the hash of an answer's text: the document's if rows are pieces."""
    return "row_hash" if manifest.rows.pieces is None else "doc_hash"


def embed_current_queries(
    watched: WatchedQueries, manifest: Manifest, model: str | None = None
) -> WatchedQueries:
    """Return the queries with vectors for a snapshot, embedded again only if its model changed.

    `model` is the path of the model on this machine, if not the snapshot's. Raises the errors of
    loading the model.
    """
    space = manifest.space
    prompt = manifest.options.query_prompt
    if (watched.pooled_id, watched.query_prompt) == (space.pooled_id, prompt):
        return watched
    encoder = QueryEncoder(manifest, model, None, alone=False)
    pooled, _ = encoder.pooled(list(watched.texts))
    return replace(watched, pooled=pooled, pooled_id=space.pooled_id, query_prompt=prompt)


def make_final_vectors(watched: WatchedQueries, manifest: Manifest) -> np.ndarray:
    """Return the queries' vectors float32 [n, dim] as a snapshot has its rows.

    They are calibrated, truncated and normalised, in this order.
    """
    space = manifest.space
    vectors = watched.pooled
    calibration = read_kept_calibration(manifest.root, space)
    if calibration is not None:
        vectors = calibration.apply(np.ascontiguousarray(vectors, np.float32))
    if space.truncate_dim is not None:
        vectors = vectors[:, : space.truncate_dim]
    if space.normalize:
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors = vectors / np.maximum(lengths, SHORTEST)
    return np.ascontiguousarray(vectors, np.float32)


def ask(manifest: Manifest, vectors: np.ndarray, k: int, most: float = 1.0) -> Asked:
    """Return the best k answers to each query, float32 [n, dim].

    Without an index, all rows are compared, or those of a sample of the units if rows are many.
    `most` is the largest sample, a part of the units; below 1, it is compared in spite of an index.
    """
    if most < 1:
        manifest = replace(manifest, index=None)
    rows = choose_searched_part(manifest, most)
    searched = manifest
    if rows < 1:
        names = manifest.shards.column("unit").to_pylist()
        is_drawn = np.array([is_in_sample(name, rows) for name in names], bool)
        searched = manifest.select_shards(manifest.shards.filter(make_mask_array(is_drawn)))
    with progress.stage("asking the watched queries"):
        hits = Searcher(searched).best(vectors, k)
        answers = _read_answers(searched, hits)
    return Asked(answers, manifest.index is not None, rows)


def choose_searched_part(manifest: Manifest, most: float = 1.0) -> float:
    """Return the part of a snapshot's units that is searched, at most `most`."""
    return min(most, choose_sampled_part(manifest.rows.stored)) if manifest.index is None else most


def choose_sampled_part(rows: int) -> float:
    """Return the part of the units to compare without an index: a power of 1/2.

    >>> sampled_part(1_000_000), sampled_part(1_000_001), sampled_part(3_500_000)
    (1.0, 0.5, 0.25)
    """
    part = 1.0
    for _ in range(HALVES):
        if rows * part <= EXACT_ROWS:
            break
        part /= 2
    return part


def is_in_sample(unit: str, part: float) -> bool:
    """Whether a unit is in the sample, by its name: a smaller sample is a part of a larger one."""
    return place(unit) < part


def _read_answers(manifest: Manifest, hits: Hits) -> Answers:
    rows_by_place: dict[tuple[int, int], tuple[str, bytes]] = {}
    names = ["id", name_hash_column(manifest)]
    for number in np.unique(hits.shard[hits.shard >= 0]).tolist():
        rows = np.unique(hits.row[hits.shard == number])
        table = take_numbered(manifest, number, rows, names)
        values = zip(*(column.to_pylist() for column in table.columns), strict=True)
        for row, value in zip(rows.tolist(), values, strict=True):
            rows_by_place[number, row] = value
    paths = {number: manifest.shard(number).path for number, _ in rows_by_place}
    answers: Answers = []
    for scores, shards, rows in zip(*hits.columns, strict=True):
        places = zip(scores.tolist(), shards.tolist(), rows.tolist(), strict=True)
        answers.append(
            [
                Answer(*rows_by_place[shard, row], score, paths[shard], row)
                for score, shard, row in places
                if shard >= 0
            ]
        )
    return answers
