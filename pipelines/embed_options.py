"""The options of `embed` and of `plan`."""

import argparse

from pipelines import beam_flags, options, specs
from transforms.common_options import INDEXES
from transforms.corpus.column_types import TYPES
from transforms.space.identity import PRECISIONS
from transforms.steps.options.embed import PARTITIONS

WHAT = {
    "embed": "Embed a collection of sentences into a store, or bring the store up to date.",
    "plan": "Say what embed would do with the same options, and how long it should take; nothing is written.",
}
EXAMPLES = {
    "embed": (
        "sentence-beam embed --input 'corpus/*.parquet' --store store",
        "sentence-beam embed --input notes.txt --store store --model BAAI/bge-small-en-v1.5 --index auto",
    ),
    "plan": (
        "sentence-beam plan --input 'corpus/*.parquet'",
        "sentence-beam plan --input 'corpus/*.parquet' --store store --pooler mean",
    ),
}


def parser(name: str = "embed") -> argparse.ArgumentParser:
    """The options of `embed` (and of `plan`). None means "not given": the store's value, else the default."""
    p = options.command(name, WHAT[name], *EXAMPLES[name], words=f"{specs.of_poolers()}\n\n{specs.of_chunks()}")
    _add_input_options(p.add_argument_group("input (a store remembers format and columns)"))
    _add_vector_options(p.add_argument_group("vectors (a store remembers them)"))
    store = p.add_argument_group("store")
    _add_store_options(store, name)
    _add_run_options(store)
    _add_machine_options(p.add_argument_group("machine"))
    return p


def _add_input_options(group: argparse._ArgumentGroup) -> None:
    options.add_input(group, "what to embed")
    group.add_argument(
        "--input-version",
        type=options.whole,
        metavar="N",
        help="version of a Delta table, or id of an Iceberg snapshot; not remembered (default: the current one)",
    )
    group.add_argument(
        "--input-filter",
        type=options.filled,
        metavar="EXPR",
        help="only partitions of a table whose columns say so, as in lang = 'en' AND day >= '2026-01-01'; not "
        "remembered (default: all)",
    )
    group.add_argument(
        "--hidden",
        action=argparse.BooleanOptionalAction,
        help="take files and folders too whose names begin with a dot (default: no, unless the pattern writes the dot)",
    )
    options.add_format(group)
    text = group.add_mutually_exclusive_group()
    text.add_argument("--text-column", metavar="NAME", help="column with the text (default: text)")
    text.add_argument(
        "--text-template",
        metavar="STR",
        help=r"text made of several columns, as in '{title}\n\n{body}'; one that a row lacks is empty (default: none)",
    )
    group.add_argument("--id-column", metavar="NAME", help="column with the id (default: made of path and position)")
    group.add_argument(
        "--keep-columns",
        type=options.columns,
        metavar="A[:TYPE],B",
        help=f"columns to keep in the store; types: {', '.join(TYPES)} (default: none)",
    )
    group.add_argument(
        "--keep-text",
        action=argparse.BooleanOptionalAction,
        help="keep each row's text in the store, as its column text, for search to show (default: yes in a new store)",
    )
    group.add_argument(
        "--limit", type=options.positive, metavar="N", help="only the first N rows; not remembered (default: all)"
    )


def _add_vector_options(group: argparse._ArgumentGroup) -> None:
    options.add_vector_options(group)
    group.add_argument(
        "--query-prompt",
        metavar="STR",
        help="text put before every query in searches (default: the store's, else the model's own for queries)",
    )
    group.add_argument(
        "--chunks",
        metavar="SPEC",
        help="how documents are cut into pieces, a vector each: none, sentences, budget[:tokens=N,overlap=M,"
        "by=text|markdown,ends=greedy|stable,combine=none|mean] or late[:window=N,overlap=M,...] (default: none, a row "
        "is one text)",
    )
    group.add_argument(
        "--chunk-prefix",
        metavar="STR",
        help="put before every piece, with columns' names in braces and {headings} for those above it (default: "
        "nothing)",
    )
    group.add_argument("--precision", choices=PRECISIONS, help="type of the stored vectors (default: float32)")


