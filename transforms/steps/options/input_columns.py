"""The columns that a new store takes from its input, if no option names them."""

from dataclasses import replace
from typing import Any

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.corpus.files import InputFile
from sentence_beam.transforms.corpus.find import find_inputs
from sentence_beam.transforms.corpus.found_columns import (
    ROWS,
    FoundColumns,
    check_text,
    find_columns,
    find_in_values,
)
from sentence_beam.transforms.corpus.lake_parts import LakePart
from sentence_beam.transforms.corpus.lakes import make_absolute_input
from sentence_beam.transforms.corpus.row_columns import read_first_values
from sentence_beam.transforms.corpus.syntax import Syntax
from sentence_beam.transforms.steps.options import EmbedOptions
from sentence_beam.transforms.store.manifest import Manifest


def fill_columns(
    options: EmbedOptions, source: Manifest | None
) -> tuple[EmbedOptions, FoundColumns]:
    """Return the options with the columns of text and ids, and what was found of them.

    `source` is the snapshot whose options are taken: its columns are remembered. Rows in memory
    have been looked at. Raises OptionError if no column of text is found.
    """
    seeks_text = options.text_column is None and options.text_template is None
    seeks_ids = options.id_column is None
    in_memory = any(map(storage.is_rows, options.input))
    if source is not None or in_memory or not (seeks_text or seeks_ids):
        return options, FoundColumns()
    files = _list_files(options)
    columns = find_columns(files, seeks_text, seeks_ids)
    if seeks_text and columns.text is None:
        check_text(files, columns.texts)
    return _set_columns(options, columns), columns


def fill_columns_of_rows(options: EmbedOptions, source: Manifest | None, rows: Any) -> EmbedOptions:
    """Return the options with the columns of text and ids of rows in memory, as `fill_columns`."""
    seeks_text = options.text_column is None and options.text_template is None
    seeks_ids = options.id_column is None
    if source is not None or not (seeks_text or seeks_ids):
        return options
    columns = find_in_values(read_first_values(rows, ROWS), seeks_text, seeks_ids)
    return _set_columns(options, columns)


def _set_columns(options: EmbedOptions, columns: FoundColumns) -> EmbedOptions:
    text = options.text_column if options.text_column is not None else columns.text
    ids = options.id_column if options.id_column is not None else columns.id
    return replace(options, text_column=text, id_column=ids)


def _list_files(options: EmbedOptions) -> list[InputFile]:
    """Return the files of a run's input; none if they cannot be listed here, as the plan says."""
    part = LakePart(options.input_version, options.input_filter)
    root = storage.absolute(options.store)
    kind = options.format or "auto"
    files = []
    try:
        syntax = Syntax.from_options(options)
        for glob in map(make_absolute_input, options.input):
            inputs = find_inputs(
                glob, kind, bool(options.hidden), syntax, part, options.max_bad_files > 0, root
            )
            files += inputs.files
    except SentenceBeamError:
        return []
    return files
