"""All options that change what a run does to a store, with values to draw; and which of them go
together.

An item is an option with a value. Lasting ones are remembered by the store; passing ones befall one
run.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple


class Item(NamedTuple):
    """An option with one of its values."""

    option: str
    value: str


@dataclass(frozen=True)
class Row:
    """An option of the table: the values to draw, and the flags of `embed` that it stands for.

    Of lasting options the first value is that of a new store, unless another is drawn.
    """

    values: tuple[str, ...]
    flags: tuple[str, ...] = ()


YES_NO = ("yes", "no")
LASTING: Mapping[str, Row] = {
    "partition": Row(("file", "content"), ("--partition",)),
    "model": Row(("bert", "distilbert"), ("--model",)),
    "pooler": Row(("mean", "cls", "mean+max", "first-last"), ("--pooler",)),
    "prompt": Row(("", "the "), ("--prompt", "--prompt-name")),
    "max-tokens": Row(("48", "9"), ("--max-tokens",)),
    "dtype": Row(("float32", "float16"), ("--dtype",)),
    "normalize": Row(YES_NO, ("--normalize",)),
    "truncate-dim": Row(("16", "20"), ("--dim",)),
    "precision": Row(
        ("float32", "float16", "int8", "uint8", "binary", "ubinary"), ("--precision",)
    ),
    "calibration": Row(("none", "standardize", "remove-top:2", "whitening"), ("--calibration",)),
    "chunks": Row(
        (
            "none",
            "sentences",
            "budget:tokens=5",
            "budget:tokens=6,overlap=2",
            "budget:tokens=5,ends=stable",
        )
        + (
            "budget:tokens=6,by=markdown",
            "budget:tokens=5,combine=mean",
            "late:window=16,tokens=5",
        ),
        ("--chunks",),
    ),
    "chunk-prefix": Row(("", "{title} > "), ("--chunk-prefix",)),
    "layout": Row(("parquet", "jsonl", "csv", "tsv", "json", "arrow", "orc", "jsonl.gz", "small")),
    "format": Row(("auto", "named"), ("--format",)),
    "delimiter": Row((";",), ("--delimiter",)),
    "csv": Row(("", "skip=2"), ("--csv",)),
    "json-rows": Row(("", "data.rows"), ("--json-rows",)),
    "text": Row(("text", "title", "{title} {text}"), ("--text-column", "--text-template")),
    "id-column": Row(("id", ""), ("--id-column",)),
    "keep-columns": Row(
        ("", "lang", "lang,price:int", "price:str", "price:float,text"), ("--keep-columns",)
    ),
    "keep-text": Row(YES_NO, ("--keep-text",)),
    "hidden": Row(("no", "yes"), ("--hidden",)),
    "budget": Row(("none", "60", "300"), ("--budget",)),
    "unit-tokens": Row(("120", "400", "6000"), ("--unit-tokens",)),
    "index": Row(("none", "Flat", "SQ8", "IVF2,Flat", "auto"), ("--index",)),
    "metric": Row(("cosine", "ip", "l2"), ("--metric",)),
    "deterministic": Row(("no", "yes"), ("--deterministic",)),
}
PASSING: Mapping[str, Row] = {
    "night": Row(("edited", "added", "removed", "renamed", "moved")),
    "bad file": Row(("known", "new", "not allowed"), ("--max-bad-files",)),
    "append": Row(("new", "changed"), ("--append",)),
    "reembed": Row(("yes",), ("--reembed",)),
    "limit": Row(("9",), ("--limit",)),
    "deletes": Row(("too many", "allowed"), ("--max-deletes",)),
    "rejects": Row(("too many",), ("--max-rejects",)),
    "drift": Row(("checked",), ("--max-drift",)),
    "damage": Row(("removed", "cut")),
}
COMMANDS = Row(
    ("index SQ8", "index --retrain", "index within bytes", "index within time")
    + ("recalibrate", "recalibrate none", "rollback", "vacuum")
)
# Flags of `embed` that have no row: what a run writes is the same with and without them.
NO_ROW: Mapping[str, str] = {
    "--help": "prints",
    "--help-all": "prints",
    "--help-beam": "prints",
    "--config": "a file of options, which are the same options",
    "--quiet": "prints less",
    "--json": "prints otherwise",
    "--input": "names the files: every run has it, or takes the last one's",
    "--store": "every run has it",
    "--input-version": "of a table: which files there are; a file of a table is a Parquet file",
    "--input-filter": "of a table: which files there are; a file of a table is a Parquet file",
    "--revision": "of a model of the hub: which files it has, as another --model",
    "--query-prompt": "stands before queries; remembered, and no vector depends on it",
    "--max-unknown": "ends a run or changes nothing",
    "--max-answer-change": "ends a run or changes nothing",
    "--like": "the options of another store: with each history one is made that has those of its"
    " store",
    "--allow-forgotten": "nothing without a row that was erased",
    "--device": "where the model runs",
    "--tokens-per-batch": "how many rows go through the model together",
    "--accelerator": "a hint for Beam, and the device of an engine's workers; the dtype that it"
    " means is a row of its own",
    "--min-ram": "a hint for Beam",
    "--worker-model": "where workers have the same model",
}
OF_EMBED: Mapping[str, Row] = {**LASTING, **PASSING}
POOLED = ("partition", "model", "pooler", "prompt", "max-tokens", "dtype", "chunks", "chunk-prefix")
# A change of these has files read again that have not changed.
READ_AGAIN = (
    *POOLED, "normalize", "truncate-dim", "precision", "calibration", "format", "delimiter", "csv", "json-rows", "text",
    "id-column",
    "keep-columns", "keep-text", "unit-tokens",
)  # fmt: skip
# What is no matter of one run: a run that appends names one file, and files under other names are
# no known ones.
_APART = (
    {("append", option) for option in ("night", "layout", "deletes", "hidden")}
    | {
        ("bad file", "layout"),
        ("bad file", "hidden"),
        ("night", "deletes"),
        ("layout", "night"),
        ("deletes", "layout"),
    }
    | {
        ("bad file", "deletes"),
        ("bad file", "limit"),
        ("damage", "limit"),
        ("night", "limit"),
        ("deletes", "limit"),
    }
)
START = {
    **{name: row.values[0] for name, row in LASTING.items()},
    "delimiter": "told",
    "truncate-dim": "all",
}
ITEMS = [Item(name, value) for name, row in OF_EMBED.items() for value in row.values]
ITEMS += [Item("command", value) for value in COMMANDS.values]


def apart(a: Item, b: Item) -> bool:
    """Whether two items are no matter of one run."""
    return (
        "command" in (a.option, b.option)
        or (a.option, b.option) in _APART
        or (b.option, a.option) in _APART
    )


def all_pairs() -> set[frozenset[Item]]:
    """Every pair of items of two options."""
    return {frozenset(pair) for pair in combinations(ITEMS, 2) if pair[0].option != pair[1].option}


@dataclass(frozen=True)
class Reason:
    """Why a run is refused: by which options together, and with which exit status; `sure` where it
    always is.
    """

    options: frozenset[str]
    status: int
    sure: bool = True


def reasons(
    held: Mapping[str, str] | None, limited: bool, asked: Mapping[str, str]
) -> list[Reason]:
    """Why `embed` refuses what is asked of a store that holds these options (None: of a new
    one).
    """
    now = {**(held or START), **{name: value for name, value in asked.items() if name in LASTING}}
    changed = [name for name in LASTING if held is not None and now[name] != held[name]]
    found = _of_options(now)
    has_budget = now["budget"] != "none"
    if has_budget and "limit" in asked:
        found.append(Reason(frozenset({"budget", "limit"}), 2))
    if held is None:
        return found
    given = {*changed, *(name for name in asked if name in PASSING)}
    found = [reason for reason in found if reason.options & given]
    if "limit" in asked and not limited:
        found.append(Reason(frozenset({"limit"}), 2))
    if "reembed" not in asked:
        found += [Reason(frozenset({name}), 2) for name in changed if name in POOLED]
    again = [name for name in changed if name in READ_AGAIN]
    if "layout" in changed and now["format"] == "named":
        again.append("layout")  # the name of its format
    again += ["reembed"] if "reembed" in asked else []
    again += ["limit"] if limited or "limit" in asked else []
    if has_budget:
        # only if files wait, or would
        found += [Reason(frozenset({"budget", name}), 2, sure=name == "reembed") for name in again]
    if "append" in asked:
        found += [Reason(frozenset({"append", name}), 2) for name in again]
        found += (
            [Reason(frozenset({"append", "partition"}), 2)] if now["partition"] == "content" else []
        )
        found += [Reason(frozenset({"append", "damage"}), 1)] if "damage" in asked else []
    if asked.get("bad file") == "known":
        found += [Reason(frozenset({"bad file", name}), 1) for name in again]
        found += (
            [Reason(frozenset({"bad file", "partition"}), 1)]
            if now["partition"] == "content"
            else []
        )
        found += (
            [Reason(frozenset({"bad file", "damage"}), 1, sure=False)] if "damage" in asked else []
        )
    if asked.get("bad file") == "not allowed":
        found.append(Reason(frozenset({"bad file"}), 1))
    few = has_budget or held["budget"] != "none"  # the store may lack rows of other files
    if asked.get("deletes") == "too many":
        # a limited store may have few rows beside those of the first file, which stays
        found.append(Reason(frozenset({"deletes"}), 3, sure=not limited and not few))
    if "rejects" in asked:
        found.append(Reason(frozenset({"rejects"}), 3, sure=not few))
    return found


def _of_options(now: Mapping[str, str]) -> list[Reason]:
    """Why options do not go together, whatever the store."""
    kind, whole = (
        now["chunks"].partition(":")[0],
        "late" in now["chunks"] or "combine=mean" in now["chunks"],
    )
    found = []
    if now["budget"] != "none" and now["partition"] == "content":
        found.append(Reason(frozenset({"budget", "partition"}), 2))
    if kind == "late" and now["max-tokens"] == "9":
        found.append(Reason(frozenset({"chunks", "max-tokens"}), 2))
    if now["chunk-prefix"] and kind in ("none", "late"):
        found.append(Reason(frozenset({"chunks", "chunk-prefix"}), 2))
    if whole and now["partition"] == "content":
        found.append(Reason(frozenset({"chunks", "partition"}), 2))
    if (
        "text" in now["keep-columns"].split(",")
        and now["keep-text"] == "yes"
        and now["text"] != "text"
    ):
        for names in (
            {"keep-columns", "keep-text"},
            {"keep-columns", "text"},
            {"keep-text", "text"},
        ):
            found.append(Reason(frozenset(names), 2))
    return found
