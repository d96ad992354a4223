"""Inputs as people have them, and what a store made of them holds; used by the tests of the
commands.
"""

import bz2
import contextlib
import gzip
import json
import lzma
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from helpers.snapshots import units_of
from helpers.tiny_models import WORDS

from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.sealed_json import sealed, to_bytes
from sentence_beam.transforms.store.verification import faults

COMPRESSORS = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.compress,
}
PACK: dict[str, Callable[[bytes], bytes]] = {"": bytes, **COMPRESSORS}  # by a name's last ending


def sentences(n: int, start: int = 0) -> list[str]:
    """Distinct texts of three to nine words, the same for every call."""
    words = WORDS.split()
    return [
        " ".join(
            [f"s{i}", *(words[(i * 7 + j * (1 + i % 5)) % len(words)] for j in range(2 + i % 7))]
        )
        for i in range(start, start + n)
    ]


def write_parquet(
    path: Path, texts: Any, row_group_size: int | None = None, **columns: Any
) -> Path:
    """A Parquet file with a column `text` and others."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(
        {"text": pa.array(texts, pa.string()) if isinstance(texts, list) else texts, **columns}
    )
    pq.write_table(table, path, row_group_size=row_group_size)
    return path


def write_lines(path: Path, lines: Iterable[str], end: str = "\n") -> Path:
    """A text file, compressed if its name says so."""
    return write_bytes(
        path, "".join(line + end for line in lines).encode("utf8", errors="surrogatepass")
    )


def write_bytes(path: Path, data: bytes) -> Path:
    """Bytes as they are, compressed if the name says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(COMPRESSORS.get(path.suffix, bytes)(data))
    return path


def write_jsonl(path: Path, rows: Iterable[Any]) -> Path:
    """A JSONL file; rows that are strings are written as they are."""
    return write_lines(path, (row if isinstance(row, str) else json.dumps(row) for row in rows))


def manifest_of(store: Path) -> dict[str, Any] | None:
    """The current manifest as it stands on disk, or None."""
    path = store / "manifest.json"
    return json.loads(path.read_text()) if path.is_file() else None


def edit_manifest(path: Path, data: dict[str, Any]) -> None:
    """Write a manifest that says something else than the run that made it, with a digest that
    fits.
    """
    path.write_bytes(to_bytes(sealed(data)))


def rows_of(store: Path) -> list[dict[str, Any]]:
    """Every row of the current snapshot without its vector, in the snapshot's order."""
    dataset = open_store(str(store)).dataset()
    columns = [name for name in dataset.schema.names if name != "embedding"]
    return dataset.to_table(columns=columns).to_pylist()


def ids_of(store: Path) -> list[str]:
    """The ids of the current snapshot."""
    return [row["id"] for row in rows_of(store)]


def vectors_of(store: Path) -> dict[str, list[float]]:
    """Vector by id."""
    table = open_store(str(store)).dataset().to_table(columns=["id", "embedding"])
    return dict(
        zip(table.column("id").to_pylist(), table.column("embedding").to_pylist(), strict=True)
    )


def rejects_of(store: Path) -> list[dict[str, Any]]:
    """The rejected rows that the current snapshot names, in the snapshot's order."""
    if manifest_of(store) is None:
        return []
    paths = [unit["rejects"] for unit in units_of(store) if unit["rejects"]]
    return [row for path in paths for row in pq.read_table(store / path).to_pylist()]


def check_ledger(store: Path, written: int, rejected: int = 0, **work: int) -> dict[str, Any]:
    """The current manifest, once its counts are these, add up, and everything it names stands
    whole.
    """
    manifest = manifest_of(store)
    assert manifest is not None
    counted = manifest["work"]
    assert manifest["rows"] == {
        "read": written + rejected,
        "written": written,
        "rejected": rejected,
    }
    assert sum(counted.values()) == written
    assert {name: counted[name] for name in work} == work
    assert not list(faults(open_store(str(store)).manifest))
    assert len(rows_of(store)) == written
    assert len(rejects_of(store)) == rejected
    return manifest


def files_in(folder: Path, *below: str) -> dict[str, tuple[int, int]]:
    """Inode and modification time of every file, by path within the folder: equal ones were not
    written again.
    """
    roots: Sequence[Path] = [folder / name for name in below] or [folder]
    found = {}
    for path in (path for root in roots for path in root.rglob("*")):
        with contextlib.suppress(FileNotFoundError):  # another process may be at work
            if path.is_file():
                found[str(path.relative_to(folder))] = (path.stat().st_ino, path.stat().st_mtime_ns)
    return found
