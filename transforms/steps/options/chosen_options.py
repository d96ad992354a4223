"""Choose a run's options: those that are given, else what the store remembers, else defaults."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sentence_beam.transforms.base.option import Remembered, declared_in
from sentence_beam.transforms.base.values import NO_BUDGET
from sentence_beam.transforms.calibration import Calibration
from sentence_beam.transforms.corpus import Columns
from sentence_beam.transforms.corpus.arrow_types import NO_TYPE
from sentence_beam.transforms.space import (
    AUTO,
    ModelFiles,
    PoolerSpec,
    Recipe,
    Space,
    parse_pooler,
    resolve_model,
)
from sentence_beam.transforms.space.chunks_spec import ChunksSpec
from sentence_beam.transforms.space.int8_model import INT8
from sentence_beam.transforms.space.st_modules import StModules
from sentence_beam.transforms.space.trained_prompts import TrainedPrompts
from sentence_beam.transforms.steps.options import EmbedOptions
from sentence_beam.transforms.steps.options.auto import (
    AUTOMATIC,
    Workers,
    decide_dtype,
    decide_metric,
    decide_partition,
    decide_unit_tokens,
)
from sentence_beam.transforms.steps.options.gate_options import choose_gates
from sentence_beam.transforms.steps.options.stored import Stored, find_stored, reset_to_defaults
from sentence_beam.transforms.store.calibrations import read_calibration, read_kept_calibration
from sentence_beam.transforms.store.entries import RememberedOptions
from sentence_beam.transforms.store.index_entries import IndexRequest
from sentence_beam.transforms.store.int8_models import add_kept_int8
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.runs.gates import UsedGates

OWN_PROMPTS = ("prompt", "query_prompt")  # which the model may have
KEPT = ("keep_columns", "keep_types")  # of which one option speaks


def _list_remembered(kind: Remembered) -> tuple[str, ...]:
    """Return the names of the options that a store remembers in this way, without automatic
    ones.
    """
    declared = declared_in(EmbedOptions)
    return tuple(
        name for name, one in declared.items() if one.remembered is kind and name not in AUTOMATIC
    )


# The store has `limit` of a trial run too, which the next run does not take from it.
CONTENT = (*_list_remembered(Remembered.CONTENT), "keep_types", "limit")
REMEMBERED = _list_remembered(Remembered.RUN)


@dataclass(frozen=True)
class Choice:
    """The chosen options: `options` are those that the store will remember, `gates` hold in this
    run.

    `passed_over` names a prompt of the model that rows do not get, though it seems to be theirs.
    `missing` are prompts that the model was trained with, and that rows or queries do not get.
    """

    options: RememberedOptions
    recipe: Recipe
    space: Space
    calibration: Calibration | None
    index: IndexRequest | None
    partition: str
    unit_tokens: int
    gates: UsedGates
    passed_over: str | None
    missing: TrainedPrompts | None


def choose(options: EmbedOptions, stored: Stored, local: bool) -> Choice:
    """Choose the options of a run: given ones, else stored ones; `local` says that this process
    does the work.
    """
    options = _as_exported(options)
    previous = stored.previous
    chosen = _choose_options(options, stored.options)
    files = resolve_model(chosen["model"], chosen["revision"])
    index = _choose_index(options, stored.index)
    workers = Workers(options.accelerator, options.device, local)
    metric = stored.options.metric
    chosen["dtype"] = decide_dtype(options.dtype, stored.dtype, files.family, workers)
    chosen["metric"] = decide_metric(options.metric, metric, files.modules, index is not None)
    calibration = _choose_calibration(options, stored, chosen, files)
    recipe = _make_recipe(options, chosen, calibration).for_rows(files)
    applied: tuple[Any, ...] = (calibration.digest, calibration.dim) if calibration else ()
    space = recipe.space(files, *applied)
    if previous is not None and space.dtype == INT8 and not options.reembed:
        space = add_kept_int8(space, previous.root, previous.space)
    gates = choose_gates(options, stored.options, space.dtype)
    chosen |= {"pooler": str(recipe.pooler), "chunks": str(recipe.chunks)}
    chosen |= _choose_prompts(options, chosen, space, files.modules)
    chosen |= {"truncate_dim": recipe.truncate_dim, **gates.remembered}
    remembered = RememberedOptions(**chosen)
    return Choice(
        options=remembered,
        recipe=replace(recipe, prompt=space.prompt, prompt_name=None),
        space=space,
        calibration=calibration,
        index=index,
        partition=decide_partition(options.partition, stored.partition),
        unit_tokens=decide_unit_tokens(options.unit_tokens, stored.unit_tokens, workers),
        gates=gates.used,
        passed_over=files.modules.passed_over if "prompt" in chosen["own_prompts"] else None,
        missing=_find_missing_prompts(files, remembered, recipe.pooler),
    )


def find_used_columns(options: EmbedOptions, previous: Manifest | None) -> Columns:
    """Return the columns that a run with these options over a store's last snapshot uses."""
    chosen = _choose_options(options, find_stored(options, previous).options)
    return make_columns(chosen)


def make_columns(chosen: Mapping[str, Any]) -> Columns:
    """Return the columns that chosen options name; those of no type yet have none."""
    types = chosen["keep_types"].items()
    return Columns(
        text=chosen["text_column"],
        id=chosen["id_column"],
        keep=chosen["keep_columns"],
        template=chosen["text_template"],
        prefix=chosen["chunk_prefix"],
        types=tuple((name, word) for name, word in types if word != NO_TYPE),
    )


