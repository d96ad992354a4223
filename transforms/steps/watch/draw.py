"""Draw queries from a store's own texts: a sentence of a row asks for its row.

Rows are chosen by the hashes of their texts, so that a second draw from the same rows gives the
same queries. They are spread over clusters of the rows' vectors and over lengths.
"""

import re
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.arrow_arrays import as_hashes, as_matrix
from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.corpus.passages import find_sentences
from sentence_beam.transforms.index.kmeans import kmeans
from sentence_beam.transforms.index.metric_vectors import choose_scoring_metric, prepare_vectors
from sentence_beam.transforms.steps.watch.query_files import QueryList
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.shards.shard_files import take_numbered
from sentence_beam.transforms.store.shards.shard_reading import read_shard

CANDIDATES = 12  # rows for each query, among which clusters and lengths are spread
QUERIES_A_CLUSTER = 8
LENGTHS = 3  # classes of lengths, with as many candidates each
LEAST_WORDS = 4  # of a sentence; a shorter one asks for too many rows
MOST_WORDS = 40
_WORDS = re.compile(r"\S+")


@dataclass(frozen=True)
class _DrawnRows:
    """Rows to draw from: keys uint64 [n] ascending, vectors float32 [n, d], and texts."""

    keys: np.ndarray
    vectors: np.ndarray
    texts: list[str]


def draw_queries(manifest: Manifest, number: int) -> QueryList:
    """Draw up to `number` queries from the texts of a snapshot, in the order of their hashes.

    Raises OptionError if the store keeps no text or has no row.
    """
    column = manifest.options.kept_text
    if column is None:
        raise OptionError(
            f"{cite('draw')}: {manifest.root} keeps no text ({cite('keep_text=False')}); name"
            f" {cite('queries')} FILE"
        )
    if not manifest.rows.stored:
        raise OptionError(
            f"{cite('draw')}: {manifest.root} holds no rows; name {cite('queries')} FILE"
        )
    with progress.stage("drawing queries"):
        candidates = _read_candidates(manifest, CANDIDATES * number, column)
        places = _spread(candidates, number, manifest.metric)
    ids = []
    texts = []
    seen = set()
    for place in places:
        key = int(candidates.keys[place])
        text = choose_sentence(candidates.texts[place], key)
        if text and text not in seen:
            seen.add(text)
            ids.append(make_drawn_id(key))
            texts.append(text)
    return QueryList(tuple(ids[:number]), tuple(texts[:number]))


def _read_candidates(manifest: Manifest, wanted: int, column: str) -> _DrawnRows:
    """Return the rows with the least keys, each text once."""
    keys = np.empty(0, np.uint64)
    places = np.empty(0, np.int64)
    for number in range(len(manifest.shards)):
        start = number << 32
        for batch in read_shard(manifest.shard(number).full_path, ["row_hash"]):
            own = make_keys(as_hashes(batch.column(0)))
            keys = np.concatenate([keys, own])
            places = np.concatenate([places, np.arange(start, start + len(own))])
            start += len(own)
        keys, first = np.unique(keys, return_index=True)
        keys = keys[:wanted]
        places = places[first][:wanted]
    texts = [""] * len(keys)
    vectors = np.zeros((len(keys), manifest.space.dim), np.float32)
    for number in np.unique(places >> 32).tolist():
        here = np.flatnonzero(places >> 32 == number)
        table = take_numbered(manifest, number, places[here] & 0xFFFFFFFF, ["embedding", column])
        vectors[here] = as_matrix(table.column("embedding").combine_chunks())
        for place, text in zip(here.tolist(), table.column(column).to_pylist(), strict=True):
            texts[place] = text or ""
    return _DrawnRows(keys, vectors, texts)


def make_drawn_id(key: int) -> str:
    """Return the id of a query that was drawn from the row with a key."""
    return f"drawn-{key:016x}"


def make_keys(hashes: np.ndarray) -> np.ndarray:
    """Return the keys uint64 [n] by which rows are drawn, of their hashes uint8 [n, 16].

    They are the second halves, because buckets and segments go by the first.
    """
    return np.ascontiguousarray(hashes[:, 8:]).view(">u8").reshape(-1).astype(np.uint64)


def _spread(candidates: _DrawnRows, number: int, metric: str) -> list[int]:
    """Return the places of the drawn candidates, ascending: from each group in turn the next."""
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    for place, group in enumerate(_group(candidates, number, metric)):
        groups[group].append(place)
    turns = [groups[group] for group in sorted(groups)]
    chosen: list[int] = []
    depth = 0
    while len(chosen) < number and any(depth < len(places) for places in turns):
        chosen += [places[depth] for places in turns if depth < len(places)]
        depth += 1
    return sorted(chosen)


def _group(candidates: _DrawnRows, number: int, metric: str) -> list[tuple[int, int]]:
    """Return the cluster and the class of lengths of each candidate."""
    vectors = prepare_vectors(candidates.vectors, metric)
    clusters = max(1, min(number // QUERIES_A_CLUSTER, len(vectors) // 2))
    centroids = kmeans(vectors, clusters, choose_scoring_metric(metric))
    nearest = np.argmax(vectors @ centroids.T - 0.5 * np.sum(centroids**2, axis=1), axis=1)
    lengths = np.array([len(text) for text in candidates.texts])
    ranks = np.argsort(np.argsort(lengths, kind="stable"), kind="stable")
    classes = ranks * LENGTHS // max(len(lengths), 1)
    return list(zip(nearest.tolist(), classes.tolist(), strict=True))


def choose_sentence(text: str, key: int) -> str:
    """Return one sentence of a text, chosen by its key; "" if none has enough words.

    A text of a single sentence gives about half of its words in a row, because a query that is the
    whole row would find it under every model.
    """
    sentences = [text[start:stop] for start, stop in find_sentences(text)]
    long = [sentence for sentence in sentences if len(_WORDS.findall(sentence)) >= LEAST_WORDS]
    if not long:
        return ""
    chosen = long[key % len(long)]
    words = _WORDS.findall(chosen)
    count = min(len(words), MOST_WORDS)
    if len(sentences) == 1:
        count = min(max(LEAST_WORDS, (len(words) + 1) // 2), MOST_WORDS)
    start = (key >> 8) % (len(words) - count + 1)
    return " ".join(words[start : start + count])
