"""A run from its options and the last snapshot: the workers' job, and the index to build."""

import contextlib
import os
from dataclasses import dataclass, field, replace
from pathlib import Path

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.base.numbers import format_count
from sentence_beam.transforms.calibration import Calibration
from sentence_beam.transforms.corpus.arrow_types import parse_type
from sentence_beam.transforms.corpus.buckets import Buckets
from sentence_beam.transforms.corpus.found_columns import FoundColumns
from sentence_beam.transforms.corpus.lakes import find_version, is_table, make_absolute_input
from sentence_beam.transforms.corpus.syntax import Syntax
from sentence_beam.transforms.space import Machine, Space
from sentence_beam.transforms.space.trained_prompts import TrainedPrompts
from sentence_beam.transforms.steps.index.kind_choice import find_least_ram
from sentence_beam.transforms.steps.options import EmbedOptions
from sentence_beam.transforms.steps.options.chosen_options import (
    CONTENT,
    KEPT,
    Choice,
    choose,
    make_columns,
)
from sentence_beam.transforms.steps.options.erased_rows import make_coming_entry, make_new_list
from sentence_beam.transforms.steps.options.input_columns import fill_columns
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.steps.options.likeness import (
    Likeness,
    find_later_likeness,
    make_first_likeness,
    make_like_entry,
    type_columns,
)
from sentence_beam.transforms.steps.options.option_conflicts import check
from sentence_beam.transforms.steps.options.stored import Stored, fill_input, find_stored
from sentence_beam.transforms.store import layout
from sentence_beam.transforms.store.calibrations import keep_calibration
from sentence_beam.transforms.store.entries import RangesEntry
from sentence_beam.transforms.store.forgetting.hashes import ForgottenRows, write_rows
from sentence_beam.transforms.store.index_entries import IndexRequest
from sentence_beam.transforms.store.manifest import Manifest, read_manifest, snapshots
from sentence_beam.transforms.store.runs.carried_check import stride
from sentence_beam.transforms.store.runs.commit import Run
from sentence_beam.transforms.store.runs.run_ids import make_run_id
from sentence_beam.transforms.store.runs.run_result import now, versions
from sentence_beam.transforms.store.shards.precision import read_kept_ranges, select_fitting
from sentence_beam.transforms.store.shards.stored_types import read_stored_types


@dataclass(frozen=True)
class Resolved:
    """A run before it starts: job, index to build, last snapshot, and calibration to apply.

    `erased` is the list of erased rows to write into the store, if it does not stay the last
    snapshot's. `passed_over` names a prompt of the model that rows do not get, though it seems to
    be theirs. `found_columns` are the columns that no option names. `missing` are prompts that the
    model was trained with, and that rows or queries do not get. `calibration_folder` is where the
    calibration is if the store has no copy of it yet. `takes_input` says that the input is that of
    the store's last run; `likeness` compares the store with the one that `--like` names.
    """

    job: EmbedJob
    index: IndexRequest | None
    previous: Manifest | None
    calibration: Calibration | None = None
    erased: ForgottenRows | None = None
    passed_over: str | None = None
    found_columns: FoundColumns = field(default_factory=FoundColumns)
    missing: TrainedPrompts | None = None
    calibration_folder: str | None = None
    takes_input: bool = False
    likeness: Likeness | None = None

    @property
    def space(self) -> Space:
        """The space of the vectors that the run writes."""
        return self.job.run.space

    @property
    def remembers_index(self) -> bool:
        """Whether the store's index was built with this run's request."""
        if self.index is None or self.previous is None or self.previous.index is None:
            return False
        return self.index.kind == self.previous.index.request.kind

    def keep_calibration(self) -> None:
        """Copy the calibration into the store, where workers and queries read it."""
        if self.calibration is not None:
            keep_calibration(self.job.root, self.calibration)


