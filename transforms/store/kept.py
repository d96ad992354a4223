"""What many threads and steps of one process read, read once: a snapshot's lists and the store's
listing are large.
"""

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")


class Kept(Generic[T]):
    """Values by key, each made once and shared by all that ask while any of them holds it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: WeakValueDictionary[Hashable, T] = WeakValueDictionary()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value of a key, made if nobody holds one. Raises what `make` raises."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                found = self._values[key] = make()
            return found
