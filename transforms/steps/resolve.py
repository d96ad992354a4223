"""What a run will do: its options, given or remembered by the store, and the space that they make."""

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from transforms import storage
from transforms.calibration import Calibration, check_space
from transforms.corpus import Columns
from transforms.corpus.buckets import Buckets
from transforms.corpus.files import overlaps
from transforms.errors import OptionError, SpaceMismatchError
from transforms.index.choose import check_request
from transforms.space import (
    DEFAULT_MODEL,
    Machine,
    Recipe,
    Space,
    parse_pooler,
    resolve_model,
)
from transforms.steps.auto import Case, decide
from transforms.steps.job import EmbedJob, IndexRequest
from transforms.steps.options import EmbedOptions
from transforms.store import layout
from transforms.store.calibrations import kept_calibration, read_calibration
from transforms.store.commit import Run
from transforms.store.manifest import Manifest, read_manifest, snapshots
from transforms.store.precision import fitting, kept_ranges
from transforms.store.runs import now, versions
from transforms.store.shards import check_keep_columns

# Cosine distances beyond what processors and libraries differ by: those of other dtypes are larger.
MAX_DRIFT = {"float32": 1e-7, "float16": 2e-5, "bfloat16": 1e-3}
DEFAULTS: dict[str, Any] = {
    "format": "auto",
    "text_column": "text",
    "id_column": None,
    "keep_columns": (),
    "model": DEFAULT_MODEL,
    "revision": None,
    "pooler": "auto",
    "prompt": None,
    "max_tokens": None,
    "normalize": None,
    "truncate_dim": None,
    "precision": "float32",
    "limit": None,
}
# Remembered too, but units that are carried over are the same whatever they say.
GATES: dict[str, Any] = {
    "max_rejects": 0.01,
    "max_deletes": 0.5,
    "check_carried": 0.01,
    "price_per_hour": None,
    "deterministic": False,
    "query_prompt": None,
    "hidden": False,
}


@dataclass(frozen=True)
class Resolved:
    """A run before it starts: its job, the index to build, the snapshot before it, and the calibration to apply."""

    job: EmbedJob
    index: IndexRequest | None
    previous: Manifest | None
    calibration: Calibration | None = None

    @property
    def space(self) -> Space:
        """The run's space."""
        return Space.from_json(self.job.run.space)


def resolve(args: EmbedOptions, previous: Manifest | None, run_id: str, local: bool) -> Resolved:
    """The run that options make: given flags first, then what the store remembers, then defaults.

    `local` says that the work happens in this process, so that this machine decides the dtype. Raises OptionError for
    options that do not fit each other or the store.
    """
    args = _as_exported(args)
    remembered = previous.data["options"] if previous else {}
    chosen = {name: _choose(args, remembered, name) for name in (*DEFAULTS, *GATES)}
    chosen["keep_columns"] = list(chosen["keep_columns"])
    chosen["id_column"] = chosen["id_column"] or None  # "" goes back to ids made of path and place
    chosen["model"] = _full_path(chosen["model"])
    chosen["pooler"] = _with_full_paths(chosen["pooler"])
    files = resolve_model(chosen["model"], chosen["revision"])
    index = _index(args, previous)
    case = Case(
        family=files.family,
        modules=files.modules,
        accelerator=args.accelerator is not None,
        device=args.device,
        local=local,
        indexed=index is not None,
    )

    def decided(option: str, given: Any, known: Any) -> Any:
        return decide(option, replace(case, given=given, remembered=known))

    chosen["dtype"] = decided("--dtype", args.dtype, previous.space.dtype if previous else None)
    chosen["metric"] = decided("--metric", args.metric, remembered.get("metric"))
    partition = decided("--partition", args.partition, previous.data["partition"] if previous else None)
    unit_tokens = decided("--unit-tokens", args.unit_tokens, previous.data["unit_tokens"] if previous else None)
    if chosen["deterministic"] and args.tokens_per_batch is not None:
        raise OptionError("--tokens-per-batch: deterministic batches have a size of their own; leave it out")
    check_keep_columns(tuple(chosen["keep_columns"]))
    _check_inputs(args.input, args.store, chosen["hidden"])
    _check_limit(args, previous)
    calibration = _calibration(args, previous)
    recipe = _recipe(args, chosen, calibration)
    space = recipe.space(files, *((calibration.digest, calibration.dim) if calibration else ()))
    chosen |= {"prompt": space.prompt, "truncate_dim": recipe.truncate_dim}
    _check_required(args.require_space, space)
    if previous is not None and not args.reembed:
        _check_same_space(space, partition, previous)
    _check_calibration(args, space, calibration)
    _check_append(args, partition)
    run = Run(
        root=storage.absolute(args.store),
        id=run_id,
        space=space.to_json(),
        partition=partition,
        unit_tokens=unit_tokens,
        globs=tuple(storage.absolute(glob) for glob in args.input),
        earlier_globs=tuple(previous.data["input"]["globs"]) if previous and args.append else (),
        options={**chosen, "max_deletes": _remembered_deletes(chosen["max_deletes"], remembered)},
        versions=versions(),
        started=now(),
        previous=previous.run if previous else None,
        version=previous.version if previous else None,
        previous_digest=previous.digest if previous else None,
        max_rejects=chosen["max_rejects"],
        max_deletes=chosen["max_deletes"],
        check_from=previous.data.get("check_from", 0) if previous else 0,
        check_carried=chosen["check_carried"],
        previous_rows=previous.data["rows"]["written"] if previous and args.limit is None else 0,
        price_per_hour=chosen["price_per_hour"],
        generation=_generation(args, previous),
        canary=previous.data.get("canary") if previous is not None and not args.reembed else None,
        ranges=_ranges(args, space, previous),
    )
    if previous is not None and args.append:
        _check_carries(args, run, previous)
    copy = storage.join(run.root, layout.calibration(calibration.digest)) if calibration else None
    job = EmbedJob(
        run=run,
        columns=Columns(chosen["text_column"], chosen["id_column"], tuple(chosen["keep_columns"])),
        recipe=replace(recipe, model=args.worker_model or recipe.model, prompt=space.prompt, prompt_name=None),
        machine=Machine(args.device, args.tokens_per_batch, chosen["deterministic"]),
        input_format=chosen["format"],
        limit=chosen["limit"],
        carry=previous is not None and not args.reembed and not _changed(run, previous),
        append=args.append,
        reuse=previous is not None and not args.reembed,
        calibration=copy,
        max_drift=MAX_DRIFT[space.dtype] if args.max_drift is None else args.max_drift,
        buckets=_buckets(args, run, previous),
        text_limit=_memory() // 4 if local and partition == "content" else None,
        retried=not local,
        hidden=chosen["hidden"],
        index_asked=index.index if index is not None and args.index is not None else None,
    )
    return Resolved(job, index, previous, calibration)


