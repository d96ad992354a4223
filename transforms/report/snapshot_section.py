"""The section of the report on the current snapshot: its properties and its rejected rows."""

from collections import Counter
from dataclasses import dataclass
from itertools import islice

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.base.numbers import format_count, format_tokens
from sentence_beam.transforms.space import PoolerSpec, Space
from sentence_beam.transforms.store.counts import PendingCounts
from sentence_beam.transforms.store.entries import Input
from sentence_beam.transforms.store.index_entries import IndexEntry
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.runs.rejected_rows import read_rejected_rows

REJECT_FILES = 100  # read at most for the reasons
MODEL_LAYERS = ("mix", "tokens", "then")  # keys of a pooler that has layers of the model's own


@dataclass(frozen=True)
class Reasons:
    """Counts of rejected rows by reason, most frequent first.

    `some` is true if only the first REJECT_FILES files were read.
    """

    counts: tuple[tuple[str, int], ...]
    some: bool


def list_facts(manifest: Manifest) -> list[tuple[str, str]]:
    """Return name and value of each property that a snapshot has; empty ones are left out.

    These decide its vectors, or describe its input and its index.
    """
    space = manifest.space
    options = manifest.options
    model = f"{options.model}, revision {options.revision}" if options.revision else options.model
    digest = manifest.calibration.digest[:16] if manifest.calibration is not None else ""
    rows = [
        ("model", model),
        ("pooler", _describe_pooler(manifest)),
        ("vectors", _describe_vectors(space)),
        ("tokens", f"{space.max_tokens:,} of a text at most" if space.max_tokens else ""),
        ("prompts", describe_prompts(space.prompt, options.query_prompt)),
        ("chunks", manifest.chunks if manifest.chunks != "none" else ""),
        ("calibration", digest),
        ("input", ", ".join(_describe_globs(manifest.input))),
        ("pending", describe_pending(manifest.pending)),
        ("index", _describe_index(manifest.index)),
    ]
    return [(name, value) for name, value in rows if value]


def describe_pending(pending: PendingCounts) -> str:
    """Return the files that are left to later runs, and their tokens; "" without any.

    >>> describe_pending(PendingCounts(38, 10, 41_200_000)), describe_pending(PendingCounts())
    ('38 files, about 41.2 M tokens', '')
    """
    if not pending.files:
        return ""
    return f"{format_count(pending.files, 'file')}, about {format_tokens(pending.tokens)}"


def describe_prompts(prompt: str, query_prompt: str | None) -> str:
    """Return the prompts of rows and queries in quotes; "" if neither have one.

    >>> describe_prompts("passage: ", "query: "), describe_prompts("passage: ", None)
    ("rows 'passage: ', queries 'query: '", "rows 'passage: ', queries none")
    """
    if not prompt and not query_prompt:
        return ""
    rows, queries = (repr(text) if text else "none" for text in (prompt, query_prompt))
    return f"rows {rows}, queries {queries}"


def _describe_pooler(manifest: Manifest) -> str:
    """Return the SPEC of the pooler, or `--pooler` if the pooler has layers of the model's own."""
    pooler = manifest.space.pooler
    if "parts" not in pooler or any(layers in pooler for layers in MODEL_LAYERS):
        return manifest.options.pooler
    return str(PoolerSpec.from_json(pooler))


def _describe_vectors(space: Space) -> str:
    length = ", of length 1" if space.normalize else ""
    kind = f"{space.dim} dimensions, {space.precision}{length}"
    return f"{kind}; the model computes in {space.dtype}"


def _describe_globs(entry: Input) -> list[str]:
    """Return the patterns of an input, tables with their versions."""
    return [
        f"{glob} (version {entry.tables[glob]})" if glob in entry.tables else glob
        for glob in entry.globs
    ]


def _describe_index(index: IndexEntry | None) -> str:
    if index is None:
        return "none"
    text = f"{index.factory}, {index.metric}, {len(index.segments):,} segments"
    if index.recall is None:
        return text
    recall = index.recall
    interval = f"{recall.low:.4f} to {recall.high:.4f}, {recall.queries:,} queries"
    return f"{text}; recall@{recall.k} {recall.value:.4f} ({interval}), target {recall.target:g}"


def count_reasons(manifest: Manifest) -> Reasons:
    """Return the reasons for rejected rows, from the snapshot's first reject files.

    Raises SentenceBeamError for a damaged file.
    """
    if not manifest.rows.rejected:
        return Reasons((), some=False)
    paths = manifest.read_units("unit", "rejects").column("rejects").drop_null().to_pylist()
    rows = read_rejected_rows(manifest.root, islice(paths, REJECT_FILES))
    counts = Counter(row.reason for row in rows)
    return Reasons(tuple(counts.most_common()), some=len(paths) > REJECT_FILES)


def find_reasons(manifest: Manifest | None) -> Reasons | None:
    """Return the reasons of a snapshot; None without a snapshot or if a reject file is damaged.

    `verify` reports damaged files.
    """
    if manifest is None:
        return None
    try:
        return count_reasons(manifest)
    except SentenceBeamError:
        return None
