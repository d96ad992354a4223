"""The options of `embed` that name the rows and decide their vectors."""

from sentence_beam.transforms.base import values
from sentence_beam.transforms.base.option import Exclusive, Remembered, option, options
from sentence_beam.transforms.corpus.column_types import TYPES, parse_columns
from sentence_beam.transforms.corpus.text_template import parse as parse_template
from sentence_beam.transforms.corpus.text_template import text_template
from sentence_beam.transforms.options.common import (
    CALIBRATION,
    CSV,
    DELIMITER,
    DTYPE_OF_STORE,
    FORMAT,
    ID_COLUMN,
    JSON_ROWS,
    MAX_TOKENS,
    MODEL,
    NORMALIZE,
    ONE_PROMPT,
    POOLER,
    PROMPT,
    PROMPT_NAME,
    REVISION,
    TEXT_COLUMN,
    TRUNCATE_DIM,
    declare_input,
)
from sentence_beam.transforms.space.chunks_spec import ChunksSpec
from sentence_beam.transforms.space.identity import PRECISIONS
from sentence_beam.transforms.store.entries import RememberedOptions

CONTENT = Remembered.CONTENT
RUN = Remembered.RUN
INPUT = "input (a store remembers format and columns)"
VECTORS = "vectors (a store remembers them)"
ONE_TEXT = Exclusive("text")


def parse_column_names(text: str) -> tuple[str, ...]:
    """Return the columns to keep, with their types if given. Raises OptionError for other text."""
    return tuple(map(str, parse_columns(text)))


@options
class VectorOptions:
    """The input files, the columns of a row, and what decides its vector."""

    input: tuple[str, ...] = option(
        declare_input("what to embed", "as in the last run", bare=True),
        group=INPUT,
        kw_only=False,
        default=(),
    )
    input_version: int | None = option(
        "version of a Delta table, or id of an Iceberg snapshot; not remembered (default: the"
        " current one)",
        kind=values.whole,
        metavar="N",
        group=INPUT,
        advanced=True,
        default=None,
    )
    input_filter: str | None = option(
        "only partitions of a table whose columns say so, as in lang = 'en' AND day >="
        " '2026-01-01'; not remembered (default: all)",
        kind=values.filled,
        metavar="EXPR",
        group=INPUT,
        advanced=True,
        default=None,
    )
    hidden: bool | None = option(
        "take files and folders too whose names begin with a dot (default: no, unless the pattern"
        " writes the dot)",
        group=INPUT,
        remembered=RUN,
        advanced=True,
        default=None,
    )
    format: str | None = option(
        FORMAT, group=INPUT, remembered=CONTENT, advanced=True, default=None
    )
    delimiter: str | None = option(
        DELIMITER, group=INPUT, remembered=CONTENT, advanced=True, default=None
    )
    csv: str | None = option(CSV, group=INPUT, remembered=CONTENT, advanced=True, default=None)
    json_rows: str | None = option(
        JSON_ROWS, group=INPUT, remembered=CONTENT, advanced=True, default=None
    )
    text_column: str | None = option(
        TEXT_COLUMN, group=INPUT, exclusive=ONE_TEXT, remembered=CONTENT, default=None
    )
    text_template: str | None = option(
        r"text made of several columns, as in '{title}\n\n{body}' (default: none)",
        kind=text_template,
        metavar="STR",
        group=INPUT,
        exclusive=ONE_TEXT,
        remembered=CONTENT,
        default=None,
    )
    id_column: str | None = option(ID_COLUMN, group=INPUT, remembered=CONTENT, default=None)
    keep_columns: tuple[str, ...] | None = option(
        f"columns to keep in the store; types: {', '.join(TYPES)} (default: none)",
        kind=parse_column_names,
        metavar="A[:TYPE],B",
        group=INPUT,
        remembered=CONTENT,
        default=None,
    )
    keep_text: bool | None = option(
        "keep each row's text in the store, as its column text, for search to show (default: yes in"
        " a new store)",
        group=INPUT,
        remembered=CONTENT,
        advanced=True,
        default=None,
    )
    limit: int | None = option(
        "only the first N rows; not remembered (default: all)",
        kind=values.positive,
        metavar="N",
        group=INPUT,
        default=None,
    )
    model: str | None = option(MODEL, group=VECTORS, remembered=CONTENT, default=None)
    revision: str | None = option(
        REVISION, group=VECTORS, remembered=CONTENT, advanced=True, default=None
    )
    pooler: str | None = option(POOLER, group=VECTORS, remembered=CONTENT, default=None)
    prompt: str | None = option(
        PROMPT,
        help="text put before every row (default: the model's for documents)",
        group=VECTORS,
        exclusive=ONE_PROMPT,
        remembered=CONTENT,
        default=None,
    )
    prompt_name: str | None = option(
        PROMPT_NAME,
        help="one of the model's named prompts; not with --prompt (default: document, if it has"
        " that)",
        group=VECTORS,
        exclusive=ONE_PROMPT,
        advanced=True,
        default=None,
    )
    max_tokens: int | None = option(MAX_TOKENS, group=VECTORS, remembered=CONTENT, default=None)
    normalize: bool | None = option(
        NORMALIZE, group=VECTORS, remembered=CONTENT, advanced=True, default=None
    )
    calibration: str | None = option(CALIBRATION, group=VECTORS, default=None)
    truncate_dim: int | None = option(TRUNCATE_DIM, group=VECTORS, remembered=CONTENT, default=None)
    dtype: str | None = option(DTYPE_OF_STORE, group=VECTORS, remembered=RUN, default=None)
    query_prompt: str | None = option(
        "text put before every query in searches (default: the store's, else the model's own for"
        " queries)",
        metavar="STR",
        group=VECTORS,
        remembered=RUN,
        advanced=True,
        default=None,
    )
    chunks: str | None = option(
        "how documents are cut into pieces, a vector each: none, sentences[:tokens=N],"
        " budget[:tokens=N,overlap=M,by=text|markdown,ends=greedy|stable,combine=none|mean] or"
        " late[:window=N,overlap=M,...] (default: none, a row is one text)",
        kind=ChunksSpec.parse,
        metavar="SPEC",
        group=VECTORS,
        remembered=CONTENT,
        default=None,
    )
    chunk_prefix: str | None = option(
        "put before every piece, with columns' names in braces and {headings} for those above it"
        " (default: nothing)",
        kind=parse_template,
        metavar="STR",
        group=VECTORS,
        remembered=CONTENT,
        advanced=True,
        default=None,
    )
    precision: str | None = option(
        f"type of the stored vectors (default: {RememberedOptions.precision})",
        choices=PRECISIONS,
        group=VECTORS,
        remembered=CONTENT,
        advanced=True,
        default=None,
    )
