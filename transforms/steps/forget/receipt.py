"""The receipt of an erasure: what was erased, by keyed hashes alone, and what is out of reach."""

from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from sentence_beam.transforms.steps.forget.erasure import Erasure
from sentence_beam.transforms.steps.forget.fits import bounds_of, fits_of
from sentence_beam.transforms.steps.forget.select import ErasedRows
from sentence_beam.transforms.steps.forget.snapshots import RewrittenSnapshot
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.forgetting.hashes import hash_of_id
from sentence_beam.transforms.store.index_entries import IndexEntry
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.tables.columns import records_of

OUT_OF_REACH = (
    "copies by export, by files --link and by hand",
    "databases: the next push deletes the rows there",
    "backups and object versions of the bucket",
    "caches of machines that searched or evaluated",
    "old versions of a LanceDB table, until it is optimised",
    "the input itself, and names of its files",
)
ASKED_AGAIN = "the next run that changes rows or index asks the queries again"
Named = tuple[str, str]  # path and sha256 of a file


@dataclass(frozen=True)
class Erased:
    """The effects of an erasure: snapshots before and after, files removed, and all files."""

    selection: ErasedRows
    made: dict[str, RewrittenSnapshot | None]
    snapshots: list[Manifest]
    removed: list[str]
    files: list[str]

    @property
    def rewritten(self) -> list[dict[str, Any]]:
        """The files that were replaced, with their digests before and after, each once."""
        found: dict[str, dict[str, Any]] = {}
        for before in self.snapshots:
            after = self.made[before.run]
            if after is None:
                continue
            pairs = zip_longest(_files(before), _files(after.manifest), fillvalue=("", ""))
            for old, new in pairs:
                if old != new and old[0]:
                    found[old[0]] = {
                        "before": {"path": old[0], "sha256": old[1]},
                        "after": {"path": new[0], "sha256": new[1]} if new[0] else None,
                    }
        return [found[path] for path in sorted(found)]


def _files(manifest: Manifest) -> list[Named]:
    """Return the files of a snapshot in an order that an erasure keeps."""
    found: list[Named] = []
    for unit in records_of(manifest.read_units()):
        found.append((unit.path or "", unit.sha256 or ""))
        found.append((unit.rejects or "", unit.rejects_sha256 or ""))
    if manifest.index is not None:
        found += _index_files(manifest.index)
    if manifest.watch is not None:
        found += [(one.path, one.sha256) for one in manifest.watch.files]
    return found


def _index_files(index: IndexEntry) -> list[Named]:
    """Return the files of an index, as many for each segment."""
    found = [(index.queries.path, index.queries.sha256)]
    for segment in index.segments:
        found.append((segment.path, segment.sha256))
        found.append((segment.locator, segment.locator_sha256))
        if segment.refine is None:
            found.append(("", ""))
        else:
            found.append((segment.refine.path, segment.refine.sha256))
    return found


def receipt_of(erased: Erased, coming: Manifest, erasure: Erasure) -> dict[str, Any]:
    """Return the receipt: no id, no text, no vector."""
    after = erased.made[erasure.current.run]
    fits = fits_of(erased.snapshots)
    found: dict[str, Any] = {
        "format": 1,
        "run": coming.run,
        "started": coming.started,
        "reason": erasure.request.reason,
        "rows": erasure.selection.rows,
        "ids": sorted(hash_of_id(erasure.key, name) for name in erasure.selection.texts),
        "list": {"path": coming.forgotten.path, "sha256": coming.forgotten.sha256}
        if coming.forgotten
        else None,
        "snapshots": [one.run for one in erased.snapshots],
        "dropped": list(erasure.dropped),
        "rewritten": erased.rewritten,
        "removed": len(erased.removed),
        "lost": [
            {"path": path, "rows": int(rows.sum())}
            for path, rows in sorted(erasure.selection.lost.items())
        ],
        "fitted": sorted(fits),
        "statistics": [*fits.values(), *bounds_of(erasure.current)],
        "unlisted": [path for path in erased.files if is_unlisted(path)],
        "out_of_reach": list(OUT_OF_REACH),
    }
    if after is not None and after.watch is not None:
        found["watch"] = {
            "queries": after.watch.queries,
            "answers": after.watch.answers,
            "note": ASKED_AGAIN,
        }
    return found


def is_unlisted(path: str) -> bool:
    """Return whether a file is none of those that a store may hold.

    Folders of runs may have any name.
    """
    if layout.kind(path) is not None or path in layout.BESIDE:
        return False
    of_run = path.startswith(f"{layout.RUNS}/") or layout.snapshot_run(path) is not None
    hidden = path.rpartition("/")[2].startswith(".")  # locks of local stores, always empty
    return not of_run and not hidden
