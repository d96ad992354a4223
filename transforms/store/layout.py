"""Every file and folder that a store may hold, named once.

manifest.json                       the current snapshot
manifests/<run>.json                every snapshot
manifests/parts/<sha256>.parquet    some rows of the tables `files` or `units` of snapshots
embeddings/<unit>-<digest>.parquet  rows and vectors
sidecars/<unit>-<digest>.json       the unit's record
ids/<unit>-<digest>.xxh3            hashes of its rows' ids, once they were counted
rejects/<unit>-<digest>.parquet     rows that could not be embedded
ranges/<digest>.json                bounds of the components of int8 and uint8 vectors
calibrations/<digest>/              copies of the calibrations of snapshots
int8/<digest>/                      the model that OpenVINO runs in int8
int8/<pooled id>-<n>.json           its digest, until the first commit
canary/<pooled id>-<n>.parquet      texts and vectors, to notice a changed model
watch/<sha256>.parquet              watched queries, a snapshot's answers
index/<sha256>.faiss .parquet       trained quantizer, segments by rows, locators
index/<sha256>.lists                ranges of lists
index/<sha256>.queries              queries that measure recall: true neighbours, and answers
index/<sha256>.refine               vectors by which candidates of a segment are scored again
forgotten/<sha256>.json             keyed hashes of the rows that were erased
forgotten/<run>.json                the receipt of an erasure
runs/<run>/plan.parquet             what a run reads and what it carries over
runs/<run>/result.json              how the run ended
runs/<run>/forget.json              what an erasure that has not ended has to do
runs/<run>/rejected.json            its reject files, if they were too many
runs/<run>/changes-<digest>.parquet rows that it added, changed or deleted
runs/<run>/index/                   files between the steps of its index, removed by the commit
runs/<run>/push-*                   rows of the run's snapshot that workers push
runs/<run>/                         marks of begun units, lines of verify
report.json report.html             the counts of every run, and a page with them
lease.json                          the run that is writing
"""

import os
import re

STORE_VARIABLE = "SENTENCE_BEAM_STORE"
DEFAULT_STORE = "store"
MANIFEST = "manifest.json"
LEASE = "lease.json"
REPORT = "report.json"
FORGOTTEN = "forgotten"
PAGE = "report.html"
EMBEDDINGS = "embeddings"
MANIFESTS = "manifests"
RUNS = "runs"

RUN_ID = r"[0-9]{8}T[0-9]{6}_[0-9]{3}Z-[0-9a-f]{6}"
INDEX_SUFFIXES = ("faiss", "lists", "parquet", "queries", "refine")
_UNIT = r"[0-9a-f]+-[0-9a-f]+(?:\.[0-9]+)?-[0-9a-f]{16}"
_KINDS = {
    "snapshots": rf"manifests/{RUN_ID}\.json",
    "parts": r"manifests/parts/[0-9a-f]{64}\.parquet",
    "shards": rf"embeddings/{_UNIT}\.parquet",
    "sidecars": rf"sidecars/{_UNIT}\.json",
    "ids": rf"ids/{_UNIT}\.xxh3",
    "rejects": rf"rejects/{_UNIT}\.parquet",
    "index": rf"index/[0-9a-f]{{64}}\.(?:{'|'.join(INDEX_SUFFIXES)})",
    "ranges": r"ranges/[0-9a-f]+\.json",
    "calibrations": r"calibrations/[0-9a-f]+/[a-z.]+",
    "int8": r"int8/(?:[0-9a-f]{64}/[a-z.]+|[0-9a-f]{16}-[0-9]+\.json)",
    "watch": r"watch/[0-9a-f]{64}\.parquet",
    "forgotten": r"forgotten/[0-9a-f]{64}\.json",
    "receipts": rf"forgotten/{RUN_ID}\.json",
    "canary": r"canary/[0-9a-f]{16}-[0-9]+\.parquet",
    "plans": rf"runs/{RUN_ID}/plan\.parquet",
    "results": rf"runs/{RUN_ID}/result\.json",
    "lists": rf"runs/{RUN_ID}/rejected\.json",
    "changes": r"runs/\w[\w.:+=,@-]*/changes-[0-9a-f]{16}\.parquet",  # of any run's name
    "scratch": rf"runs/{RUN_ID}/(?:index/|units/)?[a-z0-9.-]+",
}
OF_UNITS = ("shards", "sidecars", "ids", "rejects")  # kinds of which each unit has a file
FOLDERS_OF_UNITS = (EMBEDDINGS, "sidecars", "ids", "rejects")
FOLDERS_BESIDE_UNITS = tuple(
    sorted({pattern.partition("/")[0] for pattern in _KINDS.values()} - {*FOLDERS_OF_UNITS})
)
BESIDE = (MANIFEST, LEASE, REPORT, PAGE)  # the folders
CLASSES = (*BESIDE, *_KINDS)  # of files
_RUN_NAME = re.compile(r"\w[\w.:+=,@-]*")
_COMPILED = {name: re.compile(pattern) for name, pattern in _KINDS.items()}
_TEMPORARY = re.compile(r"(.+)\.tmp-[0-9a-f]{32}")


