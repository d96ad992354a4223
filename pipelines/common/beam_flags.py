"""The command line of commands that run a pipeline: our options and Beam's, no others."""

import argparse
import math
import os
import shlex
from collections.abc import Sequence
from typing import Any, TypeVar

from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.runners.runner import create_runner

from sentence_beam.pipelines.common import engines
from sentence_beam.pipelines.common.beam_parser import list_flags, make_beam_parser
from sentence_beam.pipelines.common.options import FLAG, RUNNER, Parser, check_text
from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.base.option import declared_in, flag_of
from sentence_beam.transforms.base.values import find_nearest
from sentence_beam.transforms.steps.options.index_options import IndexOptions

Options = TypeVar("Options", bound=PipelineOptions)
# the flags of `index`, some of which people give to `embed`
_OF_INDEX = {flag_of(*item) for item in declared_in(IndexOptions).items()}
# what people write without its flag, in this order
WITHOUT_FLAG = ("--input", "--store")


class OptionsWithViews(PipelineOptions):
    """Beam's options, whose views are made once.

    Beam asks for a view at every transform, and would make an argument parser for each.
    """

    def view_as(self, cls: type[Options]) -> Options:
        """Return the options that a class defines, the same object each time."""
        views = self.__dict__.setdefault("views", {})
        if cls not in views:
            views[cls] = super().view_as(cls)
        view: Options = views[cls]
        return view

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the views, which a copy makes anew."""
        return {name: value for name, value in super().__getstate__().items() if name != "views"}


def parse(
    parser: argparse.ArgumentParser, argv: Sequence[str]
) -> tuple[argparse.Namespace, PipelineOptions]:
    """Parse our options and Beam's. Raises OptionError for an unknown flag or an unusable
    runner.
    """
    check_text(argv)
    assert isinstance(parser, Parser)
    ours, after = _split(list(argv))
    try:
        args, rest = parser.parse_known_args(ours)
    except OptionError as error:
        raise OptionError(_explain_misspelt(parser, ours) or error.message) from error
    unknown = make_beam_parser().parse_known_args(rest)[1] if rest else []
    words = [text for text in unknown if not FLAG.match(text)]
    if unknown and not (parser.bare and words == unknown):
        raise OptionError(_explain_missing_flag(parser, ours) or _explain_unknown(parser, unknown))
    parser.take_bare(args, words)
    rest = _drop_words(rest, words)
    accelerator = getattr(args, "accelerator", None)
    return args, make_pipeline_options(rest, after, accelerator, embeds=hasattr(args, "device"))


def parse_list(
    flags: Sequence[str], accelerator: str | None = None, embeds: bool = True
) -> PipelineOptions:
    """Return Beam's options from a program's list; flags of a runner's Java side follow `--`.

    Raises OptionError for another type, an unknown flag, and an unusable runner.
    """
    if isinstance(flags, str):
        raise OptionError(f"beam_flags: {flags!r} is no list; write ['--runner=FlinkRunner', ...]")
    ours, after = _split(list(flags))
    unknown = make_beam_parser().parse_known_args(ours)[1]
    if unknown:
        raise OptionError(
            f"beam_flags: Beam has no flag {unknown[0]}; what a runner's Java side alone knows"
            " follows '--'"
        )
    return make_pipeline_options(ours, after, accelerator, embeds)


def make_pipeline_options(
    flags: Sequence[str] = (),
    after: Sequence[str] = (),
    accelerator: str | None = None,
    embeds: bool = True,
) -> PipelineOptions:
    """Return Beam's options for the runner; `after` are flags that only its Java side knows.

    `accelerator` and `embeds` are as for `engines.prepare`.
    Raises OptionError for an unusable runner.
    """
    options = OptionsWithViews([*flags, *after])
    if options.view_as(StandardOptions).runner is None:
        options.view_as(StandardOptions).runner = RUNNER
    _check_runner(options.view_as(StandardOptions).runner)
    engines.prepare(options, list(flags), accelerator, embeds)
    FileSystems.set_options(options)
    return options


def _check_runner(name: str) -> None:
    try:
        create_runner(name)
    except (ValueError, ImportError, AttributeError) as error:
        raise OptionError(f"--runner {name} cannot be used ({error})") from error


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    if "--" not in argv:
        return argv, []
    at = argv.index("--")
    return argv[:at], argv[at + 1 :]


def _drop_words(rest: list[str], words: list[str]) -> list[str]:
    """Return Beam's flags and their values: arguments without the words that belong to none."""
    flags = list(rest)
    for word in words:
        places = [place for place, text in enumerate(flags) if text == word]
        free = [place for place in places if not place or not _is_open(flags[place - 1])]
        del flags[(free or places)[0]]
    return flags


def _is_open(text: str) -> bool:
    """Whether a value may follow an argument."""
    return bool(FLAG.match(text)) and "=" not in text


def _explain_unknown(parser: Parser, unknown: Sequence[str]) -> str:
    """Return the error for arguments that neither parser knows: the first flag among them."""
    flag = next(filter(FLAG.match, unknown), unknown[0])
    if not flag.startswith("-"):
        hint = " (a pattern that the shell took apart needs quotes)" if os.path.exists(flag) else ""
        return f"unknown argument {flag}{hint}; see --help"
    options = [*parser.actions, "--direct_num_workers"]
    name = flag.split("=")[0]
    if "--index" in options and name in _OF_INDEX:
        return f"unknown option {flag}; it is an option of `sentence-beam index`"
    if "--reembed" in options and name == "--dry-run":
        return f"unknown option {flag}; say `sentence-beam plan`, with the same options"
    near = find_nearest(name, options) if name.startswith("--") else None
    if near:
        return f"unknown option {flag}; did you mean {near}?"
    return f"unknown option {flag}; see --help"


def _explain_misspelt(parser: Parser, argv: list[str]) -> str | None:
    """The error for a misspelt flag, which argparse would report as a missing one."""
    flags = [text.split("=")[0] for text in argv if FLAG.match(text)]
    known = {*parser.actions, *list_flags()}
    strange = [flag for flag in flags if flag not in known]
    lines = (_explain_unknown(parser, [flag]) for flag in strange)
    return next((line for line in lines if "did you mean" in line), None) or _explain_missing_flag(
        parser, argv
    )


def _explain_missing_flag(parser: Parser, argv: list[str]) -> str | None:
    """The error for an argument that lacks its flag; None if no argument does."""
    flags_named = {text.split("=")[0] for text in argv}
    missing = [flag for flag in WITHOUT_FLAG if flag in parser.actions and flag not in flags_named]
    words = _find_words(parser, argv)
    if not words or not missing:
        return None
    return f"unknown argument {words[0]}; did you mean {missing[0]} {shlex.quote(words[0])}?"


def _find_words(parser: Parser, argv: list[str]) -> list[str]:
    """Return the arguments that are neither flags nor values of flags."""
    if parser.bare or any(not option.flags for option in parser.own.values()):
        return []
    words = []
    most = 0.0
    for text in argv:
        if FLAG.match(text):
            action = parser.actions.get(text.split("=")[0])
            most = _count_values(action) if "=" not in text else 0.0
        elif most > 0:
            most -= 1
        else:
            words.append(text)
    return words


def _count_values(action: argparse.Action | None) -> float:
    """Return how many values may follow a flag; Beam's flags do not say."""
    if action is None or action.nargs == "+":
        return math.inf
    if action.nargs is None:
        return 1
    return 0


def make_hints(**values: str | None) -> dict[str, str]:
    """Beam's resource hints among some that may not be given."""
    return {name: hint for name, hint in values.items() if hint}
