"""A reader of the bytes of a remote file that makes few large requests, however small the reads
are.
"""

import io
from collections.abc import Callable

FIRST = 1 << 20  # of a new place
MOST = 16 << 20  # of a place that is read on and on
TAIL = 128 << 10  # where formats keep their footers
WINDOWS = 3


class RangedReader(io.RawIOBase):
    """`size` bytes, of which `fetch(start, stop)` gives any part; holds the last few parts that
    were fetched.

    A small file is fetched whole. Elsewhere a part begins at a multiple of a quarter of `FIRST`, so
    that columns of a row group that are read in any order are one request, and grows while reading
    goes on where it ended.
    """

    def __init__(self, size: int, fetch: Callable[[int, int], bytes]):
        self._size, self._fetch = size, fetch
        self._position = 0
        self._windows: list[tuple[int, bytes]] = []
        self._ahead, self._end = FIRST, -1

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a place, which may be beyond the end; the new place."""
        self._position = (
            offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        )
        return self._position

    def readall(self) -> bytes:
        """The bytes from here to the end."""
        return self.read(max(self._size - self._position, 0)) or b""

    def fetched(self, start: int, stop: int) -> bytes:
        """The bytes from `start` up to `stop` and no others, in one request; nothing of them is
        held.
        """
        return self._fetch(start, stop)

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Fill the buffer and return how many bytes were read; fewer than it holds only at
        the end.
        """
        view, done = memoryview(buffer).cast("B"), 0
        while done < len(view) and self._position < self._size:
            start, data = self._window(len(view) - done)
            piece = memoryview(data)[self._position - start :][: len(view) - done]
            view[done : done + len(piece)] = piece
            done, self._position = done + len(piece), self._position + len(piece)
        return done

    def _window(self, wanted: int) -> tuple[int, bytes]:
        """The start and the bytes of a part that holds the position."""
        for start, data in self._windows:
            if start <= self._position < start + len(data):
                return start, data
        start, stop = self._bounds(wanted)
        self._windows = [*self._windows[1 - WINDOWS :], (start, self._fetch(start, stop))]
        self._end = stop
        return self._windows[-1]

    def _bounds(self, wanted: int) -> tuple[int, int]:
        here = self._position
        self._ahead = min(2 * self._ahead, MOST) if here == self._end else FIRST
        if self._size <= FIRST:
            return 0, self._size
        if here >= self._size - TAIL:
            return self._size - TAIL, self._size
        start = here if here == self._end else here - here % (FIRST // 4)
        return start, min(max(here + min(wanted, MOST), start + self._ahead), self._size)
