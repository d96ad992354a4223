"""`sentence-beam diagnose`: figures of vectors, tokens and a model, mostly without labels."""

import argparse
import math
import sys
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sentence_beam.pipelines.common import command, options, specs
from sentence_beam.pipelines.common.command_output import CommandOutput
from sentence_beam.pipelines.common.library import object_or_keywords, signature_of
from sentence_beam.pipelines.common.output import check_file, check_output, write_rows, write_text
from sentence_beam.pipelines.common.progress import muting
from sentence_beam.pipelines.common.stdin import with_stdin
from sentence_beam.pipelines.common.tables import Column, cut_middle, show_number
from sentence_beam.pipelines.common.tables import format_table as lines_of
from sentence_beam.transforms.base.errors import cite
from sentence_beam.transforms.base.logs import keep_root_logger
from sentence_beam.transforms.base.numbers import format_count
from sentence_beam.transforms.base.option import narrowed
from sentence_beam.transforms.evaluation.diagnostics.diagnose_options import (
    DiagnoseCommandOptions,
    DiagnoseOptions,
)

if TYPE_CHECKING:
    from sentence_beam.transforms.evaluation.diagnostics.diagnosis import Diagnosis

SHOWN = 10  # lines of a figure that has many
LARGEST_FIRST = ("head", "impact", "influence")
COMMON = 5  # times that a word has to occur to be shown
TENTH = 0.1  # of cosines: the width of a line's range
COLUMNS = (
    Column("figure"), Column("pooler", cut_middle, least=24), Column("of", cut_middle, least=20),
    Column("value", right=True), Column("n", right=True),
)  # fmt: skip


def parser() -> argparse.ArgumentParser:
    """The options of `diagnose`."""
    return options.command(
        "diagnose",
        "Figures of vectors, tokens and a model: cosines, spectrum, heads, layers, words.",
        "sentence-beam diagnose --store store --report figures.html",
        "sentence-beam diagnose --input corpus.txt --pooler mean --pooler ditto:1-9 --output"
        " figures.jsonl",
        words=specs.describe_poolers(),
        kind=DiagnoseCommandOptions,
    )


def diagnose(options: DiagnoseOptions | None = None, **keywords: Any) -> "Diagnosis | str":
    """Compute figures of a store, files, pairs or a sentence, by options or by keywords.

    Keywords are those of `sentence-beam diagnose`: `store=`, `figures=["cosines"]`, ... With
    `output=` the figures are written there, and its path is returned. Raises the errors with which
    the command ends.
    """
    with keep_root_logger(), muting():
        given_options = object_or_keywords(DiagnoseCommandOptions, "diagnose", options, keywords)
        diagnosis = run(given_options)
        return given_options.output or diagnosis


diagnose.__signature__ = signature_of(DiagnoseCommandOptions, "options")  # type: ignore[attr-defined]


def run(options: DiagnoseCommandOptions) -> "Diagnosis":
    """Compute the figures and write the files that the options name."""
    check_output(options.output)
    if options.report:
        check_file(options.report, cite("report"))
    from sentence_beam.transforms.evaluation.diagnostics.diagnosis import diagnose as compute

    with with_stdin(narrowed(DiagnoseOptions, options), local=True) as chosen:
        diagnosis = compute(chosen)
    if options.output:
        write_rows(options.output, diagnosis.rows)
    if options.report:
        from sentence_beam.transforms.evaluation.diagnostics.diagnostics_page import render_page

        write_text(options.report, render_page(diagnosis))
    return diagnosis


def _diagnose(options: DiagnoseCommandOptions) -> CommandOutput:
    diagnosis = run(options)
    lines = [format_figures(diagnosis.rows), *(f"note: {note}" for note in diagnosis.notes)]
    values = {
        "source": diagnosis.source,
        "model": diagnosis.model,
        "figures": diagnosis.rows,
        "notes": diagnosis.notes,
    }
    return CommandOutput(lines, values, always=True)