def holding_lease(resolved: Resolved) -> Resolved:
    """The same run, which has taken the store's lease and is to commit only while it has it."""
    job = replace(resolved.job, run=replace(resolved.job.run, leased=True))
    return replace(resolved, job=job)


def _as_exported(args: EmbedOptions) -> EmbedOptions:
    """The options; where the model is an export, those that are not given are as it was exported."""
    if args.model is None:
        return args
    names = ("pooler", "prompt", "prompt_name", "max_tokens", "normalize", "truncate_dim", "dtype", "calibration")
    given = {name: getattr(args, name) for name in names}
    files = resolve_model(args.model, args.revision)
    stated = files.as_exported({**given, "pooler": given["pooler"] or "auto"}) if files.exported else given
    return replace(args, **stated)


def _choose(args: EmbedOptions, remembered: dict[str, Any], name: str) -> Any:
    given = getattr(args, name)
    if given is not None:
        return given
    if name == "max_deletes":
        return _remembered_deletes(None, remembered)
    if name == "limit":
        return None  # a trial run must not shrink every later one
    if name == "prompt" and args.prompt_name is not None:
        return None
    return remembered.get(name, (DEFAULTS | GATES)[name])


def _remembered_deletes(used: float | None, remembered: dict[str, Any]) -> float:
    """The fraction that the store remembers: the one used, but none above the default, which is for one run."""
    default = GATES["max_deletes"]
    before = remembered.get("max_deletes", default)
    return next(fraction for fraction in (used, before, default) if fraction is not None and fraction <= default)


def _with_full_paths(pooler: str) -> str:
    """The SPEC with absolute paths of its tables."""
    parts = []
    for part in parse_pooler(pooler).parts:
        table = dict(part.options).get("table")
        found = isinstance(table, str) and os.path.isdir(table)
        parts.append(part.replaced(table=os.path.abspath(str(table))) if found else part)
    return "+".join(map(str, parts))


def _full_path(model: str) -> str:
    return os.path.abspath(model) if os.path.isdir(model) else model


def _calibration(args: EmbedOptions, previous: Manifest | None) -> Calibration | None:
    """The calibration that is given ("" for none), else the store's."""
    if args.calibration is None:
        digest = previous.space.calibration if previous is not None else None
        return kept_calibration(previous.root, digest) if previous is not None and digest else None
    return read_calibration(args.calibration) if args.calibration else None


def _recipe(args: EmbedOptions, chosen: dict[str, Any], calibration: Calibration | None) -> Recipe:
    """The run's recipe; a remembered truncation that a calibration leaves nothing to do for is forgotten."""
    recipe = Recipe.of({**chosen, "prompt_name": args.prompt_name})
    if args.truncate_dim is None and calibration is not None and (recipe.truncate_dim or 0) > calibration.dim:
        return replace(recipe, truncate_dim=None)
    return recipe


