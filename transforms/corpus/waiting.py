"""Rows that wait on this machine's disk, in parts that are read back one by one."""

import tempfile
from collections.abc import Iterator
from typing import IO

import numpy as np
import pyarrow as pa

OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


class WaitingRows:
    """Tables of one schema, cut into parts.

    Each part is a temporary file, which disappears when the worker dies.
    """

    def __init__(self, parts: int):
        self.rows = 0
        self._parts = parts
        self._files: dict[int, IO[bytes]] = {}
        self._writers: dict[int, pa.ipc.RecordBatchStreamWriter] = {}

    def add(self, table: pa.Table, part: np.ndarray) -> None:
        """Write rows; `part` int64 [n] has the part of each, in ascending order."""
        self.rows += len(table)
        starts = np.searchsorted(part, np.arange(self._parts + 1))
        for number in np.unique(part).tolist():
            if number not in self._writers:
                file = tempfile.TemporaryFile()
                self._files[number] = file
                self._writers[number] = pa.ipc.new_stream(file, table.schema, options=OPTIONS)
            rows = table.slice(starts[number], starts[number + 1] - starts[number])
            self._writers[number].write_table(rows)

    def read(self) -> Iterator[tuple[int, pa.Table | None]]:
        """Yield (part, its rows) for every part in order; None for a part without rows.

        Parts that were read are removed.
        """
        for number in range(self._parts):
            writer = self._writers.pop(number, None)
            if writer is None:
                yield number, None
                continue
            writer.close()
            with self._files.pop(number) as source:
                source.seek(0)
                yield number, pa.ipc.open_stream(source).read_all()
