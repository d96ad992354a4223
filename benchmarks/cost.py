"""The cost of a store, in quantities that tests have counted, and in money if prices are given.

    python -m benchmarks.cost [--tokens-per-row 14.7] [--text-bytes 55] [--dim 384]
        [--unit-tokens 262144]
        [--rate 8000] [--edited 0.01] [--keep 14]
        [--price-hour P] [--price-gb-month P] [--price-writes P] [--price-reads P]

`--rate` are tokens a second of one machine, as `sentence-beam plan` measures them there; `--edited`
is the share of rows, scattered over the corpus, that a night changes; prices of requests are for
10,000. No price is known here: give yours. Prints the table of docs/cost.md, whose
figures `tests/pipelines/test_cost.py` counts, and what kept snapshots take.
"""

import argparse
from dataclasses import dataclass

ROWS = {
    10_000_000: "10 M rows",
    100_000_000: "100 M rows",
    1_000_000_000: "1 B rows",
    10_000_000_000: "10 B rows",
}
SHARES = (0.0001, 0.001, 0.01)
ROWS_IN_A_UNIT = (100, 1_000, 10_000, 100_000)

ROW_BYTES = 40  # hash, norm, counts and an id of ordinary length, beside the vector
TEXT_KEPT = 0.5  # of a text's bytes are in the store, compressed
UNIT_BYTES = 1_400  # of its sidecar and its line in the manifest
UNIT_WRITES = 2  # requests on an object store for a unit that is written
# for a unit of a file that is new or was changed; one that is carried over takes none
UNIT_READS = 5
RUN_REQUESTS = 60  # beside those, and one for every thousand shards that are listed
# of a row, if ids come from a column: kept once, shuffled by each run that changes rows
ID_BYTES = 8
ID_REQUESTS = 4  # more for a unit, if ids come from a column, of a run that changes rows
SHUFFLED = 1_200  # bytes of a unit's span and record; with --partition content the text travels too
# shuffled for each row that a night changes, and for the row that it was
CHANGED_BYTES = 110
LISTED = 1_000  # objects for which a listing takes a request


@dataclass(frozen=True)
class Corpus:
    """A corpus of so many rows, and how it is embedded: what its store takes."""

    rows: int
    tokens_per_row: float = 14.7
    text_bytes: float = 55
    dim: int = 384
    unit_tokens: int = 262_144

    @property
    def tokens(self) -> float:
        """The tokens of all rows."""
        return self.rows * self.tokens_per_row

    @property
    def rows_in_a_unit(self) -> float:
        """Rows of a unit: their tokens are estimated, four bytes a token and two tokens a row
        more.
        """
        return self.unit_tokens / (self.text_bytes / 4 + 2)

    @property
    def units(self) -> float:
        """The number of units."""
        return max(1.0, self.rows / self.rows_in_a_unit)

    @property
    def snapshot(self) -> float:
        """Bytes of one snapshot, in float32 and with its texts; an index is not counted."""
        return (
            self.rows * (4 * self.dim + ROW_BYTES + TEXT_KEPT * self.text_bytes)
            + self.units * UNIT_BYTES
        )

    def stored(self, edited: float, keep: int) -> float:
        """Bytes of so many snapshots, of nights that change this share of the rows each,
        scattered.
        """
        return self.snapshot * (1 + (keep - 1) * rewritten(edited, self.rows_in_a_unit))

    def requests(self, edited: float = 1.0) -> tuple[float, float]:
        """Writes and listings, then reads, of a night; 1.0 is the first."""
        written = self.units * rewritten(edited, self.rows_in_a_unit)
        read = self.units if edited else 0  # what is scattered is in every file
        return (
            UNIT_WRITES * written + self.units / LISTED + RUN_REQUESTS,
            UNIT_READS * read + RUN_REQUESTS,
        )

    def shuffled(self, edited: float) -> float:
        """Bytes shuffled by a night that changes this share of the rows, scattered; 1.0 is the
        first night.
        """
        changed = 0.0 if edited == 1 else edited
        return self.units * SHUFFLED + 2 * CHANGED_BYTES * self.rows * changed


def rewritten(edited: float, rows: float) -> float:
    """The share of units, of so many rows, that have at least one of the rows that were edited at
    random.

    >>> [round(rewritten(0.01, rows), 3) for rows in (10, 100, 1000)]
    [0.096, 0.634, 1.0]
    """
    return 1 - (1 - edited) ** rows