def format_figures(rows: list[dict[str, Any]]) -> str:
    """Return the figures as text, a line each; the first or largest SHOWN values of each."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        key = (row["figure"], row["pooler"] or "-", row.get("task") or "")
        groups.setdefault(key, []).append(row)
    lines = []
    left = Counter[str]()
    for (name, pooler, _), group in groups.items():
        values = choose_shown(name, group)
        left[name] += max(len(values) - SHOWN, 0)
        lines += [
            (name, pooler, describe(row), show_number(row["value"], ".4f", "-"), f"{row['n']:,}")
            for row in values[:SHOWN]
        ]
    text = "\n".join(lines_of(COLUMNS, lines))
    more = ", ".join(f"{count:,} of {name}" for name, count in left.items() if count)
    if more:
        return f"{text}\nand more: {more}; --output FILE has all"
    return text


def choose_shown(name: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the values of one figure in reading order; shares of cosines are summed by
    tenths.
    """
    if name == "cosine-share":
        return sorted(_sum_tenths(rows), key=_rank)
    if name == "layer-cosine":  # symmetric, and 1 for a layer with itself
        return [row for row in rows if row["layer"] < row["other"]]
    if name == "impact":
        rows = [row for row in rows if row["place"] != row["other"]]
    if name == "word-variance":  # the largest and the least, as in SBERT-WK's table
        rows = [row for row in rows if row["n"] >= COMMON] or rows
        return [*rows[: SHOWN // 2], *rows[SHOWN // 2 :][::-1]]
    if name in LARGEST_FIRST:
        return sorted(rows, key=_rank)
    return rows


def _rank(row: dict[str, Any]) -> float:
    return math.inf if row["value"] is None else -row["value"]


def _sum_tenths(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The shares of pairs whose cosine is in each tenth of -1 to 1, those that are 0 left out."""
    sums: dict[int, float] = {}
    for row in rows:
        tenth = math.floor((row["low"] + row["high"]) / 2 / TENTH)
        sums[tenth] = sums.get(tenth, 0.0) + (row["value"] or 0.0)
    return [
        {**rows[0], "low": tenth * TENTH, "high": (tenth + 1) * TENTH, "value": share}
        for tenth, share in sums.items()
        if share
    ]


def describe(row: dict[str, Any]) -> str:
    """Return the column `of` of a figure: task, pairs, and layers, tokens or range."""
    words = [row[key] for key in ("task", "pairs") if row.get(key)]
    words += _PLACES.get(row["figure"], lambda row: [])(row)
    return ", ".join(words) or "-"


def _describe_neighbours(row: dict[str, Any]) -> list[str]:
    return [*_describe_ranks(row), format_count(row["neighbours"], "neighbour")]


def _describe_ranks(row: dict[str, Any]) -> list[str]:
    return [f"ranks {row['low']:,} to {row['high']:,}"]


_PLACES: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "cosine-share": lambda row: [f"{row['low']:.1f} to {row['high']:.1f}"],
    "deviation": lambda row: [f"component {row['component']}"],
    "norm": _describe_ranks,
    "neighbour-distance": _describe_neighbours,
    "neighbour-product": _describe_neighbours,
    "head": lambda row: [f"layer {row['layer']}, head {row['head']}"],
    "layer-cosine": lambda row: [f"layers {row['layer']} and {row['other']}"],
    "hop-cosine": lambda row: [f"{format_count(row['hops'], 'layer')} apart"],
    "impact": lambda row: [
        f"{row['perturbed']} ({row['other']}) on {row['token']} ({row['place']})"
    ],
    "word-variance": lambda row: [row["token"]],
    "agreement": lambda row: [f"with {row['other']}"],
    "pair": lambda row: [f"pair {row['place'] + 1}"],
    "influence": lambda row: [f"{row['token']} ({row['place']})"],
}


main = command.main(parser, _diagnose, kind=DiagnoseCommandOptions)

if __name__ == "__main__":
    sys.exit(main())
