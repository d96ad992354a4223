"""The options of commands that build an index, a calibration or other vectors of a store."""

from collections.abc import Sequence
from dataclasses import replace

from sentence_beam.transforms.base import values
from sentence_beam.transforms.base.option import Declared, option, options
from sentence_beam.transforms.options.common import (
    ACCELERATOR,
    CSV,
    DELIMITER,
    FORMAT,
    INDEXES,
    JSON_ROWS,
    MAX_ANSWER_CHANGE,
    MAX_BYTES_PER_ROW,
    MAX_LATENCY_MS,
    METRIC,
    MIN_RAM,
    NAMED_STORE,
    REVISION,
    STORE,
    TARGET_RECALL,
    TEXT_COLUMN,
    declare_input,
)

FLOW_SAMPLE = 200_000


def _declare_for_corpus(declared: Declared) -> Declared:
    """Return a declaration whose help says that the option is for a corpus."""
    return replace(declared, help=f"of a corpus: {declared.help}")


@options
class IndexOptions:
    """The options of `index`. Python's `range_bytes`, the most bytes of a range, has no flag."""

    store: str = option(STORE, kw_only=False, default=None)
    index: str | None = option(
        f"index to build; {INDEXES} (default: as the store's index was asked for, else auto, by the"
        " number of rows)",
        metavar="auto|compact|FACTORY",
        default=None,
    )
    metric: str | None = option(METRIC, default=None)
    target_recall: float | None = option(TARGET_RECALL, default=None)
    max_bytes_per_row: int | None = option(MAX_BYTES_PER_ROW, default=None)
    max_latency_ms: float | None = option(MAX_LATENCY_MS, default=None)
    retrain: bool = option(
        "train the index again, whatever changed since the last one (default: no)", default=False
    )
    max_answer_change: float | None = option(MAX_ANSWER_CHANGE, default=None)
    accelerator: str | None = option(
        ACCELERATOR,
        help="Beam's accelerator hint, for finding the lists of the index (default: none)",
        default=None,
    )
    min_ram: str | None = option(
        MIN_RAM,
        help="Beam's memory hint, for all steps (default: what the rows need, above 3 GB)",
        default=None,
    )
    range_bytes: int | None = None
    beam_flags: Sequence[str] = ()


@options
class FitOptions:
    """The options of `fit`: a store for a calibration, files for token statistics."""

    store: str | None = option(
        STORE,
        help=f"the store, for a calibration (default: {NAMED_STORE})",
        fallback=None,
        default=None,
    )
    input: tuple[str, ...] | None = option(
        declare_input("the corpus, for tfidf and token-counts", "none"), default=None
    )
    method: str = option("what to fit or count, see below", metavar="SPEC")
    output: str = option(
        "folder for the result: a new or empty one, or an earlier fit's, which is replaced",
        metavar="DIR",
    )
    sample: int | None = option(
        f"of a store: fit on N rows, chosen by hash (default: all rows; flow: {FLOW_SAMPLE})",
        kind=values.positive,
        metavar="N",
        default=None,
    )
    model: str | None = option(
        "of a corpus: whose tokenizer counts; a pooler refuses statistics of another one (default:"
        " minilm)",
        kind=values.filled,
        metavar="MODEL",
        default=None,
    )
    revision: str | None = option(REVISION, default=None)
    format: str | None = option(_declare_for_corpus(FORMAT), default=None)
    delimiter: str | None = option(_declare_for_corpus(DELIMITER), default=None)
    csv: str | None = option(_declare_for_corpus(CSV), default=None)
    json_rows: str | None = option(_declare_for_corpus(JSON_ROWS), default=None)
    text_column: str | None = option(_declare_for_corpus(TEXT_COLUMN), default=None)
    beam_flags: Sequence[str] = ()


@options
class RecalibrateOptions:
    """The options of `recalibrate`."""

    store: str = option(STORE, kw_only=False, default=None)
    calibration: str = option(
        "folder that fit made on a store of the same pooled vectors; none for the vectors"
        " without one",
        kind=values.filled,
        metavar="PATH|none",
    )
    max_answer_change: float | None = option(MAX_ANSWER_CHANGE, default=None)
    beam_flags: Sequence[str] = ()
