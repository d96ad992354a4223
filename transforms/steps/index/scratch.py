"""The names of all files that the steps of an index leave for each other.

They are in one folder of the run, which is removed when the run has committed; `vacuum` removes
that of other runs.
"""

# The held-out texts, which are the queries that recall is measured by.
QUERIES = "queries.npy"  # a vector of each, float32 [q, dim]
TEXTS = "texts.npy"  # their hashes
CROWDED = "crowded.npy"  # hashes of texts that have too many copies to be held out

# A training.
PARTS = "parts.txt"  # of the sample, a line each: name and rows
COARSE = "coarse.npy"  # centroids of the cells
BOUNDS = "bounds.npy"  # the first list of each cell, and the number of all lists

# An update.
PLAN = "plan.json"
CHANGE = "change.json"  # what the update changes, for the manifest
KNOWN = "known.npy"  # the place of each query among those of which anything was known before
WAS_CROWDED = "was-crowded.npy"  # the last index's CROWDED
HELD_OUT_ROWS = "held-out.arrow"  # rows of the held-out segment, by bucket


def exact(segment: int) -> str:
    """Return the name of the queries' true neighbours in a segment."""
    return f"exact-{segment}"


def found(segment: int) -> str:
    """Return the name of the queries' neighbours that a search of a segment finds."""
    return f"found-{segment}"


def list_sizes(segment: int) -> str:
    """Return the name of the numbers of rows in each list of a segment."""
    return f"lists-{segment}"


# Rows that a step leaves sorted by list, of a group of shards or of a segment.
LISTED_EXACT = "exact-listed"  # the queries' true neighbours among those of all sources


def listed_exact(source: int) -> str:
    """Return the name of the queries' true neighbours in a source."""
    return f"listed-{source}-exact"


def listed_starts(source: int) -> str:
    """Return the name of the first row of each list, and the number of rows: int64 [nlist + 1]."""
    return f"listed-{source}-starts"


def listed_codes(source: int) -> str:
    """Return the name of the rows' codes and their local rows in the source."""
    return f"listed-{source}-codes"


def listed_places(source: int) -> str:
    """Return the name of the rows' ids, hashes and places in shards, in tables of some lists."""
    return f"listed-{source}-places"


def listed_shards(source: int) -> str:
    """Return the name of the paths of the rows' shards, a line each."""
    return f"listed-{source}-shards"


def listed_vectors(source: int) -> str:
    """Return the name of the rows' vectors by which candidates are scored again."""
    return f"listed-{source}-vectors"


def gone(segment: int) -> str:
    """Return the name of the positions of known rows of a segment that are deleted in this run."""
    return f"gone-{segment}"


def fresh(segment: int) -> str:
    """Return the name of the positions of rows that are new, of those near to a query."""
    return f"fresh-{segment}"


def part(group: int, number: int) -> str:
    """Return the name of the rows of a part of the sample."""
    return f"sample-{group}-{number}"


def held_out(group: int) -> str:
    """Return the name of the vectors of a group's held-out rows."""
    return f"held-out-{group}"


def held_out_locator(group: int) -> str:
    """Return the name of the locator of a group's held-out rows."""
    return f"held-out-{group}.parquet"


def sorted_part(turn: int, part: str) -> str:
    """Return the name of the rows of a part, sorted by their cells in a pass."""
    return f"sorted-{turn}-{part}"


def counts(turn: int, part: str) -> str:
    """Return the name of the numbers of a part's rows in each cell."""
    return f"counts-{turn}-{part}.npy"


def places(turn: int) -> str:
    """Return the name of the places of each cell's rows in the parts.

    They are int64 [cells, 2, parts], first and last.
    """
    return f"places-{turn}"


def lists_of_cell(cell: int, turn: int | None) -> str:
    """Return the name of the centroids of a cell's lists after a pass; None is the only pass."""
    return f"lists-{cell}-{turn or 0}.npy"


def gathered(kind: str, number: int) -> str:
    """Return the name of all rows of a kind for a bucket, a segment or a group of new rows."""
    return f"{kind}-{number}.arrow"
