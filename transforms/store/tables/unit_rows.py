"""Questions about the units of two snapshots, answered over their columns."""

import pyarrow as pa

from sentence_beam.transforms.base.arrow_arrays import make_mask_array
from sentence_beam.transforms.base.columns import get_column, look_up, rank_equals, sum_by_place
from sentence_beam.transforms.store.entries import TableEntry
from sentence_beam.transforms.store.tables.table_parts import read_table


def find_differing_parts(root: str, old: TableEntry, new: TableEntry) -> tuple[pa.Table, pa.Table]:
    """Return the units with a shard of which the other table has no copy, of each table.

    Shards are compared by sha256; of equal ones these are as many as the other table lacks. Parts
    that both have are not read.
    """
    both = {part.sha256 for part in old.parts} & {part.sha256 for part in new.parts}
    other = [
        TableEntry.from_parts(part for part in side.parts if part.sha256 not in both)
        for side in (old, new)
    ]
    return find_differing(*(read_table(root, "units", side) for side in other))


def find_differing(old: pa.Table, new: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the units with a shard of which the other side has no copy, of each side."""
    sides = [side.filter(side.column("path").is_valid()) for side in (old, new)]
    digests = [get_column(side, "sha256") for side in sides]
    codes = pa.concat_arrays(digests).unique()
    at = [look_up(digest, codes) for digest in digests]
    counts = [sum_by_place(places, len(codes)) for places in at]
    first, second = (
        side.filter(make_mask_array(rank_equals(places) >= others[places]))
        for side, places, others in zip(sides, at, reversed(counts), strict=True)
    )
    return first, second