def resolve_run(
    options: EmbedOptions, previous: Manifest | None, run_id: str | None = None, *, local: bool
) -> Resolved:
    """Resolve options to a run: given ones first, then those of the store, then defaults.

    `previous` is the store's current snapshot, None for a new store. Without a `run_id`, the run
    starts now. `local` says that this process does the work, so that this machine decides the
    dtype. Raises OptionError for options that do not fit each other or the store.
    """
    if run_id is None:
        run_id = make_run_id(storage.absolute(options.store))
    stored = find_stored(options, previous)
    likeness = find_later_likeness(options, previous) if previous is not None else None
    takes_input = previous is not None and not options.input
    options = fill_input(options, stored)
    options, found_columns = fill_columns(options, stored.source)
    choice = choose(options, stored, local)
    check(options, choice, previous)
    erased = make_new_list(options, stored)
    run = _make_run(options, choice, previous, run_id)
    like = make_like_entry(stored.like) if stored.like is not None else run.like
    run = replace(run, like=like, forgotten=make_coming_entry(stored, erased))
    job = _make_job(options, choice, run, previous, local)
    if stored.like is not None:
        job = replace(job, columns=type_columns(job.columns, stored.like))
    if previous is None:
        likeness = make_first_likeness(run, choice.index)
    elif options.append:
        _check_carries(job, previous)
    return Resolved(
        job=job,
        index=choice.index,
        previous=previous,
        calibration=choice.calibration,
        erased=erased,
        passed_over=choice.passed_over,
        found_columns=found_columns,
        missing=choice.missing,
        calibration_folder=_find_calibration_folder(options, choice, stored),
        takes_input=takes_input,
        likeness=likeness,
    )


def _make_run(options: EmbedOptions, choice: Choice, previous: Manifest | None, run_id: str) -> Run:
    globs = tuple(make_absolute_input(glob) for glob in options.input)
    tables = {
        glob: str(find_version(glob, options.input_version)) for glob in globs if is_table(glob)
    }
    run = Run(
        root=storage.absolute(options.store),
        id=run_id,
        space=choice.space,
        partition=choice.partition,
        unit_tokens=choice.unit_tokens,
        globs=globs,
        tables=tables,
        options=choice.options,
        versions=versions(),
        started=now(),
        gates=choice.gates,
        check_from=0,
        check_stride=stride(None, 0),
        command="embed",
        generation=_number_generation(options, previous),
        ranges=_find_ranges(choice.space, previous, options.reembed),
    )
    return run if previous is None else _follow(run, options, previous)


def _follow(run: Run, options: EmbedOptions, previous: Manifest) -> Run:
    """Return the run on top of the last snapshot."""
    run = replace(
        run,
        previous=previous.run,
        version=previous.version,
        previous_digest=previous.digest,
        watch=previous.watch,
        like=previous.like,
        check_from=previous.check_from,
        check_stride=stride(previous, previous.check_from),
    )
    if options.append:
        tables = {**previous.input.tables, **run.tables}
        run = replace(run, earlier_globs=previous.input.globs, tables=tables)
    if options.limit is None:
        run = replace(run, previous_rows=previous.rows.written)
    if not options.reembed:
        run = replace(run, canary=previous.canary, estimate=previous.estimate)
    return run


def _make_job(
    options: EmbedOptions, choice: Choice, run: Run, previous: Manifest | None, local: bool
) -> EmbedJob:
    chosen = choice.options
    differing: tuple[str, ...] = ()
    if previous is not None:
        differing = read_again(run, previous, options.reembed)
        _check_pending(differing, chosen.budget, previous)
    recipe = choice.recipe
    if options.worker_model:
        recipe = replace(recipe, model=options.worker_model, revision=None)
    text_limit = measure_memory() // 4 if local and choice.partition == "content" else None
    index_asked = None
    if choice.index is not None and options.index is not None:
        index_asked = choice.index.spec
    return EmbedJob(
        run=run,
        columns=make_columns(vars(chosen)),
        keep_text=chosen.keep_text and not chosen.keeps_text_column,
        recipe=recipe,
        machine=Machine(options.device, options.tokens_per_batch, chosen.deterministic),
        input_format=chosen.format,
        syntax=Syntax.from_options(chosen),
        limit=chosen.limit,
        carry=previous is not None and not differing and not options.allow_forgotten,
        read_again=differing,
        append=options.append,
        reuse=previous is not None and not options.reembed,
        buckets=_find_buckets(options, run, previous),
        text_limit=text_limit,
        retried=not local,
        hidden=chosen.hidden,
        max_bad_files=options.max_bad_files,
        budget=chosen.budget,
        table_filter=options.input_filter,
        index_asked=index_asked,
    )


def put_on_workers(resolved: Resolved, accelerator: str | None) -> Resolved:
    """Return the run as its workers do it, on the GPUs of `--accelerator` if it is given."""
    job = resolved.job
    machine = job.machine.on_workers(job.retried, accelerator is not None)
    return replace(resolved, job=replace(job, machine=machine))


def hold_lease(resolved: Resolved) -> Resolved:
    """Return the run as one that holds the store's lease and commits only while it holds it.

    Writes the list of erased rows if the store has another one or none.
    """
    if resolved.erased is not None:
        write_rows(resolved.job.root, resolved.erased)
    job = replace(resolved.job, run=replace(resolved.job.run, leased=True))
    return replace(resolved, job=job)


