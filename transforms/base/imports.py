"""Import large packages faster, or not at all."""

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
def uncollected() -> Iterator[None]:
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


class _Hidden:
    """A finder of Python's imports that finds one package missing."""

    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Raise ModuleNotFoundError for the package."""
        if name == self.package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def hide(package: str) -> None:
    """Let imports of a package or module fail from now on, as if it were not installed.

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