def size(amount: float, unit: str = "B") -> str:
    """A number in short: 1.6 TB, 23 k."""
    for step, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if amount >= step:
            return f"{float(f'{amount / step:.2g}'):,g} {prefix}{unit}".rstrip()
    return f"{amount:.0f} {unit}".rstrip()


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def quantities(args: argparse.Namespace) -> str:
    """Return the quantities of a first night and of a later one, by the size of the corpus."""
    corpora = [
        Corpus(rows, args.tokens_per_row, args.text_bytes, args.dim, args.unit_tokens)
        for rows in ROWS
    ]
    lines = {
        "tokens": [size(one.tokens, "") for one in corpora],
        "units": [size(one.units, "") for one in corpora],
        f"hours of a machine with {args.rate:,} tokens/s": [
            f"{float(f'{one.tokens / args.rate / 3600:.2g}'):,g}" for one in corpora
        ],
        "one snapshot": [size(one.snapshot) for one in corpora],
        f"{args.keep} snapshots, {args.edited:.2%} of the rows edited each night": [
            size(one.stored(args.edited, args.keep)) for one in corpora
        ],
        "first night: writes and listings, reads": [
            ", ".join(size(n, "") for n in one.requests()) for one in corpora
        ],
        "night without changes: the same": [
            ", ".join(size(n, "") for n in one.requests(0.0)) for one in corpora
        ],
        "shuffled by the first night, `--partition file`": [
            size(one.shuffled(1.0)) for one in corpora
        ],
        f"shuffled by a night with {args.edited:.2%} of the rows edited": [
            size(one.shuffled(args.edited)) for one in corpora
        ],
        "`--id-column`: more in the store, and shuffled by a night with changes": [
            size(ID_BYTES * one.rows) for one in corpora
        ],
        "`--id-column`: more requests of a night with changes": [
            size(ID_REQUESTS * one.units, "") for one in corpora
        ],
        "manifest and sidecars": [size(one.units * UNIT_BYTES) for one in corpora],
    }
    return table(["", *ROWS.values()], [[name, *cells] for name, cells in lines.items()])


def shares() -> str:
    """The share of units that scattered edits rewrite, by rows of a unit."""
    rows = [
        [f"{rows:,}", *(f"{rewritten(share, rows):.1%}" for share in SHARES)]
        for rows in ROWS_IN_A_UNIT
    ]
    return table(["rows of a unit", *(f"{share:.2%} of the rows edited" for share in SHARES)], rows)


def kept(args: argparse.Namespace) -> str:
    """Bytes of kept snapshots of a billion rows, by rows of a unit."""
    lines = []
    for rows in ROWS_IN_A_UNIT[1:]:
        tokens = round(rows * (args.text_bytes / 4 + 2))
        corpus = Corpus(10**9, args.tokens_per_row, args.text_bytes, args.dim, tokens)
        cells = [size(corpus.stored(share, keep)) for keep in (2, 14) for share in SHARES]
        lines.append([f"{rows:,} (`--unit-tokens {tokens}`)", size(corpus.units, ""), *cells])
    head = [f"`--keep {keep}`, {share:.2%} edited" for keep in (2, 14) for share in SHARES]
    return table(["rows of a unit", "units", *head], lines)


def money(args: argparse.Namespace) -> str:
    """The first night, a month of storage and a later night, in the currency of the prices that
    were given.
    """
    lines = []
    for rows, name in ROWS.items():
        one = Corpus(rows, args.tokens_per_row, args.text_bytes, args.dim, args.unit_tokens)
        night = Corpus(
            max(1, round(rows * args.edited)), args.tokens_per_row, args.text_bytes, args.dim
        )
        hour = (args.price_hour or 0) / args.rate / 3600
        first, later = (
            asked[0] / 10_000 * (args.price_writes or 0)
            + asked[1] / 10_000 * (args.price_reads or 0)
            for asked in (one.requests(), one.requests(args.edited))
        )
        month = one.stored(args.edited, args.keep) / 1e9 * (args.price_gb_month or 0)
        cells = (one.tokens * hour, first, night.tokens * hour, later, month)
        lines.append([name, *(f"{cell:,.2f}" for cell in cells)])
    head = [
        "",
        "first night",
        "its requests",
        "a later night",
        "its requests",
        "a month of storage",
    ]
    return table(head, lines)


def parser() -> argparse.ArgumentParser:
    """The figures of a corpus and the prices."""
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--tokens-per-row", type=float, default=Corpus.tokens_per_row)
    p.add_argument(
        "--text-bytes", type=float, default=Corpus.text_bytes, help="of a row, on the average"
    )
    p.add_argument("--dim", type=int, default=Corpus.dim)
    p.add_argument("--unit-tokens", type=int, default=Corpus.unit_tokens)
    p.add_argument("--rate", type=int, default=8_000, help="tokens a second of a machine")
    p.add_argument(
        "--edited", type=float, default=0.01, help="share of the rows that a night changes"
    )
    p.add_argument("--keep", type=int, default=14, help="snapshots that vacuum keeps")
    for name, what in {
        "hour": "a machine's hour", "gb-month": "a gigabyte for a month",
        "writes": "10,000 writes and listings", "reads": "10,000 reads",
    }.items():  # fmt: skip
        p.add_argument(f"--price-{name}", type=float, help=f"of {what}")
    return p


def main() -> None:
    """Print the tables."""
    args = parser().parse_args()
    print(quantities(args), shares(), kept(args), sep="\n")
    if any(value is not None for name, value in vars(args).items() if name.startswith("price")):
        print(money(args))


if __name__ == "__main__":
    main()
