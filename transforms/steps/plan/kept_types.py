"""The types of kept columns, which are the same in all files of a run.

A column has the type that it was given, now or by an earlier run, else the store's. A column that
is new to the store has the narrowest type that holds the values of all files. Values of CSV are
text unless other files have a type. Files that lack the column have nulls.
"""

import functools

import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms.base.errors import cite
from sentence_beam.transforms.corpus.arrow_types import (
    NO_TYPE,
    is_word,
    join_words,
    make_code,
    parse_type,
)
from sentence_beam.transforms.corpus.column_types import STR, TYPES
from sentence_beam.transforms.corpus.formats.registry import open_columns
from sentence_beam.transforms.corpus.type_join import join_types
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.steps.plan.footers import list_templates
from sentence_beam.transforms.steps.plan.planned import list_distinct_values
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.runs.recorded_plan import list_input_files
from sentence_beam.transforms.store.shards.stored_types import read_stored_types

Types = tuple[tuple[str, str], ...]


def choose_types(files: pa.Table, job: EmbedJob, last: Manifest | None) -> Types:
    """Return the code of the type that each kept column is read as, of rows `PLANNED`.

    Raises OptionError if no file has a column that is kept or that a template names.
    """
    if not job.columns.keep and not list_templates(job):
        return ()
    # a file without rows tells nothing
    is_rowless = pc.fill_null(pc.equal(pc.list_value_length(files.column("spans")), 0), False)
    files = files.filter(pc.and_(files.column("bad").is_null(), pc.invert(is_rowless)))
    opened = files.filter(files.column("kept").is_valid())
    if len(opened) == len(files):
        _check_keys(opened, job)  # files that stay as they are have had all columns
    return _find_types(opened, job, last)


def _find_types(opened: pa.Table, job: EmbedJob, last: Manifest | None) -> Types:
    """Return the code of the type of each kept column that was given none."""
    kept = [dict(pairs) for pairs in list_distinct_values(opened, "kept")]
    types = []
    for name, stored in find_stored_types(job, last).items():
        if stored is not None:
            code = make_code(stored)
        elif name == job.columns.text and job.columns.of_text is None:
            code = make_code(STR.arrow)  # the text itself, which files may have as bytes
        else:
            code = join_codes([codes[name] for codes in kept if name in codes])
        types.append((name, code))
    return tuple(types)


def find_stored_types(job: EmbedJob, last: Manifest | None) -> dict[str, pa.DataType | None]:
    """Return the store's type of each kept column that was given none; None without one."""
    names = [name for name in job.columns.keep if name not in job.columns.kinds]
    stored = read_stored_types(last, names) if last is not None else {}
    return {name: stored.get(name) for name in names}


def join_codes(codes: list[str]) -> str:
    """Return the code of the type for all values of some columns.

    "" is the code of CSV, whose values are read as any type. The result is a word if an option can
    name the type and not all columns are of tables.
    """
    typed = {code for code in codes if code not in ("", NO_TYPE)}
    if not typed:
        return STR.word if "" in codes else NO_TYPE
    if all(map(is_word, typed)):
        return join_words(typed)
    kinds = sorted((parse_type(code).arrow for code in typed), key=str)
    joined = functools.reduce(join_types, kinds)
    words = [word for word, kind in TYPES.items() if kind.arrow == joined]
    if words and any(code == "" or is_word(code) for code in codes):
        return words[0]
    return make_code(joined)


def find_retyped(types: Types, last: Manifest | None) -> tuple[str, ...]:
    """Return the columns without a value in the last snapshot that have another type than text now.

    Its shards have them as text.
    """
    if last is None:
        return ()
    untyped = [name for name, code in types if last.options.keep_types.get(name) == NO_TYPE]
    return tuple(name for name in untyped if parse_type(dict(types)[name]).arrow != STR.arrow)


def _check_keys(opened: pa.Table, job: EmbedJob) -> None:
    """Raise OptionError for a kept column, or one of a template, that is in no file's first
    rows.
    """
    told = opened.filter(opened.column("keys").is_valid())
    if not len(told):
        return
    seen = {name for names in list_distinct_values(told, "keys") for name in names}
    named = [(name, cite("keep_columns")) for name in job.columns.keep]
    named += [(name, option) for names, option in list_templates(job) for name in names]
    for name, option in named:
        if name not in seen:
            first = next(list_input_files(told.slice(0, 1), job.syntax))
            raise open_columns(first).make_missing_error(name, option)
