"""`sentence-beam diagnose`: what vectors, tokens and a model look like, mostly without any label."""

import argparse
import json
import sys
from typing import Any

from pipelines import command, options, specs
from pipelines.output import check_file, write_text
from pipelines.said import Said
from pipelines.stdin import with_stdin
from pipelines.tables import Column, middle
from pipelines.tables import table as lines_of
from transforms.evaluation.diagnostics.figures import FIGURES
from transforms.evaluation.diagnostics.options import SAMPLE, DiagnoseOptions

TOLD = frozenset(
    ("mean-cosine", "uniformity", "effective-rank", "alignment", "spearman", "edit-distance", "auc", "norm")
    + ("chosen-head", "hop-cosine", "influence-tfidf")
)
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
    p.add_argument("--output", metavar="FILE", help="JSON lines, one a figure (default: none)")
    p.add_argument("--report", metavar="FILE.html", help="a page with the pictures (default: none)")
    return p


def _diagnose(args: argparse.Namespace) -> Said:
    for path, flag in ((args.output, "--output"), (args.report, "--report")):
        if path:
            check_file(path, flag)
    from transforms.evaluation.diagnostics.diagnose import diagnose

    with with_stdin(options.as_options(DiagnoseOptions, args), local=True) as asked:
        found = diagnose(asked)
    if args.output:
        write_text(args.output, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found.rows))
    if args.report:
        from transforms.evaluation.diagnostics.page import page

        write_text(args.report, page(found))
    lines = [table(found.rows), *(f"note: {note}" for note in found.notes)]
    said = {"source": found.source, "model": found.model, "figures": found.rows, "notes": found.notes}
    return Said(lines, said, asked=True)


def table(rows: list[dict[str, Any]]) -> str:
    """The figures with one value as text, a line each; distributions and maps are in --output and --report."""
    lines = []
    for row in (row for row in rows if row["figure"] in TOLD):
        value = "-" if row["value"] is None else f"{row['value']:.4f}"
        lines.append((row["figure"], row["pooler"] or "-", _of(row), value, f"{row['n']:,}"))
    return "\n".join(lines_of(COLUMNS, lines))


def _of(row: dict[str, Any]) -> str:
    words = [row[key] for key in ("task", "pairs") if row.get(key)]
    words += [f"ranks {row['low']:,} to {row['high']:,}"] if row["figure"] == "norm" else []
    words += [f"{row['hops']} layers apart"] if row["figure"] == "hop-cosine" else []
    return ", ".join(words) or "-"


main = command.main(parser, _diagnose)

if __name__ == "__main__":
    sys.exit(main())
