"""The input formats that exist, and which one a file has."""

from importlib import import_module

from sentence_beam.transforms.corpus.column_checks import FileColumns
from sentence_beam.transforms.corpus.files import InputFile, split_compression
from sentence_beam.transforms.corpus.formats.format import Format
from sentence_beam.transforms.corpus.path_columns import add_path_columns

# Modules of this folder, each with its FORMATS; in the order in which help and messages list them.
MODULES = (
    "parquet",
    "text",
    "jsonl",
    "separated",
    "json_array",
    "arrow",
    "avro",
    "orc",
    "document",
)


def _load_formats() -> dict[str, Format]:
    """The formats of all modules, by name."""
    by_name: dict[str, Format] = {}
    for module in MODULES:
        formats = import_module(f"sentence_beam.transforms.corpus.formats.{module}").FORMATS
        by_name |= {format.name: format for format in formats}
    return by_name


FORMATS = _load_formats()
INPUT_FORMATS = ("auto", *FORMATS)


def choose_reader(file: InputFile) -> Format:
    """The format that a file is read by."""
    return FORMATS[file.format]


def open_columns(file: InputFile) -> FileColumns:
    """Return the columns of a file and its path; the file is opened when they are first needed."""
    return add_path_columns(choose_reader(file).columns(file))


def find_format(relative: str) -> str:
    """The name of the format that a file's name says, or ""."""
    stem, _ = split_compression(relative)
    _, dot, ending = stem.rpartition(".")
    ending = dot + ending.lower()
    return next((name for name, format in FORMATS.items() if dot and ending in format.endings), "")


def find_compression(relative: str, file_format: str) -> str:
    """The suffix by which a file of this name and format is compressed, or ""."""
    if file_format in FORMATS and FORMATS[file_format].is_packed:
        return ""
    return split_compression(relative)[1]


def list_plain_formats() -> tuple[str, ...]:
    """The names of the formats without columns."""
    return tuple(name for name, format in FORMATS.items() if not format.has_columns)
