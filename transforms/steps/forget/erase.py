"""Erase rows from every file of a store, in an order that a kill at any point leaves whole.

New files are written under new names. A record says what replaces what. One conditional write of
`manifest.json` is the commit. Then the manifests of the kept snapshots are replaced, then the old
files are deleted, and the receipt takes the place of the record.
"""

from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

from sentence_beam.transforms import storage
from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.report.report import bring_up_to_date
from sentence_beam.transforms.steps.forget.erasure import Erasure
from sentence_beam.transforms.steps.forget.index import IndexRewriter
from sentence_beam.transforms.steps.forget.leftovers import (
    files_of,
    leftovers,
    named,
    scrubbed_results,
)
from sentence_beam.transforms.steps.forget.receipt import Erased, receipt_of
from sentence_beam.transforms.steps.forget.record import (
    Unfinished,
    read_unfinished,
    record_unfinished,
    remove_unfinished,
)
from sentence_beam.transforms.steps.forget.request import ForgetRequest
from sentence_beam.transforms.steps.forget.select import select
from sentence_beam.transforms.steps.forget.snapshots import (
    RewrittenSnapshot,
    coming_snapshot,
    kept_snapshots,
    moved_shards,
    rewritten_snapshot,
)
from sentence_beam.transforms.steps.forget.units import UnitRewriter
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.forgetting.hashes import (
    ForgottenRow,
    ForgottenRows,
    hash_of_id,
    hash_of_text,
    read_rows,
    write_rows,
)
from sentence_beam.transforms.store.manifest import Manifest, read_manifest
from sentence_beam.transforms.store.runs.result import now, result_of_snapshot
from sentence_beam.transforms.store.sealed_json import sealed, to_bytes

BATCH = 1000  # files removed in one request


def find_rows(root: str, request: ForgetRequest) -> Erasure:
    """Return the rows to erase. Raises as `select` does, and OptionError for a wrong key."""
    current = read_manifest(root)
    if current is None:
        raise SentenceBeamError(f"{root} holds no snapshot; embed makes one")
    by_id = current.options.id_column is not None
    if current.forgotten is None:
        rows = ForgottenRows.none(request.key, by_id)
    else:
        rows = read_rows(root, current.forgotten)
    key = rows.key_with(request.key, root)
    before = {row.id for row in rows.rows}
    known = {name for name in request.ids if hash_of_id(key, name) in before}
    every = kept_snapshots(current, only_current=False)
    selection = select(current, every, request, known)
    kept = every[:1] if request.drop_history else every
    dropped = tuple(one.run for one in every if one not in kept)
    return Erasure(current, kept, dropped, selection, rows, key, known, request)


def erase(root: str, run: str, erasure: Erasure) -> dict[str, Any]:
    """Erase the rows, and return the receipt. The caller holds the lease of the run."""
    started = now()
    current = erasure.current
    units = UnitRewriter(root, erasure.selection, erasure.key)
    with progress.stage("writing shards without the rows"):
        moved = moved_shards(erasure.snapshots, units)
    index = IndexRewriter(root, run, erasure.selection, moved, erasure.sweeps)
    with progress.stage("writing the index without the rows"):
        index.find(erasure.snapshots)
        made = {one.run: rewritten_snapshot(one, units, index) for one in erasure.snapshots}
    forgotten = write_rows(root, erasure.rows.with_rows(_hashed(erasure)))
    base = made[current.run] or RewrittenSnapshot(current)
    coming = coming_snapshot(base.manifest, run, started, forgotten)
    new = [found.manifest if (found := made[one.run]) else one for one in erasure.snapshots]
    files = files_of(root)
    stay = named([*new, coming.manifest])
    gone = _gone(erasure, files, stay)
    erased = Erased(erasure.selection, made, erasure.snapshots, sorted(gone), files)
    receipt = receipt_of(erased, coming.manifest, erasure)
    result = _result(coming.manifest, base, current)
    unfinished = Unfinished(
        run=run,
        base=current.digest,
        manifest=coming.data,
        snapshots={name: found.data for name, found in made.items() if found is not None},
        dropped=erasure.dropped,
        files=tuple(sorted(gone)),
        scrubbed=scrubbed_results(root, files, erasure.selection.ids),
        receipt=receipt,
        result=result,
    )
    record_unfinished(root, unfinished)
    return finish(root, unfinished)


