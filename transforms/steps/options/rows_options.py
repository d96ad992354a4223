"""The options of a run whose input is a PCollection: those of `embed` that it can have."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.base.keyword_options import make_options
from sentence_beam.transforms.steps.options.embed import EmbedOptions
from sentence_beam.transforms.steps.options.resolve import Resolved, hold_lease, resolve_run
from sentence_beam.transforms.store.manifest import read_manifest

NAME = "collection"  # of the one file as which the rows are on record
SOURCE = storage.ROWS + NAME
BY_CONTENT = "content"
ID = "id"  # the field with the ids, unless the store remembers another
# Options of `embed` that a PCollection has no use for, and what to do instead.
OF_FILES = dict.fromkeys(
    (
        "input", "input_version", "input_filter", "hidden", "format", "delimiter", "csv",
        "json_rows", "limit", "max_bad_files",
    ),
    "it is an option for files; leave it out",
)  # fmt: skip
REFUSED = OF_FILES | {
    "append": (
        "the PCollection is the whole collection, and rows that it lacks leave the store; add the"
        " other rows to it"
    ),
    "like": "embed takes it, for files; give the options of that store",
    "text_column": "say text='...'",
    "id_column": "say id='...'",
}


def make_options_for_rows(
    store: str, text: str | None, id_field: str | None, keywords: Mapping[str, Any]
) -> EmbedOptions:
    """Return the options of a run over rows with these fields, from keywords.

    Raises OptionError for an option that needs files, and for units by file; TypeError for an
    unknown one.
    """
    options = dict(keywords)
    for name, mend in REFUSED.items():
        if options.pop(name, None):
            raise OptionError(f"{name}: {mend}")
    partition = options.pop("partition", None) or BY_CONTENT
    if partition != BY_CONTENT:
        raise OptionError(
            f"partition {partition!r}: rows of a PCollection are cut into units by content; leave"
            " it out"
        )
    options |= {"input": (SOURCE,), "store": store, "partition": partition}
    options |= {"text_column": text, "id_column": id_field}
    return make_options(EmbedOptions, "WriteStore", options)


def resolve_for_rows(options: EmbedOptions, in_process: bool) -> Resolved:
    """Resolve options to a run whose input is a PCollection, over the store's current snapshot.

    Raises OptionError for options that do not fit each other or the store.
    """
    root = storage.absolute(options.store)
    previous = read_manifest(root)
    if previous is not None and previous.partition != BY_CONTENT and not options.reembed:
        raise OptionError(
            f"{root} has its units by file (partition 'file'), and rows of a PCollection have no"
            " files; choose another store, or embed everything anew with reembed=True"
        )
    if options.id_column is None:
        remembered = previous.options.id_column if previous is not None else None
        options = replace(options, id_column=remembered or ID)
    return hold_lease(resolve_run(options, previous, local=in_process))
