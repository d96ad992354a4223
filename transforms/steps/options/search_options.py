"""The options of the commands that answer queries."""

from sentence_beam.transforms.base import values
from sentence_beam.transforms.base.errors import OptionError, cite, cite_argument
from sentence_beam.transforms.base.option import Declared, Exclusive, option, options, read
from sentence_beam.transforms.base.values import FOLDS
from sentence_beam.transforms.options.common import (
    CSV,
    DELIMITER,
    FORMAT,
    JSON_ROWS,
    MIN_SCORE,
    NEIGHBOURS,
    QUERY_ID_COLUMN,
    QUERY_PROMPT,
    SNAPSHOT,
    STORE,
    STORES_MODEL,
    TABLE_FILE,
    TEXT_COLUMN,
    WHERE,
    declare_k,
)

LOCAL = Declared("copy the whole index of a remote store to this disk (default: no)")
HOST = "127.0.0.1"
PORT = 8000
BEST = FOLDS[0]
QUERIES = Exclusive("queries", required=True)
QUERY_FILES = "files of queries"
OF_QUERY_FILES = ("format", "delimiter", "csv", "json_rows", "text_column", "id_column")


@options
class SearchOptions:
    """The options of `search`; one of `query`, `queries`, `id` and `query_vectors` is given."""

    store: str = option(STORE, kw_only=False, default=None)
    query: tuple[str, ...] | None = option(
        "text to search for, also without the flag; repeat for more (default: none)",
        metavar="TEXT",
        several="repeat",
        bare=True,
        exclusive=QUERIES,
        default=None,
    )
    queries: str | None = option(
        "file of queries, as embed reads; of plain text one a line; - for standard input (default:"
        " none)",
        metavar="FILE",
        exclusive=QUERIES,
        default=None,
    )
    id: tuple[str, ...] | None = option(
        "a stored row, to find those like it; repeat (default: none)",
        metavar="ID",
        several="repeat",
        exclusive=QUERIES,
        default=None,
    )
    query_vectors: str | None = option(
        "vectors to search by: .npy, or Parquet with embedding (default: none)",
        metavar="FILE",
        exclusive=QUERIES,
        default=None,
    )
    query_prompt: str | None = option(QUERY_PROMPT, default=None)
    k: int = option(declare_k(f"rows for each query (default: {NEIGHBOURS})"), default=NEIGHBOURS)
    where: str | None = option(WHERE, default=None)
    min_score: float | None = option(MIN_SCORE, default=None)
    rerank: str | None = option(
        "folder of a cross-encoder, by which the best 100 rows are scored and ordered (default:"
        " none)",
        metavar="DIR",
        default=None,
    )
    fold: str = option(
        "for documents cut into pieces: best finds a document once, by its best piece; none makes"
        f" every piece a hit (default: {BEST})",
        choices=FOLDS,
        default=BEST,
    )
    output: str | None = option(
        f"{TABLE_FILE} (default: a table is printed)", metavar="FILE", default=None
    )
    full: bool = option(
        "show all kept columns, and whole values on any terminal (default: no)",
        default=False,
    )
    exact: bool = option("compare with every row, without the index (default: no)", default=False)
    snapshot: str | None = option(SNAPSHOT, default=None)
    local: bool = option(LOCAL, default=False)
    model: str | None = option(STORES_MODEL, default=None)
    format: str | None = option(FORMAT, group=QUERY_FILES, default=None)
    delimiter: str | None = option(DELIMITER, group=QUERY_FILES, default=None)
    csv: str | None = option(CSV, group=QUERY_FILES, default=None)
    json_rows: str | None = option(JSON_ROWS, group=QUERY_FILES, default=None)
    text_column: str | None = option(TEXT_COLUMN, group=QUERY_FILES, default=None)
    id_column: str | None = option(QUERY_ID_COLUMN, group=QUERY_FILES, default=None)

    def __post_init__(self) -> None:
        if self.id is not None:
            from sentence_beam.transforms.corpus.given_ids import format_ids  # late: pyarrow

            object.__setattr__(self, "id", format_ids(self.id))
        read(self)
        if self.query is not None and not all(text.strip() for text in self.query):
            raise OptionError(f"{cite_argument('query')}: it is empty; say what to look for")
        if self.queries is None:
            refuse_without_queries(self, *OF_QUERY_FILES)


@options
class ServeOptions:
    """The options of `serve`."""

    store: str = option(STORE, kw_only=False, default=None)
    host: str = option(
        f"address to listen on; 0.0.0.0 lets other machines in (default: {HOST})",
        kind=values.filled,
        metavar="HOST",
        default=HOST,
    )
    port: int = option(
        f"port to listen on; 0 takes a free one (default: {PORT})",
        kind=values.port,
        metavar="N",
        default=PORT,
    )
    root_path: str = option(
        "path of the server behind a proxy, such as /store (default: none)",
        kind=values.root_path,
        metavar="PATH",
        default="",
    )
    where: str | None = option(WHERE, default=None)
    snapshot: str | None = option(
        SNAPSHOT,
        help="serve an earlier snapshot (default: the current one, also after later runs)",
        default=None,
    )
    query_prompt: str | None = option(QUERY_PROMPT, default=None)
    local: bool = option(LOCAL, default=False)
    model: str | None = option(STORES_MODEL, default=None)


def refuse_without_queries(options: object, *names: str) -> None:
    """Raise OptionError for an option of files of queries, if there are none."""
    for name in names:
        if getattr(options, name) is not None:
            raise OptionError(f"{cite(name)} is for {cite('queries')}; leave it out")
