"""Parts of a store that were fitted on its rows, and say something of erased ones."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.base.numbers import counted
from sentence_beam.transforms.store.calibrations import kept_calibration
from sentence_beam.transforms.store.forgetting.receipts import stale_fits
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.runs.result import now
from sentence_beam.transforms.store.sealed_json import sealed


@dataclass(frozen=True)
class RunStart:
    """A run's id and its start, ISO 8601."""

    run: str
    started: str


def fits_of(snapshots: Iterable[Manifest]) -> dict[str, str]:
    """Return a line for each calibration and trained quantizer of some snapshots, by its digest."""
    found: dict[str, str] = {}
    for manifest in snapshots:
        digest = manifest.space.calibration
        if digest is not None and digest not in found:
            found[digest] = _calibration(manifest, digest)
        index = manifest.index
        if index is not None and index.trained.rows:
            trained = index.trained
            rows = counted(trained.rows, "row")
            found[trained.sha256] = f"quantizer {trained.sha256[:12]}: means over {rows}"
    return found


def bounds_of(manifest: Manifest) -> list[str]:
    """Return a line for the bounds of a snapshot's vectors, and for its token statistics."""
    found = []
    if manifest.ranges is not None:
        rows = counted(manifest.rows.stored, "row")
        found.append(f"bounds of {manifest.space.precision}: over {rows}")
    tables = sorted(set(_tables(manifest.space.pooler)))
    found += [
        f"token statistics {digest[:12]}: over the texts of their own fit" for digest in tables
    ]
    return found


def _tables(pooler: Any) -> Iterator[str]:
    """Yield the digests of the token statistics of a pooler, whose parts are nested."""
    if isinstance(pooler, Mapping):
        table = pooler.get("table")
        if isinstance(table, str):
            yield table
        for value in pooler.values():
            yield from _tables(value)
    elif isinstance(pooler, list | tuple):
        for value in pooler:
            yield from _tables(value)


def _calibration(manifest: Manifest, digest: str) -> str:
    """Return the line about a snapshot's calibration, which may be fitted on another store."""
    try:
        calibration = kept_calibration(manifest.root, manifest.space)
        assert calibration is not None
        rows = counted(calibration.info["fitted_on"]["n"], "row")
    except (SentenceBeamError, KeyError):
        rows = "an unknown number of rows; its files are damaged"
    return f"calibration {digest[:12]}: means over {rows}"


def refit_receipt(
    begun: RunStart, before: Manifest, manifest: Manifest, kept: Iterable[Manifest]
) -> dict[str, Any]:
    """Return the receipt of a current snapshot whose fits were made again without erased rows.

    `before` is the snapshot that had the fits with them, `kept` are all that are kept now.
    """
    stale = stale_fits(manifest.root)
    current = fits_of([manifest])
    remaining = [
        f"{line}, in an earlier snapshot"
        for digest, line in fits_of(kept).items()
        if digest in stale and digest not in current
    ]
    if before.ranges == manifest.ranges:
        remaining += bounds_of(manifest)
    return sealed(
        {
            "format": 1,
            "run": begun.run,
            "snapshot": manifest.run,
            "started": begun.started,
            "finished": now(),
            "fitted_again": list(current.values()),
            "replaced": sorted(stale),
            "statistics": remaining,
        }
    )
