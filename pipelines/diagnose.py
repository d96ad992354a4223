"""`sentence-beam diagnose`: what vectors, tokens and a model look like, mostly without any label."""

import argparse
import math
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from pipelines import command, options, specs
from pipelines.output import check_file, check_output, write_rows, write_text
from pipelines.said import Said
from pipelines.stdin import with_stdin
from pipelines.tables import Column, middle
from pipelines.tables import table as lines_of
from transforms.common_options import TABLE_FILE
from transforms.evaluation.diagnostics.figures import FIGURES
from transforms.evaluation.diagnostics.options import SAMPLE, DiagnoseOptions
from transforms.numbers import counted

SHOWN = 10  # lines of a figure that has many
LARGEST_FIRST = ("head", "impact", "influence")
TENTH = 0.1  # of cosines: the width of a line's range
COLUMNS = (
    Column("figure"), Column("pooler", middle, least=24), Column("of", middle, least=20),
    Column("value", right=True), Column("n", right=True),
)  # fmt: skip


def parser() -> argparse.ArgumentParser:
    """The options of `diagnose`."""
    p = options.command(
        "diagnose",
        "Figures of vectors, tokens and a model: cosines, spectrum, heads, layers, words.",
        "sentence-beam diagnose --store store --report figures.html",
        "sentence-beam diagnose --input corpus.txt --pooler mean --pooler ditto:1-9 --output figures.jsonl",
        words=specs.of_poolers(),
    )
    options.add_store(p, help="a store, whose vectors are taken as they are (default: none)", required=False)
    options.add_input(p, "texts", required=False)
    task = "pairs: [sts:]NAME=PATH[,PATH] with score, sentence1, sentence2; qa:NAME=PATH with label, sentence1, "
    task += "sentence2, or with two columns, question and answer; repeat for more (default: none)"
    p.add_argument("--task", dest="tasks", action="append", metavar="[KIND:]NAME=PATH", help=task)
    labels = "labels of answers in qa: tasks (default: entailment, true, yes)"
    p.add_argument("--labels", type=options.names, default=(), metavar="A,B", help=labels)
    sentence = "one sentence: how much each of its tokens matters to the others (default: none)"
    p.add_argument("--sentence", metavar="TEXT", help=sentence)
    figures = f"only these, separated by commas: {', '.join(FIGURES)} (default: of a store those of its vectors alone, "
    figures += "else all that the source has)"
    p.add_argument("--figure", dest="figures", type=options.names, metavar="NAMES", help=figures)
    pooler = "a pooler to run over the texts; repeat for more (default: of a store none, else auto)"
    p.add_argument("--pooler", dest="poolers", action="append", metavar="SPEC", help=pooler)
    p.add_argument("--model", metavar="MODEL", help="as for embed (default: the store's, else minilm)")
    options.add_revision(p)
    table = "folder of token statistics that fit made (default: words are counted in the texts themselves)"
    p.add_argument("--table", metavar="DIR", help=table)
    sample = f"rows or pairs at most, by keyed hash (default: {SAMPLE})"
    p.add_argument("--sample", type=options.positive, default=SAMPLE, metavar="N", help=sample)
    options.add_text_files(p, of="of --input: ", default="auto", column="text")
    options.add_device(p)
    p.add_argument("--output", metavar="FILE", help=f"{TABLE_FILE}, a row a figure (default: none)")
    p.add_argument("--report", metavar="FILE.html", help="a page with the pictures (default: none)")
    return p


def _diagnose(args: argparse.Namespace) -> Said:
    check_output(args.output)
    if args.report:
        check_file(args.report, "--report")
    from transforms.evaluation.diagnostics.diagnose import diagnose

    with with_stdin(options.as_options(DiagnoseOptions, args), local=True) as asked:
        found = diagnose(asked)
    if args.output:
        write_rows(args.output, found.rows)
    if args.report:
        from transforms.evaluation.diagnostics.page import page

        write_text(args.report, page(found))
    lines = [table(found.rows), *(f"note: {note}" for note in found.notes)]
    said = {"source": found.source, "model": found.model, "figures": found.rows, "notes": found.notes}
    return Said(lines, said, asked=True)


def table(rows: list[dict[str, Any]]) -> str:
    """The figures as text, a line each; of those with many values the first or the largest SHOWN."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["figure"], row["pooler"] or "-", row.get("task") or ""), []).append(row)
    lines, left = [], Counter[str]()
    for (name, pooler, _), group in groups.items():
        values = shown_rows(name, group)
        left[name] += max(len(values) - SHOWN, 0)
        lines += [(name, pooler, describe(row), _value(row["value"]), f"{row['n']:,}") for row in values[:SHOWN]]
    text = "\n".join(lines_of(COLUMNS, lines))
    more = ", ".join(f"{count:,} of {name}" for name, count in left.items() if count)
    return f"{text}\nand more: {more}; --output FILE has all" if more else text


def shown_rows(name: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The values of one figure in the order in which people read them; shares of cosines are summed by tenths."""
    if name == "cosine-share":
        return sorted(_by_tenths(rows), key=_largest_first)
    if name == "layer-cosine":  # symmetric, and 1 for a layer with itself
        return [row for row in rows if row["layer"] < row["other"]]
    if name == "impact":
        rows = [row for row in rows if row["place"] != row["other"]]
    if name in LARGEST_FIRST:
        return sorted(rows, key=_largest_first)
    return rows


def _largest_first(row: dict[str, Any]) -> float:
    return math.inf if row["value"] is None else -row["value"]


def _by_tenths(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
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


def _value(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def describe(row: dict[str, Any]) -> str:
    """The column `of` of a figure: the task, the pairs, and the layers, tokens or range that it is of."""
    words = [row[key] for key in ("task", "pairs") if row.get(key)]
    words += _PLACES.get(row["figure"], lambda row: [])(row)
    return ", ".join(words) or "-"


def _of_neighbours(row: dict[str, Any]) -> list[str]:
    return [*_of_ranks(row), counted(row["neighbours"], "neighbour")]


def _of_ranks(row: dict[str, Any]) -> list[str]:
    return [f"ranks {row['low']:,} to {row['high']:,}"]


_PLACES: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "cosine-share": lambda row: [f"{row['low']:.1f} to {row['high']:.1f}"],
    "deviation": lambda row: [f"component {row['component']}"],
    "norm": _of_ranks,
    "neighbour-distance": _of_neighbours,
    "neighbour-product": _of_neighbours,
    "head": lambda row: [f"layer {row['layer']}, head {row['head']}"],
    "layer-cosine": lambda row: [f"layers {row['layer']} and {row['other']}"],
    "hop-cosine": lambda row: [f"{counted(row['hops'], 'layer')} apart"],
    "impact": lambda row: [f"{row['perturbed']} ({row['other']}) on {row['token']} ({row['place']})"],
    "influence": lambda row: [f"{row['token']} ({row['place']})"],
}


main = command.main(parser, _diagnose)

if __name__ == "__main__":
    sys.exit(main())