def _add_store_options(group: argparse._ArgumentGroup, command: str) -> None:
    """Where a run writes, and the index that it builds."""
    store = "folder or URL of the store" if command == "embed" else "folder or URL of the store (default: a new one)"
    options.add_store(group, "--output", required=command == "embed", help=store)
    group.add_argument("--partition", choices=PARTITIONS, help="how rows are cut into units (default: file)")
    group.add_argument(
        "--unit-tokens",
        type=options.size,
        metavar="N",
        help="estimated tokens in a unit, one shard each (default: 262144; 1048576 with --accelerator or --device "
        "cuda)",
    )
    group.add_argument(
        "--index",
        metavar="none|auto|compact|FACTORY",
        help=f"FAISS index to build; {INDEXES} (default: as the store has it, else none)",
    )
    options.add_metric(group)
    options.add_budgets(group)


def _add_run_options(group: argparse._ArgumentGroup) -> None:
    """What may end a run, what it leaves as it is, and what it costs."""
    group.add_argument(
        "--max-rejects",
        type=options.fraction,
        metavar="FRACTION",
        help="rejected rows allowed before the run fails (default: 0.01)",
    )
    group.add_argument(
        "--max-deletes",
        type=options.fraction,
        metavar="FRACTION",
        help="share of the rows that a run may delete; 1 allows all (default: 0.5)",
    )
    group.add_argument(
        "--max-unknown",
        type=options.fraction,
        metavar="FRACTION",
        help="tokens unknown to the model that are allowed before the run fails (default: 0.3)",
    )
    group.add_argument(
        "--max-bad-files",
        type=options.few,
        default=0,
        metavar="N|FRACTION",
        help="files that may be left out because they cannot be read to their end, their rows taken from the last "
        "snapshot where they stood; a number or a part of all (default: 0)",
    )
    group.add_argument(
        "--check-carried",
        type=options.fraction,
        metavar="FRACTION",
        help="shards carried over that are read again, other ones in each run, where listings of the storage have no "
        "checksums (default: 0.01)",
    )
    group.add_argument(
        "--max-drift",
        type=options.distance,
        metavar="X",
        help="cosine distance by which the model may have moved since the store was begun (default: 1e-07, 2e-05 for "
        "float16, 0.001 for bfloat16)",
    )
    group.add_argument(
        "--append",
        action="store_true",
        help="files of earlier runs stay, though --input does not name them; needs --partition file (default: no)",
    )
    required = "end with exit status 2 unless the run's space has this id, or begins so (default: any)"
    group.add_argument("--require-space", type=options.digest, metavar="ID", help=required)
    reembed = "embed everything again, in a new space if need be (default: no)"
    group.add_argument("--reembed", action="store_true", help=reembed)
    group.add_argument(
        "--price-per-hour",
        type=options.price,
        metavar="P",
        help="what the machines cost; the report says what was spent and saved (default: none)",
    )
    currency = "what the price is in, to stand beside amounts (default: none)"
    group.add_argument("--currency", type=options.filled, metavar="NAME", help=currency)
    group.add_argument("--dry-run", action="store_true", help="the same as plan (default: no)")


def _add_machine_options(group: argparse._ArgumentGroup) -> None:
    options.add_device(group)
    options.add_tokens_per_batch(group)
    group.add_argument(
        "--deterministic",
        action=argparse.BooleanOptionalAction,
        help="a text's vector is the same to the bit whatever its neighbours and the number of threads (default: no)",
    )
    hint = "hint, for the embedding step alone (default: none)"
    group.add_argument("--accelerator", metavar="HINT", help=f"Beam's accelerator {hint}")
    options.add_index_accelerator(group)
    group.add_argument("--min-ram", type=beam_flags.memory, metavar="SIZE", help=f"Beam's memory {hint}")
    group.add_argument(
        "--worker-model", metavar="PATH", help="where workers keep the model (default: where this machine does)"
    )
