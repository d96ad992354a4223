"""The options of commands as keywords of Python functions, for type checkers and editors.

A class here has the fields of a class of `options`; a name of a file may be a `pathlib.Path`, and
several names a list. Written by docs/keywords.py from these classes; `make docs` writes it again.
"""

from collections.abc import Mapping, Sequence
from typing import TypedDict

from sentence_beam.transforms.base.values import StrPath


class WriteKeywords(TypedDict, total=False):
    """The keywords of `WriteStore`, beside store and fields."""

    text_template: str | None
    keep_columns: Sequence[str] | Mapping[str, str] | None
    keep_text: bool | None
    model: StrPath | None
    revision: str | None
    pooler: str | None
    prompt: str | None
    prompt_name: str | None
    max_tokens: int | None
    normalize: bool | None
    calibration: StrPath | None
    dim: int | None
    truncate_dim: int | None
    dtype: str | None
    query_prompt: str | None
    chunks: str | None
    chunk_prefix: str | None
    precision: str | None
    unit_tokens: int | None
    index: str | None
    metric: str | None
    max_rejects: float | None
    max_deletes: float | None
    max_unknown: float | None
    budget: int | str | None
    max_drift: float | None
    max_answer_change: float | None
    allow_forgotten: Sequence[str]
    reembed: bool
    device: str
    tokens_per_batch: int | None
    deterministic: bool | None
    accelerator: str | None
    min_ram: str | None
    worker_model: StrPath | None


class EmbedKeywords(WriteKeywords, total=False):
    """The keywords of `embed` and `plan`."""

    input_version: int | None
    input_filter: str | None
    hidden: bool | None
    format: str | None
    delimiter: str | None
    csv: str | None
    json_rows: str | None
    text_column: str | None
    id_column: str | None
    limit: int | None
    store: StrPath
    partition: str | None
    max_bad_files: float
    append: bool
    like: StrPath | None


class RowsKeywords(EmbedKeywords, total=False):
    """The keywords of `embed` for rows in memory."""

    batch: str | None


class NeighboursKeywords(TypedDict, total=False):
    """The keywords of `neighbours`, beside those that it needs."""

    queries: StrPath | Sequence[StrPath] | None
    of: StrPath | None
    min_score: float | None
    where: str | None
    snapshot: str | None
    format: str | None
    delimiter: str | None
    csv: str | None
    json_rows: str | None
    text_column: str | None
    id_column: str | None
    query_prompt: str | None
    model: StrPath | None
