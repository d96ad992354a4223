"""Write docs/reference.md, every command with its options, from the commands' parsers: `python
docs/reference.py`.
"""

import argparse
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from sentence_beam.pipelines.cli import COMMANDS, load_parser
from sentence_beam.pipelines.common.options import Parser, every_command
from sentence_beam.transforms.corpus.spans import UNIT_TOKENS
from sentence_beam.transforms.index.index_kinds import FLAT_BELOW, choose_automatic_index
from sentence_beam.transforms.space import FLOAT32_ONLY
from sentence_beam.transforms.steps.options.auto import UNIT_TOKENS_ACCELERATOR

PAGE = Path(__file__).with_name("reference.md")
# The page of each command, and of each option that has another page.
PAGES = {
    "embed": "embedding.md",
    "plan": "embedding.md#before-the-first-run",
    "fit": "calibration.md#fit",
    "recalibrate": "calibration.md#apply",
    "index": "search.md#build-an-index",
    "search": "search.md#search",
    "serve": "serve.md",
    "neighbours": "joins.md#neighbours",
    "dedup": "joins.md#near-duplicates",
    "cluster": "joins.md#clusters",
    "pairs": "search.md#most-similar-pairs",
    "files": "reading.md#paths-and-links",
    "diagnose": "diagnostics.md",
    "evaluate": "evaluation.md",
    "train": "train.md",
    "distill": "train.md#distillation",
    "export": "poolers.md#the-encoder-as-a-folder",
    "verify": "nightly.md#verify",
    "rejects": "inputs.md#rejected-rows",
    "info": "nightly.md#info",
    "history": "nightly.md#history",
    "diff": "nightly.md#diff",
    "push": "push.md",
    "rollback": "nightly.md#rollback",
    "forget": "erasing.md",
    "watch": "watch.md",
    "report": "nightly.md#report",
    "vacuum": "nightly.md#vacuum",
}
OPTIONS = {
    "--input GLOB": "inputs.md",
    "--input-version": "inputs.md#tables-of-iceberg-and-delta-lake",
    "--input-filter": "inputs.md#tables-of-iceberg-and-delta-lake",
    "--hidden": "inputs.md#patterns",
    "--id-column": "inputs.md",
    "--like": "recipes/change-model.md",
    "--keep-columns": "inputs.md",
    "--keep-text": "embedding.md#the-text-in-the-store",
    "--model MODEL": "poolers.md#models",
    "--objective": "train.md#objectives",
    "--dev": "train.md#dev-scores",
    "--pooler": "poolers.md#poolers",
    "--method": "calibration.md#methods",
    "--calibration": "calibration.md",
    "--chunks": "documents.md",
    "--chunk-prefix": "documents.md#prefixes",
    "--dtype": "exactness.md#the-type-of-the-forward-pass",
    "--precision": "embedding.md#smaller-vectors",
    "--partition": "inputs.md#partitions",
    "--unit-tokens": "inputs.md#units",
    "--index": "search.md#build-an-index",
    "--metric": "search.md#metric",
    "--query-prompt": "search.md#prompts-of-queries",
    "--where": "search.md#filters",
    "--vectors": "reading.md#files-for-other-programs",
    "--max-rejects": "inputs.md#rejected-rows",
    "--append": "embedding.md#files-that-are-added",
    "--max-deletes": "nightly.md#deleted-rows",
    "--max-unknown": "embedding.md#unknown-words",
    "--budget": "cost.md#a-ceiling-for-a-night",
    "--max-drift": "exactness.md#the-canary",
    "--max-answer-change": "watch.md#gates",
    "--allow-forgotten": "erasing.md#rows-that-return",
    "--forgotten": "erasing.md#a-check",
    "--deterministic": "exactness.md#the-same-vectors-again",
    "--reembed": "embedding.md#another-model-pooler-or-prompt",
    "--price-per-hour": "nightly.md#report",
    "--accelerator": "deploy.md",
    "--worker-model": "deploy.md",
}
HEAD = """# Commands

<!-- Written by docs/reference.py from the commands' parsers; `make docs` writes it again. -->

`sentence-beam COMMAND [OPTIONS]` is the same as `python -m sentence_beam COMMAND [OPTIONS]`.
Options have no short forms.

Flags that are not listed go to Beam's pipeline options, for example `--runner`, `--project` or
`--temp_location`; flags that Beam does not know either are refused. Flags that only a runner's Java
side knows follow `--`. `--unit-tokens` and `--tokens-per-batch` may end in `k`, `M` or `G`.

An option of `embed` that a store [remembers](embedding.md#the-next-run) keeps the store's value if
you leave it out. The defaults below are those of a new store.

[Exit statuses](nightly.md#exit-statuses) are the same for all commands.

| command | what it does |
|---|---|
"""


