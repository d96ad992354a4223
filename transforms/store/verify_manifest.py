"""Faults of a manifest's copy under the run's name."""

from collections.abc import Iterator

from sentence_beam.transforms import storage
from sentence_beam.transforms.store import layout
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
