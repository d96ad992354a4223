"""A night's rows: which of the shards that came are rows that the index has, and which are new. No Beam here."""

import hashlib
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from transforms import storage
from transforms.arrow import as_hashes, as_keys
from transforms.steps import matching
from transforms.steps.held_out import newly_held_out
from transforms.steps.index_update import Night, NightJob, moved
from transforms.store import locators
from transforms.store.shards import read_shard


@dataclass(frozen=True)
class Matched:
    """What matching one bucket found: rows nulled by segment, new rows of the lists by piece, how many moved.

    `held` new rows are held out; `crowded` are texts (hex) that have too many copies from now on to be held out.
    """

    nulled: dict[int, int]
    new: dict[int, int]
    moved: int
    held: int
    crowded: tuple[str, ...]


def read(job: NightJob, kind: str, number: int) -> str | None:
    """Leave the texts and ids of a piece or a segment by bucket; returns the file that is damaged, where one is."""
    night = job.night()
    if kind == "came":
        table = _came(job, night, number)
    else:
        segment = night.segments[number]
        data = storage.read_bytes(job.folder.stored(segment.locator))
        if hashlib.sha256(data).hexdigest() != segment.locator_sha256:
            return segment.locator
        table = _went(data, set(night.went))
    job.folder.put(f"{kind}-{number}.arrow", matching.to_bytes(matching.by_bucket(table, night.buckets)))
    return None


def _came(job: NightJob, night: Night, piece: int) -> pa.Table:
    first, tables = int(night.pieces[piece]), []
    for place, shard in enumerate(night.came[piece]):
        start = 0
        for batch in read_shard(job.folder.stored(shard), ["row_hash", "id"]):
            shards = pa.array(np.full(batch.num_rows, first + place, np.int32))
            rows = pa.array(np.arange(start, start + batch.num_rows))
            columns = [batch.column("row_hash"), batch.column("id"), shards, rows]
            tables.append(pa.table(columns, schema=matching.CAME))
            start += batch.num_rows
    return pa.concat_tables([matching.CAME.empty_table(), *tables])


def _went(data: bytes, went: set[str]) -> pa.Table:
    rows = locators.rows_of(locators.from_bytes(data, ["shard"]), went)
    if not len(rows):
        return matching.WENT.empty_table()
    found = locators.from_bytes(data, ["row_hash", "id"]).take(pa.array(rows))
    return found.append_column("local", pa.array(rows)).cast(matching.WENT)


def match(job: NightJob, bucket: int) -> Matched:
    """Match one bucket's rows; leave by segment what moved or went, and by piece what is new."""
    night, folder = job.night(), job.folder
    went = {n: matching.from_bytes(folder.read(f"went-{n}.arrow"), bucket) for n in night.segments}
    came = [matching.from_bytes(folder.read(f"came-{piece}.arrow"), bucket) for piece in range(len(night.came))]
    gone, fresh = pa.concat_tables(went.values()), pa.concat_tables([matching.CAME.empty_table(), *came])
    kept, place = matching.matched(gone, fresh)
    moves = dict(zip(went, _cut(_moves(gone, fresh, kept, place), list(map(len, went.values()))), strict=True))
    folder.put(f"moved-{bucket}.arrow", matching.to_bytes(list(moves.values())))
    rest = np.ones(len(fresh), bool)
    rest[place] = False
    new, crowded = _new_rows(job, night, fresh.filter(pa.array(rest)), _held_texts(job, night, moves))
    if new:
        folder.put(f"new-{bucket}.arrow", matching.to_bytes(new))
    held = [int(np.count_nonzero(table.column("held").to_numpy())) for table in new]
    return Matched(
        nulled={n: int(np.count_nonzero(table.column("shard").to_numpy() < 0)) for n, table in moves.items()},
        new={piece: len(table) - out for piece, (table, out) in enumerate(zip(new, held, strict=True))},
        moved=len(kept),
        held=sum(held),
        crowded=crowded,
    )


def _moves(gone: pa.Table, fresh: pa.Table, kept: np.ndarray, place: np.ndarray) -> pa.Table:
    """Where the rows that were in shards that went are now; shard -1 for those that are nowhere."""
    where = np.full(len(gone), -1)
    where[kept] = place
    nowhere = where < 0
    found = fresh.select(["shard", "row", "id"]).take(pa.array(where, mask=nowhere))
    shard, row = (found.column(name).combine_chunks().fill_null(-1) for name in ("shard", "row"))
    return pa.table([gone.column("local"), shard, row, found.column("id")], schema=matching.MOVED)


def _cut(table: pa.Table, lengths: list[int]) -> list[pa.Table]:
    ends = np.cumsum([0, *lengths])
    return [table.slice(start, length) for start, length in zip(ends, lengths, strict=False)]


def _new_rows(
    job: NightJob, night: Night, fresh: pa.Table, standing: np.ndarray
) -> tuple[list[pa.Table], tuple[str, ...]]:
    """New rows by piece, in order, held out or not; and the texts that are too many to be held out."""
    hashes = as_hashes(fresh.column("row_hash").combine_chunks())
    below = int(night.standing["trained"]["held_out_below"], 16)
    held, crowded = newly_held_out(hashes, below, as_keys(job.known(night).crowded), standing)
    table = fresh.select(["shard", "row"]).append_column("held", pa.array(held)).cast(matching.NEW)
    piece = np.searchsorted(night.pieces, table.column("shard").to_numpy(), "right") - 1
    cut = [table.filter(pa.array(piece == number)) for number in range(len(night.came))]
    return cut, tuple(text.ljust(16, b"\0").hex() for text in crowded.tolist())


def _held_texts(job: NightJob, night: Night, moves: dict[int, pa.Table]) -> np.ndarray:
    """Texts of the rows that stay held out, as keys. Those of other buckets may be gone; nobody asks for them here."""
    if night.held_out is None:
        return np.empty(0, "S16")
    data = storage.read_bytes(job.folder.stored(night.held_out.locator))
    table = moved(night, locators.from_bytes(data), moves[night.held_out.number])
    live = np.flatnonzero(table.column("shard").is_valid().to_numpy())
    return as_keys(as_hashes(table.column("row_hash").combine_chunks())[live])
