"""Forms: a digest in each unit's record of all that the shards of a snapshot share beside rows.

The first half of a form follows from a run's options, the second from the columns that a unit was
written with. The commit compares both, so it opens no shard. What they cover must stay the same
from version to version, because carried units keep the forms that they were written with.
"""

import hashlib
import json
from functools import lru_cache

import pyarrow as pa

from sentence_beam.transforms.base.arrow_arrays import (
    as_plain_type,
    is_bytes,
    is_list,
    is_string,
)
from sentence_beam.transforms.base.errors import LedgerError
from sentence_beam.transforms.space import Space
from sentence_beam.transforms.store.entries import RememberedOptions

HALF = 8  # hex digits


def compute_run_form(space: Space, generation: int, options: RememberedOptions) -> str:
    """The first half of the form of all shards that a run writes: 8 hex digits.

    It covers the space, how often the store was embedded again, the text's columns, the column of
    the ids, whether the text is kept and the names of the kept columns.
    """
    text = [options.text_column, options.text_template, options.kept_text]
    return _digest([space.id, generation, *text, options.id_column, list(options.keep_columns)])


def compute_shard_form(of_run: str, kept: pa.Schema | None, ranges: str | None) -> str:
    """Return the form of a shard, 16 hex digits.

    The first half is the run's form, the second covers its kept columns and the bounds of its
    steps, whose digest is `ranges`.
    """
    columns = (
        [[field.name, describe_type(field.type)] for field in kept] if kept is not None else []
    )
    return of_run + _digest([columns, ranges])


def check_forms(of_run: str, forms: dict[str, str]) -> None:
    """Raise LedgerError if a shard has another form than the run, or other kept columns.

    `forms` has a shard of each form.
    """
    for form, path in forms.items():
        if form[:HALF] != of_run:
            raise LedgerError(
                f"ledger: {path} is of another space, or has other kept columns, another text or"
                " other ids than this run's options say; nothing committed"
            )
    columns = {form[HALF:]: path for form, path in forms.items()}
    if len(columns) > 1:
        first, second, *_ = sorted(columns.values())
        raise LedgerError(
            f"ledger: the kept columns of {first} and of {second} differ; nothing committed"
        )


def _digest(covered: object) -> str:
    return hashlib.sha256(json.dumps(covered).encode()).hexdigest()[:HALF]


@lru_cache(256)
def describe_type(kind: pa.DataType) -> str:
    """Return the name of a type without what readers of Parquet may change.

    They may change units of time, names in lists and encodings.
    """
    if isinstance(kind, pa.BaseExtensionType):
        return describe_type(kind.storage_type)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return describe_type(kind.value_type)
    if pa.types.is_map(kind):
        return f"map<{describe_type(kind.key_type)}, {describe_type(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return (
            f"struct<{', '.join(f'{field.name}: {describe_type(field.type)}' for field in kind)}>"
        )
    if is_list(as_plain_type(kind)):
        return f"list<{describe_type(kind.value_type)}>"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    return next((name for name, is_of_it in _FAMILIES.items() if is_of_it(kind)), str(kind))


_FAMILIES = {
    "string": is_string,
    "binary": is_bytes,
    "timestamp": pa.types.is_timestamp,
    "date": pa.types.is_date,
    "time": pa.types.is_time,
    "duration": pa.types.is_duration,
}
