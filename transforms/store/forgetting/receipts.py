"""The receipts of a store's erasures, as others ask for them."""

from transforms import storage
from transforms.store import layout
from transforms.store.manifest import Manifest


def was_erased_since(manifest: Manifest, run: str) -> bool:
    """Return whether rows were erased from a store after a run, whose snapshot lacks them now."""
    if manifest.forgotten is None:
        return False
    folder = storage.join(manifest.root, layout.FORGOTTEN)
    paths = (
        entry.path.removeprefix(f"{manifest.root}/")
        for entry in storage.storage_of(folder).below(folder)
    )
    return any(path > layout.receipt(run) for path in paths if layout.kind(path) == "receipts")
