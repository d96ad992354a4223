"""Scenes of faults: a store with its inputs, a command that is tried over it, and what both come
to.
"""

import contextlib
import functools
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from helpers import snapshots as snapshot_forms
from helpers.calibrations import fit_on
from helpers.corpora import sentences, write_jsonl, write_parquet

from sentence_beam.pipelines.cli import main
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.manifest import read_manifest, snapshots
from sentence_beam.transforms.store.verification import faults

HOW = (
    "--id-column",
    "id",
    "--unit-tokens",
    "300",
    "--dtype",
    "float32",
    "--max-rejects",
    "1",
)
CODES = ("--precision", "int8", "--index", "Flat")
ALL = ("embed", "--input", "PLACE/in/*")
FILE = "found.parquet"
Content = tuple[Any, Any]  # of the store, and of what is written beside it


@dataclass(frozen=True)
class Kind:
    """What is tried: a command over a store of some nights, all with these options.

    `documents` says that rows have several sentences, `small` how many small files there are,
    `in_parts` that tables have many parts. A `table` of a database may be half written by a
    command that fails.
    """

    command: tuple[str, ...] = ALL
    nights: int = 2
    options: tuple[str, ...] = ()
    documents: bool = False
    small: int = 0
    in_parts: bool = False
    table: bool = False

    @property
    def store(self) -> "Kind":
        """What decides the store that the command finds."""
        return replace(self, command=ALL, table=False)


CHUNKS = ("--chunks", "budget:tokens=12")
KINDS = {
    "first": Kind(nights=0),
    "file": Kind(),
    "content": Kind(options=("--partition", "content")),
    "index": Kind(("index", "--index", "IVF4,SQ8")),
    "vacuum": Kind(("vacuum", "--keep", "1")),
    "rollback": Kind(("rollback", "OLD")),
    "recalibrate": Kind(("recalibrate", "--calibration", "PLACE/fitted")),
    "documents": Kind(options=CHUNKS, documents=True),
    "groups": Kind(small=20),
    "parts": Kind(in_parts=True),
    "codes": Kind((*ALL, "--precision", "uint8")),
    "append": Kind(("embed", "--append", "--input", "PLACE/more/*")),
    "push": Kind(("push", "--to", "lance:PLACE/tables#docs"), table=True),
    "neighbours": Kind(
        ("neighbours", "--of", "PLACE/store", "-k", "3", "--output", f"PLACE/{FILE}")
    ),
    "dedup": Kind(("dedup", "--min-score", "0.9", "--output", f"PLACE/{FILE}")),
    "together": Kind(
        (*ALL, "--precision", "uint8"), options=CHUNKS, documents=True, small=20, in_parts=True
    ),
}


@dataclass(frozen=True)
class Scene:
    """A kind of command and the folder with inputs and a store that it finds; every case has a copy
    at one place.
    """

    made: Path
    place: Path
    model: Path
    kind: Kind

    def begin(self) -> None:
        """Put everything in place."""
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self.made, self.place)

    @property
    def store(self) -> Path:
        return self.place / "store"

    @property
    def argv(self) -> list[str]:
        """The command's arguments; `OLD` stands for the run of the first snapshot."""
        first = min(snapshots(str(self.made / "store")), default="")
        return arguments(self.kind, self.kind.command, self.place, self.model, first)

    def content(self) -> Content:
        """The store, and what the command writes beside it; None for what is not there."""
        return content_of(self.store), written(self.place)

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Commands within the block cut tables as the scene has them."""
        with in_parts() if self.kind.in_parts else contextlib.nullcontext():
            yield


@contextlib.contextmanager
def in_parts() -> Iterator[None]:
    """Tables that are written within the block have many parts."""
    with pytest.MonkeyPatch.context() as patch:
        snapshot_forms.small_parts(patch)
        yield


def arguments(
    kind: Kind, command: tuple[str, ...], place: Path, model: Path, first: str = ""
) -> list[str]:
    """A command as a person writes it."""
    named = [word.replace("PLACE", str(place)).replace("OLD", first) for word in command]
    if command[0] == "embed":  # what is named last counts
        named = [named[0], "--model", str(model), *HOW, *CODES, *kind.options, *named[1:]]
    return [*named, "--store", str(place / "store")]


def write_inputs(place: Path, night: int, kind: Kind) -> None:
    """The inputs of a night: a file that changes, one that stays, one with a rejected row, one to
    append, small ones.
    """
    folder, of_row = place / "in", 3 if kind.documents else 1
    for name, rows, start in (("a", 30, 10 * night), ("b", 20, 500)):
        texts = [" ".join(sentences(of_row, start + of_row * n)) for n in range(rows)]
        ids = [f"{name}{n}" for n in range(rows)]
        write_parquet(folder / f"{name}.parquet", texts, row_group_size=10, id=ids)
    write_jsonl(
        folder / "c.jsonl",
        [{"id": f"c{n}", "text": f"dog {n} {night}" if n else ""} for n in range(15)],
    )
    for n in range(kind.small):
        write_jsonl(
            folder / f"small{n}.jsonl",
            [{"id": f"s{n}", "text": f"cat {n} {night if n < 3 else ''}"}],
        )
    write_jsonl(
        place / "more" / "d.jsonl", [{"id": f"d{n}", "text": f"bird {n}"} for n in range(15)]
    )


def make(kind: Kind, place: Path, model: Path) -> None:
    """Make a store by its nights, the inputs of the next one and a calibration."""
    for night in range(kind.nights):
        write_inputs(place, night, kind)
        assert main(arguments(kind, ALL, place, model)) == 0
    write_inputs(place, kind.nights, kind)
    if kind.nights:
        fit_on(place / "store", "standardize", place / "fitted")


def maker(model: Path, folder: Path) -> Callable[[str], Scene]:
    """What gives the scene of a name; stores that several have in common are made once."""
    place = folder / "case"

    @functools.cache
    def made(store: Kind) -> Path:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        make(store, place, model)
        return place.rename(folder / f"made{len(list(folder.iterdir()))}")

    def find(name: str) -> Scene:
        kind = KINDS[name]
        with in_parts() if kind.in_parts else contextlib.nullcontext():
            return Scene(made(kind.store), place, model, kind)

    return find


def content_of(store: Path) -> tuple[Counter[Any], str | None, str] | None:
    """The rows of the current snapshot, which is whole, the kind of its index and its space; None
    without a snapshot.
    """
    if read_manifest(str(store)) is None:
        return None
    snapshot = open_store(str(store))
    assert list(faults(snapshot.manifest)) == []
    rows = snapshot.dataset().to_table(columns=["id", "row_hash", "norm"]).to_pylist()
    index = snapshot.manifest.data["index"]
    found = Counter((row["id"], row["row_hash"], round(row["norm"], 4)) for row in rows)
    return found, index and index["factory"], snapshot.manifest.space.id


def written(place: Path) -> Any:
    """The rows of the file that a command writes, or of the table that it pushes into; None without
    one.
    """
    if (place / FILE).exists():
        rows = pq.read_table(place / FILE).to_pylist()
        return Counter(str({name: rounded(value) for name, value in row.items()}) for row in rows)
    return pushed(place / "tables") if (place / "tables" / "docs.lance").exists() else None


def pushed(folder: Path) -> Counter[tuple[str, str]]:
    """The rows of the table that was pushed into."""
    import lancedb

    rows = (
        lancedb.connect(str(folder))
        .open_table("docs")
        .to_arrow()
        .select(["id", "text"])
        .to_pylist()
    )
    return Counter((row["id"], row["text"]) for row in rows)


def rounded(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value
