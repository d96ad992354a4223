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
report.json report.html             every night's counts, and the same to look at
lease.json                          who is writing
"""

import re

MANIFEST = "manifest.json"
LEASE = "lease.json"
REPORT = "report.json"
PAGE = "report.html"
EMBEDDINGS = "embeddings"
MANIFESTS = "manifests"
RUNS = "runs"

RUN_ID = r"[0-9]{8}T[0-9]{6}(?:_[0-9]{3})?Z-[0-9a-f]{6}"
_UNIT = r"[0-9a-f]+-[0-9a-f]+(?:\.[0-9]+)?-[0-9a-f]{16}"
_KINDS = {
    "snapshots": rf"manifests/{RUN_ID}\.json",
    "parts": r"manifests/parts/[0-9a-f]{64}\.json",
    "shards": rf"embeddings/{_UNIT}\.parquet",
    "sidecars": rf"sidecars/{_UNIT}\.json",
    "rejects": rf"rejects/{_UNIT}\.parquet",
    "index": r"index/[0-9a-f]{64}\.[a-z]+",
    "ranges": r"ranges/[0-9a-f]+\.json",
    "calibrations": r"calibrations/[0-9a-f]+/[a-z.]+",
    "canary": r"canary/[0-9a-f]{16}-[0-9]+\.parquet",
    "runs": rf"runs/{RUN_ID}/[a-z0-9.-]+",
}
_TEMPORARY = re.compile(r"(.+)\.tmp-[0-9a-f]{32}")


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


def kind(path: str) -> str | None:
    """What a file is, by its path within the store; None for the files beside the folders and for foreign ones.

    >>> kind("embeddings/0123456789abcdef-000000000000-fedcba9876543210.parquet"), kind("embeddings/mine.parquet")
    ('shards', None)
    """
    whole = _TEMPORARY.fullmatch(path)
    if whole is not None:
        return "temporary" if kind(whole[1]) or whole[1] in (MANIFEST, LEASE, REPORT, PAGE) else None
    return next((name for name, pattern in _KINDS.items() if re.fullmatch(pattern, path)), None)


def snapshot_run(path: str) -> str | None:
    """The run that a file is the manifest of by its place, whatever its name; None for other files.

    >>> snapshot_run("manifests/x.json"), snapshot_run("manifests/parts/x.json")
    ('x', None)
    """
    found = re.fullmatch(r"manifests/([^/]+)\.json", path)
    return found[1] if found else None


def result_run(path: str) -> str | None:
    """The run that a file is the result of; None for other files."""
    found = re.fullmatch(r"runs/([^/]+)/result\.json", path)
    return found[1] if found else None


def stem(path: str) -> str:
    """`<unit>-<digest>`, which a unit's shard, sidecar and reject file share."""
    return path.rpartition("/")[2].rpartition(".")[0]
