"""`sentence-beam search`: the rows nearest to a query."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sentence_beam.pipelines.common import command, options
from sentence_beam.pipelines.common.command_output import CommandOutput
from sentence_beam.pipelines.common.library import function
from sentence_beam.pipelines.common.output import check_output, write_rows
from sentence_beam.pipelines.common.progress import print_aside
from sentence_beam.pipelines.common.stdin import STDIN, as_typed
from sentence_beam.pipelines.common.tables import (
    LEAST,
    Column,
    cut_end,
    cut_excerpt,
    find_terminal_width,
    format_table,
    make_id_column,
    make_text_column,
    to_one_line,
)
from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.base.numbers import format_count
from sentence_beam.transforms.base.where import list_named_columns
from sentence_beam.transforms.corpus.formats.registry import find_compression, find_format
from sentence_beam.transforms.corpus.query_rows import QueryFiles, TextQueries, read_queries
from sentence_beam.transforms.corpus.syntax import Syntax
from sentence_beam.transforms.space import Space
from sentence_beam.transforms.steps.options.search_options import SearchOptions
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.shards.vector_files import read_vectors

if TYPE_CHECKING:
    from sentence_beam.transforms.search import Searcher
    from sentence_beam.transforms.search.snapshot_rows import SnapshotRows


def parser() -> argparse.ArgumentParser:
    """The options of `search`."""
    return options.command(
        "search",
        "Find the rows nearest to a query.",
        "sentence-beam search 'does the battery last' --where \"lang = 'en' AND year >= 2020\"",
        "sentence-beam search --store store --queries questions.txt --output hits.jsonl",
        kind=SearchOptions,
    )


def _search(options: SearchOptions) -> CommandOutput:
    check_output(options.output)
    store = open_store(options.store, options.snapshot)
    from sentence_beam.transforms.search import Copies, Searcher

    copies = Copies(options.local)
    searcher = Searcher(
        store.manifest, options.model, options.query_prompt, alone=True, copies=copies
    )
    queries, what = _choose_queries(options, store.space)
    results = searcher.search(
        k=options.k,
        exact=options.exact,
        fold=options.fold,
        where=options.where,
        min_score=options.min_score,
        rerank=options.rerank,
        **what,
    )
    _print_notes(options.where, searcher, what)
    about = {"query": queries}
    titles = queries
    if options.id_column is not None:
        about["query_text"] = what.get("texts", [])
        titles = [f"{name}: {text}" for name, text in zip(*about.values(), strict=True)]
    if options.output:
        return _write_into(options.output, about, results)
    tables = _make_tables(options, store.manifest, searcher.rows, titles, results)
    each = [{**values, "rows": rows} for values, rows in _pair_with_queries(about, results)]
    return CommandOutput([tables], {"store": store.root, "results": each}, always=True)


def _print_notes(where: str | None, searcher: "Searcher", what: dict[str, Any]) -> None:
    """Print what a reader of the results should know: prompt, unknown words, no matching row."""
    from sentence_beam.transforms.search import unknown_queries

    note = searcher.queries.prompt_note if "texts" in what else None
    if note is not None:
        print_aside(f"note: {note}")
    unknown = searcher.queries.unknown(what.get("texts", []))
    if unknown:
        print_aside(f"note: {unknown_queries(unknown)}")
    matches = searcher.matches(where)
    if matches is not None and not matches.count:
        print_aside(f"note: no row matches --where {where}")


def _write_into(output: str, about: dict[str, list[str]], results: "Results") -> CommandOutput:
    """Write the results into a file; `about` has what is known of each query, by column."""
    write_results(output, about, results)
    rows = sum(map(len, results))
    queries = len(about["query"])
    summary = (
        f"{format_count(rows, 'row')} for {format_count(queries, 'query', 'queries')} in {output}"
    )
    return CommandOutput([summary], {"output": output, "rows": rows, "queries": queries})


def _make_tables(
    options: SearchOptions,
    manifest: Manifest,
    rows: "SnapshotRows",
    titles: Sequence[str],
    results: "Results",
) -> str:
    """Return a table for each query."""
    text = "passage" if rows.has_pieces else rows.text_field
    columns = [rows.name_field(name) for name in choose_columns(options, manifest, rows)]
    return "\n\n".join(
        show_hits(title, hits_of_query, text, options.full, columns)
        for title, hits_of_query in zip(titles, results, strict=True)
    )


def choose_columns(options: SearchOptions, manifest: Manifest, rows: "SnapshotRows") -> list[str]:
    """Return the columns beside id and text: those in --where; with --full all kept ones."""
    if not len(manifest.shards):
        return []
    kept = list(manifest.options.keep_columns) if options.full else []
    named = list_named_columns(options.where, rows.columns) if options.where is not None else []
    return [name for name in dict.fromkeys([*kept, *named]) if name not in ("id", rows.text)]


def _choose_queries(options: SearchOptions, space: Space) -> tuple[list[str], dict[str, Any]]:
    """Return the name of each query, and the queries as arguments of `Searcher.search`."""
    if options.id is not None:
        return list(options.id), {"ids": list(options.id)}
    if options.query_vectors is not None:
        names, vectors = read_vectors(options.query_vectors, cite("query_vectors"), space)
        return names, {"vectors": vectors}
    if options.query is not None:
        return list(options.query), {"texts": list(options.query)}
    queries = _read_queries(options, str(options.queries))
    return list(queries.names), {"texts": list(queries.texts)}


def _read_queries(options: SearchOptions, path: str) -> TextQueries:
    """Read `--queries`; standard input, and names without a table's ending, are lines of text.

    Raises OptionError for a file without any, and for one that cannot be read.
    """
    is_plain = find_format(path) in ("", "text") and not find_compression(path, "text")
    if path == STDIN or (options.format is None and is_plain):
        if options.text_column is not None or options.id_column is not None:
            raise OptionError(
                f"{cite('queries')} {path} is read as plain text, which has no columns; say its"
                f" {cite('format')}"
            )
        lines = read_lines(path)
        return TextQueries(lines, lines)
    queries = read_queries(
        QueryFiles(
            (path,),
            options.format,
            Syntax.from_options(options),
            options.text_column,
            options.id_column,
        )
    )
    if queries.without_text:
        print_aside(
            f"note: {format_count(queries.without_text, 'row')} of {path} without a text left out"
        )
    return queries


def read_lines(path: str) -> list[str]:
    """The lines of a text file (`-`: of standard input) that are not blank.

    Raises OptionError for a file without any, and for one that cannot be read.
    """
    if path == STDIN:
        with as_typed() as typed:
            data = typed.read()
    else:
        data = storage.read_named(path, cite("queries"))
    lines = storage.lines_of(storage.text_of(data, path, cite("queries")))
    queries = [line for line in lines if line.strip()]
    if not queries:
        raise OptionError(f"{cite('queries')} {path} holds no query; write one a line")
    return queries


def show_hits(
    query: str,
    rows: Sequence[dict[str, Any]],
    text: str | None = "text",
    full: bool = False,
    kept: Sequence[str] = (),
) -> str:
    """Return the hits of a query as text: rank, scores, id, `kept` columns, and the part of the
    column `text` that matches the query.
    """
    scores = _name_scores(rows)
    columns = [Column("rank"), *map(Column, scores), make_id_column(full)]
    columns += [_make_kept_column(name, full) for name in kept]
    cells = [_make_cells(row, scores, kept) for row in rows]
    if text is not None and any(row.get(text) for row in rows):
        columns.append(
            make_text_column("text", full, lambda cell, width: cut_excerpt(cell, width, query))
        )
        for line, row in zip(cells, rows, strict=True):
            line.append(to_one_line(row.get(text)))
    title = f"query: {to_one_line(query)}"
    width = find_terminal_width()
    if width and not full:
        title = cut_end(title, width)
    lines = [title, *format_table(columns, cells)]
    if not rows:
        lines.append("no rows")
    return "\n".join(lines)


def _name_scores(rows: Sequence[dict[str, Any]]) -> list[str]:
    return ["score", "rerank"] if rows and "rerank" in rows[0] else ["score"]


def _make_cells(row: dict[str, Any], scores: Sequence[str], kept: Sequence[str]) -> list[str]:
    """Return the cells of a hit, all but its text."""
    shown_scores = (f"{row[name]:.4f}" for name in scores)
    return [
        str(row["rank"]),
        *shown_scores,
        row["id"],
        *(to_one_line(row.get(name)) for name in kept),
    ]


def _make_kept_column(name: str, full: bool) -> Column:
    """Return a column of kept values, on a terminal at most a fifth of its width unless `full`."""
    width = find_terminal_width()
    if full or width is None:
        return Column(name)
    return Column(name, cut_end, most=max(LEAST, width // 5))


Results = Sequence[Sequence[dict[str, Any]]]


def write_results(path: str, queries: dict[str, list[str]], results: Results) -> None:
    """Write a row for each hit, with what is known of its query by column, by the name's suffix."""
    write_rows(
        path,
        [
            {**about, **row}
            for about, hits_of_query in _pair_with_queries(queries, results)
            for row in hits_of_query
        ],
    )


def _pair_with_queries(
    queries: dict[str, list[str]], results: Results
) -> Iterator[tuple[dict[str, str], Any]]:
    """Yield the columns and the hits of each query."""
    for values, hits_of_query in zip(zip(*queries.values(), strict=True), results, strict=True):
        yield dict(zip(queries, values, strict=True)), hits_of_query


search = function("search", SearchOptions, _search)
main = command.main(parser, _search, kind=SearchOptions)

if __name__ == "__main__":
    sys.exit(main())