ALL = """
## Every command

`sentence-beam help COMMAND` is the same as `sentence-beam COMMAND --help`. `sentence-beam
--version` prints the version, `sentence-beam completion bash|zsh|fish` a script that completes
commands and options ([install it](#completion)). See also [a file of
options](#a-file-of-options) and [output for programs](#output-for-programs).

| option | meaning | default |
|---|---|---|
"""
USE = """
## A file of options

`--config FILE` reads options from a TOML file; flags win. Keys are names of flags, including Beam's
(`runner`, `project`). A table holds the options of one command. `normalize = false` is
`--no-normalize`. An unknown key is refused.

```toml
store = "gs://bucket/store"
project = "my-project"

[embed]
input = ["gs://bucket/corpus/*.parquet", "gs://bucket/more/*.jsonl"]
model = "minilm"
keep-columns = ["title", "url"]
normalize = true

[search]
k = 5
```

## Output for programs

The summary goes to stdout; progress, notes and errors go to stderr. `--json` prints the summary as
one JSON object on one line. If the command fails, it prints none; the exit status says what kind of
failure it is. With `--quiet` errors are still printed, and so is the result of a command (rows of
`search`, paths of `files`). [Output as JSON](json.md) lists the fields of every command.

A terminal or notebook shows a bar or a clock, which disappears at the end. Elsewhere, for example
under systemd or Kubernetes, there is one line a minute.

## Completion

```bash
sentence-beam completion bash > ~/.local/share/bash-completion/completions/sentence-beam
sentence-beam completion zsh > "${fpath[1]}/_sentence-beam"
sentence-beam completion fish > ~/.config/fish/completions/sentence-beam.fish
```
"""
EVERY = {action.dest for action in every_command()._actions}
AUTOMATIC = """
## What auto comes to

A value that you name wins, then the store's (of all but `--device`). Else the first condition that
holds decides. `SQ8` is for rows of length 1, `SQbf16` for
rows of any length.

| option | if | value |
|---|---|---|
"""
INDEX_ROWS = (0, FLAT_BELOW, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000)


def page() -> str:
    """The whole page."""
    lines = [f"| [`{name}`](#{name}) | {cell(what)} |" for name, what in COMMANDS.items()]
    every = "".join(
        f"| `{name}` | {cell(what)} | {default} |\n" for name, what, default in of_every_command()
    )
    return (
        HEAD
        + "\n".join(lines)
        + "\n"
        + ALL
        + every
        + USE
        + "".join(section(name) for name in COMMANDS)
        + automatic()
    )


def of_every_command() -> Iterator[tuple[str, str, str]]:
    """The options that every command has: how each is written, what it means, and its default."""
    for action in every_command()._actions:
        meaning, default = said(action.help or "")
        yield f"{action.option_strings[0]} {action.metavar or ''}".strip(), meaning, default


# The rules of transforms/steps/options/auto.py, in their order: when one holds, and what it gives.
DECIDED = {
    "--dtype": (
        (
            "the model is of a family that computes in float32 alone"
            f" ({', '.join(sorted(FLOAT32_ONLY))})",
            "float32",
        ),
        ("`--accelerator` is given, with a T4 or a V100", "float16"),
        ("`--accelerator` is given", "bfloat16"),
        ("other machines do the work", "exit status 2: name it"),
        ("else", "bfloat16 if this machine's device multiplies it in hardware, else float32"),
    ),
    "--device": (
        ("`--accelerator` is given, and other machines do the work", "cuda"),
        ("else", "every GPU that the process sees, else the CPU"),
    ),
    "--metric": (
        (
            "the model names no similarity, or one that an index can have (`similarity_fn_name`),"
            " or an index is built",
            "the model's; cosine if it names none; exit status 2 for one that no index has",
        ),
        ("else", "cosine"),
    ),
    "--partition": (("else", "file"),),
    "--unit-tokens": (
        ("`--accelerator` is given, or `--device cuda`", f"{UNIT_TOKENS_ACCELERATOR:,}"),
        ("else", f"{UNIT_TOKENS:,}"),
    ),
}


def automatic() -> str:
    """The section about options that are `auto` or not given."""
    rows = [
        (f"`{option}`", when, gives) for option, rules in DECIDED.items() for when, gives in rules
    ]
    above = [("`--index auto`", f"from {rows:,} rows on", indexed(rows)) for rows in INDEX_ROWS]
    every = [
        *rows,
        *above,
        ("`--index compact`", "instead of SQ8 and SQbf16", "RaBitQ, ranked by float16 vectors"),
    ]
    table = "\n".join(
        f"| {option} | {cell(when)} | {cell(gives)} |" for option, when, gives in every
    )
    return f"{AUTOMATIC}{table}\n"