def _check_pending(differing: tuple[str, ...], budget: int | None, previous: Manifest) -> None:
    """Raise OptionError for a change of every row within a budget while files are pending.

    Pending files would keep rows as the store had them.
    """
    files = previous.pending.files
    if differing and files and budget is not None:
        verb = "is" if files == 1 else "are"
        raise OptionError(
            f"{', '.join(differing)} would change in every row, and {format_count(files, 'file')}"
            f" {verb} pending: say {cite('budget')} none with it, or wait"
        )


def _check_carries(job: EmbedJob, previous: Manifest) -> None:
    """Raise OptionError if a change needs files read again that `--append` does not name.

    If only types of kept columns change, the plan reads the files that have not changed since.
    """
    changed = job.read_again
    is_of_types = job.run.options.keep_columns == previous.options.keep_columns
    if changed and not (is_of_types and changed == KEPT[:1]):
        raise OptionError(
            f"{cite('append=True')} carries the files of earlier runs over as they are, and"
            f" {', '.join(changed)} would change; leave that out, or name all files, without"
            f" {cite('append=True')}"
        )


def read_again(run: Run, previous: Manifest, reembed: bool) -> tuple[str, ...]:
    """Return the names of changed options and fields, because of which unchanged files are read
    again.

    If nothing differs, their units are carried over unread.
    """
    if reembed:
        return ("reembed",)
    differ = [
        name for name in CONTENT if getattr(previous.options, name) != getattr(run.options, name)
    ]
    if "keep_types" in differ and not _changes_types(run, previous):
        differ.remove("keep_types")
    names = [KEPT[0] if name in KEPT else name for name in differ]
    if run.options.limit is not None:
        names += ["limit"]
    names += run.space.differences(previous.space)
    names += [
        name
        for name in ("partition", "unit_tokens")
        if getattr(previous, name) != getattr(run, name)
    ]
    return tuple(dict.fromkeys(names))


def _changes_types(run: Run, previous: Manifest) -> bool:
    """Whether a kept column has another type in a snapshot's shards than a run gives it."""
    stored = {name: parse_type(word).arrow for name, word in previous.options.keep_types.items()}
    named = {name: parse_type(word).arrow for name, word in run.options.keep_types.items()}
    own = read_stored_types(previous, sorted(named.keys() - stored.keys()))
    return any((stored | own).get(name) != kind for name, kind in named.items())


def _find_calibration_folder(options: EmbedOptions, choice: Choice, stored: Stored) -> str | None:
    """Return the folder of the run's calibration if the store has no copy of it yet, else None."""
    if choice.calibration is None or stored.like is None or options.calibration is not None:
        return options.calibration or None
    return storage.join(stored.like.root, layout.calibration(choice.calibration.digest))


def _find_ranges(space: Space, previous: Manifest | None, reembed: bool) -> RangesEntry | None:
    """Return the store's ranges if they fit this run's vectors; else the run fits its own."""
    entry = None if previous is None or reembed else select_fitting(previous.ranges, space)
    if previous is not None and entry is not None:
        read_kept_ranges(previous.root, entry)  # better found out here than by a worker
    return entry


def _number_generation(options: EmbedOptions, previous: Manifest | None) -> int:
    """Return the number of times that the store was embedded from nothing.

    With --reembed no snapshot has the number, so that no vector is reused. After a rollback an
    earlier snapshot may have the largest number.
    """
    if previous is None:
        return int(options.reembed)
    if not options.reembed:
        return previous.generation
    kept = [read_manifest(previous.root, run) for run in snapshots(previous.root)]
    return 1 + max([previous.generation, *(manifest.generation for manifest in kept if manifest)])


def _find_buckets(options: EmbedOptions, run: Run, previous: Manifest | None) -> Buckets | None:
    """Return the last snapshot's buckets if units still have the same size."""
    if previous is None or options.reembed or previous.unit_tokens != run.unit_tokens:
        return None
    return previous.buckets


def measure_memory() -> int:
    """Return the bytes of memory of this machine, or of this process's container."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):  # no container, or one without a limit
            limits.append(int(Path(path).read_text()))
    return min(limits)


def estimate_index_ram(resolved: Resolved, min_ram: str | None) -> str | None:
    """Return the memory that the steps of a run's index need, by the rows of the last snapshot.

    More is `min_ram` by `--min-ram`.
    """
    if resolved.index is None:
        return None
    run = resolved.job.run
    return find_least_ram(resolved.index, run.previous_rows, run.space.dim, min_ram)
