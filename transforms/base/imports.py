"""Import large packages faster, by pausing the garbage collector."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Pause the garbage collector in the body, and count all objects as old afterwards.

    Objects of large imports stay, and searching them for garbage takes a quarter of the import's
    time.
    """
    collects = gc.isenabled()
    frozen = gc.get_freeze_count()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if not frozen:
            # now all objects count as old; if some were frozen before, as by commands, all stay so
            gc.unfreeze()
        if collects:
            gc.enable()