def indexed(rows: int) -> str:
    """The kind of index for so many rows, of length 1 and of any length."""
    return " or ".join(
        dict.fromkeys(f"`{choose_automatic_index(rows, codec)}`" for codec in ("SQ8", "SQbf16"))
    )


def section(command: str) -> str:
    """Return a command's section: its purpose, its page, and a table for each group of options."""
    parser = load_parser(command)
    text = f"\n## {command}\n\nSee [{title(PAGES[command])}]({PAGES[command]}).\n"
    if command == "plan":
        of_embed = {action.dest for action in load_parser("embed")._actions}
        own = [action for action in parser._actions if action.dest not in of_embed]
        return f"{text}\nThe options are those of [`embed`](#embed), and:\n{table(parser, own)}"
    without_title, groups = parser._action_groups[:2], parser._action_groups[2:]
    first = [action for group in without_title for action in group._group_actions]
    text += table(parser, [action for action in first if not shared(command, parser, action)])
    for group in groups:
        own = [a for a in group._group_actions if not shared(command, parser, a)]
        rows = table(parser, own)
        text += f"\n{(group.title or '').capitalize()}:\n{rows}" if rows else ""
    return text + as_elsewhere(command, parser)


@cache
def first_commands() -> dict[str, str]:
    """The first command that has each row of a table of options."""
    found: dict[str, str] = {}
    for command in COMMANDS:
        parser = load_parser(command)
        for row in options(parser, parser._actions):
            found.setdefault(row, command)
    return found


def shared(command: str, parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """The earlier command that has an option with the same words, or nothing."""
    first = next((first_commands()[row] for row in options(parser, [action])), command)
    return first if first != command else ""


def as_elsewhere(command: str, parser: argparse.ArgumentParser) -> str:
    """The table of the options that an earlier command has too."""
    flags: dict[str, list[str]] = {}
    for action in parser._actions:
        if first := shared(command, parser, action):
            flags.setdefault(first, []).extend(action.option_strings)
    rows = [
        f"| {', '.join(f'`{flag}`' for flag in names)} | [`{first}`](#{first}) |\n"
        for first, names in flags.items()
    ]
    return "".join(["\n| more options | as for |\n|---|---|\n", *rows]) if rows else ""


def table(parser: argparse.ArgumentParser, actions: list[argparse.Action]) -> str:
    """Return a table of options, or nothing if there are none."""
    rows = list(options(parser, actions))
    return (
        "\n".join(["", "| option | meaning | default |", "|---|---|---|", *rows, ""])
        if rows
        else ""
    )


def options(parser: argparse.ArgumentParser, actions: list[argparse.Action]) -> Iterator[str]:
    """The rows of options, hidden ones left out."""
    assert isinstance(parser, Parser)
    for action in actions:
        if (
            action.help == argparse.SUPPRESS
            or "--help" in action.option_strings
            or action.dest in EVERY
        ):
            continue
        meaning, default = said(action.help or "")
        own = parser.own.get(action.dest)
        if action.required or (own is not None and own.is_needed):
            default = "required"
        if any(action in one._group_actions for one in required_sets(parser)):
            default = "one of these"
        yield f"| {name(action)} | {cell(meaning)} | {cell(default)} |"


def required_sets(parser: Parser) -> list[argparse._MutuallyExclusiveGroup]:
    """Return the sets of options of which one is needed; a class checks that of `parser.bare`."""
    bare = parser.own[parser.bare].exclusive if parser.bare else None
    return [one for one in parser._mutually_exclusive_groups if one.required or one is bare]


def name(action: argparse.Action) -> str:
    """Return an option as it is written, linked to its page if it has one."""
    values = "|".join(map(str, action.choices)) if action.choices else action.metavar or ""
    written = [" ".join([flag, str(values)]).strip() for flag in action.option_strings or [""]]
    where = next(
        (OPTIONS[key] for key in (written[0], written[0].split()[0]) if key in OPTIONS), ""
    )
    names = ", ".join(f"`{cell(one)}`" for one in written)
    return f"[{names}]({where})" if where else names


def said(text: str) -> tuple[str, str]:
    """A help text as what an option means, and its default."""
    found = re.fullmatch(r"(.*?)\s*\(?\bdefault: (.*?)\)?", text) if "default: " in text else None
    if found is None:
        return text, ""
    default = found[2] + ")" * (found[2].count("(") - found[2].count(")"))
    return found[1].removesuffix(" ("), default


def title(where: str) -> str:
    """The title of a page."""
    return (
        (PAGE.parent / where.split("#")[0])
        .read_text(encoding="utf8")
        .splitlines()[0]
        .removeprefix("# ")
    )


def cell(text: str) -> str:
    """A text inside a table."""
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf8")
