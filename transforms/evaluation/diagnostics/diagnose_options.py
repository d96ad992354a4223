"""Options of `diagnose`."""

from dataclasses import replace

from sentence_beam.transforms.base import values
from sentence_beam.transforms.base.option import Declared, option, options, read
from sentence_beam.transforms.evaluation.diagnostics.figure_rows import FIGURES
from sentence_beam.transforms.options.common import (
    CSV,
    DELIMITER,
    DEVICE,
    FORMAT,
    JSON_ROWS,
    MODEL,
    NAMED_STORE,
    REVISION,
    SNAPSHOT,
    STORE,
    TABLE_FILE,
    TEXT_COLUMN,
    WHERE,
    declare_input,
)
from sentence_beam.transforms.store.layout import default_store

SAMPLE = 10_000


def _limit_to_input(declared: Declared) -> Declared:
    """Return a declaration whose help says that the option is for `--input`."""
    return replace(declared, help=f"of --input: {declared.help}")


@options
class DiagnoseOptions:
    """Options of `diagnose`: a source (a store, files, pairs of tasks) or a sentence; figures.

    `labels` are those of answers in tasks `qa:`; if empty, entailment, true and yes. If `figures`
    is empty, the source decides: a store has the figures of its vectors. `poolers` run over the
    texts; the vectors of a store are examined too. `calibrations` are for the poolers' vectors. If
    `model` is None, it is the store's, else the bundled one. `table` is a folder of token
    statistics. `sample` limits the texts or pairs.
    """

    store: str | None = option(
        STORE,
        help=(
            f"a store whose vectors are examined (default: without another source {NAMED_STORE})"
        ),
        fallback=None,
        default=None,
    )
    where: str | None = option(
        WHERE, help="of --store: only rows that match (default: all rows)", default=None
    )
    snapshot: str | None = option(
        SNAPSHOT, help="of --store: an earlier snapshot (default: the current one)", default=None
    )
    input: tuple[str, ...] = option(declare_input("texts", "none"), default=())
    tasks: tuple[str, ...] = option(
        "pairs: [sts:]NAME=PATH[,PATH] with score, sentence1, sentence2; qa:NAME=PATH with label,"
        " sentence1, sentence2, or with two columns, question and answer; repeat for more (default:"
        " none)",
        metavar="[KIND:]NAME=PATH",
        several="repeat",
        flag="--task",
        default=(),
    )
    labels: tuple[str, ...] = option(
        "labels of answers in qa: tasks (default: entailment, true, yes)",
        kind=values.names,
        metavar="A,B",
        default=(),
    )
    sentence: str | None = option(
        "one sentence: how much each of its tokens matters to the others (default: none)",
        metavar="TEXT",
        default=None,
    )
    figures: tuple[str, ...] = option(
        f"only these, separated by commas: {', '.join(FIGURES)} (default: of a store those of its"
        " vectors alone, else all that the source has)",
        kind=values.names,
        metavar="NAMES",
        flag="--figure",
        default=(),
    )
    poolers: tuple[str, ...] = option(
        "a pooler to run over the texts; repeat for more (default: of a store none, else auto)",
        metavar="SPEC",
        several="repeat",
        flag="--pooler",
        default=(),
    )
    calibrations: tuple[str, ...] = option(
        "a folder that fit made: make figures of a pooler's vectors with it too; repeat for more"
        " (default: none)",
        metavar="PATH",
        several="repeat",
        flag="--calibration",
        default=(),
    )
    model: str | None = option(
        MODEL, help="as for embed (default: the store's, else minilm)", default=None
    )
    revision: str | None = option(REVISION, default=None)
    table: str | None = option(
        "folder of token statistics that fit made (default: words are counted in the texts"
        " themselves)",
        metavar="DIR",
        default=None,
    )
    sample: int = option(
        f"rows or pairs at most, by keyed hash (default: {SAMPLE})",
        kind=values.positive,
        metavar="N",
        default=SAMPLE,
    )
    format: str = option(_limit_to_input(FORMAT), default="auto")
    delimiter: str | None = option(_limit_to_input(DELIMITER), default=None)
    csv: str | None = option(_limit_to_input(CSV), default=None)
    json_rows: str | None = option(_limit_to_input(JSON_ROWS), default=None)
    text_column: str | None = option(_limit_to_input(TEXT_COLUMN), default=None)
    device: str = option(DEVICE, default="auto")

    def __post_init__(self) -> None:
        read(self)
        if not (self.store or self.input or self.tasks or self.sentence):
            object.__setattr__(self, "store", default_store())


@options
class DiagnoseCommandOptions(DiagnoseOptions):
    """Options of the command `diagnose`: a diagnosis, and the files to write."""

    output: str | None = option(
        f"{TABLE_FILE}, a row a figure (default: none)", metavar="FILE", default=None
    )
    report: str | None = option(
        "a page with the pictures (default: none)", metavar="FILE.html", default=None
    )
