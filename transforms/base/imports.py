"""Import large packages faster."""

import contextlib
import gc
import sys
from collections.abc import Iterator

_keeps = False  # gc.get_freeze_count() would visit every object


def keep_all() -> None:
    """Exclude all objects that exist from the search for garbage, and later those of imports.

    This is for a process that ends with one command, or with its tests.
    """
    global _keeps
    gc.freeze()
    _keeps = True


@contextlib.contextmanager
def pause_collector() -> Iterator[None]:
    """Pause the garbage collector in the body; if it imports, count all objects as old then.

    Objects of large imports stay, and searching them for garbage takes a quarter of the import's
    time.
    """
    collects = gc.isenabled()
    modules = len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > modules:
            gc.freeze()
            if not _keeps:
                gc.unfreeze()  # now all objects count as old
        if collects:
            gc.enable()
