"""The options that commands share, their parser, and the types of their values."""

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, fields
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from sentence_beam.transforms.base import values
from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.base.option import (
    Declared,
    Exclusive,
    declared_in,
    flag_of,
    is_required,
)
from sentence_beam.transforms.corpus.files import is_utf8

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Asked = TypeVar("Asked", bound="DataclassInstance")
RUNNER = "FnApiRunner"
FLAG = re.compile(r"--?[a-zA-Z]")
EXAMPLES = "examples:"


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are OptionError, one line, and whose help has two lengths.

    --help leaves out the options of `advanced`, if there are any, and `words`, the text on SPECs;
    --help-all shows everything. `actions` has all options by flag, `own` those that a class
    declares by field. `bare` is the field of the option that takes the arguments without a flag,
    None if there is none.
    """

    actions: dict[str, argparse.Action]
    advanced: list[argparse.Action]
    bare: str | None = None
    own: dict[str, "_OwnOption"]
    words: str = ""

    def __init__(self, *arguments: Any, **keywords: Any):
        self.actions = {}
        super().__init__(*arguments, **keywords)
        self.advanced = []
        self.own = {}

    def add_argument(self, *flags: Any, **keywords: Any) -> argparse.Action:
        """Add an option to the parser and to its `actions`."""
        return self.note(super().add_argument(*flags, **keywords))

    def note(self, action: argparse.Action) -> argparse.Action:
        """Note and return an option that a group of the parser has."""
        self.actions.update(dict.fromkeys(action.option_strings, action))
        return action

    def take_bare(self, arguments: argparse.Namespace, words: Sequence[str]) -> None:
        """Give arguments without a flag to the option that takes them, in place of a file's values.

        Python's parser would take none of them once a flag has come first.
        Raises OptionError if that option is required and has no value.
        """
        if self.bare is None:
            return
        own = self.own[self.bare]
        values = getattr(arguments, self.bare)
        if words:
            if own.is_taken:
                values = None
            setattr(arguments, self.bare, [*(values or ()), *words])
            self._leave_out_excluded(arguments, own)
        elif values is None and own.is_needed:
            self.error(f"the following arguments are required: {own.action.option_strings[0]}")

    def _leave_out_excluded(self, arguments: argparse.Namespace, own: "_OwnOption") -> None:
        """Leave out values of a file that an option of the same set excludes."""
        if own.exclusive is None:
            return
        for name, other in self.own.items():
            if other.is_taken and other is not own and other.exclusive is own.exclusive:
                setattr(arguments, name, None)

    def take(self, values: Mapping[str, Any], argv: Sequence[str]) -> dict[str, Any]:
        """Take values of options from a file, except what `argv` or an earlier file gives.

        Returns the values that were taken.
        """
        flags = {text.split("=")[0] for text in argv}
        named = [one for one in self.own.values() if one.is_taken or one.flags & flags]
        excluded = {one.exclusive for one in named} - {None}
        taken = {}
        for name, value in values.items():
            option = self.own[name]
            if option not in named and option.exclusive not in excluded:
                option.take(value)
                taken[name] = value
        return taken

    def format_help(self) -> str:
        if not self.advanced:
            return self.format_help_all()
        texts = [action.help for action in self.advanced]
        for action in self.advanced:
            action.help = argparse.SUPPRESS
        try:
            return super().format_help()
        finally:
            for action, text in zip(self.advanced, texts, strict=True):
                action.help = text

    def format_help_all(self) -> str:
        """Return the help with all options."""
        epilog = self.epilog
        if self.words:
            self.epilog = f"{self.words}\n\n{epilog}"
        try:
            return super().format_help()
        finally:
            self.epilog = epilog

    def error(self, message: str) -> NoReturn:
        if "--help" not in message:
            message = f"{message}; see --help"
        raise OptionError(message)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Raise ArgumentError with the line of `values.one_of` for a value beside the choices."""
        if action.choices is None:
            return
        try:
            values.one_of(*action.choices)(value)
        except OptionError as error:
            raise argparse.ArgumentError(action, error.line) from None


@dataclass(eq=False)
class _OwnOption:
    """An option of a class in a parser: its action, its flags and the set that excludes it."""

    action: argparse.Action
    flags: set[str]
    exclusive: argparse._MutuallyExclusiveGroup | None = None
    is_needed: bool = False
    is_taken: bool = False

    def take(self, value: Any) -> None:
        """Take the value of a file as the default, so that the option need not be given."""
        self.is_taken = True
        self.action.default = value
        self.action.required = False
        if self.exclusive is not None:
            self.exclusive.required = False


class _HelpAll(argparse._HelpAction):
    """The action of --help-all: show the help with advanced options and the words of SPECs."""

    def __call__(self, parser: argparse.ArgumentParser, *ignored: Any) -> NoReturn:
        assert isinstance(parser, Parser)
        print(parser.format_help_all(), end="")
        parser.exit()


