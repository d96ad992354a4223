"""The types of kept columns, which are the same in all files of a run.

A column has the type that it was given, now or by an earlier run, else the store's. A column that
is new to the store has the narrowest type that holds the values of all files. Values of CSV are
text unless other files have a type. Files that lack the column have nulls.
"""

import functools

import pyarrow as pa

from sentence_beam.transforms.corpus.arrow_types import (
    NO_TYPE,
    code_of,
    is_word,
    join_words,
    type_of,
)
from sentence_beam.transforms.corpus.column_types import STR, TYPES
from sentence_beam.transforms.corpus.formats.registry import columns_of
from sentence_beam.transforms.corpus.type_join import join_types
from sentence_beam.transforms.steps.options.job import EmbedJob
from sentence_beam.transforms.steps.plan.footers import templates
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.runs.plan import PlannedFile
from sentence_beam.transforms.store.shards.kept_types import stored_types


def with_types(
    planned: list[PlannedFile], job: EmbedJob, last: Manifest | None
) -> list[PlannedFile]:
    """Return the plan with the types that kept columns are read as.

    Raises OptionError if no file has a column that is kept or that a template names.
    """
    # a file without rows and without columns tells nothing
    items = [item for item in planned if not item.bad and (item.keys or not item.is_rowless)]
    if not job.columns.keep and not templates(job):
        return planned
    opened = [item for item in items if item.kept is not None]
    if len(opened) == len(items) and not any(item.carried for item in items):
        _check_keys(opened, job)  # files that stay as they are have had all columns
    types = _found_types(opened, job, last)
    if not types:
        return planned
    return [item.reading(types) for item in planned]


def _found_types(
    opened: list[PlannedFile], job: EmbedJob, last: Manifest | None
) -> tuple[tuple[str, str], ...]:
    """Return the code of the type of each kept column that was given none."""
    names = [name for name in job.columns.keep if name not in job.columns.kinds]
    stored: dict[str, pa.DataType] = {}
    if names and last is not None:
        stored = stored_types(last, names)
    found = []
    for name in names:
        if name in stored:
            code = code_of(stored[name])
        elif name == job.columns.text and job.columns.of_text is None:
            code = code_of(STR.arrow)  # the text itself, which files may have as bytes
        else:
            code = join_codes([kinds[name] for kinds in map(_codes, opened) if name in kinds])
        found.append((name, code))
    return tuple(found)


def _codes(item: PlannedFile) -> dict[str, str]:
    return dict(item.kept or ())


def join_codes(codes: list[str]) -> str:
    """Return the code of the type for all values of some columns.

    "" is the code of CSV, whose values are read as any type. The result is a word if an option can
    name the type and not all columns are of tables.
    """
    known = {code for code in codes if code not in ("", NO_TYPE)}
    if not known:
        return STR.word if "" in codes else NO_TYPE
    if all(map(is_word, known)):
        return join_words(known)
    kinds = sorted((type_of(code).arrow for code in known), key=str)
    joined = functools.reduce(join_types, kinds)
    words = [word for word, kind in TYPES.items() if kind.arrow == joined]
    if words and any(code == "" or is_word(code) for code in codes):
        return words[0]
    return code_of(joined)


def retyped(types: tuple[tuple[str, str], ...], last: Manifest | None) -> tuple[str, ...]:
    """Return the columns without a value in the last snapshot that have another type than text now.

    Its shards have them as text.
    """
    if last is None:
        return ()
    untyped = [name for name, code in types if last.options.keep_types.get(name) == NO_TYPE]
    return tuple(name for name in untyped if type_of(dict(types)[name]).arrow != STR.arrow)


def _check_keys(opened: list[PlannedFile], job: EmbedJob) -> None:
    """Raise OptionError for a kept column, or one of a template, that is in no file's first
    rows.
    """
    told = [item for item in opened if item.keys is not None]
    if not told:
        return
    named = [(name, "--keep-columns") for name in job.columns.keep]
    named += [(name, option) for names, option in templates(job) for name in names]
    for name, option in named:
        if not any(name in (item.keys or ()) for item in told):
            raise columns_of(told[0].file).missing_error(name, option)
