"""Files that match an `--input` but hold no rows of it: other tools wrote them beside the rows.

Spark and Beam keep unfinished output in folders beside the finished one, datasets keeps results of
`map` beside the data that `state.json` lists, and a store of this project has shards with the texts
of another input.
"""

import json
import re
from collections.abc import Iterable, Sequence

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import SentenceBeamError, cite, first_line
from sentence_beam.transforms.corpus.formats.registry import find_format, list_plain_formats
from sentence_beam.transforms.storage import Entry
from sentence_beam.transforms.storage.base import Matched
from sentence_beam.transforms.storage.globs import get_folder

MARKED = "with a leading _"
IN_STORE = "of a store"
OF_DATASETS = "beside a dataset's data"
OF_BEAM = "of an unfinished job"
REASONS = (MARKED, IN_STORE, OF_DATASETS, OF_BEAM)

# Hadoop, its committers for S3, Delta and Spark's streams write these with any ending
UNFINISHED = {"_temporary", "__magic", "_delta_log", "_spark_metadata"}
# the folder in which Beam for Python collects its output, and which a killed job leaves
BEAM_FOLDER = re.compile(r"/beam-temp-[^/]*-[0-9a-f]{32}/")
STORE_FILES = ("manifest.json", "lease.json")  # the second before the first commit
STORE_FOLDERS = ("embeddings", "sidecars")
STATE = "state.json"
INFO = "dataset_info.json"
SPLITS = "/dataset_dict.json"
CACHE = re.compile(r"cache-[0-9a-f]{16}.*\.arrow")
STATE_BYTES = 1 << 24
ARROW = ".arrow"


def leave_out(matched: Matched) -> tuple[list[Entry], dict[str, str]]:
    """Leave out the files of stores and of killed jobs, and what datasets writes beside its data.

    Returns the entries that remain, and the reason against each other path.
    Raises SentenceBeamError for a saved dataset of which not all data can be read.
    """
    stores = tuple(f"{folder}/" for folder in _find_stores(matched.folders))
    reasons = {entry.path: IN_STORE for entry in matched.files if entry.path.startswith(stores)}
    for entry in matched.files:
        if "/beam-temp-" in entry.path and BEAM_FOLDER.search(entry.path):
            reasons[entry.path] = OF_BEAM
    others = [entry for entry in matched.files if entry.path not in reasons]
    descriptions = _find_beside_data(others, matched.beside) + _find_splits(others, matched.folders)
    reasons |= dict.fromkeys(descriptions, OF_DATASETS)
    return [entry for entry in others if entry.path not in reasons], reasons


def is_document(path: str, file_format: str) -> bool:
    """Whether a file with a leading `_` in its path is a page, whose name may begin with anything.

    Jekyll and Hugo have `_posts/a.md` and `_index.md`. The marks of other tools have no ending, as
    `_SUCCESS`.
    """
    *folders, name = path.split("/")
    kind = find_format(path) if file_format == "auto" else file_format
    is_mark = name.startswith("_") and "." not in name
    return kind in list_plain_formats() and not is_mark and UNFINISHED.isdisjoint(folders)


def _find_stores(folders: Iterable[str]) -> list[str]:
    """Return the folders that are stores, by the folders and files in them."""
    listed = set(folders)
    first = f"/{STORE_FOLDERS[0]}"
    parents = [folder.removesuffix(first) for folder in folders if folder.endswith(first)]
    return [
        parent
        for parent in parents
        if all(f"{parent}/{name}" in listed for name in STORE_FOLDERS)
        and _has_any(parent, STORE_FILES)
    ]


def _has_any(folder: str, names: Iterable[str]) -> bool:
    place = storage.storage_of(folder)
    return any(place.stat(f"{folder}/{name}") is not None for name in names)


def _find_beside_data(files: Sequence[Entry], beside: Iterable[str]) -> list[str]:
    """Return the files beside the data of saved datasets: caches and descriptions."""
    with_data = {get_folder(entry.path) for entry in files if entry.path.endswith(ARROW)}
    if not with_data:
        return []
    names: dict[str, set[str]] = {folder: set() for folder in with_data}
    for path in (*(entry.path for entry in files), *beside):
        if get_folder(path) in names:
            names[get_folder(path)].add(path.removeprefix(get_folder(path)))
    left = set()
    for folder, inside in names.items():
        left |= {folder + name for name in _find_no_data(folder, inside)}
    return [entry.path for entry in files if entry.path in left]


def _find_splits(files: Iterable[Entry], folders: Iterable[str]) -> list[str]:
    """Return the files that list the splits of a dataset, each a folder beside them."""
    lists = {get_folder(entry.path): entry.path for entry in files if entry.path.endswith(SPLITS)}
    if not lists:
        return []
    above = {get_folder(folder) for folder in folders if _has_any(folder, (STATE,))}
    return [path for folder, path in lists.items() if folder in above]


def _find_no_data(folder: str, names: set[str]) -> set[str]:
    """Return the names in a folder with Arrow files that are not the data of a dataset there."""
    data = _read_data_files(folder + STATE) if STATE in names else None
    if data is not None:
        missing = sorted(data - names)
        if missing:
            raise SentenceBeamError(
                f"{folder}{missing[0]} is missing, which {folder}{STATE} lists; save the dataset"
                f" again or leave the folder out of {cite('input')}"
            )
        return {name for name in names if name.endswith(ARROW) and name not in data} | {STATE, INFO}
    if INFO in names:  # the cache of load_dataset
        return {name for name in names if CACHE.fullmatch(name)} | {INFO}
    return set()


def _read_data_files(path: str) -> set[str] | None:
    """Return the names of the data files that a `state.json` lists; None if another tool wrote it.

    Raises SentenceBeamError if the list cannot be read, or does not tell which rows are data.
    """
    try:
        with storage.storage_of(path).open(path) as file:
            state = json.loads(file.read(STATE_BYTES))
    except (ValueError, OSError, RecursionError) as error:
        raise SentenceBeamError(
            f"{path} cannot be read ({first_line(error)}), so the data files in its folder are"
            " unknown; mend it, or name the files without a wildcard"
        ) from error
    if not isinstance(state, dict) or "_data_files" not in state:
        return None
    files = state["_data_files"]
    is_listed = isinstance(files, list) and all(map(_is_data_file, files))
    if not is_listed or state.get("_indices_data_files") or state.get("_indices_files"):
        raise SentenceBeamError(
            f"{path} does not list whole files of its folder; load the dataset and save it again by"
            " save_to_disk of a current datasets"
        )
    return {file["filename"] for file in files}


def _is_data_file(file: object) -> bool:
    """Whether an entry names a whole file of the same folder."""
    if not isinstance(file, dict) or set(file) != {"filename"}:
        return False
    name = file["filename"]
    return isinstance(name, str) and name not in ("", ".", "..") and not re.search(r"[/\\\0]", name)