def _choose_options(options: EmbedOptions, remembered: RememberedOptions) -> dict[str, Any]:
    """Return the given options, else the remembered ones, by name; paths are absolute.

    SPECs are parsed.
    """
    remembered = reset_to_defaults(remembered, _list_not_taken(options, remembered))
    chosen = {}
    for name in (*CONTENT, *REMEMBERED):
        if name not in KEPT:
            value = getattr(options, name)
            chosen[name] = getattr(remembered, name) if value is None else value
    chosen["keep_columns"], chosen["keep_types"] = _choose_kept(options, remembered)
    for name in ("csv", "json_rows"):
        chosen[name] = chosen[name] or None  # "" goes back to what each file shows
    chosen["id_column"] = chosen["id_column"] or None  # "" goes back to ids made of path and place
    if chosen["budget"] == NO_BUDGET:
        chosen["budget"] = None
    chosen["model"] = _resolve_path(chosen["model"])
    chosen["pooler"] = _resolve_tables(parse_pooler(chosen["pooler"]))
    chosen["chunks"] = ChunksSpec.parse(chosen["chunks"])
    return chosen


def _choose_prompts(
    options: EmbedOptions, chosen: dict[str, Any], space: Space, modules: StModules
) -> dict[str, Any]:
    """Return the prompts of rows and queries, with the names of those that are the model's."""
    own = [name for name in OWN_PROMPTS if chosen[name] is None]
    if options.prompt_name is not None:
        own.remove("prompt")
    query_prompt = modules.query_prompt if "query_prompt" in own else chosen["query_prompt"]
    return {"prompt": space.prompt, "query_prompt": query_prompt, "own_prompts": tuple(own)}


def _find_missing_prompts(
    files: ModelFiles, remembered: RememberedOptions, pooler: PoolerSpec
) -> TrainedPrompts | None:
    """Return the prompts of the model's training that rows and queries lack.

    A pooler with a template takes no prompts.
    """
    trained = files.trained_prompts
    if trained is None or any(part.rewrites_text for part in pooler.parts):
        return None
    return trained.missing(*remembered.user_prompts)


def _as_exported(options: EmbedOptions) -> EmbedOptions:
    """Return the options; those that are not given are as in the export if the model is one."""
    if options.model is None or options.pooler not in (None, "auto"):
        return options
    files = resolve_model(options.model, options.revision)
    stated = files.as_exported({**vars(options), "pooler": AUTO})
    if "pooler" in stated:
        stated["pooler"] = str(stated["pooler"])
    return replace(options, **stated)


def _list_not_taken(options: EmbedOptions, remembered: RememberedOptions) -> list[str]:
    """Return the remembered options that a run does not take, because it is given others."""
    names = ["limit", *remembered.own_prompts]  # a trial run must not shrink every later one
    if options.prompt_name is not None:
        names.append("prompt")
    if options.model is not None and _resolve_path(options.model) != remembered.model:
        names.append("revision")  # it is the other model's
    if options.text_column is not None:
        names.append("text_template")
    if options.text_template is not None:
        names.append("text_column")
    return names


def _choose_kept(
    options: EmbedOptions, remembered: RememberedOptions
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the columns to keep, and the types of those that were given one, now or before."""
    if options.kept is None:
        return tuple(remembered.keep_columns), remembered.keep_types
    types = {
        column.name: column.kind or remembered.keep_types.get(column.name)
        for column in options.kept
    }
    return tuple(types), {name: kind for name, kind in types.items() if kind is not None}


def _resolve_tables(pooler: PoolerSpec) -> PoolerSpec:
    """Return the pooler with absolute paths of its tables."""
    parts = []
    for part in pooler.parts:
        if part.table is not None:
            part = part.replaced(table=_resolve_path(part.table))
        parts.append(part)
    return PoolerSpec(tuple(parts))


def _resolve_path(name: str) -> str:
    """Return the absolute path of a folder; another name as it is."""
    return os.path.abspath(name) if os.path.isdir(name) else name


def _choose_calibration(
    options: EmbedOptions, stored: Stored, chosen: dict[str, Any], files: ModelFiles
) -> Calibration | None:
    """Return the calibration that is given ("" for none), else the store's.

    A new store takes that of the store which it is made like if their pooled vectors are the same.
    """
    if options.calibration == "":
        return None
    if options.calibration is not None:
        return read_calibration(options.calibration)
    source = stored.source
    if source is None or source.space.calibration is None:
        return None
    if source is stored.like:
        plain = _make_recipe(options, chosen, None).for_rows(files).space(files)
        if plain.pooled_id != source.space.pooled_id:
            return None
    return read_kept_calibration(source.root, source.space)


def _make_recipe(
    options: EmbedOptions, chosen: dict[str, Any], calibration: Calibration | None
) -> Recipe:
    """Return the run's recipe, without a remembered truncation wider than the calibration."""
    recipe = Recipe.from_options({**chosen, "prompt_name": options.prompt_name})
    if (
        options.truncate_dim is None
        and calibration is not None
        and (recipe.truncate_dim or 0) > calibration.dim
    ):
        return replace(recipe, truncate_dim=None)
    return recipe


def _choose_index(options: EmbedOptions, last: IndexRequest | None) -> IndexRequest | None:
    """Return the request for the index, None for none.

    The last one is kept, with its target and budgets, unless another index is named. A given metric
    replaces the request's.
    """
    if options.index == "none":
        return None
    if last is not None and options.index in (None, last.index):
        request = last
    elif options.index is not None:
        request = IndexRequest(options.index)
    else:
        return None
    return request if options.metric is None else replace(request, metric=options.metric)
