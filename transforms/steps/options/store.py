"""The options of the commands that show, check and tidy a store, or copy it elsewhere."""

from collections.abc import Sequence

from sentence_beam.transforms.base import values
from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.base.option import Declared, Exclusive, option, options, read
from sentence_beam.transforms.options.common import (
    NEIGHBOURS,
    PRICE_PER_HOUR,
    SNAPSHOT,
    STORE,
    STORES_MODEL,
    TABLE_FILE,
    WHERE,
    declare_k,
)
from sentence_beam.transforms.store.entries import RememberedOptions

SHOWN = 100  # rows that are printed if no output is named
OLDER_THAN = "7d"
PAGE = "html"
METRICS_TEXT = "openmetrics"
VECTOR_FILES = ("npy", "faiss", "lance")
RUN = "a run or the beginning of one, latest, or -1 for the one before"
TABLE = Declared(TABLE_FILE, metavar="FILE")
WATCHED = Exclusive("queries to watch")
ERASED = Exclusive("rows to erase")


@options
class InfoOptions:
    """The options of `info`."""

    store: str = option(STORE, kw_only=False, default=None)
    snapshot: str | None = option(SNAPSHOT, default=None)


@options
class FilesOptions:
    """The options of `files`."""

    store: str = option(STORE, kw_only=False, default=None)
    snapshot: str | None = option(SNAPSHOT, default=None)
    link: str | None = option(
        "make DIR a folder of links to exactly these shards, without earlier links (default: print"
        " the paths)",
        metavar="DIR",
        default=None,
    )


@options
class VerifyOptions:
    """The options of `verify`; if `beam_flags` name a runner, its workers do the work."""

    store: str = option(STORE, kw_only=False, default=None)
    snapshot: str | None = option(SNAPSHOT, default=None)
    sample: float = option(
        "share of the shards to read, others for each snapshot; the rest is compared with a"
        " listing, and below 1 the index is skipped (default: 1)",
        kind=values.fraction,
        metavar="FRACTION",
        default=1.0,
    )
    forgotten: bool = option(
        "check instead that no file of the store has an erased row (default: no)", default=False
    )
    beam_flags: Sequence[str] = ()


@options
class RejectsOptions:
    """The options of `rejects`."""

    store: str = option(STORE, kw_only=False, default=None)
    snapshot: str | None = option(
        f"{RUN} (default: the last with a list)", metavar="RUN", default=None
    )
    output: str | None = option(
        TABLE,
        help=f"{TABLE_FILE} with all of them (default: the first {SHOWN} are printed)",
        default=None,
    )


@options
class HistoryOptions:
    """The options of `history`."""

    store: str = option(STORE, kw_only=False, default=None)
    output: str | None = option(
        TABLE, help=f"{TABLE_FILE}, with more columns (default: a table is printed)", default=None
    )


@options
class DiffOptions:
    """The options of `diff`."""

    old: str = option(
        f"the older snapshot: {RUN} (default: -1)", metavar="A", positional=True, default="-1"
    )
    new: str = option(
        f"the newer snapshot: {RUN} (default: latest)",
        metavar="B",
        positional=True,
        default="latest",
    )
    store: str = option(STORE, kw_only=False, default=None)
    output: str | None = option(
        TABLE,
        help=(
            f"{TABLE_FILE} with a row for each difference (default: the first {SHOWN} are printed)"
        ),
        default=None,
    )


@options
class RollbackOptions:
    """The options of `rollback`."""

    run: str = option(
        "run of the earlier snapshot; history lists them", metavar="RUN", positional=True
    )
    store: str = option(STORE, kw_only=False, default=None)
    beam_flags: Sequence[str] = ()


@options
class ForgetOptions:
    """The options of `forget`: which rows, and how many at most."""

    store: str = option(STORE, kw_only=False, default=None)
    id: Sequence[str] = option(
        "id of a row to erase; several, or repeated (default: none)",
        metavar="ID",
        several="list",
        exclusive=ERASED,
        default=(),
    )
    ids: str | None = option(
        "file of ids, one a line (default: none)", metavar="FILE", exclusive=ERASED, default=None
    )
    where: str | None = option(
        WHERE,
        help="rows whose columns match, as in user = 'u-17' (default: none)",
        exclusive=ERASED,
        default=None,
    )
    max_deletes: float = option(
        "share of the rows that may be erased; 1 allows all (default:"
        f" {RememberedOptions.max_deletes:g})",
        kind=values.fraction,
        metavar="FRACTION",
        default=RememberedOptions.max_deletes,
    )
    missing_ok: bool = option("ids that no row has are no error (default: no)", default=False)
    reason: str = option("a note for the receipt (default: none)", metavar="TEXT", default="")
    dry_run: bool = option("only print what would be erased (default: no)", default=False)
    beam_flags: Sequence[str] = ()

    def __post_init__(self) -> None:
        from sentence_beam.transforms.corpus.given_ids import format_ids  # late: pyarrow

        object.__setattr__(self, "id", format_ids(self.id))
        read(self)
        if not self.id and self.ids is None and self.where is None:
            raise OptionError(
                f"say which rows: {cite('id')} ID, {cite('ids')} FILE or {cite('where')} EXPR"
            )


