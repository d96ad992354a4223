"""`sentence-beam distill`: a static model, which `embed` runs as fast as it cuts texts into tokens."""

import argparse
import sys
from typing import Any

from pipelines import command, options
from pipelines.said import Said
from pipelines.stdin import with_stdin
from transforms.errors import OptionError
from transforms.space import DEFAULT_MODEL
from transforms.training.distill_options import WORDS, DistillOptions, check_installed, output_of


def parser() -> argparse.ArgumentParser:
    """The options of `distill`."""
    p = options.command(
        "distill",
        "Make a table of token embeddings of a sentence encoder, which embeds without running it.",
        "sentence-beam distill --model minilm --dim 256 --output fast",
        "sentence-beam distill --model my-model --input 'corpus/*.parquet' --dim 128 --output fast",
        "sentence-beam embed --model fast --input 'corpus/*.parquet' --store store",
    )
    model = p.add_argument_group("model")
    model.add_argument("--model", type=options.filled, default=DEFAULT_MODEL, metavar="MODEL", help=options.MODEL)
    options.add_revision(model)
    dims = "dimensions of the new vectors, at most the model's (default: 256)"
    model.add_argument("--dim", type=options.positive, default=256, metavar="D", help=dims)
    model.add_argument("--output", required=True, type=options.filled, metavar="DIR", help="folder of the new model")
    model.add_argument(
        "--overwrite", action="store_true", help="replace an earlier distillation in --output (default: no)"
    )
    what = p.add_argument_group("words")
    options.add_input(what, "a corpus whose words become tokens beside the model's own", required=False)
    most = f"the most words of the corpus that become tokens, the frequent ones first (default: {WORDS})"
    what.add_argument("--words", type=options.positive, default=WORDS, metavar="N", help=most)
    options.add_text_files(what, default="auto", column="text")
    machine = p.add_argument_group("machine")
    options.add_device(machine)
    return p


def _distill(args: argparse.Namespace) -> Said:
    asked = DistillOptions(**vars(args))
    if asked.input is None and asked.words != WORDS:
        raise OptionError("--words says how many words of a corpus become tokens; name its files by --input")
    check_installed()
    output_of(asked)
    with with_stdin(asked, local=True) as asked:
        from transforms.training.distill import distill

        record = distill(asked)
    return Said(lines(record), record)


def lines(record: dict[str, Any]) -> list[str]:
    """What is said at the end."""
    output, rejected = record["options"]["output"], record["rejected"]
    lost = f", {rejected:,} rejected" if rejected else ""
    words = [f"words       {record['words']:,} new ones of {record['rows']:,} rows{lost}"] if record["data"] else []
    return [
        *words,
        f"tokens      {record['tokens']:,} of {record['dim']} dimensions, {record['bytes'] / 1e6:,.1f} MB",
        f"space       {record['space'][:16]}",
        f"model       {output}",
        f"use         sentence-beam embed --model {output}",
    ]


main = command.main(parser, _distill)

if __name__ == "__main__":
    sys.exit(main())
