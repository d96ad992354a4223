"""A reader of remote files that makes few large requests, however small the reads are."""

import errno
import io
from collections.abc import Callable

FIRST = 1 << 20  # bytes of the first request at a new place
MOST = 16 << 20  # bytes of a request while reads are in order
TAIL = 128 << 10  # bytes at the end, which hold the footers of formats
WINDOWS = 3


class RangedReader(io.RawIOBase):
    """A reader of `size` bytes; `fetch(start, stop)` returns any part of them.

    It holds the last few parts; `fetch` itself makes one request and holds nothing. A small file is
    fetched whole; reading raises OSError if the file turns out to be shorter. Otherwise a part
    begins at a multiple of a quarter of `FIRST`, so that the columns of a row group need one
    request in any order, and grows while reads continue at its end.
    """

    def __init__(self, size: int, fetch: Callable[[int, int], bytes]):
        self.fetch = fetch
        self._size = size
        self._position = 0
        self._windows: list[tuple[int, bytes]] = []
        self._ahead = FIRST
        self._end = -1

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a place, which may be beyond the end, and return it."""
        bases = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}
        self._position = bases[whence] + offset
        return self._position

    def readall(self) -> bytes:
        """Return the bytes from here to the end."""
        return self.read(max(self._size - self._position, 0)) or b""

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Fill the buffer and return the number of bytes; fewer than it holds only at the end."""
        view = memoryview(buffer).cast("B")
        done = 0
        while done < len(view) and self._position < self._size:
            start, data = self._fetch_window(len(view) - done)
            piece = memoryview(data)[self._position - start :][: len(view) - done]
            view[done : done + len(piece)] = piece
            done += len(piece)
            self._position += len(piece)
        return done

    def _fetch_window(self, wanted: int) -> tuple[int, bytes]:
        """Return the start and the bytes of a part that holds the position."""
        for start, data in self._windows:
            if start <= self._position < start + len(data):
                return start, data
        start, stop = self._choose_bounds(wanted)
        data = self.fetch(start, stop)
        if len(data) < stop - start:
            raise OSError(errno.EIO, f"it ends before the {self._size:,} bytes expected")
        self._windows = [*self._windows[1 - WINDOWS :], (start, data)]
        self._end = stop
        return self._windows[-1]

    def _choose_bounds(self, wanted: int) -> tuple[int, int]:
        """Return the start and the stop of the next part."""
        here = self._position
        start = here
        if here == self._end:
            self._ahead = min(2 * self._ahead, MOST)
        else:
            self._ahead = FIRST
            start -= here % (FIRST // 4)
        if self._size <= FIRST:
            return 0, self._size
        if here >= self._size - TAIL:
            return self._size - TAIL, self._size
        return start, min(max(here + min(wanted, MOST), start + self._ahead), self._size)
