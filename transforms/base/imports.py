"""Import large packages faster, or not at all."""

import contextlib
import gc
import sys
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


class _Hidden:
    """A finder of Python's imports that finds one package missing."""

    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Raise ModuleNotFoundError for the package."""
        if name == self.package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def hide(package: str) -> None:
    """Let imports of a package fail from now on, as if it were not installed.

    This is for a process that ends with one command: libraries remember whether a package is there.
    """
    sys.meta_path.insert(0, _Hidden(package))


def unhide(package: str) -> None:
    """Let imports of a package succeed again, for a library that cannot do without it."""
    sys.meta_path[:] = [
        finder
        for finder in sys.meta_path
        if not isinstance(finder, _Hidden) or finder.package != package
    ]
