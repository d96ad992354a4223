"""One night of an index that follows its store: what is known of it, put down for all its steps. No Beam here."""

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from transforms import storage
from transforms.index import IndexPlan
from transforms.index.choose import plan_for
from transforms.steps import matching
from transforms.steps.held_out import Known
from transforms.steps.index_files import RECALL_FILES, Folder, Segment
from transforms.store import locators

HELD_OUT = "held-out"
Shard = tuple[str, int]  # path relative to the store, rows


@dataclass(frozen=True)
class Night:
    """What is known before any row is looked at.

    `standing` is the manifest's entry of the index that is to follow, `came` the shards that it does not know, in
    pieces, `went` those that are no more, `shards` all that the new snapshot has. `merge` asks for one segment.
    """

    standing: dict[str, Any]
    request: dict[str, Any]
    shards: list[Shard]
    came: list[list[str]]
    went: list[str]
    buckets: int
    merge: bool

    @property
    def rows(self) -> int:
        """Rows of the new snapshot."""
        return sum(rows for _, rows in self.shards)

    @property
    def metric(self) -> str:
        """ip or l2."""
        return str(self.standing["metric"])

    @cached_property
    def segments(self) -> dict[int, Segment]:
        """The standing segments by number."""
        return {entry["number"]: Segment(**entry) for entry in self.standing["segments"]}

    @property
    def held_out(self) -> Segment | None:
        """The standing held-out segment."""
        return next((segment for segment in self.segments.values() if segment.kind == HELD_OUT), None)

    @cached_property
    def came_shards(self) -> tuple[str, ...]:
        """All shards that came; rows that came name them by their place here."""
        return tuple(shard for piece in self.came for shard in piece)

    @property
    def pieces(self) -> np.ndarray:
        """Place of each piece's first shard in `came_shards`, and the end."""
        return np.cumsum([0, *(len(piece) for piece in self.came)])


@dataclass(frozen=True)
class NightJob:
    """Store, run and dimension: where a night's steps find everything else."""

    root: str
    run: str
    dim: int

    @property
    def folder(self) -> Folder:
        """What the steps read and write."""
        return Folder(self.root, self.run, "night")

    def night(self) -> Night:
        """What `begin` put down."""
        return Night(**json.loads(self.folder.read("plan.json")))

    def plan(self, night: Night) -> IndexPlan:
        """What the standing index was trained to be."""
        return plan_for(night.standing["factory"], night.rows, self.dim, night.metric)

    def known(self, night: Night) -> Known:
        """The texts whose true neighbours were known when the night began."""
        return Known.from_bytes(storage.read_bytes(self.folder.stored(night.standing["queries"]["path"])))


def begin(job: NightJob, night: Night) -> list[tuple[str, int]]:
    """Put the night down; what has to be read: pieces of shards that came, segments that rows may have gone from."""
    job.folder.put("plan.json", json.dumps(asdict(night), sort_keys=True).encode())
    return [*(("came", piece) for piece in range(len(night.came))), *(("went", number) for number in night.segments)]


@dataclass(frozen=True)
class Standing:
    """A standing segment as it is after the rows were matched."""

    job: NightJob
    night: Night
    segment: Segment

    @cached_property
    def _moves(self) -> pa.Table:
        place, folder = list(self.night.segments).index(self.segment.number), self.job.folder
        found = (folder.read(f"moved-{bucket}.arrow") for bucket in range(self.night.buckets))
        return pa.concat_tables([matching.from_bytes(data, place) for data in found])

    @property
    def touched(self) -> bool:
        """Whether any of its rows moved or went."""
        return len(self._moves) > 0

    @cached_property
    def table(self) -> pa.Table:
        """Its locator."""
        data = storage.read_bytes(self.job.folder.stored(self.segment.locator))
        return moved(self.night, locators.from_bytes(data), self._moves)

    @cached_property
    def keep(self) -> np.ndarray:
        """bool [n], False where a row is deleted."""
        if not self.touched and not self.segment.deleted:
            return np.ones(self.segment.rows, bool)
        return self.table.column("shard").is_valid().to_numpy()


def moved(night: Night, locator: pa.Table, moves: pa.Table) -> pa.Table:
    """A locator with what matching found of its rows."""
    if not len(moves):
        return locator
    local, shard, row = (moves.column(name).to_numpy() for name in ("local", "shard", "row"))
    ids = moves.column("id").combine_chunks()
    return locators.moved(locator, locators.Moves(local, shard, row, ids, night.came_shards))


def scratch_files(job: NightJob) -> list[str]:
    """What the steps have left for each other, to be removed when none of them can be tried again."""
    night = job.night()
    names = ["plan.json", "decision.json", "queries.npy", "texts.npy", "known.npy", "crowded.npy"]
    names += [f"came-{piece}.arrow" for piece in range(len(night.came))]
    names += [f"went-{number}.arrow" for number in night.segments]
    names += [f"{kind}-{bucket}.arrow" for kind in ("moved", "new") for bucket in range(night.buckets)]
    if storage.storage_of(job.root).stat(job.folder.scratch("decision.json")):
        numbers = [target["number"] for target in json.loads(job.folder.read("decision.json"))["targets"]]
        names += [f"{stem}-{n}" for n in numbers for stem in RECALL_FILES]
    return [job.folder.scratch(name) for name in names]