@options
class WatchOptions:
    """The options of `watch`: new queries, none any more, or a comparison of answers."""

    store: str = option(STORE, kw_only=False, default=None)
    queries: str | None = option(
        "file of queries, one a line; a table has columns id and text (default: none)",
        metavar="FILE",
        exclusive=WATCHED,
        default=None,
    )
    draw: int | None = option(
        "watch N sentences of the store's own texts, chosen by hash (default: none)",
        kind=values.positive,
        metavar="N",
        exclusive=WATCHED,
        default=None,
    )
    remove: bool = option(
        "watch no queries any more (default: no)", exclusive=WATCHED, default=False
    )
    like: str | None = option(
        "compare this store's answers with those of STORE, by its watched queries (default: none)",
        kind=values.filled,
        metavar="STORE",
        exclusive=WATCHED,
        default=None,
    )
    k: int = option(
        declare_k(f"answers for each query (default: {NEIGHBOURS})"), default=NEIGHBOURS
    )
    report: str | None = option(
        "write a page with the answers that changed most since the snapshot before, or that differ"
        " most from those of --like (default: none)",
        metavar="FILE",
        default=None,
    )
    model: str | None = option(STORES_MODEL, default=None)
    beam_flags: Sequence[str] = ()

    def __post_init__(self) -> None:
        read(self)
        if self.like is not None and self.k != NEIGHBOURS:
            raise OptionError(
                f"{cite('k')}: each query has as many answers as in {cite('like')}; leave"
                f" {cite('k')} out"
            )

    @property
    def changes(self) -> bool:
        """Whether the queries to watch are to change."""
        return self.remove or self.queries is not None or self.draw is not None


@options
class ReportOptions:
    """The options of `report`."""

    store: str = option(STORE, kw_only=False, default=None)
    format: str = option(
        "html: a page; openmetrics: text for a monitoring system, of the last run (default:"
        f" {PAGE})",
        choices=(PAGE, METRICS_TEXT),
        default=PAGE,
    )
    output: str | None = option(
        "the file to write (default: report.html in this folder; openmetrics is printed)",
        metavar="FILE",
        default=None,
    )
    price_per_hour: float | None = option(PRICE_PER_HOUR, default=None)

    def __post_init__(self) -> None:
        read(self)
        if self.format != PAGE and self.price_per_hour is not None:
            raise OptionError(
                f"{cite('price_per_hour')} is for the page; leave it out with {cite('format')}"
                " openmetrics"
            )


@options
class VacuumOptions:
    """The options of `vacuum`."""

    store: str = option(STORE, kw_only=False, default=None)
    keep: int | None = option(
        "keep the newest N snapshots (default: the current one)",
        kind=values.positive,
        metavar="N",
        default=None,
    )
    older_than: float | None = option(
        f"keep younger snapshots, as in 7d or 12h (default: {OLDER_THAN} without --keep)",
        kind=values.duration,
        metavar="D",
        default=None,
    )
    dry_run: bool = option("only print what would be removed (default: no)", default=False)
    beam_flags: Sequence[str] = ()


@options
class ExportOptions:
    """The options of `export`; if `beam_flags` name a runner, its workers write the vectors."""

    store: str = option(STORE, kw_only=False, default=None)
    output: str = option(
        "local folder, or any folder with --vectors npy and lance; an earlier export there is"
        " replaced, anything else is not",
        metavar="DIR",
    )
    vectors: str | None = option(
        "write the rows in place of the encoder: npy, a matrix; faiss, one index; both with a file"
        " of ids; lance, a table of LanceDB (default: the encoder)",
        choices=VECTOR_FILES,
        default=None,
    )
    where: str | None = option(
        WHERE, help="with --vectors: only rows that match (default: all rows)", default=None
    )
    snapshot: str | None = option(SNAPSHOT, default=None)
    beam_flags: Sequence[str] = ()

    def __post_init__(self) -> None:
        read(self)
        if self.where is not None and self.vectors is None:
            raise OptionError(
                f"{cite('where')} is for {cite('vectors')}; leave it out, or say {cite('vectors')}"
            )


@options
class PushOptions:
    """The options of `push`; if `beam_flags` name a runner, its workers write the rows."""

    store: str = option(STORE, kw_only=False, default=None)
    to: str = option(
        "postgresql://USER@HOST/DATABASE#TABLE, qdrant:URL#COLLECTION, qdrant:FOLDER#COLLECTION or"
        " lance:FOLDER#TABLE; created if missing",
        kind=values.filled,
        metavar="TARGET",
    )
    full: bool = option(
        "write every row, and delete rows that the store does not have (default: no)",
        default=False,
    )
    max_deletes: float = option(
        "rows of the table that may be deleted; 1 allows all (default:"
        f" {RememberedOptions.max_deletes:g})",
        kind=values.fraction,
        metavar="FRACTION",
        default=RememberedOptions.max_deletes,
    )
    dry_run: bool = option("only count what would be written (default: no)", default=False)
    beam_flags: Sequence[str] = ()
