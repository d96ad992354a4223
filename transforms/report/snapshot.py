"""What the report says of the current snapshot: what it is made of, why rows were rejected, what to
look at.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from transforms.base.errors import SentenceBeamError
from transforms.report.history import RunSummary
from transforms.space import PoolerSpec
from transforms.store.entries import IndexEntry, Input, RememberedOptions
from transforms.store.manifest import Manifest
from transforms.store.runs.rejected import rejected_rows
from transforms.store.runs.result import COMMITTED

REJECT_FILES = 100  # are read at most for the reasons
MANY_DELETED = 0.1  # of the rows before
NEARLY_TOO_MANY = 0.5  # of the fraction that --max-rejects allows
FALLEN = 0.02  # of recall since the run before


@dataclass(frozen=True)
class Reasons:
    """How many rows were rejected for which reason, most frequent first; `some` where not every
    file was read.
    """

    counts: tuple[tuple[str, int], ...]
    some: bool


def facts(manifest: Manifest) -> list[tuple[str, str]]:
    """Name and value of what decides a snapshot's vectors, of its input and of its index."""
    space, options = manifest.space, manifest.options
    vectors = (
        f"{space.dim} dimensions, {space.precision}{', of length 1' if space.normalize else ''}"
    )
    found = [
        ("model", options.model + (f", revision {options.revision}" if options.revision else "")),
        ("pooler", _pooler(manifest)),
        ("vectors", f"{vectors}; the model computes in {space.dtype}"),
        ("tokens", f"{space.max_tokens:,} of a text at most" if space.max_tokens else ""),
        ("prompt", space.prompt),
        ("chunks", "" if manifest.chunks == "none" else manifest.chunks),
        ("calibration", manifest.calibration.digest[:16] if manifest.calibration else ""),
        ("input", ", ".join(_input(manifest.input))),
        ("index", _index(manifest.index) if manifest.index else "none"),
    ]
    return [(name, value) for name, value in found if value]


def _pooler(manifest: Manifest) -> str:
    """The SPEC of the pooler; as it was asked for where layers of the model's own belong to it."""
    pooler = manifest.space.pooler
    if "parts" not in pooler or any(
        of_the_model in pooler for of_the_model in ("mix", "tokens", "then")
    ):
        return manifest.options.pooler
    return str(PoolerSpec.from_json(pooler))


def _input(found: Input) -> list[str]:
    """The patterns of an input, tables with their versions."""
    tables = found.tables
    return [f"{glob} (version {tables[glob]})" if glob in tables else glob for glob in found.globs]


def _index(index: IndexEntry) -> str:
    text = f"{index.factory}, {index.metric}, {len(index.segments):,} segments"
    if index.recall is None:
        return text
    recall = index.recall
    interval = f"{recall.low:.4f} to {recall.high:.4f}, {recall.queries:,} queries"
    return f"{text}; recall@{recall.k} {recall.value:.4f} ({interval}), target {recall.target:g}"


def reasons(manifest: Manifest) -> Reasons:
    """Why rows of a snapshot were rejected, from its first reject files. Raises SentenceBeamError
    for a damaged one.
    """
    paths = (
        [unit.rejects for unit in manifest.units if unit.rejects] if manifest.rows.rejected else []
    )
    counts = Counter(
        row.reason for row in rejected_rows(manifest.root, islice(paths, REJECT_FILES))
    )
    return Reasons(tuple(counts.most_common()), len(paths) > REJECT_FILES)


def alerts(manifest: Manifest | None, summaries: Sequence[RunSummary]) -> list[str]:
    """What somebody should look at, a sentence each, with the threshold that it is beyond."""
    found = []
    if summaries and summaries[-1].status not in (COMMITTED, "running"):
        found.append(
            f"The last run committed nothing: {summaries[-1].message or summaries[-1].status}."
        )
    committed = [summary for summary in summaries if summary.status == COMMITTED]
    if not committed:
        return found
    last, before = committed[-1], committed[-2] if len(committed) > 1 else None
    earlier = (last.stored or 0) - (last.added or 0) + (last.deleted or 0)
    if last.deleted and last.deleted > MANY_DELETED * earlier:
        found.append(
            f"{last.deleted:,} of {earlier:,} rows were deleted ({100 * last.deleted / earlier:.0f}"
            f" %); told above {100 * MANY_DELETED:g} %."
        )
    allowed = RememberedOptions.max_rejects if manifest is None else manifest.options.max_rejects
    limit = NEARLY_TOO_MANY * allowed
    blank = last.blank or 0  # lines of text files, which do not count for --max-rejects
    rejected = (last.rejected or 0) - blank
    counted = (last.read or 0) - blank
    if rejected and rejected > limit * counted:
        found.append(
            f"{rejected:,} of {counted:,} rows were rejected ({100 * rejected / counted:.2g} %);"
            f" told above {100 * limit:g} %, half of what --max-rejects allows."
        )
    if last.moved and last.moved["distance"] > last.moved["far"]:
        found.append(
            f"The rows lie {last.moved['distance']:.2f} deviations from those that the calibration"
            f" was fitted on; told above {last.moved['far']:g}: fit it anew, then recalibrate."
        )
    read = next(
        (summary for summary in reversed(committed) if summary.command in ("embed", "")), last
    )
    found += [f"{read.message}."] if read.message else []  # files that were left out
    if last.damaged:
        found.append(
            f"{last.damaged:,} shards of the snapshot before were damaged or gone; told above none."
        )
    return [*found, *_recall(manifest, last, before)]


def _recall(manifest: Manifest | None, last: RunSummary, before: RunSummary | None) -> list[str]:
    measured = manifest.index.recall if manifest and manifest.index else None
    found = []
    if measured and measured.high < measured.target:
        found.append(
            f"Recall@{measured.k} is {measured.value:.4f}, at most {measured.high:.4f}; told below"
            f" its target, {measured.target:g}."
        )
    if (
        last.recall is not None
        and before
        and before.recall is not None
        and last.recall < before.recall - FALLEN
    ):
        found.append(
            f"Recall@10 fell from {before.recall:.4f} to {last.recall:.4f}; told of a fall by more"
            f" than {FALLEN:g}."
        )
    return found


def known_reasons(manifest: Manifest | None) -> Reasons | None:
    """The reasons of a snapshot; None where there is none, or where a reject file cannot be read,
    as `verify` says.
    """
    try:
        return reasons(manifest) if manifest else None
    except SentenceBeamError:
        return None
