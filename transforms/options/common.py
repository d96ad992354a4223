"""The declarations of options that several commands have."""

from dataclasses import replace

from sentence_beam.transforms.base import values
from sentence_beam.transforms.base.option import Declared, Exclusive
from sentence_beam.transforms.corpus.formats.registry import INPUT_FORMATS
from sentence_beam.transforms.corpus.syntax import check_csv_spec
from sentence_beam.transforms.index.index_spec import FACTORIES
from sentence_beam.transforms.space import DEFAULT_MODEL
from sentence_beam.transforms.space.dtypes import DTYPES
from sentence_beam.transforms.store.entries import RememberedOptions
from sentence_beam.transforms.store.layout import DEFAULT_STORE, STORE_VARIABLE, default_store

DTYPES_ASKED = ("auto", *DTYPES)
FLOATS_ASKED = tuple(name for name in DTYPES_ASKED if name != "int8")
METRICS = ("auto", "cosine", "ip", "l2")
TABLE_FILE = "write .parquet, .csv, .json or .jsonl"
NO_CALIBRATION = "none"
NAMED_STORE = f"${STORE_VARIABLE} or {DEFAULT_STORE}"  # of a command that names none
NEIGHBOURS = 10  # rows for each query, or pairs


def calibration(text: str) -> str:
    """Return the folder of a calibration, or the empty text for `none`."""
    return "" if text == NO_CALIBRATION else text


STORE = Declared(
    f"folder or URL (default: {NAMED_STORE})",
    kind=values.filled,
    metavar="STORE",
    once=True,
    fallback=default_store,
)
SNAPSHOT = Declared("an earlier snapshot (default: the current one)", metavar="RUN")
WHERE = Declared(
    "only rows whose kept columns match, as in lang = 'en' AND year >= 2020 (default: all rows)",
    kind=values.filled,
    metavar="EXPR",
)
PRICE_PER_HOUR = Declared(
    "what the machines cost; the page says what was spent and saved (default: none)",
    kind=values.price,
    metavar="P",
)
MAX_REJECTS = Declared(
    f"share of rows that may be rejected (default: {RememberedOptions.max_rejects:g})",
    kind=values.fraction,
    metavar="FRACTION",
)
MAX_ANSWER_CHANGE = Declared(
    "share of the answers to watched queries that may change beyond growth (default: 1, off)",
    kind=values.fraction,
    metavar="FRACTION",
)

# Files and their text


def declare_input(what: str, default: str | None = None, bare: bool = False) -> Declared:
    """Return the declaration of `--input`; a shell may expand a pattern to several names.

    With `bare`, names without a flag are inputs too.
    """
    ending = f" (default: {default})" if default is not None else ""
    if bare:
        what += ", also without the flag"
    return Declared(
        f"{what}: files, folders, quoted patterns, tables (iceberg:NAME, delta:PATH); - for lines"
        f" of standard input{ending}",
        metavar="PATH",
        several="list",
        bare=bare,
    )


FORMAT = Declared("format of all inputs (default: auto, by file name)", choices=INPUT_FORMATS)
DELIMITER = Declared(
    "delimiter of CSV and TSV; tab is a word for it (default: found in each file's rows)",
    kind=values.delimiter,
    metavar="CHAR",
)
CSV = Declared(
    'CSV and TSV: quote=none|", escape=\\|", columns=A/B/- (no header), null=NA/NULL, skip=N lines'
    " (default: found in each file)",
    kind=check_csv_spec,
    metavar="SPEC",
)
JSON_ROWS = Declared(
    "name of the array with the rows in JSON files, as data.items (default: the file is the array)",
    kind=values.dotted,
    metavar="NAME",
)
TEXT_COLUMN = Declared(
    "column with the text (default: text, else the only one that can be it)", metavar="NAME"
)
ID_COLUMN = Declared("column with the id (default: id, else path and row)", metavar="NAME")
QUERY_ID_COLUMN = Declared(
    "column with the name of a query in the result (default: its text)", metavar="NAME"
)

