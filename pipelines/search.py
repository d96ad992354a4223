"""`sentence-beam search`: the rows nearest to a query."""

import argparse
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pipelines import command, options
from pipelines.output import TABLE_FILE, check_output, write_rows
from pipelines.progress import aside
from pipelines.said import Said
from pipelines.stdin import STDIN, as_typed
from pipelines.tables import LEAST, Column, end, excerpt, id_column, one_line, table, terminal_width, text_column
from transforms import storage
from transforms.errors import OptionError
from transforms.space import Space
from transforms.steps.options import SearchOptions
from transforms.store import open_store
from transforms.store.manifest import Manifest
from transforms.store.vector_files import read_vectors
from transforms.values import FOLDS
from transforms.where import columns_named

if TYPE_CHECKING:
    from transforms.search.rows import SnapshotRows


def parser() -> argparse.ArgumentParser:
    """The options of `search`."""
    p = options.command(
        "search",
        "Find the rows nearest to a query.",
        "sentence-beam search --store store --query 'a man is eating' --where \"lang = 'en' AND year >= 2020\"",
        "sentence-beam search --store store --queries questions.txt --output hits.jsonl",
    )
    options.add_store(p)
    asked = p.add_mutually_exclusive_group(required=True)
    asked.add_argument(
        "--query", action="append", metavar="TEXT", help="what to look for; repeat for more (default: none)"
    )
    asked.add_argument(
        "--queries", metavar="FILE", help="text file with a query a line; - for standard input (default: none)"
    )
    asked.add_argument(
        "--id", action="append", metavar="ID", help="a stored row, to find those like it; repeat (default: none)"
    )
    asked.add_argument(
        "--query-vectors", metavar="FILE", help="vectors to search by: .npy, or Parquet with embedding (default: none)"
    )
    p.add_argument(
        "--query-prompt", metavar="STR", help="text put before every query (default: the store's, else the model's own)"
    )
    options.add_k(p, "rows for each query (default: 10)", default=10)
    p.add_argument(
        "--where",
        metavar="EXPR",
        help="search only rows whose kept columns say so, as in lang = 'en' AND year >= 2020 (default: all rows)",
    )
    p.add_argument(
        "--min-score", type=options.score, metavar="X", help="only rows with this score or a higher one (default: any)"
    )
    p.add_argument(
        "--fold",
        choices=FOLDS,
        default="best",
        help="of documents cut into pieces: best, a document is found once, by its best piece; none, every piece is a "
        "hit (default: best)",
    )
    p.add_argument("--output", metavar="FILE", help=f"{TABLE_FILE} (default: a table is printed)")
    p.add_argument(
        "--full",
        action="store_true",
        help="show kept columns too, and all values whole, however wide the terminal is (default: no)",
    )
    p.add_argument("--exact", action="store_true", help="compare with every row, without the index (default: no)")
    options.add_snapshot(p)
    p.add_argument(
        "--model", metavar="PATH", help="the store's model on this machine, checked by digest (default: where it was)"
    )
    return p


def _search(args: argparse.Namespace) -> Said:
    asked = SearchOptions(**vars(args))
    check_output(asked.output)
    store = open_store(asked.store, asked.snapshot)
    from transforms.search import NO_QUERY_PROMPT, Searcher, unknown_queries

    searcher = Searcher(store.manifest, asked.model, asked.query_prompt, alone=True)
    queries, what = _queries(asked, store.space)
    results = searcher.search(
        k=asked.k, exact=asked.exact, fold=asked.fold, where=asked.where, min_score=asked.min_score, **what
    )
    if "texts" in what and searcher.queries.lacks_prompt:
        aside(f"note: {NO_QUERY_PROMPT}")
    if unknown := searcher.queries.unknown(what.get("texts", [])):
        aside(f"note: {unknown_queries(unknown)}")
    wanted = searcher.matches(asked.where)
    if wanted is not None and not wanted.count:
        aside(f"note: no row matches --where {asked.where}")
    if asked.output:
        write_results(asked.output, queries, results)
        found = sum(map(len, results))
        values = {"output": asked.output, "rows": found, "queries": len(queries)}
        return Said([f"{found} rows for {len(queries)} queries in {asked.output}"], values)
    text = "passage" if searcher.rows.has_pieces else searcher.rows.text_field
    columns = [searcher.rows.field_of(name) for name in shown_columns(asked, store.manifest, searcher.rows)]
    tables = "\n\n".join(
        hits(query, rows, text, asked.full, columns) for query, rows in zip(queries, results, strict=True)
    )
    each = [{"query": query, "rows": rows} for query, rows in zip(queries, results, strict=True)]
    return Said([tables], {"store": store.root, "results": each}, asked=True)


