"""The current snapshot of a store, opened for search; one that is committed later takes its
place.
"""

import logging
import threading
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow.compute as pc

from transforms import storage
from transforms.base.errors import OptionError
from transforms.base.where import Words, checked
from transforms.search import Hit, Searcher
from transforms.serve.answers import line_of
from transforms.serve.examples import examples
from transforms.serve.question import Question
from transforms.storage import Entry
from transforms.store import layout, open_store
from transforms.store.manifest import Manifest

EVERY = 5.0  # seconds between looks at the store
RARELY = 60.0  # where looks fail
WHERE = Words("where", "column", "the store keeps")
WARM = "which model is this?"
_LOGGER = logging.getLogger(__name__)

Answer = list[Hit] | Exception


class _Opened(NamedTuple):
    """A snapshot ready for questions, the filter of all questions, and examples of filters."""

    searcher: Searcher
    where: pc.Expression | None
    examples: list[str]


class Followed:
    """A store whose current snapshot is searched; one thread may ask while another looks at the
    store.
    """

    def __init__(
        self,
        store: str,
        model: str | None = None,
        query_prompt: str | None = None,
        where: str | None = None,
        snapshot: str | None = None,
    ):
        """Open the current snapshot, with model and index; or `snapshot`, which then stays.

        `where` is a filter of the rows that are ever found. Raises OptionError for no store,
        another model and a filter that does not fit the columns.
        """
        manifest = open_store(store, snapshot).manifest
        self._stays = snapshot is not None
        self._where = where
        self._path = storage.join(manifest.root, layout.MANIFEST)
        self._seen: Entry | None = None
        self._looking = threading.Lock()
        self._problem = ""
        self._opened = _ready(Searcher(manifest, model, query_prompt), where)

    @property
    def searcher(self) -> Searcher:
        """The snapshot that is searched now."""
        return self._opened.searcher

    @property
    def examples(self) -> list[str]:
        """Filters of the snapshot's own columns; none if it has no row."""
        return self._opened.examples

    @property
    def manifest(self) -> Manifest:
        """The manifest of the snapshot that is searched now."""
        return self.searcher.manifest

    @property
    def problem(self) -> str:
        """Why the snapshot that is searched may not be the current one, in a line; empty where all
        is well.
        """
        return self._problem

    def follow(self, stop: threading.Event, every: float = EVERY) -> None:
        """Look at the store again and again until `stop` is set; not if the snapshot stays."""
        if self._stays:
            return
        pause = every
        while not stop.wait(pause):
            self.look()
            pause = min(2 * pause, RARELY) if self._problem else every

    def look(self) -> None:
        """Open the snapshot that is current by now; where that fails, the one before stays and
        `problem` says why.
        """
        with self._looking:
            try:
                self._open_current()
                self._problem = ""
            except Exception as error:  # storage that cannot be reached has errors of its own kinds
                line = line_of(error)
                if line != self._problem:
                    _LOGGER.error(
                        "%s: %s; the snapshot %s stays", self.manifest.root, line, self.manifest.run
                    )
                self._problem = line

    def _open_current(self) -> None:
        if self._stays:
            return
        entry = storage.storage_of(self._path).stat(self._path)
        if entry is not None and entry == self._seen:
            return
        manifest = open_store(self.manifest.root).manifest
        if manifest.digest != self.manifest.digest:
            self._opened = _ready(self.searcher.of(manifest), self._where)
        self._seen = entry

    def answers(self, questions: Sequence[Question]) -> list[Answer]:
        """The hits of each question, or the error that it has; equal kinds of questions are
        answered together.
        """
        found: dict[int, Answer] = {}
        groups: dict[object, list[int]] = {}
        for place, question in enumerate(questions):
            groups.setdefault(question.together, []).append(place)
        for places in groups.values():
            found |= zip(
                places, self._answered([questions[place] for place in places]), strict=True
            )
        return [found[place] for place in range(len(questions))]

    def _answered(self, alike: list[Question]) -> Sequence[Answer]:
        """The answers of questions that differ in text or id alone; where one is at fault, each is
        asked alone.
        """
        try:
            return self._found(alike)
        except OptionError as error:
            if len(alike) == 1:
                return [error]
            return [answer for question in alike for answer in self._answered([question])]
        except Exception as error:
            return [error] * len(alike)

    def _found(self, alike: list[Question]) -> list[list[Hit]]:
        """The hits, of the current snapshot where files of the one that was searched are gone."""
        opened = self._opened
        try:
            return _search(opened, alike)
        except OptionError:
            raise
        except Exception:
            self.look()
            if self._opened is opened:
                raise
            return _search(self._opened, alike)


def _ready(searcher: Searcher, where: str | None) -> _Opened:
    """Ask the snapshot a question, so that model and index are loaded and a shard was read."""
    fixed = searcher.check_filter(where)
    searcher.search([WARM], 1, where=fixed)
    if not searcher.manifest.shard_paths:
        return _Opened(searcher, fixed, [])
    return _Opened(searcher, fixed, examples(searcher.rows))


def _search(opened: _Opened, alike: list[Question]) -> list[list[Hit]]:
    searcher, where, _ = opened
    first = alike[0]
    if first.where and searcher.manifest.shard_paths:
        asked = checked(first.where, searcher.rows.columns, WHERE, searcher.rows.numbers_in)
        where = asked if where is None else where & asked
    if first.id is not None:
        return searcher.search(ids=[str(question.id) for question in alike], k=first.k, where=where)
    return searcher.search([str(question.text) for question in alike], first.k, where=where)
