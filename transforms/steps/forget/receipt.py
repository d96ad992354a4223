"""The receipt of an erasure: what was erased, by keyed hashes alone, and what is out of reach."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import SentenceBeamError, refuse_damage
from sentence_beam.transforms.base.numbers import format_count
from sentence_beam.transforms.steps.forget.erasure_record import ErasureRecord
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.calibrations import read_kept_calibration
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.runs.run_result import now
from sentence_beam.transforms.store.sealed_json import check_digest, sealed, to_bytes

OUT_OF_REACH = (
    "copies by export, by files --link and by hand",
    "databases: the next push deletes the rows there",
    "backups and object versions of the bucket",
    "caches of machines that searched or evaluated",
    "old versions of a LanceDB table, until it is optimised",
    "the input itself, and names of its files",
)


def describe_fits(manifest: Manifest) -> tuple[str, ...]:
    """Return a line for each part of a snapshot that was fitted on its rows, with its digest."""
    lines = []
    if manifest.space.calibration is not None:
        lines.append(_describe_calibration(manifest, manifest.space.calibration))
    if manifest.index is not None and manifest.index.trained.rows:
        trained = manifest.index.trained
        rows = format_count(trained.rows, "row")
        lines.append(f"quantizer {trained.sha256}: means over {rows}")
    if manifest.ranges is not None:
        rows = format_count(manifest.rows.stored, "row")
        lines.append(f"bounds of {manifest.space.precision}: over {rows}")
    tables = sorted({*_find_tables(manifest.space.pooler)})
    lines += [f"token statistics {digest}: over texts of their own fit" for digest in tables]
    return tuple(lines)


def _describe_calibration(manifest: Manifest, digest: str) -> str:
    """Return the line about a snapshot's calibration, which may be fitted on another store."""
    try:
        calibration = read_kept_calibration(manifest.root, manifest.space)
        assert calibration is not None
        rows = format_count(calibration.info["fitted_on"]["n"], "row")
    except (SentenceBeamError, KeyError):
        rows = "an unknown number of rows; its files are damaged"
    return f"calibration {digest}: means over {rows}"


def _find_tables(pooler: Any) -> Iterator[str]:
    """Yield the digests of the token statistics of a pooler, whose parts are nested."""
    if isinstance(pooler, Mapping):
        table = pooler.get("table")
        if isinstance(table, str):
            yield table
        for value in pooler.values():
            yield from _find_tables(value)
    elif isinstance(pooler, list | tuple):
        for value in pooler:
            yield from _find_tables(value)


def write_receipt(
    manifest: Manifest, record: ErasureRecord, traces: list[str], unlisted: list[str]
) -> None:
    """Write the receipt of an erasure: no id, no text, no vector.

    `traces` are the lines of the check, `unlisted` the files that no command wrote.
    """
    done = record.to_json()
    entry = manifest.forgotten
    assert entry is not None
    for name in ("units", "results"):
        done[name] = len(done[name])
    receipt = {
        "format": 1,
        **done,
        "finished": now(),
        "list": {"path": entry.path, "sha256": entry.sha256},
        "check": traces or ["no file has any of the erased rows"],
        "clean": not traces,
        "unlisted": unlisted,
        "out_of_reach": list(OUT_OF_REACH),
    }
    path = storage.join(manifest.root, layout.receipt(record.run))
    storage.overwrite(path, to_bytes(sealed(receipt)))


def read_receipt(root: str, run: str) -> dict[str, Any]:
    """Return the receipt of an erasure. Raises SentenceBeamError if it is missing or damaged."""
    path = storage.join(root, layout.receipt(run))
    with refuse_damage(f"{path} was changed", "restore it from a copy"):
        receipt: dict[str, Any] = json.loads(storage.read_bytes(path))
        check_digest(receipt)
        return receipt
