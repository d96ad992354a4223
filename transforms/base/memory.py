"""Free the memory of a process that runs many jobs."""

import contextlib
import ctypes
import gc


def release_memory() -> None:
    """Return freed memory to the operating system.

    glibc's allocator keeps memory that threads freed in arenas of their own, some 0.3 MB for each
    run in a process. Does nothing if the C library has no `malloc_trim`, as on musl and macOS.
    """
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
