"""Read the values of options as people write them; raise OptionError for those that do not fit."""

import contextlib
import math
import os
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from sentence_beam.transforms.base.errors import OptionError

Kind = Callable[[str], Any]
StrPath: TypeAlias = str | os.PathLike[str]
_URL = re.compile(r"^(gs|s3|azfs|hdfs):/(?!/)")
# The words of other programs for the same thing.
MEANT = {
    "fp16": "float16", "half": "float16", "f16": "float16", "bf16": "bfloat16", "fp32": "float32",
    "f32": "float32", "single": "float32", "gpu": "cuda", "dot": "ip", "inner": "ip",
    "euclidean": "l2", "cos": "cosine", "jsonlines": "jsonl", "ndjson": "jsonl", "txt": "text",
    "pq": "parquet", "md": "file", "markdown": "file",
}  # fmt: skip
FOLDS = ("best", "none")  # how a search joins several pieces of a document
# Words that differ little and mean the contrary.
OPPOSITES = {frozenset(pair) for pair in (("min", "max"), ("new", "old"))}
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)(?:([KMGTP])(i?))?B")
SECONDS = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
SIZES = {"k": 10**3, "m": 10**6, "g": 10**9}
TOKENS = {"": 1, **SIZES, "b": 10**9}
NO_BUDGET = "none"


def read_one(value: Any, kind: Kind | None, types: tuple[Any, ...]) -> Any:
    """Read the value of an option that has one, of these types.

    Raises OptionError for a value that does not fit.
    """
    if isinstance(value, os.PathLike):
        value = as_text(value)
    if kind is not None:
        converted = kind(str(value))
        return converted if isinstance(converted, int | float | str) else str(value)
    if bool in types and not isinstance(value, bool):
        raise OptionError(f"{value!r} is not True or False")
    if str in types and not isinstance(value, str):
        raise OptionError(f"{value!r} is not text")
    return value


def as_text(path: StrPath) -> str:
    """Return the text of a path, with the slash of a URL that `pathlib` drops.

    >>> from pathlib import Path
    >>> as_text(Path("gs://bucket/store")), as_text(Path("/data/a.csv"))
    ('gs://bucket/store', '/data/a.csv')
    """
    return path if isinstance(path, str) else _URL.sub(r"\1://", os.fspath(path))


def size(text: str) -> int:
    """Read a count with an optional k, M or G: 256k, 1M."""
    match = re.fullmatch(r"(\d+)([kmgKMG]?)", text)
    if match is None or int(match[1]) == 0:
        raise OptionError(f"{text} is not a positive count (as in 50000, 256k or 1M)")
    return int(match[1]) * SIZES.get(match[2].lower(), 1)


def budget(text: str) -> int | str:
    """Read a count of tokens with an optional k, M, B or G (B and G are thousand millions);
    "none" for no limit.
    """
    if text == NO_BUDGET:
        return text
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmbgKMBG]?)", text)
    tokens = 0 if match is None else round(float(match[1]) * TOKENS[match[2].lower()])
    if tokens < 1:
        raise OptionError(f"{text} is not a count of tokens (as in 500k, 5M or 2B), nor none")
    return tokens


def filled(text: str) -> str:
    """Return a value that is not blank; an unset shell variable gives a blank one."""
    if not text.strip():
        raise OptionError("is empty")
    return text


def duration(text: str) -> float:
    """Read a span of time, in seconds: 7d, 12h, 30m, 45s."""
    match = re.fullmatch(r"(\d+)([dhms])", text)
    if match is None:
        raise OptionError(f"{text} is not a span of time (as in 7d, 12h or 30m)")
    return int(match[1]) * SECONDS[match[2]]


def positive(text: str) -> int:
    """Read a whole number above zero."""
    if not text.isdecimal() or int(text) == 0:
        raise OptionError(f"{text} is not a whole number above zero")
    return int(text)


def whole(text: str) -> int:
    """Read a whole number, zero or more."""
    if not text.isdecimal():
        raise OptionError(f"{text} is not a whole number, zero or more")
    return int(text)


def port(text: str) -> int:
    """Read a port of this machine; 0 is any free one."""
    if not (text.isdecimal() and len(text) < 6 and int(text) < 65_536):
        raise OptionError(f"{text} is not a port, a whole number from 0 to 65535")
    return int(text)


def root_path(text: str) -> str:
    """Read the path of a server behind a proxy, without a slash at the end; "" is the root."""
    path = text.rstrip("/")
    if path and not re.fullmatch(r"(/[\w.~-]+)+", path, re.ASCII):
        raise OptionError(
            f"{text} is not a path such as /store: it begins with / and has letters, digits, -, .,"
            " _ and ~"
        )
    return path


def fraction(text: str) -> float:
    """Read a number from 0 to 1."""
    return _read_number(text, 1, "a number from 0 to 1")


def few(text: str) -> float:
    """Read a whole number of things, or a share of them below 1."""
    with contextlib.suppress(ValueError):
        number = float(text)
        if 0 <= number < 1 or (number >= 1 and number.is_integer()):
            return number
    raise OptionError(f"{text} is neither a whole number nor a part of all, as 0.01")