def shown_columns(asked: SearchOptions, manifest: Manifest, rows: "SnapshotRows") -> list[str]:
    """The columns that are shown beside id and text: with --full all kept ones, and those that --where names."""
    if not manifest.shard_paths:
        return []
    kept = list(manifest.options.keep_columns) if asked.full else []
    named = columns_named(asked.where, rows.columns) if asked.where is not None else []
    return [name for name in dict.fromkeys([*kept, *named]) if name not in ("id", rows.text)]


def _queries(asked: SearchOptions, space: Space) -> tuple[list[str], dict[str, Any]]:
    """What each query is called, and the queries as `Searcher.search` takes them."""
    if asked.id is not None:
        return list(asked.id), {"ids": list(asked.id)}
    if asked.query_vectors is not None:
        names, vectors = read_vectors(asked.query_vectors, "--query-vectors", space)
        return names, {"vectors": vectors}
    texts = list(asked.query) if asked.query is not None else read_queries(str(asked.queries))
    return texts, {"texts": texts}


def read_queries(path: str) -> list[str]:
    """The queries of a text file (`-`: of standard input), one a line; blank lines are skipped.

    Raises OptionError for a file without any, and for one that cannot be read.
    """
    if path == STDIN:
        with as_typed() as typed:
            data = typed.read()
    else:
        data = storage.read_named(path, "--queries")
    lines = re.split(r"\r\n|\r|\n", storage.text_of(data, path, "--queries"))
    queries = [line for line in lines if line.strip()]
    if not queries:
        raise OptionError(f"--queries {path} holds no query; write one a line")
    return queries


def hits(
    query: str,
    rows: Sequence[dict[str, Any]],
    text: str | None = "text",
    full: bool = False,
    kept: Sequence[str] = (),
) -> str:
    """The hits of a query as text: rank, score, id, `kept` columns, and of the column `text` where the query is."""
    said = f"query: {one_line(query)}"
    columns = [Column("rank"), Column("score"), id_column(full), *(_kept_column(name, full) for name in kept)]
    cells = [
        [str(row["rank"]), f"{row['score']:.4f}", row["id"], *(one_line(row.get(name)) for name in kept)]
        for row in rows
    ]
    if any(row.get(text or "") for row in rows):
        columns.append(text_column("text", full, lambda cell, width: excerpt(cell, width, query)))
        cells = [[*line, one_line(row.get(text or ""))] for line, row in zip(cells, rows, strict=True)]
    width = None if full else terminal_width()
    return "\n".join([end(said, width) if width else said, *table(columns, cells), *([] if rows else ["no rows"])])


def _kept_column(name: str, full: bool) -> Column:
    """A column of kept values: on a terminal at most a fifth of it, unless they are wanted in `full`."""
    width = terminal_width()
    return Column(name) if full or width is None else Column(name, end, most=max(LEAST, width // 5))


def write_results(path: str, queries: list[str], results: Sequence[Sequence[dict[str, Any]]]) -> None:
    """Write a row for each hit, with its query, by the name's suffix."""
    rows = [{"query": query, **row} for query, found in zip(queries, results, strict=True) for row in found]
    write_rows(path, rows)


main = command.main(parser, _search)

if __name__ == "__main__":
    sys.exit(main())
