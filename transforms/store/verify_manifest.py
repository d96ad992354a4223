"""Faults of a manifest: its ledger, and its copy under the run's name."""

from collections import Counter
from collections.abc import Iterator

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import LedgerError
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.ledger import Ledger, check_pieces
from sentence_beam.transforms.store.manifest import Manifest, read_manifest
from sentence_beam.transforms.store.sealed_json import UNSEALED


def manifest_faults(manifest: Manifest) -> Iterator[str]:
    """Yield a line if the run's manifest is missing or differs from `manifest.json`.

    They are compared if `manifest.json` is of the same run.
    """
    path = storage.join(manifest.root, layout.snapshot(manifest.run))
    own = read_manifest(manifest.root, manifest.run)
    current = read_manifest(manifest.root)
    if own is None:
        yield (
            f"{path}: the snapshot's own manifest is missing; copy manifest.json there, or run"
            " embed again"
        )
    elif current is not None and current.run == manifest.run and current.digest != own.digest:
        names = sorted(
            name for name in own.data.keys() | current.data.keys() if name not in UNSEALED
        )
        other = [name for name in names if own.data.get(name) != current.data.get(name)]
        yield (
            f"{path}: says something else than manifest.json of {', '.join(other)}; keep one of"
            " them, run embed again"
        )


def ledger_faults(manifest: Manifest) -> Iterator[str]:
    """Yield a line for each count of the manifest that its units do not add up to."""
    counted = Ledger.of(manifest.units)
    for name in ("read", "written", "rejected", "pieces"):
        said = getattr(manifest.rows, name)
        if getattr(counted, name) != said:
            yield (
                f"ledger: units have {getattr(counted, name)} rows {name}, the manifest says {said}"
            )
    rows = manifest.rows
    work = manifest.work
    totals = (
        rows.read,
        rows.written,
        rows.rejected,
        work.embedded,
        work.reused,
        work.duplicates,
        work.carried,
    )
    try:
        Ledger(*totals, pieces=rows.pieces).check()
        check_pieces(manifest.units)
    except LedgerError as error:
        yield str(error).removesuffix("; nothing committed")
    for unit, count in Counter(u.unit for u in manifest.units).items():
        if count > 1:
            yield f"ledger: unit {unit} is listed {count} times"