def distance(text: str) -> float:
    """Read a cosine distance: a number from 0 to 2."""
    return _read_number(text, 2, "a cosine distance, a number from 0 to 2")


def cosine(text: str) -> float:
    """Read a cosine: a number from -1 to 1."""
    return _read_number(text, 1, "a cosine, a number from -1 to 1", least=-1)


def score(text: str) -> float:
    """Read a score: any number."""
    return _read_number(text, math.inf, "a number", least=-math.inf)


def price(text: str) -> float:
    """Read an amount of money, zero or more."""
    return _read_number(text, math.inf, "an amount of money (as in 1.20)")


def memory(text: str) -> str:
    """Read an amount of memory as Beam's resource hints take it, such as 16GB."""
    if _MEMORY.fullmatch(text.replace(" ", "")) is None:
        raise OptionError(f"{text} is not an amount of memory (as in 16GB)")
    return text


def to_memory_bytes(text: str) -> int:
    """Return an amount of memory in bytes.

    >>> to_memory_bytes("1.5GB"), to_memory_bytes("2 KiB"), to_memory_bytes("7B")
    (1500000000, 2048, 7)
    """
    match = _MEMORY.fullmatch(text.replace(" ", ""))
    assert match is not None
    number, unit, binary = match.groups(default="")
    return int(float(number) * (1024 if binary else 1000) ** (" KMGTP".index(unit) if unit else 0))


def milliseconds(text: str) -> float:
    """Read a span of time above zero, in milliseconds."""
    value = _read_number(text, math.inf, "a number of milliseconds above zero")
    if value == 0:
        raise OptionError(f"{text} is not a number of milliseconds above zero")
    return value


def names(text: str) -> tuple[str, ...]:
    """Read the names in a comma-separated list; none for an empty text."""
    columns = tuple(name for name in text.split(",") if name)
    if len(set(columns)) != len(columns):
        raise OptionError(f"{text} names a column twice")
    return columns


def delimiter(text: str) -> str:
    """Read one character between values; `tab` or `\\t` is a tab."""
    character = {"tab": "\t", "\\t": "\t"}.get(text, text)
    if len(character) != 1 or character in '"\r\n':
        raise OptionError(
            f"{text!a} is not one character to stand between values (as in ';' or tab)"
        )
    return character


def dotted(text: str) -> str:
    """Read a name, or several with dots between them; "" for none."""
    if text and not all(text.split(".")):
        raise OptionError(f"{text!r} is not a name, or names with dots between them")
    return text


def device(text: str) -> str:
    """Read `auto`, `cpu`, `cuda`, or one GPU: `cuda:1`, or `cuda:own`, which a process claims."""
    if re.fullmatch(r"auto|cpu|cuda(:\d+|:own)?", text) is None:
        raise OptionError(
            f"invalid choice: {text!r} (choose from 'auto', 'cpu', 'cuda',"
            f" 'cuda:N', 'cuda:own'){_guess_device(text)}"
        )
    return text


def _guess_device(text: str) -> str:
    number = re.fullmatch(r"(?:gpu|cuda)[:.]?(\d*)|(\d+)", text.lower())
    if number is not None:
        which = number[1] or number[2]
        return f"; did you mean cuda:{which}?" if which else "; did you mean cuda?"
    if text.lower() in ("mps", "metal", "xpu", "tpu", "npu"):
        return "; of accelerators those of CUDA alone are used, else cpu"
    near = find_nearest(text.lower(), ("auto", "cpu", "cuda", "cuda:own"))
    return f"; did you mean {near}?" if near else ""


def one_of(*choices: str) -> Kind:
    """Return the kind whose values are these words."""

    def choose(text: str) -> str:
        if text in choices:
            return text
        meant = MEANT.get(text.lower(), text.lower())
        near = meant if meant in choices else find_nearest(meant, choices)
        hint = f"; did you mean {near}?" if near else ""
        raise OptionError(
            f"invalid choice: {text!r} (choose from {', '.join(map(repr, choices))}){hint}"
        )

    return choose


def find_nearest(word: str, words: Iterable[str]) -> str | None:
    """Return the known word that is `word` but for a typo, None without one; never an opposite.

    A typo is a letter too many, too few, wrong or swapped with its neighbour; words of six letters
    or more may have two.

    >>> find_nearest("embedd", ["embed", "index"]), find_nearest("--min-tokens", ["--max-tokens"])
    ('embed', None)
    """
    most = 2 if len(word.lstrip("-")) >= 6 else 1
    for typos, other in sorted((_count_typos(word, other), other) for other in set(words)):
        if typos <= most and _find_differences(word, other) not in OPPOSITES:
            return other
    return None


def _count_typos(a: str, b: str) -> int:
    """Return the number of typos between two words (optimal string alignment)."""
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        earlier = before
        before = row
        row = [i]
        for j, y in enumerate(b, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, earlier[j - 2] + 1)
            row.append(cost)
    return row[-1]


def _find_differences(a: str, b: str) -> frozenset[str]:
    """Return the words in which two names differ."""
    return frozenset(re.split("[-_]", a)) ^ frozenset(re.split("[-_]", b))


def _read_number(text: str, most: float, what: str, least: float = 0) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most or math.isinf(value):
        raise OptionError(f"{text} is not {what}")
    return value
