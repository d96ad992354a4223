"""Files that the manifest names with their digest, read whole."""

import hashlib

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import SentenceBeamError


def read_named(path: str, sha256: str, mend: str) -> bytes:
    """Return the bytes of a file. Raises SentenceBeamError if it is missing or was changed."""
    stored = storage.storage_of(path).read_versioned(path)
    if stored is None:
        raise SentenceBeamError(f"{path} is missing; {mend}")
    if hashlib.sha256(stored[0]).hexdigest() != sha256:
        raise SentenceBeamError(f"{path} was changed after it was written (sha256 differs); {mend}")
    return stored[0]