class _Help(argparse.HelpFormatter):
    """A formatter that keeps the lines of examples and of the words of SPECs."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if EXAMPLES in text:
            return text
        return super()._fill_text(text, width, indent)


def every_command() -> Parser:
    """Return a parser of the options that every command has, which do not concern the work."""
    p = Parser(add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS)
    p.add_argument(
        "--help-beam",
        action="store_true",
        help="show the flags that go to Beam and exit (default: no)",
    )
    p.add_argument(
        "--config",
        type=_checked(values.filled),
        metavar="FILE",
        help="TOML file of options; flags win (default: none)",
    )
    quiet = "no progress, no summary; errors are still printed (default: no)"
    p.add_argument("--quiet", action="store_true", help=quiet)
    p.add_argument(
        "--json", action="store_true", help="the summary as one JSON object (default: no)"
    )
    return p


def command(
    name: str,
    description: str,
    *examples: str,
    words: str = "",
    kind: type["DataclassInstance"] | None = None,
) -> argparse.ArgumentParser:
    """Return a command's parser: the options of every command, and those that `kind` declares.

    Its help ends with `examples`, which are command lines. Before them `words` explains the SPECs
    of its options.
    """
    prog = f"sentence-beam {name}"
    common = every_command()
    parser = Parser(
        prog=prog,
        description=description,
        allow_abbrev=False,
        parents=[common],
        formatter_class=_Help,
        epilog="\n".join([EXAMPLES, *(f"  {example}" for example in examples)]),
        usage=" ".join([prog, *_arguments_of(kind), "[options]"]),
    )
    parser.actions.update(common.actions)
    parser.words = words
    if kind is not None:
        add_options(parser, kind)
    if parser.advanced:
        more = f"show all options, {len(parser.advanced)} more, and exit"
        parser.add_argument("--help-all", action=_HelpAll, help=more)
    return parser


def _arguments_of(kind: type["DataclassInstance"] | None) -> Iterator[str]:
    """Yield the usage of the arguments without a flag, and of the flags that are required."""
    if kind is None:
        return
    declarations = declared_in(kind)
    for item in fields(kind):
        declared = declarations.get(item.name)
        if declared is None:
            continue
        word = declared.metavar or item.name.upper()
        if declared.bare:
            yield f"[{word} ...]"
        elif declared.positional:
            yield word if is_required(item) else f"[{word}]"
        elif is_required(item) and declared.exclusive is None:
            yield f"{flag_of(item.name, declared)} {word}"


def add_options(parser: Parser, kind: type["DataclassInstance"]) -> None:
    """Add the options that a class declares, in the order of its fields."""
    groups: dict[str | None, argparse._ActionsContainer] = {None: parser}
    sets: dict[Exclusive, argparse._MutuallyExclusiveGroup] = {}
    declarations = declared_in(kind)
    # which the class checks: whether words are given is known when all flags are read
    unchecked = {each.exclusive for each in declarations.values() if each.bare}
    for item in fields(kind):
        if item.name not in declarations:
            continue
        declared = declarations[item.name]
        if declared.group not in groups:
            groups[declared.group] = parser.add_argument_group(declared.group)
        container = groups[declared.group]
        exclusive = None
        if declared.exclusive is not None:
            if declared.exclusive not in sets:
                required = declared.exclusive.required and declared.exclusive not in unchecked
                sets[declared.exclusive] = container.add_mutually_exclusive_group(required=required)
            container = exclusive = sets[declared.exclusive]
        action = parser.note(_add_option(container, item, declared))
        parser.own[item.name] = _OwnOption(
            action, {*action.option_strings}, exclusive, is_required(item)
        )
        if declared.bare:
            parser.bare = item.name
        if declared.advanced:
            parser.advanced.append(action)


def _add_option(
    container: argparse._ActionsContainer, item: "Field[Any]", declared: Declared
) -> argparse.Action:
    """Add one option. Its value stays text, which the class of the options reads."""
    how: dict[str, Any] = {"help": declared.help, **_action_of(item, declared)}
    if not is_required(item) and not declared.several:
        how["default"] = item.default
        if item.default == "":  # argparse would check a text
            how["default"] = None
    if declared.positional:
        if not is_required(item):
            how["nargs"] = "?"
        return container.add_argument(item.name, **how)
    required = is_required(item) and declared.exclusive is None and not declared.bare
    action = container.add_argument(
        flag_of(item.name, declared), dest=item.name, required=required, **how
    )
    return action


def _action_of(item: "Field[Any]", declared: Declared) -> dict[str, Any]:
    """Return argparse's arguments for the values of an option."""
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
    """Return the kind as a type of argparse, which checks a text and returns it unchanged."""
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
            raise argparse.ArgumentTypeError(error.line) from None

    return parsed


def bare_words(rest: Sequence[str]) -> list[str] | None:
    """Return the arguments without a flag among those left; None if a flag is among them.

    After `--` every argument is one.
    """
    at = len(rest)
    if "--" in rest:
        at = rest.index("--")
    if any(map(FLAG.match, rest[:at])):
        return None
    return [*rest[:at], *rest[at + 1 :]]


def as_options(kind: type[Asked], args: argparse.Namespace) -> Asked:
    """Return the options of a class; one that the arguments do not give has its default."""
    values_given = vars(args)
    values_by_name = {
        item.name: values_given[item.name]
        for item in fields(kind)
        if values_given.get(item.name) is not None
    }
    return kind(
        **{
            name: tuple(value) if isinstance(value, list) else value
            for name, value in values_by_name.items()
        }
    )


class _Once(argparse.Action):
    """The action of an option that several flags may give, if they all give the same value."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        earlier = getattr(namespace, self.dest)
        if earlier not in (self.default, values):
            name = self.option_strings[0].lstrip("-")
            raise OptionError(
                f"{option_string} {values}: the {name} is {earlier} already; name one"
            )
        setattr(namespace, self.dest, values)
