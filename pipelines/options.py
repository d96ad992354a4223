"""The options that commands share, their parser, and the types of their values."""

import argparse
import math
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from transforms.corpus.files import is_utf8
from transforms.errors import OptionError

RUNNER = "FnApiRunner"
SECONDS = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
FORMATS = ("auto", "parquet", "text", "jsonl")
FORMAT = "format of all inputs (default: auto, by file name)"
MODEL = "minilm, a local directory, or a Hugging Face id (default: minilm)"
DEVICE = "where the model runs (default: auto, every GPU that the process sees, else the CPU)"
TOKENS_PER_BATCH = (
    "tokens in one forward pass, padding included (default: 65536 on a GPU; on a CPU 2048 where nothing is padded, "
    "as in the BERT family, else 1024)"
)
SIZES = {"k": 10**3, "m": 10**6, "g": 10**9}


class Parser(argparse.ArgumentParser):
    """An argument parser that raises OptionError, one line, where argparse prints the usage and exits."""

    def error(self, message: str) -> NoReturn:
        raise OptionError(message if "--help" in message else f"{message}; see --help")


def command(name: str, description: str) -> argparse.ArgumentParser:
    """A command's parser, without options so far; its help says where flags go that are not listed."""
    return Parser(
        prog=f"sentence-beam {name}",
        description=description,
        allow_abbrev=False,
        epilog=(
            f"The pipeline runs in this process (--runner={RUNNER}) unless --runner says FlinkRunner, "
            "DataflowRunner, PrismRunner or DirectRunner (Prism, where it can be had). Flags that are not listed here "
            "go to Beam's pipeline options (--runner, --project, ...); what only a runner's Java side knows goes "
            "after --."
        ),
    )


def check_text(argv: Sequence[str]) -> None:
    """Raise OptionError for an argument that is not UTF-8, as ids and manifests are."""
    for text in argv:
        if not is_utf8(text):
            raise OptionError(f"argument {text!a} is not UTF-8; set the terminal to UTF-8")


def size(text: str) -> int:
    """A count with an optional k, M or G: 256k, 1M."""
    match = re.fullmatch(r"(\d+)([kmgKMG]?)", text)
    if match is None or int(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text} is not a positive count (as in 50000, 256k or 1M)")
    return int(match[1]) * SIZES.get(match[2].lower(), 1)


def filled(text: str) -> str:
    """A value that is not blank, as that of an unset shell variable is."""
    if not text.strip():
        raise argparse.ArgumentTypeError("is empty")
    return text


def duration(text: str) -> float:
    """A span of time in seconds: 7d, 12h, 30m, 45s."""
    match = re.fullmatch(r"(\d+)([dhms])", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text} is not a span of time (as in 7d, 12h or 30m)")
    return int(match[1]) * SECONDS[match[2]]


def positive(text: str) -> int:
    """A whole number above zero."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number above zero")
    return int(text)


def _number(text: str, most: float, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= most or math.isinf(value):
        raise argparse.ArgumentTypeError(f"{text} is not {what}")
    return value


def fraction(text: str) -> float:
    """A number from 0 to 1."""
    return _number(text, 1, "a number from 0 to 1")


def distance(text: str) -> float:
    """A cosine distance: a number from 0 to 2."""
    return _number(text, 2, "a cosine distance, a number from 0 to 2")


def price(text: str) -> float:
    """An amount of money, zero or more."""
    return _number(text, math.inf, "an amount of money (as in 1.20)")


def names(text: str) -> tuple[str, ...]:
    """The names in a comma-separated list; none for an empty text."""
    found = tuple(name for name in text.split(",") if name)
    if len(set(found)) != len(found):
        raise argparse.ArgumentTypeError(f"{text} names a column twice")
    return found


class _OneStore(argparse.Action):
    """The action of `--store`: several flags may name the store, if they all name the same one."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        earlier = getattr(namespace, self.dest)
        if earlier not in (None, values):
            raise OptionError(f"{option_string} {values}: the store is {earlier} already; name one")
        setattr(namespace, self.dest, values)


def add_store(
    group: argparse._ActionsContainer, *aliases: str, help: str = "folder or URL of the store", required: bool = True
) -> None:
    """Add the option `--store`; `aliases` are its names in earlier versions, which --help does not show."""
    store = group.add_argument("--store", action=_OneStore, required=required, type=filled, metavar="STORE", help=help)
    group._option_string_actions.update(dict.fromkeys(aliases, store))


def add_metric(group: argparse._ActionsContainer) -> None:
    """Add the option `--metric` of an index; None means "not given"."""
    group.add_argument(
        "--metric",
        choices=["auto", "cosine", "ip", "l2"],
        help="cosine, inner product or squared distance; auto: that of the index there is, else what the model's "
        "vectors are meant for, cosine where it says nothing (default: auto)",
    )


def add_vector_options(group: argparse._ArgumentGroup) -> None:
    """Add the options that decide the vectors; None means "not given"."""
    group.add_argument("--model", type=filled, metavar="MODEL", help=MODEL)
    group.add_argument("--revision", metavar="R", help="revision of a Hugging Face id (default: the hub's)")
    group.add_argument(
        "--pooler", metavar="SPEC", help="how token states become a vector (default: auto, the model's own)"
    )
    prompt = group.add_mutually_exclusive_group()
    prompt.add_argument("--prompt", metavar="STR", help="text put before every row (default: the model's)")
    prompt.add_argument("--prompt-name", metavar="NAME", help="one of the model's named prompts; not with --prompt")
    group.add_argument("--max-tokens", type=positive, metavar="N", help="cut longer texts (default: the model's limit)")
    group.add_argument(
        "--normalize",
        action=argparse.BooleanOptionalAction,
        help="vectors of length 1 (default: as the model says for pooler auto, else yes)",
    )
    group.add_argument(
        "--calibration",
        metavar="PATH",
        help="folder that fit made, applied to the vectors; '' for none (default: none)",
    )
    group.add_argument("--truncate-dim", type=positive, metavar="D", help="keep the first D components (default: all)")
    group.add_argument(
        "--dtype",
        choices=["auto", "float32", "bfloat16", "float16"],
        help="type of the forward pass (default: the store's, else what the machine computes natively)",
    )
