"""Values that threads and steps of one process share, so that large lists are read once."""

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")


class Kept(Generic[T]):
    """Values by key; each is made once and shared while anybody holds it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: WeakValueDictionary[Hashable, T] = WeakValueDictionary()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the value of a key; make it if nobody holds one. Raises what `make` raises."""
        with self._lock:
            value = self._values.get(key)
            if value is None:
                value = self._values[key] = make()
            return value