def _check_required(required: str | None, space: Space) -> None:
    if required is not None and required != space.id:
        raise OptionError(
            f"--require-space {required}: these options and the model's files make the space {space.id}; "
            "mend them, or require that one"
        )


def _check_same_space(space: Space, partition: str, previous: Manifest) -> None:
    fields = [] if space.pooled_id == previous.space.pooled_id else space.differences(previous.space)
    if partition != previous.data["partition"]:
        fields.append("partition")
    if fields:
        raise OptionError(
            f"{previous.root} holds another space: {', '.join(fields)} would change; "
            "leave the option out, choose another --store, or embed everything anew with --reembed"
        )


def _check_calibration(args: EmbedOptions, space: Space, calibration: Calibration | None) -> None:
    try:
        if calibration is not None:
            check_space(calibration.info, space, args.calibration or "of the store")
    except SpaceMismatchError as error:
        if args.calibration is not None:
            raise
        raise OptionError(f"{str(error).partition(';')[0]}; give another --calibration, or '' for none") from error


def _check_inputs(globs: Sequence[str], output: str, hidden: bool) -> None:
    for glob in globs:
        if overlaps(glob, output, hidden):
            raise OptionError(
                f"--input {glob} takes in the store {output} itself; move the store out of it or narrow --input"
            )


def _check_limit(args: EmbedOptions, previous: Manifest | None) -> None:
    """Raise OptionError for a trial run that would replace a whole store."""
    if args.limit is not None and previous is not None and previous.data["options"]["limit"] is None:
        raise OptionError(
            f"--limit {args.limit} would leave only that many of the {previous.data['rows']['written']} rows of "
            f"{previous.root}; choose another --store"
        )


def _ranges(args: EmbedOptions, space: Space, previous: Manifest | None) -> dict[str, Any] | None:
    """The store's ranges, where they are of this run's vectors; else the run fits its own."""
    entry = None if previous is None or args.reembed else fitting(previous.data.get("ranges"), space)
    if previous is not None and entry is not None:
        kept_ranges(previous.root, entry)  # better found out here than by a worker
    return entry


def _generation(args: EmbedOptions, previous: Manifest | None) -> int:
    """How often the store was embedded from nothing; with --reembed a number no snapshot has, so that nothing is found.

    After a rollback an earlier snapshot may have the largest number.
    """
    current = previous.data.get("generation", 0) if previous is not None else 0
    if not args.reembed:
        return current
    kept = [read_manifest(previous.root, run) for run in snapshots(previous.root)] if previous is not None else []
    return 1 + max([current, *(manifest.data.get("generation", 0) for manifest in kept if manifest)])


def _changed(run: Run, previous: Manifest) -> list[str]:
    """What differs from the last snapshot beside the input; where nothing does, units may be carried over unread."""
    remembered, space = previous.data["options"], Space.from_json(run.space)
    found = [name for name in run.options if name in DEFAULTS and remembered.get(name) != run.options[name]]
    found += ["limit"] if run.options["limit"] is not None else []
    found += space.differences(previous.space)
    found += [name for name in ("partition", "unit_tokens") if previous.data[name] != getattr(run, name)]
    return list(dict.fromkeys(found))


def _check_append(args: EmbedOptions, partition: str) -> None:
    if args.append and partition == "content":
        raise OptionError(
            "--append: --partition content has no units of single files; name all files, without --append"
        )


def _check_carries(args: EmbedOptions, run: Run, previous: Manifest) -> None:
    """Files of earlier runs are not read again."""
    changed = ["reembed"] if args.reembed else _changed(run, previous)
    if changed:
        raise OptionError(
            f"--append carries the files of earlier runs over as they are, and {', '.join(changed)} would change; "
            "leave that out, or name all files, without --append"
        )


def _buckets(args: EmbedOptions, run: Run, previous: Manifest | None) -> Buckets | None:
    """The last snapshot's buckets, where units are still of that size."""
    if previous is None or args.reembed or previous.data["unit_tokens"] != run.unit_tokens:
        return None
    return previous.buckets


def _memory() -> int:
    """Bytes of memory of this machine, or of the container that this process is in."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):  # no container, or one without a limit
            found.append(int(Path(path).read_text()))
    return min(found)


def _index(args: EmbedOptions, previous: Manifest | None) -> IndexRequest | None:
    """The index asked for, or one like the last snapshot's."""
    metric = args.metric or "auto"
    if args.index is not None:
        if args.index == "none":
            return None
        check_request(args.index)
        return IndexRequest(args.index, metric)
    current = previous.data["index"] if previous is not None else None
    request = IndexRequest(**current["request"]) if current else None
    return replace(request, metric=args.metric) if request and args.metric else request
