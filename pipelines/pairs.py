"""`sentence-beam pairs`: the most similar pairs of texts in a collection."""

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from sentence_beam.pipelines.common import command, options, specs
from sentence_beam.pipelines.common.command_output import CommandOutput
from sentence_beam.pipelines.common.library import function
from sentence_beam.pipelines.common.output import check_output, write_rows
from sentence_beam.pipelines.common.stdin import with_stdin
from sentence_beam.pipelines.common.tables import (
    Column,
    cut_excerpt,
    format_table,
    make_id_column,
    make_text_column,
    to_one_line,
)
from sentence_beam.transforms.base.numbers import format_count
from sentence_beam.transforms.steps.joins.similar_pairs import find_pairs
from sentence_beam.transforms.steps.options import EmbedOptions
from sentence_beam.transforms.steps.options.joins import OF_VECTORS, PairsOptions
from sentence_beam.transforms.store import Store, open_store

OF_EMBED = ("input", "format", "device", "tokens_per_batch", *OF_VECTORS)


def parser() -> argparse.ArgumentParser:
    """The options of `pairs`."""
    return options.command(
        "pairs",
        "Find the most similar pairs of texts in a collection.",
        "sentence-beam pairs notes.txt -k 20",
        "sentence-beam pairs 'corpus/*.parquet' --output pairs.parquet",
        "sentence-beam pairs --store store --distinct --min-score 0.9 -k 1000",
        words=specs.describe_poolers(),
        kind=PairsOptions,
    )


def _run_pairs(options: PairsOptions) -> CommandOutput:
    check_output(options.output)
    with _open_collection(options) as store:
        paired = find_pairs(store.manifest, options)
    if options.output:
        write_rows(options.output, paired.pairs)
    counts = {
        "rows": paired.rows,
        "texts": paired.texts,
        "rejected": paired.rejected,
        "how": paired.how,
    }
    sizes = f"{format_count(paired.rows, 'row')} with {format_count(paired.texts, 'text')}"
    last = f"{sizes}, {paired.rejected:,} rejected; {paired.how}"
    if options.output:
        lines = [f"{format_count(len(paired.pairs), 'pair')} in {options.output}", "", last]
        return CommandOutput(lines, {**counts, "output": options.output})
    return CommandOutput(
        [*show_pairs(paired.pairs), "", last], {**counts, "pairs": paired.pairs}, always=True
    )


@contextlib.contextmanager
def _open_collection(options: PairsOptions) -> Iterator[Store]:
    """Open the store; or embed the files into a store that is removed when the block ends."""
    if options.store is not None:
        yield open_store(options.store, options.snapshot)
        return
    from sentence_beam.pipelines import embed  # importing Beam takes two seconds
    from sentence_beam.pipelines.common.beam_flags import parse_list

    with tempfile.TemporaryDirectory() as folder, with_stdin(options, local=True) as options:
        store = f"{folder}/store"
        of_embed = {name: getattr(options, name) for name in OF_EMBED}
        embed.run(
            EmbedOptions(store=store, max_rejects=1, max_unknown=1, **of_embed), parse_list(())
        )
        yield open_store(store)


def show_pairs(rows: list[dict[str, Any]]) -> list[str]:
    """The pairs as a table, two lines each: rank, score, ids, and of both texts what the other has
    too.
    """
    if not rows:
        return ["no pairs"]
    texts = [
        (to_one_line(row.get("text_1", "")), to_one_line(row.get("text_2", ""))) for row in rows
    ]
    beside = {one: other for pair in texts for one, other in (pair, pair[::-1])}
    columns = [Column("rank"), Column("score"), make_id_column()]
    counted = "rows_1" in rows[0]
    if counted:
        columns += [Column("rows")]
    columns.append(
        make_text_column("text", cut=lambda cell, width: cut_excerpt(cell, width, beside[cell]))
    )
    cells = []
    for row, pair in zip(rows, texts, strict=True):
        for side, text in enumerate(pair, 1):
            place = [str(row["rank"]), f"{row['score']:.4f}"] if side == 1 else ["", ""]
            count = [str(row[f"rows_{side}"])] if counted else []
            cells.append([*place, row[f"id_{side}"], *count, text])
    return format_table(columns, cells)


pairs = function("pairs", PairsOptions, _run_pairs)
main = command.main(parser, _run_pairs, kind=PairsOptions)

if __name__ == "__main__":
    sys.exit(main())
