"""Encoders for the other routes of a model (sentence-transformers' Router): queries, documents."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.space.st_modules import DOCUMENT, QUERY, StModules

Loaded = TypeVar("Loaded")


class Routes(Generic[Loaded]):
    """The encoders of a model's other routes; `load` makes one when it is first needed."""

    def __init__(self, modules: StModules, load: Callable[..., Loaded]) -> None:
        self._modules = modules
        self._load = load
        self._loaded: dict[str, Loaded] = {}
        self._loading = threading.Lock()

    def other(self, route: str) -> Loaded | None:
        """Return the encoder of a route; None if it is the one that is loaded already.

        Raises OptionError for a route that the model does not have.
        """
        has_routes = bool(self._modules.routes)
        if route == self._modules.route or (not has_routes and route in (DOCUMENT, QUERY)):
            return None
        if not has_routes:
            raise OptionError(f"route {route!r}: this model has none; leave it out")
        with self._loading:
            if route not in self._loaded:
                self._loaded[route] = self._load(route=route)
            return self._loaded[route]
