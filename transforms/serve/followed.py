"""The current snapshot of a store, opened for search and replaced when a later one is committed."""

import logging
import threading
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow.compute as pc

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.base.where import Words, parse_filter
from sentence_beam.transforms.search import READ_LISTS, Copies, Hit, Searcher
from sentence_beam.transforms.serve.filter_examples import examples
from sentence_beam.transforms.serve.http_answers import explain_error
from sentence_beam.transforms.serve.question import Question
from sentence_beam.transforms.storage import Entry
from sentence_beam.transforms.store import layout, open_store
from sentence_beam.transforms.store.manifest import Manifest

EVERY = 5.0  # seconds between looks at the store
RARELY = 60.0  # longest time between looks that fail
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
    """A store whose current snapshot is searched.

    One thread may ask questions while another looks at the store.
    """

    def __init__(
        self,
        store: str,
        model: str | None = None,
        query_prompt: str | None = None,
        where: str | None = None,
        snapshot: str | None = None,
        copies: Copies = READ_LISTS,
    ):
        """Open the current snapshot with its model and index, or `snapshot`, which then stays.

        `where` is a filter for all questions, `copies` are those of the index of a remote store.
        Raises OptionError if there is no store, for another
        model, and for a filter that does not fit the columns.
        """
        manifest = open_store(store, snapshot).manifest
        self._stays = snapshot is not None
        self._where = where
        self._path = storage.join(manifest.root, layout.MANIFEST)
        self._seen: Entry | None = None
        self._looking = threading.Lock()
        self._problem = ""
        self._opened = _prepare(Searcher(manifest, model, query_prompt, copies=copies), where)

    @property
    def searcher(self) -> Searcher:
        """The current snapshot, opened."""
        return self._opened.searcher

    @property
    def examples(self) -> list[str]:
        """Filters of the snapshot's own columns; none if it has no row."""
        return self._opened.examples

    @property
    def manifest(self) -> Manifest:
        """The manifest of the snapshot that questions search."""
        return self.searcher.manifest

    @property
    def problem(self) -> str:
        """Why the served snapshot may be out of date, one line; empty if it is not."""
        return self._problem

    def follow(self, stop: threading.Event, every: float = EVERY) -> None:
        """Look at the store until `stop` is set; return at once if the snapshot stays."""
        if self._stays:
            return
        pause = every
        while not stop.wait(pause):
            self.look()
            pause = min(2 * pause, RARELY) if self._problem else every

    def look(self) -> None:
        """Open the current snapshot; if that fails, keep the previous one and set `problem`."""
        with self._looking:
            try:
                self._open_current()
                self._problem = ""
            except Exception as error:  # clients of storages raise types of their own
                line = explain_error(error)
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
            self._opened = _prepare(self.searcher.of(manifest), self._where)
        self._seen = entry

    def answers(self, questions: Sequence[Question]) -> list[Answer]:
        """Return the hits of each question or its error; equal kinds are answered together."""
        results: dict[int, Answer] = {}
        groups: dict[object, list[int]] = {}
        for place, question in enumerate(questions):
            groups.setdefault(question.kind, []).append(place)
        for places in groups.values():
            answers = self._answer_group([questions[place] for place in places])
            results |= zip(places, answers, strict=True)
        return [results[place] for place in range(len(questions))]

    def _answer_group(self, questions: list[Question]) -> Sequence[Answer]:
        """Answer a group of one kind at once; if one question is wrong, answer each by itself."""
        try:
            return self._find_hits(questions)
        except OptionError as error:
            if len(questions) == 1:
                return [error]
        except Exception as error:
            return [error] * len(questions)
        answers: list[Answer] = []
        for question in questions:
            answers += self._answer_group([question])
        return answers

    def _find_hits(self, questions: list[Question]) -> list[list[Hit]]:
        """Search; if files of the snapshot are gone, search the current snapshot."""
        opened = self._opened
        try:
            return _search(opened, questions)
        except OptionError:
            raise
        except Exception:
            self.look()
            if self._opened is opened:
                raise
            return _search(self._opened, questions)


def _prepare(searcher: Searcher, where: str | None) -> _Opened:
    """Search once, so that model, index and a shard are loaded before the first question."""
    fixed = searcher.check_filter(where)
    searcher.search([WARM], 1, where=fixed)
    filters = examples(searcher.rows) if len(searcher.manifest.shards) else []
    return _Opened(searcher, fixed, filters)


def _search(opened: _Opened, questions: list[Question]) -> list[list[Hit]]:
    """Return the hits of questions of one kind."""
    searcher = opened.searcher
    where = opened.where
    first = questions[0]
    if first.where and len(searcher.manifest.shards):
        own = parse_filter(first.where, searcher.rows.columns, WHERE, searcher.rows.numbers_in)
        where = own if where is None else where & own
    if first.id is not None:
        ids = [str(question.id) for question in questions]
        return searcher.search(ids=ids, k=first.k, where=where)
    return searcher.search([str(question.text) for question in questions], first.k, where=where)
