"""Leave logging to the program that uses this project."""

import contextlib
import logging
import threading
from collections.abc import Iterator

_BEAM = "/apache_beam/"
_lock = threading.Lock()
_keepers = 0


class _LikeNone(logging.Handler):
    """A handler that treats records as Python does if there is no handler."""

    def emit(self, record: logging.LogRecord) -> None:
        if logging.lastResort is not None and record.levelno >= logging.lastResort.level:
            logging.lastResort.handle(record)


_placeholder = _LikeNone()


@contextlib.contextmanager
def keep_root_logger() -> Iterator[None]:
    """Keep Beam from configuring the root logger in the body.

    Beam calls `logging.basicConfig()` when it is imported, for each of its options and for each
    pipeline; the program's own call would have no effect afterwards. Beam's records below the
    level of an error, such as warnings of missing extras, are dropped.
    """
    global _keepers
    root = logging.getLogger()
    with _lock:
        if not _keepers:
            root.addFilter(_is_not_beams)
            if not root.handlers:
                root.addHandler(_placeholder)  # basicConfig() does nothing if there is a handler
        _keepers += 1
    try:
        yield
    finally:
        with _lock:
            _keepers -= 1
            if not _keepers:
                root.removeFilter(_is_not_beams)
                root.removeHandler(_placeholder)


def _is_not_beams(record: logging.LogRecord) -> bool:
    """Return whether a record of the root logger is an error, or not from Beam's code."""
    return record.levelno >= logging.ERROR or _BEAM not in record.pathname
