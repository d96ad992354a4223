"""Values of a batch's columns as text, and the reasons against those that cannot be used."""

import uuid

import pyarrow as pa

from transforms.corpus.nested import column_at, type_at, value_as_text

EXCERPT = 80
NOT_UTF8 = "not UTF-8"
KEPT_NOT_UTF8 = "kept column not UTF-8"
KEPT_NULL_LIST = "kept column null, which lists of a fixed number cannot be in Parquet"

Reasons = list[str | None] | None  # None: nothing against any row


def named_values(
    batch: pa.RecordBatch, names: tuple[str, ...]
) -> tuple[list[dict[str, str | None]], Reasons]:
    """The values of those columns that are there as text, row by row, and reasons against them."""
    values: dict[str, list[str | None]] = {}
    reasons: Reasons = None
    for name in names:
        if type_at(batch.schema, name) is not None:
            values[name], others = values_as_text(column_at(batch, name))
            reasons = first_reasons(reasons, others)
    return [
        {name: column[row] for name, column in values.items()} for row in range(batch.num_rows)
    ], reasons


def values_as_text(column: pa.Array) -> tuple[list[str | None], Reasons]:
    """Values for a template, and reasons against them: lists and structs as JSON, all else as ids
    are.
    """
    if not pa.types.is_nested(column.type):
        return decoded(as_strings(column))
    faults = kept_faults(column)
    bad = faults or [None] * len(column)
    texts = [
        None if fault else value_as_text(value.as_py())
        for value, fault in zip(column, bad, strict=True)
    ]
    return texts, [fault and NOT_UTF8 for fault in bad] if faults else None


def as_strings(ids: pa.Array) -> pa.Array:
    """Ids as text: integers in decimal, UUIDs as 8-4-4-4-12 hex digits, other bytes of a fixed
    number in hex.
    """
    if isinstance(ids.type, pa.UuidType):
        values = ids.storage.to_pylist()
        return pa.array(
            [None if value is None else str(uuid.UUID(bytes=value)) for value in values],
            pa.large_string(),
        )
    if pa.types.is_fixed_size_binary(ids.type):
        values = ids.to_pylist()
        return pa.array(
            [None if value is None else value.hex() for value in values], pa.large_string()
        )
    return ids.cast(pa.large_string())


def first_reasons(reasons: Reasons, others: Reasons) -> Reasons:
    """The first reason against each row."""
    if reasons is None or others is None:
        return reasons or others
    return [a or b for a, b in zip(reasons, others, strict=True)]


def kept_faults(column: pa.Array) -> Reasons:
    """Reasons against kept values that no reader of the shard could decode."""
    if pa.types.is_fixed_size_list(column.type) and column.null_count:
        return [KEPT_NULL_LIST if null else None for null in column.is_null().to_pylist()]
    try:
        column.validate(full=True)
        return None
    except pa.ArrowInvalid:
        return [None if _decodes(value) else KEPT_NOT_UTF8 for value in column]


def _decodes(value: pa.Scalar) -> bool:
    try:
        value.as_py()
    except UnicodeDecodeError:
        return False
    return True


def decoded(text: pa.Array) -> tuple[list[str | None], Reasons]:
    """Texts and reasons; files written by careless tools hold strings that are not UTF-8."""
    try:
        return text.to_pylist(), None
    except UnicodeDecodeError:
        pairs = [
            (None, None) if b is None else decode(b)
            for b in text.cast(pa.large_binary()).to_pylist()
        ]
        return [text for text, _ in pairs], [reason for _, reason in pairs]


def decode(line: bytes) -> tuple[str, str | None]:
    """Bytes as text and no reason; of those that are not UTF-8 an excerpt, and the reason against
    them.
    """
    try:
        return line.decode("utf8"), None
    except UnicodeDecodeError:
        return line[: 4 * EXCERPT].decode("utf8", errors="replace"), NOT_UTF8
