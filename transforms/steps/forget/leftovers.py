"""Files that may hold erased rows and that no kept snapshot names, and lines that quote ids."""

import json
import re
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms import storage
from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.errors import SentenceBeamError, refuse_damage
from sentence_beam.transforms.steps.forget.select import ErasedRows
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.sealed_json import sealed, to_bytes
from sentence_beam.transforms.store.shards.reading import read_shard
from sentence_beam.transforms.store.shards.rejects import rejects_from_bytes

# made again when they are needed, or left by a run that has ended
REMOVED_WHOLE = ("changes", "index", "watch", "parts", "scratch", "temporary")
ERASED = "(erased)"


def files_of(root: str) -> list[str]:
    """Return the paths of all files of a store, relative to it."""
    with progress.stage("listing the store's files"):
        entries = storage.storage_of(root).below(root)
    return [entry.path.removeprefix(f"{root}/") for entry in entries]


def named(manifests: Iterable[Manifest]) -> set[str]:
    """Return the paths that manifests name, with the sidecars and id hashes of their units."""
    found: set[str] = set()
    for manifest in manifests:
        found |= {word for word in _words(manifest.to_json()) if layout.kind(word)}
        for name in ("path", "rejects"):
            found.update(manifest.read_units(name).column(0).drop_null().to_pylist())
    for path in list(found):
        if layout.kind(path) in ("shards", "rejects"):
            found |= {f"sidecars/{layout.stem(path)}.json", f"ids/{layout.stem(path)}.xxh3"}
    return found


def _words(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _words(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _words(item)


def leftovers(root: str, files: list[str], stay: set[str], selection: ErasedRows) -> set[str]:
    """Return the files that no snapshot names and that hold erased rows, or may hold them.

    `stay` are the files that the snapshots name. Vectors of a run that was interrupted stay, unless
    an erased row is among them.
    """
    found = set()
    for path in files:
        kind = layout.kind(path)
        if path in stay or kind is None:
            continue
        if kind in REMOVED_WHOLE:
            found.add(path)
        if kind in ("shards", "rejects") and _holds(root, path, kind, selection):
            stem = layout.stem(path)
            found |= {path, f"sidecars/{stem}.json", f"ids/{stem}.xxh3"}
    left = {layout.stem(path) for path in files if layout.kind(path) == "shards"}
    left -= {layout.stem(path) for path in found}
    found |= {
        path for path in files if layout.kind(path) == "ids" and layout.stem(path) not in left
    }
    return (found & set(files)) - stay


def _holds(root: str, path: str, kind: str, selection: ErasedRows) -> bool:
    """Return whether a file has an erased row, or cannot be read."""
    full = storage.join(root, path)
    try:
        if kind == "rejects":
            rows = rejects_from_bytes(storage.read_bytes(full))
            return any(row.id in selection.texts for row in rows)
        ids = pa.array(sorted(selection.ids), pa.string())
        texts = pa.array(sorted(selection.gone), pa.binary(16))
        for batch in read_shard(full, ["id", "row_hash"]):
            if pc.any(pc.is_in(batch.column("id"), ids)).as_py():
                return True
            if pc.any(pc.is_in(batch.column("row_hash"), texts)).as_py():
                return True
    except SentenceBeamError:
        return True
    return False


def scrubbed_results(root: str, files: list[str], ids: Iterable[str]) -> dict[str, str]:
    """Return the new contents of records of runs whose line quotes an id, by path."""
    found = {}
    words = sorted(ids, key=len, reverse=True)
    for path in files:
        if layout.kind(path) != "results":
            continue
        full = storage.join(root, path)
        data = storage.read_bytes(full)
        try:
            with refuse_damage(f"{full} is damaged", "see verify"):
                content = json.loads(data)
                message = str(content["message"])
        except SentenceBeamError:
            continue
        left = scrubbed(message, words)
        if left != message:
            content["message"] = left
            content.pop("digest", None)
            found[path] = to_bytes(sealed(content)).decode()
    return found


def scrubbed(line: str, ids: Iterable[str]) -> str:
    """Return a line without these ids where they are whole words.

    >>> scrubbed("document a-1 of b.txt: no room", ["a-1", "b"])
    'document (erased) of b.txt: no room'
    """
    for name in ids:
        if name and name in line:
            line = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", ERASED, line)
    return line
