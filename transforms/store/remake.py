"""Making a written unit again with other final vectors: its rows come from its shard, its texts are not needed."""

import pyarrow as pa

from transforms import storage
from transforms.corpus import InputFile, UnitRows
from transforms.store.records import UnitRecord
from transforms.store.shards import OWN_COLUMNS, read_checked, rejects_from_bytes, unit_digest
from transforms.store.units import PreparedUnit, UnitStore


def read_written(root: str, unit: UnitRecord, store: UnitStore, generation: int) -> tuple[PreparedUnit, pa.RecordBatch]:
    """A unit with a shard as the store is to write it, and all columns of the rows that it has now.

    Raises SentenceBeamError where the shard is missing or changed.
    """
    table = read_checked(storage.join(root, unit.path or ""), unit.sha256).combine_chunks()
    kept = table.select([name for name in table.column_names if name not in OWN_COLUMNS])
    rejects = storage.join(root, unit.rejects) if unit.rejects else None
    rows = UnitRows(
        name=unit.unit,
        file=InputFile("", unit.file, "", "", 0, "", "") if unit.file else None,
        start=unit.range[0],
        stop=unit.range[1],
        ids=table.column("id").to_pylist(),
        texts=[],
        positions=[],
        kept=kept if kept.num_columns else None,
        rejects=rejects_from_bytes(storage.read_bytes(rejects)) if rejects else [],
    )
    hashes = table.column("row_hash").to_pylist()
    digest = unit_digest(store.space, rows, hashes, generation, store.ranges)
    (batch,) = table.to_batches()
    return PreparedUnit(rows, hashes, digest), batch
