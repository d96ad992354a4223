"""What a run's options come to: those that are given, else what the store remembers, else
defaults.
"""

import os
from dataclasses import dataclass, replace
from typing import Any

from transforms.base.errors import OptionError
from transforms.base.option import Remembered, declared_in, flag_of
from transforms.calibration import Calibration
from transforms.index.choose import check_request
from transforms.space import ModelFiles, Recipe, Space, parse_pooler, resolve_model
from transforms.space.chunks import ChunksSpec
from transforms.steps.options import EmbedOptions
from transforms.steps.options.auto import RULES, Case, decide
from transforms.steps.options.gates import gates_of
from transforms.store.calibrations import kept_calibration, read_calibration
from transforms.store.entries import IndexRequest, RememberedOptions
from transforms.store.manifest import Manifest
from transforms.store.runs.gates import UsedGates

KEPT = ("keep_columns", "keep_types")  # of which one option speaks


def _remembered_as(kind: Remembered) -> tuple[str, ...]:
    """Return the names of the options that a store remembers in this way, without those that rules
    decide.
    """
    declared = declared_in(EmbedOptions)
    return tuple(
        name
        for name, one in declared.items()
        if one.remembered is kind and flag_of(name, one) not in RULES
    )


# The store has `limit` of a trial run too, which the next run does not take from it.
CONTENT = (*_remembered_as(Remembered.CONTENT), "keep_types", "limit")
REMEMBERED = _remembered_as(Remembered.RUN)


@dataclass(frozen=True)
class Choice:
    """What a run's options come to. `options` are those that the store will remember, `gates` those
    used in this run.
    """

    options: RememberedOptions
    recipe: Recipe
    space: Space
    calibration: Calibration | None
    index: IndexRequest | None
    partition: str
    unit_tokens: int
    gates: UsedGates
    chunks: ChunksSpec


def choose(asked: EmbedOptions, previous: Manifest | None, local: bool) -> Choice:
    """What the options come to, beside a store's last snapshot; `local` says that this process does
    the work.
    """
    asked = _as_exported(asked)
    if previous:
        remembered = previous.options
    else:
        remembered = RememberedOptions.of_a_new_store()
    chosen = {
        name: _chosen(asked, remembered, name)
        for name in (*CONTENT, *REMEMBERED)
        if name not in KEPT
    }
    chosen["keep_columns"], chosen["keep_types"] = _kept(asked, remembered)
    chosen["id_column"] = chosen["id_column"] or None  # "" goes back to ids made of path and place
    chunks = ChunksSpec.parse(chosen["chunks"])
    chosen["chunks"] = str(chunks)
    chosen["model"] = _full_path(chosen["model"])
    chosen["pooler"] = _with_full_paths(chosen["pooler"])
    files = resolve_model(chosen["model"], chosen["revision"])
    index = _index(asked, previous)
    case = _case(asked, files, local, index is not None)

    def decided(option: str, given: Any, remembered: Any) -> Any:
        return decide(option, replace(case, given=given, remembered=remembered))

    chosen["dtype"] = decided("--dtype", asked.dtype, previous.space.dtype if previous else None)
    chosen["metric"] = decided("--metric", asked.metric, remembered.metric)
    calibration = _calibration(asked, previous)
    recipe = _recipe(asked, chosen, calibration)
    space = recipe.space(files, *((calibration.digest, calibration.dim) if calibration else ()))
    chosen |= {"prompt": space.prompt, "truncate_dim": recipe.truncate_dim}
    gates = gates_of(asked, remembered, space.dtype)
    chosen |= gates.remembered
    return Choice(
        options=RememberedOptions(**chosen),
        recipe=replace(recipe, prompt=space.prompt, prompt_name=None),
        space=space,
        calibration=calibration,
        index=index,
        partition=decided("--partition", asked.partition, previous.partition if previous else None),
        unit_tokens=decided(
            "--unit-tokens", asked.unit_tokens, previous.unit_tokens if previous else None
        ),
        gates=gates.used,
        chunks=chunks,
    )


