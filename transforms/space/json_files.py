"""Read the JSON files of a model's folder strictly; every error names the file and the field."""

import json
import math
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.base.json_entries import read_dataclass

_Fields = TypeVar("_Fields")
_KINDS: dict[type, str] = {dict: "object", list: "list"}
_AGAIN = "fetch the model again"
_BYTE_ORDER_MARK = "\ufeff"
_END = 1024  # bytes in which a file ends, with its last blanks


def read_json(path: Path, kind: type = dict) -> Any:
    """Return the JSON object in a file; with `kind` list, the list.

    Raises `OptionError` if the file is missing or holds something else, and for what programs read
    differently: a key twice, NaN, a number beyond float64, half of a surrogate pair.
    """
    try:
        text = path.read_text(encoding="utf-8")
        if text.startswith(_BYTE_ORDER_MARK):
            raise OptionError(f"{path} begins with a byte order mark; save it as UTF-8 without one")
        value = json.loads(
            text,
            object_pairs_hook=_read_unique,
            parse_constant=_refuse_constant,
            parse_float=_read_finite,
        )
        if "\\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode()
    except FileNotFoundError:
        raise OptionError(f"{path} is missing; {_AGAIN}") from None
    except OSError as error:
        raise OptionError(f"{path} cannot be read ({error.strerror}); {_AGAIN}") from None
    except (ValueError, RecursionError) as error:
        raise OptionError(f"{path} is not valid JSON ({error}); {_AGAIN}") from None
    if not isinstance(value, kind):
        raise OptionError(f"{path} holds no JSON {_KINDS[kind]}; {_AGAIN}")
    return value


def read_json_if_there(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file, `{}` if the file is missing. Raises as `read_json`."""
    return read_json(path) if path.exists() else {}


def check_not_cut_off(path: Path) -> None:
    """Raise OptionError if the object in a file has no end, without reading a large file whole."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _END))
        end = file.read()
    if not end.rstrip().endswith(b"}"):
        raise OptionError(f"{path} is cut off: it does not end with a brace; {_AGAIN}")


def read_fields(kind: type[_Fields], values: Mapping[str, Any], path: Path) -> _Fields:
    """Return an object of a file as a dataclass.

    Raises `OptionError` for a field that is missing or of another type.
    """
    try:
        return read_dataclass(kind, values)
    except ValueError as error:
        raise OptionError(f"{path}: {error}; {_AGAIN}") from None


def read_known_fields(kind: type[_Fields], values: Mapping[str, Any], path: Path) -> _Fields:
    """Return an object of a file as a dataclass that has all its fields.

    Raises as `read_fields`, and for a field that the dataclass lacks.
    """
    names = kind.__dataclass_fields__  # type: ignore[attr-defined]
    unknown = sorted(set(values) - set(names))
    if unknown:
        raise OptionError(
            f"{path}: {unknown[0]!r} is not a known setting; correct it, or use another model"
        )
    return read_fields(kind, values, path)


def _read_unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        (twice, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"it has the key {twice!r} twice")
    return fields


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _read_finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits} is too large a number")
    return number
