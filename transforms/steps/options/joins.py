"""The options of the commands that compare whole collections."""

from sentence_beam.transforms.base import values
from sentence_beam.transforms.base.errors import OptionError, cite_argument
from sentence_beam.transforms.base.option import Declared, Exclusive, option, options, read
from sentence_beam.transforms.options.common import (
    CALIBRATION,
    CSV,
    DELIMITER,
    DEVICE,
    DTYPE,
    FORMAT,
    ID_COLUMN,
    JSON_ROWS,
    MAX_TOKENS,
    MODEL,
    NAMED_STORE,
    NEIGHBOURS,
    NORMALIZE,
    ONE_PROMPT,
    POOLER,
    PROMPT,
    PROMPT_NAME,
    QUERY_ID_COLUMN,
    QUERY_PROMPT,
    REVISION,
    SNAPSHOT,
    STORE,
    TABLE_FILE,
    TEXT_COLUMN,
    TOKENS_PER_BATCH,
    TRUNCATE_DIM,
    WHERE,
    declare_input,
    declare_k,
)
from sentence_beam.transforms.options.common import MIN_SCORE as ANY_SCORE
from sentence_beam.transforms.steps.options.search_options import (
    OF_QUERY_FILES,
    QUERY_FILES,
    refuse_without_queries,
)
from sentence_beam.transforms.store.layout import default_store

AGGLOMERATIVE_ROWS = 10_000  # every pair's distance is held at once
QUERIES = Exclusive("queries", required=True)
HOW_MANY = Exclusive("number of clusters", required=True)
MIN_SCORE = Declared("", kind=values.cosine, metavar="X")


@options
class DedupOptions:
    """The options of `dedup`."""

    store: str = option(STORE, kw_only=False, default=None)
    min_score: float = option(
        MIN_SCORE,
        help=(
            "rows whose cosine is at least X are near duplicates; so are rows that a chain of such"
            " pairs connects"
        ),
    )
    where: str | None = option(WHERE, default=None)
    snapshot: str | None = option(SNAPSHOT, default=None)
    output: str = option(TABLE_FILE, metavar="FILE")


@options
class ClusterOptions:
    """The options of `cluster`; one of `clusters` and `min_score` is given."""

    store: str = option(STORE, kw_only=False, default=None)
    clusters: int | None = option(
        "number of clusters, found by k-means over cosines (default: none)",
        kind=values.positive,
        metavar="K",
        exclusive=HOW_MANY,
        default=None,
    )
    min_score: float | None = option(
        MIN_SCORE,
        help=(
            "merge groups while their mean cosine is at least X;"
            f" for at most {AGGLOMERATIVE_ROWS:,} rows (default: none)"
        ),
        exclusive=HOW_MANY,
        default=None,
    )
    where: str | None = option(WHERE, default=None)
    snapshot: str | None = option(SNAPSHOT, default=None)
    output: str = option(
        f"{TABLE_FILE}; the clusters themselves go into a Parquet file beside it,"
        " <name>-clusters.parquet",
        metavar="FILE",
    )


@options
class NeighboursOptions:
    """The options of `neighbours`; one of `queries` and `of` is given."""

    store: str = option(
        STORE,
        help=f"store whose rows are found (default: {NAMED_STORE})",
        kw_only=False,
        default=None,
    )
    queries: tuple[str, ...] | None = option(
        "files of queries, as embed reads (default: none)",
        metavar="GLOB",
        several="list",
        exclusive=QUERIES,
        default=None,
    )
    of: str | None = option(
        "a store whose rows are the queries; in the same store a row never finds itself (default:"
        " none)",
        kind=values.filled,
        metavar="STORE",
        exclusive=QUERIES,
        default=None,
    )
    k: int = option(declare_k(f"rows for each query (default: {NEIGHBOURS})"), default=NEIGHBOURS)
    min_score: float | None = option(
        ANY_SCORE, help="leave out rows with a lower score (default: none)", default=None
    )
    where: str | None = option(
        WHERE,
        help="find only rows whose kept columns match; all queries are asked (default: all rows)",
        default=None,
    )
    snapshot: str | None = option(
        SNAPSHOT,
        help="an earlier snapshot of the store, also as --of itself (default: the current one)",
        default=None,
    )
    output: str = option(
        f"{TABLE_FILE}, with texts; or a folder or URL, new, empty or of the same job, for Parquet"
        " files of ids",
        kind=values.filled,
        metavar="FILE|DIR",
    )
    format: str | None = option(FORMAT, group=QUERY_FILES, default=None)
    delimiter: str | None = option(DELIMITER, group=QUERY_FILES, default=None)
    csv: str | None = option(CSV, group=QUERY_FILES, default=None)
    json_rows: str | None = option(JSON_ROWS, group=QUERY_FILES, default=None)
    text_column: str | None = option(TEXT_COLUMN, group=QUERY_FILES, default=None)
    id_column: str | None = option(QUERY_ID_COLUMN, group=QUERY_FILES, default=None)
    query_prompt: str | None = option(QUERY_PROMPT, group=QUERY_FILES, default=None)
    model: str | None = option(
        "path of the store's model on the workers, verified by digest (default: where it was)",
        kind=values.filled,
        metavar="PATH",
        group=QUERY_FILES,
        default=None,
    )

    def __post_init__(self) -> None:
        read(self)
        if self.of is not None:
            refuse_without_queries(self, *OF_QUERY_FILES, "query_prompt", "model")


