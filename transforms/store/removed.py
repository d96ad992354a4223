"""Snapshots that `vacuum` removed while something read them."""

import contextlib
from collections.abc import Iterator, Sequence

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.store.manifest import Manifest, read_manifest


def is_removed(manifest: Manifest) -> bool:
    """Whether `vacuum` has removed a snapshot: it removes the manifest before its files."""
    try:
        current = read_manifest(manifest.root)
        others = current is not None and current.run != manifest.run
        return others and read_manifest(manifest.root, manifest.run) is None
    except SentenceBeamError:  # a damaged one is a fault among those found
        return False


@contextlib.contextmanager
def naming_removal(manifests: Sequence[Manifest], mend: str) -> Iterator[None]:
    """Name the removed snapshot in an error of reading snapshots; `mend` is what to do.

    Errors of options and of gates are of another cause.
    """
    try:
        yield
    except SentenceBeamError as error:
        removed = next((manifest for manifest in manifests if is_removed(manifest)), None)
        if removed is None or type(error) is not SentenceBeamError:
            raise
        raise SentenceBeamError(
            f"{removed.root}: vacuum removed snapshot {removed.run} meanwhile; {mend}"
        ) from error
