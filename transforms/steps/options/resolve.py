"""What a run will do, from its options and the last snapshot: the job for the workers, and the
index to build.
"""

import contextlib
import os
from dataclasses import dataclass, replace
from pathlib import Path

from transforms import storage
from transforms.base.errors import OptionError
from transforms.calibration import Calibration
from transforms.corpus import Columns
from transforms.corpus.buckets import Buckets
from transforms.corpus.lakes import absolute_input, is_table, version_of
from transforms.space import Machine, Space
from transforms.steps.options import EmbedOptions
from transforms.steps.options.check import check
from transforms.steps.options.choose import CONTENT, KEPT, Choice, choose
from transforms.steps.options.job import EmbedJob
from transforms.store.entries import IndexRequest, RangesEntry
from transforms.store.manifest import Manifest, read_manifest, snapshots
from transforms.store.runs.carried import stride
from transforms.store.runs.commit import Run
from transforms.store.runs.result import now, versions
from transforms.store.shards.precision import fitting, kept_ranges


@dataclass(frozen=True)
class Resolved:
    """A run before it starts: its job, the index to build, the snapshot before it, and the
    calibration to apply.
    """

    job: EmbedJob
    index: IndexRequest | None
    previous: Manifest | None
    calibration: Calibration | None = None

    @property
    def space(self) -> Space:
        """The space of the vectors that the run writes."""
        return self.job.run.space


def resolve(asked: EmbedOptions, previous: Manifest | None, run_id: str, local: bool) -> Resolved:
    """The run that options make: given flags first, then what the store remembers, then defaults.

    `local` says that the work happens in this process, so that this machine decides the dtype.
    Raises OptionError for options that do not fit each other or the store.
    """
    choice = choose(asked, previous, local)
    check(asked, choice, previous)
    run = _run(asked, choice, previous, run_id)
    if previous is not None and asked.append:
        _check_carries(read_again(run, previous, asked.reembed))
    return Resolved(
        _job(asked, choice, run, previous, local), choice.index, previous, choice.calibration
    )


def _run(asked: EmbedOptions, choice: Choice, previous: Manifest | None, run_id: str) -> Run:
    chosen = choice.options
    check_from = previous.check_from if previous else 0
    globs = tuple(absolute_input(glob) for glob in asked.input)
    tables = {glob: str(version_of(glob, asked.input_version)) for glob in globs if is_table(glob)}
    return Run(
        root=storage.absolute(asked.store),
        id=run_id,
        space=choice.space,
        partition=choice.partition,
        unit_tokens=choice.unit_tokens,
        globs=globs,
        earlier_globs=previous.input.globs if previous and asked.append else (),
        tables=({**previous.input.tables} if previous and asked.append else {}) | tables,
        options=chosen,
        versions=versions(),
        started=now(),
        previous=previous.run if previous else None,
        version=previous.version if previous else None,
        previous_digest=previous.digest if previous else None,
        gates=choice.gates,
        check_from=check_from,
        check_stride=stride(previous, check_from, chosen.check_carried),
        previous_rows=previous.rows.written if previous and asked.limit is None else 0,
        command="embed",
        generation=_generation(asked, previous),
        canary=previous.canary if previous and not asked.reembed else None,
        ranges=_ranges(asked, choice.space, previous),
    )


def _job(
    asked: EmbedOptions, choice: Choice, run: Run, previous: Manifest | None, local: bool
) -> EmbedJob:
    chosen = choice.options
    reuse = previous is not None and not asked.reembed
    differing: tuple[str, ...] = ()
    if previous is not None:
        differing = read_again(run, previous, asked.reembed)
    return EmbedJob(
        run=run,
        columns=Columns(
            text=chosen.text_column,
            id=chosen.id_column,
            keep=chosen.keep_columns,
            template=chosen.text_template,
            prefix=chosen.chunk_prefix,
            types=tuple(chosen.keep_types.items()),
        ),
        keep_text=chosen.keep_text and not chosen.keeps_text_column,
        recipe=(
            replace(choice.recipe, model=asked.worker_model, revision=None)
            if asked.worker_model
            else choice.recipe
        ),
        machine=Machine(asked.device, asked.tokens_per_batch, chosen.deterministic),
        input_format=chosen.format,
        delimiter=chosen.delimiter,
        limit=chosen.limit,
        carry=previous is not None and not differing,
        read_again=differing,
        append=asked.append,
        reuse=reuse,
        buckets=_buckets(asked, run, previous),
        text_limit=_memory() // 4 if local and choice.partition == "content" else None,
        retried=not local,
        hidden=chosen.hidden,
        chunks=choice.chunks,
        max_bad_files=asked.max_bad_files,
        table_filter=asked.input_filter,
        index_asked=(
            choice.index.index if choice.index is not None and asked.asks_for_index else None
        ),
    )


def holding_lease(resolved: Resolved) -> Resolved:
    """The same run, which has taken the store's lease and is to commit only while it has it."""
    job = replace(resolved.job, run=replace(resolved.job.run, leased=True))
    return replace(resolved, job=job)


def _check_carries(changed: tuple[str, ...]) -> None:
    """Raise OptionError for what would have files read again that `--append` does not name."""
    if changed:
        raise OptionError(
            f"--append carries the files of earlier runs over as they are, and {', '.join(changed)}"
            " would change; leave that out, or name all files, without --append"
        )


def read_again(run: Run, previous: Manifest, reembed: bool = False) -> tuple[str, ...]:
    """What differs from the last snapshot beside the input, so that unchanged files are read again
    too.

    If nothing differs, their units are carried over unread.
    """
    if reembed:
        return ("reembed",)
    differ = [
        name for name in CONTENT if getattr(previous.options, name) != getattr(run.options, name)
    ]
    found = [KEPT[0] if name in KEPT else name for name in differ]
    if run.options.limit is not None:
        found += ["limit"]
    found += run.space.differences(previous.space)
    found += [
        name
        for name in ("partition", "unit_tokens")
        if getattr(previous, name) != getattr(run, name)
    ]
    return tuple(dict.fromkeys(found))


def _ranges(asked: EmbedOptions, space: Space, previous: Manifest | None) -> RangesEntry | None:
    """The store's ranges, if they are of this run's vectors; else the run fits its own."""
    if previous is None or asked.reembed:
        entry = None
    else:
        entry = fitting(previous.ranges, space)
    if previous is not None and entry is not None:
        kept_ranges(previous.root, entry)  # better found out here than by a worker
    return entry


def _generation(asked: EmbedOptions, previous: Manifest | None) -> int:
    """How often the store was embedded from nothing; with --reembed a number no snapshot has, so
    that nothing is found.

    After a rollback an earlier snapshot may have the largest number.
    """
    current = previous.generation if previous is not None else 0
    if not asked.reembed:
        return current
    kept = []
    if previous is not None:
        kept = [read_manifest(previous.root, run) for run in snapshots(previous.root)]
    return 1 + max([current, *(manifest.generation for manifest in kept if manifest)])


def _buckets(asked: EmbedOptions, run: Run, previous: Manifest | None) -> Buckets | None:
    """The last snapshot's buckets, where units are still of that size."""
    if previous is None or asked.reembed or previous.unit_tokens != run.unit_tokens:
        return None
    return previous.buckets


def _memory() -> int:
    """Bytes of memory of this machine, or of the container that this process is in."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):  # no container, or one without a limit
            found.append(int(Path(path).read_text()))
    return min(found)