def _case(asked: EmbedOptions, files: ModelFiles, local: bool, indexed: bool) -> Case:
    return Case(
        family=files.family,
        modules=files.modules,
        accelerator=asked.accelerator is not None,
        device=asked.device,
        local=local,
        indexed=indexed,
    )


def _as_exported(asked: EmbedOptions) -> EmbedOptions:
    """The options; if the model is an export, those that are not given are as it was
    exported.
    """
    if asked.model is None:
        return asked
    names = (
        "pooler",
        "prompt",
        "prompt_name",
        "max_tokens",
        "normalize",
        "truncate_dim",
        "dtype",
        "calibration",
    )
    given = {name: getattr(asked, name) for name in names}
    files = resolve_model(asked.model, asked.revision)
    stated = given
    if files.exported:
        stated = files.as_exported({**given, "pooler": given["pooler"] or "auto"})
    return replace(asked, **stated)


def _chosen(asked: EmbedOptions, remembered: RememberedOptions, name: str) -> Any:
    given = getattr(asked, name)
    if given is not None:
        return given
    if name == "limit":
        return None  # a trial run must not shrink every later one
    if name == "prompt" and asked.prompt_name is not None:
        return None
    if (
        name == "revision"
        and asked.model is not None
        and _full_path(asked.model) != remembered.model
    ):
        return None  # it is the other model's
    if name == "text_template" and asked.text_column is not None:
        return None
    if name == "text_column" and asked.text_template is not None:
        return RememberedOptions.text_column
    return getattr(remembered, name)


def _kept(
    asked: EmbedOptions, remembered: RememberedOptions
) -> tuple[tuple[str, ...], dict[str, str]]:
    """The columns to keep, and the types of those that have been given one, now or before."""
    if asked.kept is None:
        return tuple(remembered.keep_columns), remembered.keep_types
    types = {
        column.name: column.kind or remembered.keep_types.get(column.name) for column in asked.kept
    }
    return tuple(types), {name: kind for name, kind in types.items() if kind is not None}


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


def _calibration(asked: EmbedOptions, previous: Manifest | None) -> Calibration | None:
    """The calibration that is given ("" for none), else the store's."""
    if asked.calibration is None:
        if previous is not None:
            return kept_calibration(previous.root, previous.space)
        return None
    if asked.calibration:
        return read_calibration(asked.calibration)
    return None


def _recipe(asked: EmbedOptions, chosen: dict[str, Any], calibration: Calibration | None) -> Recipe:
    """The run's recipe; a remembered truncation that a calibration leaves nothing to do for is
    forgotten.
    """
    recipe = Recipe.of({**chosen, "prompt_name": asked.prompt_name})
    if (
        asked.truncate_dim is None
        and calibration is not None
        and (recipe.truncate_dim or 0) > calibration.dim
    ):
        return replace(recipe, truncate_dim=None)
    return recipe


def _index(asked: EmbedOptions, previous: Manifest | None) -> IndexRequest | None:
    """The index asked for, or one like the last snapshot's."""
    names = ("target_recall", "max_bytes_per_row", "max_latency_ms")
    given: dict[str, Any] = {
        name: value for name in names if (value := getattr(asked, name)) is not None
    }
    if asked.index == "none":
        if given:
            raise OptionError(
                f"--{next(iter(given)).replace('_', '-')}: --index none builds no index; leave"
                " it out"
            )
        return None
    if asked.index is not None:
        check_request(asked.index)
        return IndexRequest(asked.index, asked.metric or "auto", **given)
    request = None
    if previous is not None and previous.index:
        request = previous.index.request
    if request is None:
        if given:
            return IndexRequest(metric=asked.metric or "auto", **given)
        return None
    if asked.metric:
        given["metric"] = asked.metric
    return replace(request, **given)
