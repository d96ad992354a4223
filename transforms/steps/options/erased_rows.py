"""The list of erased rows that a run gives to its store."""

from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.steps.options import EmbedOptions
from sentence_beam.transforms.steps.options.stored import Stored
from sentence_beam.transforms.store.entries import ForgottenEntry
from sentence_beam.transforms.store.forgetting.hashes import (
    ForgottenRows,
    hash_id,
    make_entry,
    read_rows,
)


def make_new_list(options: EmbedOptions, stored: Stored) -> ForgottenRows | None:
    """Return the list to write into the store, without allowed rows; None if its list stays.

    A store that is made like another one begins with the list of that one. Raises OptionError if an
    allowed row is not among the erased rows.
    """
    source = stored.source
    if source is None:
        return None
    if source.forgotten is None and options.allow_forgotten:
        raise OptionError(
            f"{cite('allow_forgotten')}: no row of {source.root} was erased; leave it out"
        )
    stays = source is stored.previous and not options.allow_forgotten
    if source.forgotten is None or stays:
        return None
    rows = read_rows(source.root, source.forgotten)
    key = rows.key_bytes
    for name in options.allow_forgotten:
        if hash_id(key, name) not in rows.ids:
            raise OptionError(
                f"{cite('allow_forgotten')}: {name!r} is none of the erased rows of {source.root};"
                " leave it out"
            )
    return rows.without(hash_id(key, name) for name in options.allow_forgotten)


def make_coming_entry(stored: Stored, rows: ForgottenRows | None) -> ForgottenEntry | None:
    """Return the manifest's entry of the erased rows; `rows` is the list if it is a new one."""
    source = stored.source
    if source is None or source.forgotten is None:
        return None
    return source.forgotten if rows is None else make_entry(rows, source.forgotten.run)
