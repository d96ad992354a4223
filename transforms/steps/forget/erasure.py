"""The rows to erase of a store, and the run that makes a snapshot without them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from sentence_beam.transforms.report.run_history import read_summaries
from sentence_beam.transforms.steps.forget.erased_segments import find_erased_from_index
from sentence_beam.transforms.steps.forget.erasure_record import ErasureRecord, write_record
from sentence_beam.transforms.steps.forget.queries_left import find_queries_left
from sentence_beam.transforms.steps.forget.receipt import describe_fits
from sentence_beam.transforms.steps.forget.select import SelectedRows, select
from sentence_beam.transforms.steps.index.update import ErasedFromIndex
from sentence_beam.transforms.steps.options.from_snapshot import make_run_like, record_plan
from sentence_beam.transforms.steps.options.store import ForgetOptions
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.forgetting.hashes import (
    ForgottenRow,
    ForgottenRows,
    hash_id,
    hash_text,
    make_entry,
    read_rows,
    write_rows,
)
from sentence_beam.transforms.store.manifest import Manifest, snapshots
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.run_result import COMMITTED

_WORDS = re.compile(r"[\w.-]+")


@dataclass(frozen=True)
class Erasure:
    """The rows to erase of a snapshot; nothing is written yet.

    `before` is the store's list of erased rows, `index` what has to leave the index beside them.
    """

    manifest: Manifest
    options: ForgetOptions
    selected: SelectedRows
    before: ForgottenRows
    index: ErasedFromIndex | None

    @property
    def hashed_ids(self) -> list[str]:
        """The keyed hashes of the rows' ids."""
        return sorted(hash_id(self.before.key_bytes, name) for name in self.selected.texts)

    @property
    def is_empty(self) -> bool:
        """Whether all of the rows were erased before, and the store has nothing of them."""
        selected = self.selected
        of_index = self.index is not None and not self.index.is_empty
        is_known = self.before.ids.issuperset(self.hashed_ids)
        return is_known and not (selected.masks or selected.rejects or selected.hashes or of_index)

    @property
    def after(self) -> ForgottenRows:
        """The store's list of erased rows with these."""
        key = self.before.key_bytes
        shared = self.selected.shared
        return self.before.add_rows(
            ForgottenRow(
                hash_id(key, name),
                self.selected.by_id,
                _hash_texts(key, texts.rows - shared),
                _hash_texts(key, texts.documents),
            )
            for name, texts in self.selected.texts.items()
        )


def _hash_texts(key: bytes, texts: set[bytes]) -> tuple[str, ...]:
    return tuple(sorted(hash_text(key, text) for text in texts))


def find_rows(manifest: Manifest, options: ForgetOptions) -> Erasure:
    """Return the rows to erase. Raises as `select` and `find_erased_from_index` do."""
    before = read_rows(manifest.root, manifest.forgotten)
    key = before.key_bytes
    already = {name for name in options.id if hash_id(key, name) in before.ids}
    selected = select(manifest, options, already)
    return Erasure(manifest, options, selected, before, find_erased_from_index(manifest, selected))


def begin_erasure(erasure: Erasure, run_id: str) -> Run:
    """Write what a run that erases rows needs, and return the run.

    Nothing of this counts before its commit. The caller holds the lease.
    """
    manifest = erasure.manifest
    root = manifest.root
    selected = erasure.selected
    left = find_queries_left(root, manifest.watch, selected)
    rows = erasure.after
    run = replace(
        make_run_like(manifest, run_id, "forget"),
        watch=left.entry,
        forgotten=make_entry(rows, run_id),
    )
    record = ErasureRecord(
        run=run_id,
        started=run.started,
        reason=erasure.options.reason,
        rows=selected.rows,
        queries=left.removed,
        ids=tuple(erasure.hashed_ids),
        units=tuple(selected.units(manifest)),
        snapshots=tuple(snapshots(root)),
        results=tuple(_find_results(root, {*selected.texts})),
        fitted=describe_fits(manifest),
    )
    write_rows(root, rows)
    write_record(root, record)
    record_plan(manifest, run_id)
    return run


def _find_results(root: str, ids: set[str]) -> Iterator[str]:
    """Yield the records of failed runs whose line quotes one of the ids."""
    phrases = [name for name in ids if _WORDS.fullmatch(name) is None]
    for summary in read_summaries(root):
        message = summary.message
        if summary.status == COMMITTED:
            continue
        words = {word.rstrip(".") for word in _WORDS.findall(message)}
        if words & ids or any(name in message for name in phrases):
            yield layout.result(summary.run)
