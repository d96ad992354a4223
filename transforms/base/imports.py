"""Importing what is large."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """No search for garbage inside, and none afterwards among what is there then.

    What large imports make stays, and looking through it takes a quarter as long.
    """
    collects, frozen = gc.isenabled(), gc.get_freeze_count()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if not frozen:
            # now all of it counts as old; where some was frozen before, as commands do, all stays
            # frozen
            gc.unfreeze()
        if collects:
            gc.enable()
