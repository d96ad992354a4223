"""The shape of a manifest's JSON: types, ranges of numbers, and paths that the layout gives, before any of it is used.

A field that is not named here may be there, since later versions add some; a path may be nowhere but where `layout`
has files of its kind.
"""

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

from transforms.store import layout
from transforms.store.precision import PRECISIONS

Check = Callable[[Any, str], None]

MOST = 1 << 53  # the whole numbers that every reader of JSON has exactly
MOST_BITS = 32  # of buckets
HEX = re.compile(r"[0-9a-f]+")


def _fail(where: str, wanted: str) -> None:
    raise ValueError(f"{where} is not {wanted}")


def text(value: Any, where: str) -> None:
    """A string."""
    if not isinstance(value, str):
        _fail(where, "a string")


def flag(value: Any, where: str) -> None:
    """True or false."""
    if not isinstance(value, bool):
        _fail(where, "true or false")


def count(value: Any, where: str) -> None:
    """A whole number that is not negative."""
    if type(value) is not int or not 0 <= value <= MOST:
        _fail(where, "a count")


def number(value: Any, where: str) -> None:
    """Any number that is finite."""
    if type(value) not in (int, float) or not -MOST <= value <= MOST:
        _fail(where, "a number")


def record(value: Any, where: str) -> None:
    """Values by name."""
    if not isinstance(value, dict):
        _fail(where, "an object")


def time(value: Any, where: str) -> None:
    """A time in ISO 8601."""
    try:
        text(value, where)
        datetime.fromisoformat(value)
    except ValueError as error:
        raise ValueError(f"{where} is not a time") from error


def run_name(value: Any, where: str) -> None:
    """The name of a run, which is part of paths."""
    if not layout.is_run(value):
        _fail(where, "the name of a run")


def digest(value: Any, where: str) -> None:
    """A digest in hex, which is part of paths."""
    if not isinstance(value, str) or not HEX.fullmatch(value):
        _fail(where, "a digest in hex")


def path(kind: str) -> Check:
    """The path of a file of one kind, relative to the store."""

    def check(value: Any, where: str) -> None:
        if not layout.is_a(kind, value):
            _fail(where, f"a path of this store's {kind}")

    return check


def one_of(*values: str) -> Check:
    """One of some words."""

    def check(value: Any, where: str) -> None:
        if value not in values:
            _fail(where, f"one of {', '.join(values)}")

    return check


def at_most(most: int) -> Check:
    """A count with a bound."""

    def check(value: Any, where: str) -> None:
        count(value, where)
        if value > most:
            _fail(where, f"a count of at most {most}")

    return check


def maybe(check: Check) -> Check:
    """Null, or a value that passes a check."""
    return lambda value, where: None if value is None else check(value, where)


def each(check: Check) -> Check:
    """A list of values that all pass a check."""

    def check_all(value: Any, where: str) -> None:
        if not isinstance(value, list):
            _fail(where, "a list")
        for place, item in enumerate(value):
            check(item, f"{where}[{place}]")

    return check_all


def values(check: Check) -> Check:
    """An object whose values all pass a check."""

    def check_all(value: Any, where: str) -> None:
        record(value, where)
        for name, item in value.items():
            check(item, f"{where}.{name}")

    return check_all


def fields(needed: dict[str, Check], more: dict[str, Check] | None = None) -> Check:
    """An object that has all `needed` fields, and perhaps some `more`; others are not looked at."""

    def check_all(value: Any, where: str) -> None:
        record(value, where)
        prefix = f"{where}." if where else ""
        for name, check in needed.items():
            if name not in value:
                raise ValueError(f"{prefix}{name} is missing")
            check(value[name], prefix + name)
        for name, check in (more or {}).items():
            if name in value:
                check(value[name], prefix + name)

    return check_all


def all_of(*names: str, check: Check = count) -> dict[str, Check]:
    """The same check for several fields."""
    return dict.fromkeys(names, check)


SPACE = fields(
    all_of("weights", "tokenizer", "architecture", "prompt", "dtype", check=text)
    | all_of("max_tokens", "truncate_dim", check=maybe(count))
    | {"pooler": record, "calibration": maybe(digest), "normalize": flag, "dim": count}
    | {"precision": one_of(*PRECISIONS)},
    all_of("id", "pooled_id", check=text),
)
OPTIONS = fields(
    {},
    all_of("format", "text_column", "model", "pooler", "precision", "dtype", "metric", check=text)
    | all_of("id_column", "revision", "prompt", "query_prompt", check=maybe(text))
    | all_of("max_tokens", "truncate_dim", "limit", check=maybe(count))
    | all_of("max_rejects", "max_deletes", "check_carried", check=number)
    | {"keep_columns": each(text), "normalize": maybe(flag), "deterministic": flag, "price_per_hour": maybe(number)},
)
INPUT_FILE = fields(all_of("path", "source", "format", "checksum", "version", check=text) | {"size": count})
INDEX_FILE = fields({"path": path("index"), "sha256": text})
SEGMENT = fields(
    {"path": path("index"), "sha256": text, "locator": path("index"), "locator_sha256": text}
    | all_of("number", "rows", "deleted", "bytes")
    | {"kind": text},
    {"closeness": maybe(number)},
)
RECALL = fields(all_of("value", "low", "high", check=number) | all_of("k", "queries"), {"target": number})
INDEX = fields(
    {"segments": each(SEGMENT), "factory": text, "metric": text, "request": record, "recall": maybe(RECALL)}
    | all_of("nprobe", "rerank", "rows"),
    {"trained": INDEX_FILE, "queries": INDEX_FILE},
)
MANIFEST = fields(
    {
        "run": run_name,
        "previous": maybe(run_name),
        "space": SPACE,
        "partition": one_of("file", "content"),
        "unit_tokens": count,
        "rows": fields(all_of("read", "written", "rejected")),
        "work": fields(all_of("embedded", "reused", "duplicates", "carried")),
        "tokens": fields(all_of("real", "padded", "truncated_rows", "lost")),
        "shards": each(record),
        "index": maybe(INDEX),
        "input": fields({"globs": each(text), "files": each(INPUT_FILE)}),
        "options": OPTIONS,
        "started": time,
        "finished": time,
    },
    {
        "parts": each(fields({"path": path("parts"), "sha256": text, "units": count})),
        "buckets": maybe(fields({"bits": at_most(MOST_BITS)} | all_of("rows", "chosen_rows", "chosen_tokens"))),
        "ranges": maybe(fields({"path": path("ranges"), "digest": text, "space": text})),
        "canary": maybe(fields({"path": path("canary"), "sha256": text})),
        "calibration": maybe(fields({"digest": digest})),
        "generation": count,
        "versions": values(text),
        "check_from": count,
    },
)
PART = fields({"shards": each(record), "files": each(INPUT_FILE)})


def check_manifest(data: Any) -> None:
    """Raise ValueError naming the field by which some JSON is no manifest."""
    MANIFEST(data, "")
    _check_paths(data["index"], "index")


def check_part(data: Any) -> None:
    """Raise ValueError naming the field by which some JSON is no part of a manifest."""
    PART(data, "")


def _check_paths(value: Any, where: str) -> None:
    """The paths of an index, by whatever names a later version has for them."""
    for name, item in value.items() if isinstance(value, dict) else ():
        if name in ("path", "locator") or name.endswith("_path"):
            path("index")(item, f"{where}.{name}")
        _check_paths(item, f"{where}.{name}")
    for place, item in enumerate(value) if isinstance(value, list) else ():
        _check_paths(item, f"{where}[{place}]")
