"""The options that commands share, their parser, and the types of their values."""

import argparse
from collections.abc import Sequence
from dataclasses import Field, fields
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from transforms import values
from transforms.common_options import DTYPES_ASKED, METRICS
from transforms.corpus.column_types import parse_columns
from transforms.corpus.files import INPUT_FORMATS, is_utf8
from transforms.errors import OptionError
from transforms.option import Declared, Exclusive, declared_in, flag_of, is_required

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Asked = TypeVar("Asked", bound="DataclassInstance")
RUNNER = "FnApiRunner"
EXAMPLES = "examples:"
MODEL = "minilm, a local directory, or a Hugging Face id (default: minilm)"
PROMPT_NAME = "one of the model's named prompts; not with --prompt (default: the one that the model names, if any)"


class Parser(argparse.ArgumentParser):
    """An argument parser that raises OptionError, one line, where argparse prints the usage and exits."""

    def error(self, message: str) -> NoReturn:
        raise OptionError(message if "--help" in message else f"{message}; see --help")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Raise ArgumentError for a value that is none of the action's choices; the line is `values.one_of`'s."""
        try:
            values.one_of(*action.choices or (value,))(value)
        except OptionError as error:
            raise argparse.ArgumentError(action, str(error)) from None


class _Help(argparse.HelpFormatter):
    """Help texts whose examples, and words of SPECs, stand a line each."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if EXAMPLES in text else super()._fill_text(text, width, indent)


def every_command() -> argparse.ArgumentParser:
    """The options that every command has: they belong to the command line alone and say nothing of the work."""
    p = Parser(add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS)
    p.add_argument("--help-beam", action="store_true", help="show the flags that go to Beam and exit (default: no)")
    p.add_argument("--config", type=filled, metavar="FILE", help="TOML file of options; flags win (default: none)")
    quiet = "no progress and no summary; mistakes are told all the same (default: no)"
    p.add_argument("--quiet", action="store_true", help=quiet)
    p.add_argument("--json", action="store_true", help="the summary as one JSON object (default: no)")
    return p


def command(
    name: str, description: str, *examples: str, words: str = "", kind: type["DataclassInstance"] | None = None
) -> argparse.ArgumentParser:
    """Return a command's parser, with the options of every command and those that the class `kind` declares.

    Its help ends with `examples`, which are command lines. Before them `words` explains the SPECs of its options.
    """
    parser = Parser(
        prog=f"sentence-beam {name}",
        description=description,
        allow_abbrev=False,
        parents=[every_command()],
        formatter_class=_Help,
        epilog="\n".join([*([words, ""] if words else []), EXAMPLES, *(f"  {example}" for example in examples)]),
    )
    if kind is not None:
        add_options(parser, kind)
    return parser


def add_options(parser: argparse.ArgumentParser, kind: type["DataclassInstance"]) -> None:
    """Add the options that a class declares, in the order of its fields."""
    groups: dict[str | None, argparse._ActionsContainer] = {None: parser}
    sets: dict[Exclusive, argparse._ActionsContainer] = {}
    declarations = declared_in(kind)
    for item in fields(kind):
        if item.name not in declarations:
            continue
        declared = declarations[item.name]
        if declared.group not in groups:
            groups[declared.group] = parser.add_argument_group(declared.group)
        container = groups[declared.group]
        if declared.exclusive is not None:
            if declared.exclusive not in sets:
                sets[declared.exclusive] = container.add_mutually_exclusive_group(required=declared.exclusive.required)
            container = sets[declared.exclusive]
        _add_option(container, item, declared)


def _add_option(container: argparse._ActionsContainer, item: "Field[Any]", declared: Declared) -> None:
    """Add one option. Its value stays text, which the class of the options reads."""
    how: dict[str, Any] = {"help": declared.help, **_action_of(item, declared)}
    if not is_required(item) and not declared.several:
        how["default"] = None if item.default == "" else item.default  # argparse would check a text
    if declared.positional:
        if not is_required(item):
            how["nargs"] = "?"
        container.add_argument(item.name, **how)
        return
    required = is_required(item) and declared.exclusive is None
    action = container.add_argument(flag_of(item.name, declared), dest=item.name, required=required, **how)
    container._option_string_actions.update(dict.fromkeys(declared.aliases, action))


