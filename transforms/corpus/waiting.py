"""Rows that wait on this machine's disk, in parts that are read back one after the other."""

import os
import tempfile
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


class WaitingRows:
    """Tables of one schema, cut into parts, each a file in a temporary folder that goes with this."""

    def __init__(self, parts: int):
        self.rows = 0
        self._parts = parts
        self._folder = tempfile.TemporaryDirectory(prefix="sentence-beam-")
        self._writers: dict[int, pa.ipc.RecordBatchStreamWriter] = {}

    def add(self, table: pa.Table, part: np.ndarray) -> None:
        """Write rows, which lie in order of the number of their part."""
        self.rows += len(table)
        starts = np.searchsorted(part, np.arange(self._parts + 1))
        for number in np.unique(part).tolist():
            if number not in self._writers:
                self._writers[number] = pa.ipc.new_stream(self._path(number), table.schema, options=OPTIONS)
            self._writers[number].write_table(table.slice(starts[number], starts[number + 1] - starts[number]))

    def read(self) -> Iterator[tuple[int, pa.Table | None]]:
        """(part, its rows) for every part in order, None where it has none; read ones are removed."""
        for number in range(self._parts):
            writer = self._writers.pop(number, None)
            if writer is None:
                yield number, None
                continue
            writer.close()
            with pa.OSFile(self._path(number)) as source:
                yield number, pa.ipc.open_stream(source).read_all()
            os.unlink(self._path(number))
        self._folder.cleanup()

    def _path(self, number: int) -> str:
        return os.path.join(self._folder.name, f"{number}.arrow")