def snapshot(run: str) -> str:
    """The path of the manifest of one run."""
    return f"manifests/{run}.json"


def part(sha256: str) -> str:
    """The path of a part of a snapshot's tables, named by its bytes."""
    return f"manifests/parts/{sha256}.parquet"


def shard(unit: str, digest: str) -> str:
    """The path of a unit's embedding shard."""
    return f"{EMBEDDINGS}/{unit}-{digest}.parquet"


def sidecar(unit: str, digest: str) -> str:
    """The path of a unit's record, which is written after its shard."""
    return f"sidecars/{unit}-{digest}.json"


def ids(shard: str) -> str:
    """The path of the hashes of a shard's ids."""
    return f"ids/{stem(shard)}.xxh3"


def rejects(unit: str, digest: str) -> str:
    """The path of a unit's rejected rows."""
    return f"rejects/{unit}-{digest}.parquet"


def calibration(digest: str) -> str:
    """The path of the folder with a calibration's copy."""
    return f"calibrations/{digest}"


def int8_model(digest: str) -> str:
    """The path of the folder with the model of an int8 space."""
    return f"int8/{digest}"


def int8_claim(pooled_id: str, generation: int) -> str:
    """Return the path of the digest of the model that is made for a space; see `canary`."""
    return f"int8/{pooled_id[:16]}-{generation}.json"


def canary(pooled_id: str, generation: int) -> str:
    """Return the path of the canary for pooled vectors.

    `generation` counts how often the whole store was embedded again.
    """
    return f"canary/{pooled_id[:16]}-{generation}.parquet"


def watch_file(sha256: str) -> str:
    """Return the path of a file of the watched queries, named by its bytes."""
    return f"watch/{sha256}.parquet"


def forgotten(sha256: str) -> str:
    """Return the path of a list of erased rows, named by its bytes."""
    return f"forgotten/{sha256}.json"


def receipt(run: str) -> str:
    """Return the path of the receipt of a run that erased rows."""
    return f"forgotten/{run}.json"


def erasure(run: str) -> str:
    """Return the path of what an erasure has to do; a committed one is finished without it."""
    return f"runs/{run}/forget.json"


def plan(run: str) -> str:
    """The path of a run's plan."""
    return f"runs/{run}/plan.parquet"


def result(run: str) -> str:
    """The path of the record of how a run ended."""
    return f"runs/{run}/result.json"


def reject_list(run: str) -> str:
    """The path of the list of a run's reject files, if there were too many rejected rows."""
    return f"runs/{run}/rejected.json"


def changes(run: str, sha256: str) -> str:
    """Return the path of a file with rows that a run changed, named by its bytes."""
    return f"runs/{run}/changes-{sha256[:16]}.parquet"


def scratch(run: str, name: str) -> str:
    """The path of a file that one step of a run leaves for the next."""
    return f"runs/{run}/{name}"


def push_scratch(run: str, name: str) -> str:
    """The path of a file of a push whose rows workers write, while it runs.

    `run` is the run whose snapshot is pushed.
    """
    return f"runs/{run}/push-{name}"