def _action_of(item: "Field[Any]", declared: Declared) -> dict[str, Any]:
    """What argparse does with an option's values."""
    if item.type is bool:
        return {"action": "store_true"}
    if item.type == bool | None:
        return {"action": argparse.BooleanOptionalAction}
    how: dict[str, Any] = {"metavar": declared.metavar}
    if declared.choices:
        how["choices"] = declared.choices
    elif declared.kind is not None:
        how["type"] = _checked(declared.kind)
    if declared.several == "repeat":
        how["action"] = "append"
    elif declared.several == "list":
        how |= {"action": "extend", "nargs": "+"}
    elif declared.once:
        how["action"] = _Once
    return how


def _checked(kind: values.Kind) -> values.Kind:
    """Return the kind as a type of argparse that checks a text and leaves it as it is."""
    check = value(kind)

    def checked(text: str) -> str:
        check(text)
        return text

    return checked


def check_text(argv: Sequence[str]) -> None:
    """Raise OptionError for an argument that is not UTF-8, as ids and manifests are."""
    for text in argv:
        if not is_utf8(text):
            raise OptionError(f"argument {text!a} is not UTF-8; set the terminal to UTF-8")


def value(kind: values.Kind) -> values.Kind:
    """The kind, for argparse, which puts the option's name before what is wrong with a value."""

    def parsed(text: str) -> Any:
        try:
            return kind(text)
        except OptionError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parsed


size, filled, duration = map(value, (values.size, values.filled, values.duration))
positive, whole, port = map(value, (values.positive, values.whole, values.port))
fraction, few, distance = map(value, (values.fraction, values.few, values.distance))
digest = value(values.digest)
price, names = map(value, (values.price, values.names))
columns = value(parse_columns)
milliseconds = value(values.milliseconds)
device, delimiter = map(value, (values.device, values.delimiter))
cosine, score = map(value, (values.cosine, values.score))


def as_options(kind: type[Asked], args: argparse.Namespace) -> Asked:
    """Return the options of a class; one that the arguments do not give has its default."""
    found = vars(args)
    given = {item.name: found[item.name] for item in fields(kind) if found.get(item.name) is not None}
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in given.items()})


