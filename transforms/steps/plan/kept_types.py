"""The types of kept columns, which are the same in all files of a run.

A column has the type that it was given, now or by an earlier run. Without one Parquet and other
tables have their own. The values of JSON and CSV are then read as other files have them, else as
the store does. A column that is new to the store is text if it is of CSV; if it is of JSON, its
first values tell.
"""

import contextlib
from collections.abc import Iterable
from dataclasses import replace

from transforms.base.errors import OptionError, SentenceBeamError
from transforms.corpus.column_types import STR, TYPES, word_for
from transforms.corpus.formats.registry import columns_of
from transforms.steps.options.job import EmbedJob
from transforms.steps.plan.footers import kept_types, templates
from transforms.store.manifest import Manifest
from transforms.store.runs.plan import PlannedFile
from transforms.store.shards.reading import open_shard


def with_types(
    planned: list[PlannedFile], job: EmbedJob, last: Manifest | None
) -> list[PlannedFile]:
    """The plan with the types that kept columns of JSON and CSV are read as.

    Raises OptionError if the types of kept columns differ, or no file has a column that is kept
    or that a template names.
    """
    # a file without rows and without columns tells nothing
    items = [item for item in planned if not item.bad and (item.keys or not item.is_rowless)]
    if not job.columns.keep and not templates(job):
        return planned
    opened = _opened(items, job)
    found = _found_types(opened, job, last)
    _check_same(opened, found, job)
    if not found:
        return planned
    return [item.reading(tuple(found.items())) for item in planned]


def _opened(items: list[PlannedFile], job: EmbedJob) -> list[PlannedFile]:
    """The files that were opened; of the others, which agree, one is.

    Raises OptionError for a column that none of them has.
    """
    known = [item for item in items if item.kept is not None]
    other = next((item for item in items if item.kept is None), None)
    is_known = other is not None or any(item.carried for item in items)
    if not is_known:  # files that stay as they are have had all columns
        _check_keys(known, job)
    if not known or other is None:
        return known
    columns = job.columns
    open_types = columns_of(other.file).open_types(columns.keep, columns.kinds)
    return [replace(other, kept=kept_types(other.file, job), open_types=open_types), *known]


def _found_types(opened: list[PlannedFile], job: EmbedJob, last: Manifest | None) -> dict[str, str]:
    """The words for the types of the columns that are open in some files."""
    open_names = {name for item in opened for name, _ in item.open_types}
    names = [name for name in job.columns.keep if name in open_names]
    if not names:
        return {}
    stored = {}
    if last is not None:
        stored = dict(stored_types(last, names))
    return {name: _found_type(name, opened, stored.get(name), job.root) for name in names}


def _found_type(name: str, opened: list[PlannedFile], stored: str | None, root: str) -> str:
    """Return the word for a column's type: that of other files, else the store's, else that of
    its first values.

    Raises OptionError if values are of several types, or of another than files or store have.
    """
    known = _known_words(name, opened)
    if stored:
        known.append((word_for(stored), root))
    places: dict[str, str] = {}
    for word, place in (*known[:1], *_words_of_values(name, opened)):
        places.setdefault(word, place)
    first = next(iter(places), STR.word)
    if known and first == STR.word:
        return first  # which takes all values
    if places.keys() == {"int", "float"} and (not known or first == "float"):
        return "float"
    if len(places) > 1:
        raise _different(name, list(places.items()))
    return first


def _known_words(name: str, opened: list[PlannedFile]) -> list[tuple[str, str]]:
    """Return (word for a column's type, file) for the files that have types of their own."""
    words = []
    for item in opened:
        kind = dict(item.kept or ()).get(name)
        if kind:
            words.append((word_for(kind), item.file.path))
    return words


def _words_of_values(name: str, opened: list[PlannedFile]) -> list[tuple[str, str]]:
    """Return (word for the type of a column's first values, their place) for the other files."""
    words = []
    for item in opened:
        word = dict(item.open_types).get(name)
        if word:
            words.append((word, f"the first rows of {item.file.path}"))
    return words


def _different(name: str, places: list[tuple[str, str]]) -> OptionError:
    (word, place), (other_word, other_place) = places[:2]
    stricter = word
    if word == STR.word:
        stricter = other_word
    return OptionError(
        f"--keep-columns: {name} is {word} in {place}, {other_word} in {other_place}; give its"
        f" type: {name}:str takes all values, {name}:{stricter} rejects rows with others"
    )


def stored_types(last: Manifest, names: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Name and Arrow type of those columns that the shards of a snapshot have."""
    kept = [name for name in names if name in last.options.keep_columns]
    if not kept:
        return ()
    for path in last.some_shard_paths():
        # a damaged one is made again
        with contextlib.suppress(SentenceBeamError), open_shard(path) as parquet:
            return tuple((name, str(parquet.schema_arrow.field(name).type)) for name in kept)
    return ()


def _check_same(opened: list[PlannedFile], found: dict[str, str], job: EmbedJob) -> None:
    """Raise OptionError if kept columns are of different types in two files."""
    types = [_types_of(item, found, job) for item in opened]
    for item, kinds in zip(opened[1:], types[1:], strict=True):
        if kinds != types[0]:
            name = next(name for name in kinds if kinds[name] != types[0].get(name))
            raise OptionError(
                f"--keep-columns: {opened[0].file.path} has {_listed(types[0])}, {item.file.path}"
                f" has {_listed(kinds)}; cast them to one type, or give one:"
                f" {name}:{word_for(kinds[name])}"
            )


def _types_of(item: PlannedFile, found: dict[str, str], job: EmbedJob) -> dict[str, str]:
    """The Arrow types of a file's kept columns, in their order."""
    kinds = {name: str(TYPES[found[name]].arrow) for name, _ in item.open_types}
    kinds |= dict(item.kept or ())
    return {name: kinds[name] for name in job.columns.keep}


def _listed(types: dict[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in types.items())


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
