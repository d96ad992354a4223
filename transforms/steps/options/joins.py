"""The options of the commands that compare whole collections."""

from transforms import values
from transforms.common_options import STORE, TABLE_FILE
from transforms.option import Declared, Exclusive, option, options

AGGLOMERATIVE_ROWS = 10_000  # every pair's distance is held at once
HOW_MANY = Exclusive("number of clusters", required=True)
# Called `--threshold` in earlier versions.
MIN_SCORE = Declared("", kind=values.cosine, metavar="X", aliases=("--threshold",))


@options
class DedupOptions:
    """The options of `dedup`."""

    store: str = option(STORE, kw_only=False)
    min_score: float = option(
        MIN_SCORE,
        help="rows whose cosine is X or more are near duplicates, and so is what these are near duplicates of",
    )
    output: str = option(TABLE_FILE, metavar="FILE")


@options
class ClusterOptions:
    """The options of `cluster`; one of `clusters` and `min_score` is given."""

    store: str = option(STORE, kw_only=False)
    clusters: int | None = option(
        "how many, found by k-means over cosines (default: none)",
        kind=values.positive,
        metavar="K",
        exclusive=HOW_MANY,
        default=None,
    )
    min_score: float | None = option(
        MIN_SCORE,
        help="as many as there are when groups are joined while the mean cosine between them is X or more; for at most "
        f"{AGGLOMERATIVE_ROWS:,} rows (default: none)",
        exclusive=HOW_MANY,
        default=None,
    )
    output: str = option(
        f"{TABLE_FILE}; the clusters themselves go into a Parquet file beside it, <name>-clusters.parquet",
        metavar="FILE",
    )