def index_scratch(run: str) -> str:
    """The path of the folder of the files that the steps of a run's index leave for each other."""
    return f"runs/{run}/index"


def units_scratch(run: str) -> str:
    """The path of the folder of the units that one worker of a run reads and others embed."""
    return f"runs/{run}/units"


def unit_rows(run: str, unit: str) -> str:
    """The path of the rows of a unit that one worker reads and another embeds."""
    return f"{units_scratch(run)}/{unit}.arrow"


def ranges(digest: str) -> str:
    """The path of the bounds of the components of int8 or uint8 vectors."""
    return f"ranges/{digest}.json"


def index_file(sha256: str, suffix: str) -> str:
    """Return the path of a file of the index, named by its bytes.

    The suffix tells quantizers and segments, ranges, locators, and exact vectors apart.
    """
    return f"index/{sha256}.{suffix}"


def kind(path: str) -> str | None:
    """Return the class of a file by its path within the store.

    Returns None for the files beside the folders and for foreign files.

    >>> kind("embeddings/0123456789abcdef-000000000000-fedcba9876543210.parquet")
    'shards'
    >>> kind("embeddings/mine.parquet")
    """
    whole = _TEMPORARY.fullmatch(path)
    if whole is not None:
        return "temporary" if kind(whole[1]) or whole[1] in BESIDE else None
    return next((name for name, pattern in _COMPILED.items() if pattern.fullmatch(path)), None)


def is_a(name: str, path: object) -> bool:
    """Whether this is the path, within a store, of a file of that kind.

    >>> is_a("index", "index/" + 64 * "0" + ".faiss"), is_a("index", "../index/x.faiss")
    (True, False)
    """
    return isinstance(path, str) and _COMPILED[name].fullmatch(path) is not None


def pattern(name: str) -> str:
    """Return the regular expression of the paths, within a store, of the files of a kind."""
    return f"^(?:{_KINDS[name]})$"


def is_run(name: object) -> bool:
    """Whether this may be the name of a run, which is part of paths.

    >>> is_run("20261120T020000_431Z-41c6d2"), is_run("../x"), is_run("..")
    (True, False, False)
    """
    return isinstance(name, str) and _RUN_NAME.fullmatch(name) is not None


def snapshot_run(path: str) -> str | None:
    """Return the run whose manifest has this path, whatever its name; None for other files.

    >>> snapshot_run("manifests/x.json"), snapshot_run("manifests/parts/x.parquet")
    ('x', None)
    """
    match = re.fullmatch(r"manifests/([^/]+)\.json", path)
    return match[1] if match else None


def result_run(path: str) -> str | None:
    """Return the run whose result has this path; None for other files."""
    match = re.fullmatch(r"runs/([^/]+)/result\.json", path)
    return match[1] if match else None


def run_of(path: str) -> str | None:
    """The run in whose folder a file is; None for other files.

    >>> run_of("runs/20261122T153748_123Z-fff87f/begun-x"), run_of("runs/mine/plan.parquet")
    ('20261122T153748_123Z-fff87f', None)
    """
    match = re.match(rf"runs/({RUN_ID})/", path)
    return match[1] if match else None


def pushed_run(path: str) -> str | None:
    """The run whose snapshot the push reads that a file is of; None for other files.

    >>> pushed_run("runs/20261122T153748_123Z-fff87f/push-41c6d2-000000.arrow")
    '20261122T153748_123Z-fff87f'
    """
    run = run_of(path)
    return run if run and path.startswith(push_scratch(run, "")) else None


def unit(path: str) -> str:
    """Return the name of the unit of a shard, sidecar or reject file.

    >>> unit("embeddings/0123456789abcdef-000000000000.2-fedcba9876543210.parquet")
    '0123456789abcdef-000000000000.2'
    """
    return stem(path).rpartition("-")[0]


def stem(path: str) -> str:
    """Return `<unit>-<digest>`, which a unit's shard, sidecar and reject file share."""
    return path.rpartition("/")[2].rpartition(".")[0]


def default_store() -> str:
    """Return the store of a command or function that names none."""
    return os.environ.get(STORE_VARIABLE) or DEFAULT_STORE
