"""Every file and folder a store may hold, named once.

manifest.json                       the current snapshot
manifests/<run>.json                every snapshot
manifests/parts/<sha256>.json       units of a snapshot with very many
embeddings/<unit>-<digest>.parquet  rows and vectors
sidecars/<unit>-<digest>.json       the unit's record
rejects/<unit>-<digest>.parquet     rows that could not be embedded
ranges/<digest>.json                bounds between which snapshots of whole numbers count
calibrations/<digest>/              copies of the calibrations that snapshots are of
canary/<pooled id>-<n>.parquet      texts and vectors that tell whether the model still makes the same ones
index/<sha256>.faiss .parquet       trained quantizer, segments, locators
runs/<run>/                         plan.parquet, result.json, what the index step left for itself
lease.json                          who is writing
"""

MANIFEST = "manifest.json"
LEASE = "lease.json"
EMBEDDINGS = "embeddings"


def snapshot(run: str) -> str:
    """The manifest of one run."""
    return f"manifests/{run}.json"


def part(sha256: str) -> str:
    """One part of a manifest with very many units."""
    return f"manifests/parts/{sha256}.json"


def shard(unit: str, digest: str) -> str:
    """The embedding shard of a unit."""
    return f"{EMBEDDINGS}/{unit}-{digest}.parquet"


def sidecar(unit: str, digest: str) -> str:
    """The record of a unit, written after its shard."""
    return f"sidecars/{unit}-{digest}.json"


def rejects(unit: str, digest: str) -> str:
    """The rejected rows of a unit."""
    return f"rejects/{unit}-{digest}.parquet"


def calibration(digest: str) -> str:
    """The folder of a calibration's copy."""
    return f"calibrations/{digest}"


def canary(pooled_id: str, generation: int) -> str:
    """The canary of the vectors that a store was begun with, or was embedded anew with."""
    return f"canary/{pooled_id[:16]}-{generation}.parquet"


def plan(run: str) -> str:
    """What a run set out to do."""
    return f"runs/{run}/plan.parquet"


def result(run: str) -> str:
    """How a run ended."""
    return f"runs/{run}/result.json"


def scratch(run: str, name: str) -> str:
    """A file that one step of a run leaves for the next."""
    return f"runs/{run}/{name}"


def ranges(digest: str) -> str:
    """The bounds between which a snapshot of whole numbers counts."""
    return f"ranges/{digest}.json"


def index_file(sha256: str, suffix: str) -> str:
    """A quantizer, segment (`faiss`) or locator table (`parquet`), named by its bytes."""
    return f"index/{sha256}.{suffix}"