def _gone(erasure: Erasure, files: list[str], stay: set[str]) -> set[str]:
    """Return the files that the new snapshots do not name any more, and leftovers of runs."""
    root = erasure.current.root
    before = named(erasure.snapshots) - stay
    listed = {path for path in before if layout.kind(path) not in ("forgotten", "snapshots")}
    return (listed & set(files)) | leftovers(root, files, stay, erasure.selection)


def _hashed(erasure: Erasure) -> Iterable[ForgottenRow]:
    key = erasure.key
    shared = erasure.selection.shared
    for name, texts in erasure.selection.texts.items():
        yield ForgottenRow(
            hash_of_id(key, name),
            _hashes(key, texts.rows - shared),
            _hashes(key, texts.documents),
            _hashes(key, texts.rows & shared),
        )


def _hashes(key: bytes, texts: set[bytes]) -> tuple[str, ...]:
    return tuple(sorted(hash_of_text(key, text) for text in texts))


def _result(coming: Manifest, base: RewrittenSnapshot, current: Manifest) -> dict[str, Any]:
    result = result_of_snapshot(coming, f"{base.rows:,} rows erased")
    found = replace(
        result,
        command="forget",
        previous=current.run,
        changes={"added": 0, "changed": 0, "deleted": base.rows},
    )
    return asdict(found) | {"index": found.index.to_json() if found.index else None}


def finish_unfinished(root: str) -> dict[str, Any] | None:
    """Bring an erasure that was interrupted to its end, and return its receipt.

    None if there is none, or if its commit has become impossible, so that nothing of it counts.
    """
    found = read_unfinished(root)
    if found is None:
        return None
    current = read_manifest(root)
    if current is None or (current.run != found.run and current.digest != found.base):
        remove_unfinished(root)
        return None
    return finish(root, found)


def finish(root: str, found: Unfinished) -> dict[str, Any]:
    """Take every step from the commit on that was not taken yet, and return the receipt."""
    _commit(root, found)
    with progress.stage("replacing earlier snapshots"):
        for run, data in found.snapshots.items():
            _replace_snapshot(root, run, data)
    store = storage.storage_of(root)
    store.delete(*(storage.join(root, layout.snapshot(run)) for run in found.dropped))
    for path, content in found.scrubbed.items():
        storage.overwrite(storage.join(root, path), content.encode())
    if found.scrubbed:
        store.delete(*(storage.join(root, name) for name in (layout.REPORT, layout.PAGE)))
    paths = [storage.join(root, path) for path in found.files]
    with progress.stage("removing the old files", len(paths), "files"):
        for start in range(0, len(paths), BATCH):
            store.delete(*paths[start : start + BATCH])
            progress.step(len(paths[start : start + BATCH]))
    _put(root, layout.result(found.run), sealed(found.result))
    bring_up_to_date(root)
    receipt = sealed({**found.receipt, "finished": now()})
    _put(root, layout.receipt(found.run), receipt)
    remove_unfinished(root)
    return receipt


def _commit(root: str, found: Unfinished) -> None:
    """Make the coming snapshot the current one, unless it is."""
    current = read_manifest(root)
    if current is not None and current.run == found.run:
        return
    data = to_bytes(found.manifest)
    path = storage.join(root, layout.snapshot(found.run))
    storage.storage_of(path).put_if_absent(path, data)
    latest = storage.join(root, layout.MANIFEST)
    version = current.version if current else None
    if current is None or current.digest != found.base:
        raise _overtaken(root)
    if not storage.storage_of(latest).replace_if(latest, data, version):
        raise _overtaken(root)


def _overtaken(root: str) -> SentenceBeamError:
    return SentenceBeamError(
        f"{root}: another run committed meanwhile; nothing was erased, run forget again"
    )


def _replace_snapshot(root: str, run: str, data: dict[str, Any]) -> None:
    """Replace the manifest of a kept snapshot, unless it is replaced; its run stays."""
    path = storage.join(root, layout.snapshot(run))
    store = storage.storage_of(path)
    current = store.read_versioned(path)
    wanted = to_bytes(data)
    if current is None or current[0] == wanted:  # vacuum removed it, or an earlier attempt wrote it
        return
    if not store.replace_if(path, wanted, current[1]):
        raise SentenceBeamError(f"{path} was changed meanwhile; run forget again")


def _put(root: str, path: str, content: dict[str, Any]) -> None:
    full = storage.join(root, path)
    storage.storage_of(full).put_if_absent(full, to_bytes(content))