class _Once(argparse.Action):
    """The action of `--store`: several flags may name the store, if they all name the same one."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        earlier = getattr(namespace, self.dest)
        if earlier not in (self.default, values):
            raise OptionError(f"{option_string} {values}: the store is {earlier} already; name one")
        setattr(namespace, self.dest, values)


def add_store(
    group: argparse._ActionsContainer, *aliases: str, help: str = "folder or URL of the store", required: bool = True
) -> None:
    """Add the option `--store`; `aliases` are its names in earlier versions, which --help does not show."""
    store = group.add_argument("--store", action=_Once, required=required, type=filled, metavar="STORE", help=help)
    group._option_string_actions.update(dict.fromkeys(aliases, store))


def add_k(group: argparse._ActionsContainer, help: str, **how: Any) -> None:
    """Add the option `-k`; it may be called `--limit` too, as in SQL, which --help does not show."""
    action = group.add_argument("-k", type=positive, metavar="K", help=help, **how)
    group._option_string_actions["--limit"] = action


def add_input(group: argparse._ActionsContainer, help: str, required: bool = True) -> None:
    """Add the option `--input`; several names may follow one, as the shell makes them of a pattern without quotes."""
    group.add_argument(
        "--input",
        action="extend",
        nargs="+",
        required=required,
        metavar="PATH",
        help=f"{help}: files, folders, patterns, tables (iceberg:NAME, delta:PATH), or - for standard input, a line a "
        "text; several, or repeated" + ("" if required else " (default: none)"),
    )


def add_format(group: argparse._ActionsContainer, of: str = "", default: str | None = None) -> None:
    """Add how files are read; `of` says whose files, and None as a default means "not given"."""
    kinds = f"{of}format of all inputs (default: auto, by file name)"
    group.add_argument("--format", choices=INPUT_FORMATS, default=default, help=kinds)
    group.add_argument(
        "--delimiter",
        type=delimiter,
        metavar="CHAR",
        help=f"{of}what stands between the values of CSV and TSV; tab is a word for it (default: told from each "
        "file's header)",
    )


def add_text_files(
    group: argparse._ActionsContainer, of: str = "", default: str | None = None, column: str | None = None
) -> None:
    """Add how files are read and where their text is, with the defaults of format and column."""
    add_format(group, of, default)
    named = f"{of}column with the text (default: text)"
    group.add_argument("--text-column", default=column, metavar="NAME", help=named)


def add_snapshot(group: argparse._ActionsContainer, of: str = "") -> None:
    """Add the option `--snapshot`."""
    group.add_argument("--snapshot", metavar="RUN", help=f"an earlier snapshot{of} (default: the current one)")


def add_revision(group: argparse._ActionsContainer) -> None:
    """Add the option `--revision`."""
    group.add_argument("--revision", metavar="R", help="revision of a Hugging Face id (default: the hub's)")


def add_device(group: argparse._ActionsContainer) -> None:
    """Add the option `--device`."""
    where = "where the model runs (default: auto, every GPU that the process sees, else the CPU)"
    group.add_argument("--device", type=device, metavar="auto|cpu|cuda|cuda:N", default="auto", help=where)


def add_tokens_per_batch(group: argparse._ActionsContainer) -> None:
    """Add the option `--tokens-per-batch`; None means "not given"."""
    group.add_argument(
        "--tokens-per-batch",
        type=size,
        metavar="N",
        help="tokens in one forward pass, padding included (default: 65536 on a GPU, less where its memory is small; "
        "on a CPU 2048 where nothing is "
        "padded, as in the BERT family, else 1024)",
    )


def add_metric(group: argparse._ActionsContainer) -> None:
    """Add the option `--metric` of an index; None means "not given"."""
    group.add_argument(
        "--metric",
        choices=METRICS,
        help="cosine, inner product or squared distance; auto: that of the index there is, else what the model's "
        "vectors are meant for, cosine where it says nothing (default: auto)",
    )


def add_budgets(group: argparse._ActionsContainer) -> None:
    """Add what an index has to reach and may cost; None means "not given"."""
    group.add_argument(
        "--target-recall",
        type=fraction,
        metavar="R",
        help="recall to tune the search for, at 10 rows and at 100; a run that is given it and whose new index misses "
        "it at 10 fails (default: 0.95, reported)",
    )
    group.add_argument(
        "--max-bytes-per-row",
        type=size,
        metavar="B",
        help="bytes that an index may hold in memory for a row; kinds of index are compared then (default: any)",
    )
    group.add_argument(
        "--max-latency-ms",
        type=milliseconds,
        metavar="T",
        help="milliseconds of a core for one query in the index, as bytes read at 2 MB/ms, not by a clock; kinds of "
        "index are compared then (default: any)",
    )


def add_index_accelerator(group: argparse._ActionsContainer) -> None:
    """Add the hint for the steps that train an index."""
    group.add_argument(
        "--index-accelerator",
        metavar="HINT",
        help="Beam's accelerator hint, for the steps alone that find the lists of an index (default: none)",
    )


def add_vector_options(group: argparse._ArgumentGroup) -> None:
    """Add the options that decide the vectors; None means "not given"."""
    group.add_argument("--model", type=filled, metavar="MODEL", help=MODEL)
    add_revision(group)
    group.add_argument(
        "--pooler", metavar="SPEC", help="how token states become a vector, see below (default: auto, the model's own)"
    )
    prompt = group.add_mutually_exclusive_group()
    prompt.add_argument("--prompt", metavar="STR", help="text put before every row (default: the model's)")
    prompt.add_argument("--prompt-name", metavar="NAME", help=PROMPT_NAME)
    group.add_argument("--max-tokens", type=positive, metavar="N", help="cut longer texts (default: the model's limit)")
    group.add_argument(
        "--normalize",
        action=argparse.BooleanOptionalAction,
        help="vectors of length 1 (default: as the model says for pooler auto, else yes)",
    )
    group.add_argument(
        "--calibration",
        metavar="PATH|none",
        help="folder that fit made, applied to the vectors; none takes a store's off (default: none)",
    )
    group.add_argument("--truncate-dim", type=positive, metavar="D", help="keep the first D components (default: all)")
    group.add_argument(
        "--dtype",
        choices=DTYPES_ASKED,
        help="type of the forward pass (default: the store's, else what the machine computes natively)",
    )
