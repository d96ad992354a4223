"""Rows that wait on this machine's disk, in parts that are read back one after the other."""

import tempfile
from collections.abc import Iterator
from typing import IO

import numpy as np
import pyarrow as pa

OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


class WaitingRows:
    """Tables of one schema, cut into parts, each a temporary file that no worker leaves when it
    dies.
    """

    def __init__(self, parts: int):
        self.rows = 0
        self._parts = parts
        self._files: dict[int, IO[bytes]] = {}
        self._writers: dict[int, pa.ipc.RecordBatchStreamWriter] = {}

    def add(self, table: pa.Table, part: np.ndarray) -> None:
        """Write rows, which lie in order of the number of their part."""
        self.rows += len(table)
        starts = np.searchsorted(part, np.arange(self._parts + 1))
        for number in np.unique(part).tolist():
            if number not in self._writers:
                self._files[number] = tempfile.TemporaryFile()
                self._writers[number] = pa.ipc.new_stream(
                    self._files[number], table.schema, options=OPTIONS
                )
            self._writers[number].write_table(
                table.slice(starts[number], starts[number + 1] - starts[number])
            )

    def read(self) -> Iterator[tuple[int, pa.Table | None]]:
        """(part, its rows) for every part in order, None where it has none; read ones are
        removed.
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
