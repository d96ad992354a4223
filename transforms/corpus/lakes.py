"""Tables of Iceberg and Delta Lake as input: the data files of a snapshot.

Data files never change, so files that the next snapshot still has are carried over unread. A table
is refused if it deletes rows without rewriting their files, or renames columns without doing so.
Tables of Hudi, whose files hold old rows beside current ones, are always refused.
"""

import re
from collections.abc import Iterable, Iterator

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import (
    OptionError,
    SentenceBeamError,
    cite,
)
from sentence_beam.transforms.base.extras import requiring_extra
from sentence_beam.transforms.corpus.delta_lake import list_delta_files, open_delta
from sentence_beam.transforms.corpus.iceberg import METADATA, list_iceberg_files, open_iceberg
from sentence_beam.transforms.corpus.lake_parts import DELTA, ICEBERG, LakePart
from sentence_beam.transforms.storage.base import Entry, Matched
from sentence_beam.transforms.storage.globs import get_folder

DELTA_LOG = "_delta_log"  # the folder in which a Delta table lists its files
FOLDER = "metadata"  # the same of an Iceberg table
HUDI = ".hoodie"  # the folder in which a Hudi table lists its commits
HUDI_PARTITION = ".hoodie_partition_metadata"  # a file in each of its folders with data
DATA_FORMATS = ("parquet", "orc", "avro")
_LOG_FILE = re.compile(r"[0-9]{20}\.(?:.*\.)?(?:json|parquet)")
_METADATA_FILE = re.compile(r"(?:v([0-9]+)|([0-9]+)-[0-9a-f-]{36})(?:\.gz)?\.metadata\.json")


def is_table(pattern: str) -> bool:
    """Whether an `--input` names a table, not files."""
    return pattern.startswith((ICEBERG, DELTA))


def find_table_input(folder: str) -> str | None:
    """Return the `--input` that reads a folder as a table; None if the folder is not a table."""
    if any(_LOG_FILE.fullmatch(name) for name in _list_names(f"{folder}/{DELTA_LOG}")):
        return f"{DELTA}{folder}"
    numbers = {}
    for name in _list_names(f"{folder}/{FOLDER}"):
        match = _METADATA_FILE.fullmatch(name)
        if match:
            numbers[name] = int(match[1] or match[2])
    if not numbers:
        return None
    latest = max(numbers, key=numbers.__getitem__)
    return f"{ICEBERG}{folder}/{FOLDER}/{latest}"


def make_table_hint(folder: str, hudi: Iterable[str]) -> str | None:
    """Return how to read the rows of a folder that is a table; None if it is not a table.

    `hudi` are known folders of Hudi tables.
    """
    if folder in hudi or storage.storage_of(folder).stat(f"{folder}/{HUDI}/hoodie.properties"):
        return (
            "as a Hudi table it cannot be read here: write its current rows as Parquet, as in Spark"
            " spark.read.format('hudi').load(TABLE).write.parquet(FOLDER)"
        )
    table_input = find_table_input(folder)
    return f"say {cite('input')} {table_input}" if table_input is not None else None


def find_hudi_folders(matched: Matched) -> list[str]:
    """Return the folders that are tables of Hudi or have their data, as far as they were listed."""
    tables = [
        path.removesuffix(f"/{HUDI}") for path in matched.folders if path.endswith(f"/{HUDI}")
    ]
    files = [*matched.beside, *(entry.path for entry in matched.files)]
    parts = [get_folder(path)[:-1] for path in files if f"/{HUDI_PARTITION}" in path]
    return list(dict.fromkeys([*tables, *parts]))


def list_folders_around(folder: str) -> list[str]:
    """Return the parent folders that may be a table with its data in this folder.

    A table keeps data in `data` and in folders of partitions.

    >>> list_folders_around("/lake/docs/data/lang=en"), list_folders_around("/lake/docs")
    (['/lake/docs/data', '/lake/docs'], [])
    """
    folders: list[str] = []
    name = folder.rpartition("/")[2]
    while name == "data" or "=" in name:
        folder = folder.rpartition("/")[0]
        folders.append(folder)
        name = folder.rpartition("/")[2]
    return folders


def find_tables_inside(matched: Matched) -> list[str]:
    """Return the folders among those listed that may be tables of Delta Lake or Iceberg."""
    return [
        get_folder(path)[:-1]
        for path in matched.folders
        if path.endswith((f"/{DELTA_LOG}", f"/{FOLDER}"))
    ]


def _list_names(folder: str) -> list[str]:
    return [
        entry.path.removeprefix(f"{folder}/") for entry in storage.storage_of(folder).below(folder)
    ]


def make_absolute_input(pattern: str) -> str:
    """Make the local path in an `--input` absolute, so that workers can open it."""
    if not is_table(pattern):
        return storage.absolute(pattern)
    kind, _, name = pattern.partition(":")
    if kind == "delta" or name.endswith(METADATA):
        return f"{kind}:{storage.absolute(name)}"
    return pattern


def list_table_entries(pattern: str, part: LakePart) -> Iterator[tuple[Entry, str]]:
    """Yield each data file of a part of a table and its path relative to the table, by path.

    Raises OptionError for a missing table or part, and for a table whose files do not hold exactly
    its rows.
    """
    with requiring_extra("iceberg", f"{cite('input')} {pattern}"):
        list_files = list_delta_files if pattern.startswith(DELTA) else list_iceberg_files
        root, paths = list_files(pattern, part)
    if not paths and part.filter is not None:
        raise OptionError(
            f"{cite('input_filter')}: no data file of {pattern} is in a partition with"
            f" {part.filter}"
        )
    if not paths:
        raise _make_empty_error(pattern)
    store = storage.storage_of(root)
    listed: dict[str, Entry] = {}
    if not storage.is_local(root):
        listed = {entry.path: entry for entry in store.below(root)}  # one request for all files
    for path in sorted(paths):
        entry = listed.get(path) or store.stat(path)
        if entry is None:
            mend = f"restore it, repair the table, or take a later {cite('input_version')}"
            raise SentenceBeamError(
                f"{path} is missing, a file of {cite('input')} {pattern}; {mend}"
            )
        yield entry, path.removeprefix(f"{root}/")


def find_version(pattern: str, requested: int | None) -> int:
    """Return the requested version of a table; None: the current one.

    Raises OptionError for a missing table or version.
    """
    with requiring_extra("iceberg", f"{cite('input')} {pattern}"):
        if pattern.startswith(DELTA):
            return int(open_delta(pattern, requested).version())
        current = open_iceberg(pattern, requested).current_snapshot()
    if requested is not None:
        return requested
    if current is None:
        raise _make_empty_error(pattern)
    return int(current.snapshot_id)


def _make_empty_error(pattern: str) -> OptionError:
    return OptionError(f"{cite('input')} {pattern}: the table has no data file; check the name")