# Models and their vectors

MODEL = Declared(
    f"minilm, a local directory, or a Hugging Face id (default: {DEFAULT_MODEL})",
    kind=values.filled,
    metavar="MODEL",
)
STORES_MODEL = Declared(
    "path of the store's model on this machine, verified by digest (default: where it was)",
    kind=values.filled,
    metavar="PATH",
)
REVISION = Declared("revision of a Hugging Face id (default: the hub's)", metavar="R")
ONE_PROMPT = Exclusive("prompt")
POOLER = Declared(
    "how token states become a vector (default: auto, the model's own)", metavar="SPEC"
)
PROMPT = Declared("text put before every row (default: the model's)", metavar="STR")
PROMPT_NAME = Declared(
    "one of the model's named prompts; not with --prompt (default: the one that the model names, if"
    " any)",
    metavar="NAME",
)
QUERY_PROMPT = Declared(
    "text put before every query (default: the store's, else the model's own)", metavar="STR"
)
MAX_TOKENS = Declared(
    "cut longer texts (default: the model's limit)", kind=values.positive, metavar="N"
)
NORMALIZE = Declared("vectors of length 1 (default: as the model says for pooler auto, else yes)")
CALIBRATION = Declared(
    "folder that fit made; none takes a store's off (default: none)",
    kind=calibration,
    metavar="PATH|none",
)
# called `truncate_dim` in a space and in manifests
TRUNCATE_DIM = Declared(
    "keep the first D components (default: all)",
    kind=values.positive,
    metavar="D",
    flag="--dim",
    once=True,
)
DTYPE = Declared(
    "type of the forward pass (default: the store's, else what the machine computes natively)",
    choices=FLOATS_ASKED,
)
# of stores, which keep a quantised model
DTYPE_OF_STORE = replace(DTYPE, choices=DTYPES_ASKED)
DEVICE = Declared(
    "where the model runs; cuda:own: a GPU for each process (default: auto, every GPU that the"
    " process sees, else the CPU)",
    kind=values.device,
    metavar="auto|cpu|cuda|cuda:N|cuda:own",
)
TOKENS_PER_BATCH = Declared(
    "tokens in one forward pass, padding included (default: 65536 on a GPU, less if its memory is"
    " small; on a CPU 2048 without padding, as in the BERT family, else 1024)",
    kind=values.size,
    metavar="N",
)

# Results


def declare_k(help: str) -> Declared:
    """Return the declaration of `-k`."""
    return Declared(help, kind=values.positive, metavar="K", flag="-k")


MIN_SCORE = Declared(
    "only rows with this score or a higher one (default: any)", kind=values.score, metavar="X"
)

# Indexes

INDEXES = f"FACTORY: a factory string of FAISS, {FACTORIES}"

METRIC = Declared(
    "cosine, inner product or squared distance; auto: the index's, else the model's, else cosine"
    " (default: auto)",
    choices=METRICS,
)
TARGET_RECALL = Declared(
    "recall to tune the search for, at 10 rows and at 100; if given, a new index that misses it at"
    " 10 rows fails the run (default: 0.95, reported)",
    kind=values.fraction,
    metavar="R",
)
MAX_BYTES_PER_ROW = Declared(
    "bytes that an index may hold in memory for a row; compares kinds of index (default: any)",
    kind=values.size,
    metavar="B",
)
MAX_LATENCY_MS = Declared(
    "milliseconds for a query in the index, counted as 2 MB read in each, not by a clock; compares"
    " kinds of index (default: any)",
    kind=values.milliseconds,
    metavar="T",
)
ACCELERATOR = Declared(
    "Beam's accelerator hint, for embedding and for finding the lists of an index (default: none)",
    metavar="HINT",
)
MIN_RAM = Declared(
    "Beam's memory hint, for embedding and for all steps of an index (default: none; an index has"
    " what its rows need, above 3 GB)",
    kind=values.memory,
    metavar="SIZE",
)