INPUT = "input"
VECTORS = "vectors"
RESULT = "result"
MACHINE = "machine"
OF_VECTORS = (
    "model", "revision", "pooler", "prompt", "prompt_name", "max_tokens", "normalize",
    "calibration", "truncate_dim", "dtype", "text_column", "id_column", "delimiter", "csv",
    "json_rows",
)  # fmt: skip


@options
class PairsOptions:
    """The options of `pairs`: `input`, or a `store`, which has its vectors."""

    input: tuple[str, ...] | None = option(
        declare_input("what to read", "none", bare=True), group=INPUT, default=None
    )
    store: str | None = option(
        STORE,
        help=f"a store whose vectors are compared (default: without --input {NAMED_STORE})",
        fallback=None,
        group=INPUT,
        default=None,
    )
    snapshot: str | None = option(
        SNAPSHOT,
        help="an earlier snapshot of it (default: the current one)",
        group=INPUT,
        default=None,
    )
    format: str = option(FORMAT, group=INPUT, default="auto")
    delimiter: str | None = option(DELIMITER, group=INPUT, default=None)
    csv: str | None = option(CSV, group=INPUT, default=None)
    json_rows: str | None = option(JSON_ROWS, group=INPUT, default=None)
    text_column: str | None = option(TEXT_COLUMN, group=INPUT, default=None)
    id_column: str | None = option(ID_COLUMN, group=INPUT, default=None)
    model: str | None = option(MODEL, group=VECTORS, default=None)
    revision: str | None = option(REVISION, group=VECTORS, default=None)
    pooler: str | None = option(POOLER, group=VECTORS, default=None)
    prompt: str | None = option(PROMPT, group=VECTORS, exclusive=ONE_PROMPT, default=None)
    prompt_name: str | None = option(PROMPT_NAME, group=VECTORS, exclusive=ONE_PROMPT, default=None)
    max_tokens: int | None = option(MAX_TOKENS, group=VECTORS, default=None)
    normalize: bool | None = option(NORMALIZE, group=VECTORS, default=None)
    calibration: str | None = option(CALIBRATION, group=VECTORS, default=None)
    truncate_dim: int | None = option(TRUNCATE_DIM, group=VECTORS, default=None)
    dtype: str | None = option(DTYPE, group=VECTORS, default=None)
    k: int = option(
        declare_k(f"how many pairs (default: {NEIGHBOURS})"), group=RESULT, default=NEIGHBOURS
    )
    min_score: float | None = option(
        "only pairs with this cosine or a higher one (default: any)",
        kind=values.cosine,
        metavar="X",
        group=RESULT,
        default=None,
    )
    distinct: bool = option(
        "count rows of one text as one row (default: no)", group=RESULT, default=False
    )
    output: str | None = option(
        f"{TABLE_FILE} (default: a table is printed)", metavar="FILE", group=RESULT, default=None
    )
    device: str = option(DEVICE, group=MACHINE, default="auto")
    tokens_per_batch: int | None = option(TOKENS_PER_BATCH, group=MACHINE, default=None)

    def __post_init__(self) -> None:
        read(self)
        if self.input is not None and self.store is not None:
            raise OptionError(
                f"{cite_argument('store')}: not allowed with {cite_argument('input')}"
            )
        if self.input is None and self.store is None:
            object.__setattr__(self, "store", default_store())
        of_vectors = [name for name in OF_VECTORS if getattr(self, name) is not None]
        if self.store is not None and of_vectors:
            raise OptionError(
                f"{cite_argument(of_vectors[0])}: not allowed with {cite_argument('store')}, which"
                " has its vectors"
            )
