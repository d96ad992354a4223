"""The steps of an erasure after its commit: removing all that other snapshots had, and the check.

They can be taken again, by whoever writes to the store next.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.report.store_report import bring_up_to_date
from sentence_beam.transforms.steps.forget.erasure_record import read_unfinished, write_record
from sentence_beam.transforms.steps.forget.receipt import write_receipt
from sentence_beam.transforms.steps.forget.trace_check import find_forgotten_traces, find_unlisted
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.vacuum import find_unnamed, remove


def finish_erasure(current: Manifest) -> str | None:
    """Bring the last erasure to its end if it has not ended, and return its run.

    `current` is the current snapshot. The caller holds the store's lease. Raises SentenceBeamError
    for a file that cannot be removed or written; nothing is lost then.
    """
    record = read_unfinished(current)
    if record is None:
        return None
    root = current.root
    with _naming_disk_errors(root):
        rubbish = find_unnamed(current, layout.erasure(record.run))
        if not record.removed:  # an earlier attempt may have said it
            removed = {kind: number for kind, (number, _) in rubbish.by_kind.items()}
            record = replace(record, removed=removed)
        write_record(root, record)
        remove(rubbish)
        results = [*record.results, layout.REPORT, layout.PAGE]
        storage.storage_of(root).delete(*(storage.join(root, path) for path in results))
        bring_up_to_date(root)
        write_receipt(current, record, find_forgotten_traces(current), find_unlisted(root))
        storage.storage_of(root).delete(storage.join(root, layout.erasure(record.run)))
    return record.run


@contextlib.contextmanager
def _naming_disk_errors(root: str) -> Iterator[None]:
    """Raise a system error, of a full disk for one, as SentenceBeamError with what to do."""
    try:
        yield
    except OSError as error:
        raise SentenceBeamError(
            f"{error.filename or root}: {error.strerror or error}; make the store writable and run"
            " forget again, which goes on"
        ) from error
