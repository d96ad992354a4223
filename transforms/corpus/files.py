"""Input files: globs, formats, relative paths, and the check that a file is still the one that was planned."""

import bz2
import contextlib
import gzip
import hashlib
import io
import lzma
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, NamedTuple, cast

import zstandard

from transforms import storage
from transforms.compact import by_values
from transforms.corpus.lakes import WHOLE, TablePart, is_table, table_entries
from transforms.errors import InputChangedError, OptionError, SentenceBeamError
from transforms.storage.base import BLOCK
from transforms.storage.globs import Glob, folder_of, literal_part

FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".txt": "text",
    ".text": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".json": "json",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".avro": "avro",
    ".orc": "orc",
    ".md": "file",
    ".markdown": "file",
}
INPUT_FORMATS = ("auto", *dict.fromkeys(FORMATS.values()))
BY_LINE = ("text", "jsonl")  # a row a line, so that any range of bytes can be read
PLAIN = ("text", "file")  # text alone, without columns
JSON = ("jsonl", "json")
SEPARATED = ("csv", "tsv")
BROKEN = "link to nothing"  # the version of a file that cannot be there
PACKED = ("parquet", "arrow", "avro", "orc")  # compressed inside, if at all


@by_values
@dataclass(frozen=True, slots=True)
class InputFile:
    """One input file as it was when the run listed it.

    `path` is the full path, `relative` the name that ids and units are made from; `checksum` is of the content,
    `version` of this very file (see storage.Entry); `compression` is a suffix or "". `delimiter` is what CSV and TSV
    are to be read by, None where the file tells. `before` begin the names of the last snapshot's units that may hold
    its texts: of the file of this name, then of one with the same bytes; "" where there is none.
    """

    path: str
    relative: str
    format: str
    compression: str
    size: int
    checksum: str
    version: str
    delimiter: str | None = None
    before: tuple[str, str] = ("", "")

    @property
    def entry(self) -> storage.Entry:
        """The file's entry as its storage listed it."""
        return storage.Entry(self.path, self.size, self.checksum, self.version)

    @property
    def key(self) -> str:
        """The file's part of its units' names."""
        return key_of(self.relative)


def key_of(relative: str) -> str:
    """First 16 hex digits of sha256(relative path): a file's part of its units' names."""
    return hashlib.sha256(relative.encode()).hexdigest()[:16]


def fixed_part(pattern: str) -> str:
    """The deepest folder before the first wildcard, with its final slash ("" where there is none).

    >>> fixed_part("/data/en/*.parquet"), fixed_part("/data/en/a.txt"), fixed_part("gs://b/x-?/y")
    ('/data/en/', '/data/en/', 'gs://b/')
    """
    literal = literal_part(pattern)
    return literal[: literal.rfind("/") + 1]


class Inputs(NamedTuple):
    """The files that one `--input` names, and the paths of what lies beside them (see storage.base.Matched)."""

    files: list[InputFile]
    beside: list[str]


def match_inputs(
    pattern: str, file_format: str = "auto", hidden: bool = False, delimiter: str | None = None
) -> list[InputFile]:
    """The files that one `--input` names, without checksums, sorted by path; `hidden` ones among them, if asked for.

    A folder stands for the files in it that have a known format. Raises OptionError where nothing matches, a folder
    holds several formats, or a file's format cannot be recognised.
    """
    return find_inputs(pattern, file_format, hidden, delimiter).files


def find_inputs(
    pattern: str,
    file_format: str,
    hidden: bool,
    delimiter: str | None = None,
    part: TablePart = WHOLE,
    broken_too: bool = False,
) -> Inputs:
    """The same files, and what lies beside them; of a table a part.

    `broken_too` says that links to nothing are files too, as BROKEN; else they raise SentenceBeamError.
    """
    if is_table(pattern):
        entries_below = list(table_entries(pattern, part))
        return Inputs([_input_file(entry, relative, file_format) for entry, relative in entries_below], [])
    pattern = storage.absolute(pattern)
    store = storage.storage_of(pattern)
    (entries, beside), root = _matched(pattern, hidden, broken_too), fixed_part(pattern)
    literal = None if entries else store.stat(pattern)
    if literal is not None:  # a name that looks like a pattern
        entries, root = [literal], folder_of(pattern)
    if not entries and literal_part(pattern) == pattern:
        (entries, beside), root = _of_folder(pattern, file_format, hidden, broken_too), pattern + "/"
    if not entries:
        raise OptionError(_nothing_matches(pattern))
    files = [_input_file(entry, entry.path.removeprefix(root), file_format) for entry in entries]
    return Inputs([replace(file, delimiter=delimiter) for file in files] if delimiter else files, beside)


def _matched(pattern: str, hidden: bool, broken_too: bool) -> tuple[list[storage.Entry], list[str]]:
    """The files that a pattern names, links to nothing among them if asked for, and what lies beside them.

    Raises SentenceBeamError for another such link, and for one that may have been to a folder.
    """
    files, beside, broken = storage.storage_of(pattern).match(pattern, hidden)
    glob = Glob(pattern, hidden) if broken else None
    for path in broken:
        if not broken_too or (glob and glob.enters(path + "/") and not format_of(path)):
            raise broken_link(path)
    links = [storage.Entry(path, 0, "", BROKEN) for path in broken]
    return sorted([*files, *links], key=lambda entry: entry.path), beside


def broken_link(path: str) -> SentenceBeamError:
    """The error of a link to nothing."""
    return SentenceBeamError(f"{path} is a link to a file that is not there; mend the link or remove it")


def _of_folder(folder: str, file_format: str, hidden: bool, broken_too: bool) -> tuple[list[storage.Entry], list[str]]:
    """The files of one known format in a folder and below it, and what else lies there.

    With a format given: the files whose names say it (for `file`: of plain text), or all where none does. Without:
    Markdown beside files of another format describes them and is left out. Names that begin with `_`, of files and
    folders, are left to other tools, as `_SUCCESS` is. Raises OptionError for files of several formats.
    """
    found, beside = _matched(f"{folder}/**", hidden, broken_too)
    named: dict[str, list[storage.Entry]] = {}
    for entry in found:
        below = entry.path.removeprefix(folder)
        named.setdefault("_" if "/_" in below else format_of(below), []).append(entry)
    known = set(named) - {"", "_"}
    kinds = sorted(known - {"file"} or known)
    if file_format != "auto":
        said = PLAIN if file_format == "file" else (file_format,)
        taken = [entry for kind in said for entry in named.get(kind, [])]
        taken = taken or [entry for kind, some in named.items() if kind != "_" for entry in some]
    elif len(kinds) > 1:
        counts = " and ".join(f"{len(named[kind]):,} {kind} (as {named[kind][0].path})" for kind in kinds)
        raise OptionError(
            f"--input {folder} is a folder of several formats, {counts}; name one kind by a pattern, as in "
            f"--input '{folder}/**/*{_ending(named[kinds[0]][0].path)}'"
        )
    else:
        taken = [entry for kind in kinds for entry in named[kind]]
    if found and not taken:
        raise OptionError(
            f"--input {folder} is a folder without a file of a known format, as {found[0].path}; say --format, or name "
            "other files"
        )
    paths = {entry.path for entry in taken}
    others = [entry.path for entry in found if entry.path not in paths]
    return sorted(taken, key=lambda entry: entry.path), sorted([*beside, *others])


def _ending(path: str) -> str:
    """The ending of a file's name, that of a compression included."""
    stem = path.removesuffix(_suffix(path))
    return "." + stem.rpartition(".")[2] + _suffix(path)


def _nothing_matches(pattern: str) -> str:
    if storage.storage_of(pattern).match(pattern, hidden=True).files:
        return f"--input {pattern}: no file matches but hidden ones; write their dot, or say embed --hidden"
    if literal_part(pattern) != pattern:
        return f"--input {pattern}: no file matches; check the pattern"
    return f"--input {pattern}: no file matches, and it is no folder with files; check the path"


def _input_file(entry: storage.Entry, relative: str, file_format: str) -> InputFile:
    if not is_utf8(entry.path):  # ids and manifests could not hold it
        raise OptionError(f"--input {entry.path!a}: the name is not UTF-8; rename the file or narrow --input")
    if file_format == "auto":
        file_format = format_of(relative)
    if not file_format:
        raise OptionError(
            f"{entry.path}: cannot tell the format from the name; say --format {', '.join(INPUT_FORMATS[1:-1])} or "
            f"{INPUT_FORMATS[-1]}, or narrow --input"
        )
    compression = compression_of(relative, file_format)
    return InputFile(entry.path, relative, file_format, compression, entry.size, entry.checksum, entry.version)


def format_of(relative: str) -> str:
    """The format that a file's name says, or ""."""
    stem = relative.removesuffix(_suffix(relative))
    return FORMATS.get("." + stem.rpartition(".")[2].lower(), "") if "." in stem else ""


def compression_of(relative: str, file_format: str) -> str:
    """The suffix by which a file of this name and format is compressed, or ""."""
    return "" if file_format in PACKED else _suffix(relative)


def _suffix(relative: str) -> str:
    _, dot, ending = relative.rpartition(".")
    return dot + ending if dot + ending in _READERS else ""


def is_utf8(text: str | None) -> bool:
    """Whether a text can be encoded: lone surrogates, which JSON and file names can bring, cannot."""
    try:
        (text or "").encode("utf8")
    except UnicodeEncodeError:
        return False
    return True


def check_distinct(files: list[InputFile]) -> None:
    """Refuse two files that share a relative path: their units and ids would share names."""
    seen: dict[str, str] = {}
    for file in files:
        other = seen.setdefault(file.relative, file.path)
        if other != file.path:
            raise OptionError(
                f"--input: {other} and {file.path} both give the relative path {file.relative}; "
                "use one --input whose fixed part is above both (a pattern that the shell leaves alone, in quotes)"
            )


def overlaps(pattern: str, folder: str, hidden: bool = False) -> bool:
    """Whether a pattern names files inside a folder now, or would once a store writes there."""
    if is_table(pattern):
        return False  # it has the files that it lists
    pattern, folder = storage.absolute(pattern), storage.absolute(folder) + "/"
    if literal_part(pattern) == pattern and storage.storage_of(pattern).stat(pattern) is None:
        pattern += "/**"  # a folder
    glob = Glob(pattern, hidden)
    if not folder.startswith(fixed_part(pattern)) and not pattern.startswith(folder):
        return False
    would_be = folder + "embeddings/0123456789abcdef-000000000000-0123456789abcdef.parquet"
    if glob.takes(would_be):
        return True
    return any(entry.path.startswith(folder) for entry in storage.storage_of(pattern).match(pattern, hidden).files)


def check_unchanged(file: InputFile) -> None:
    """Raise InputChangedError where the file may not be the one planned any more."""
    if storage.storage_of(file.path).pins:
        return  # whoever read it read that one
    entry = storage.storage_of(file.path).stat(file.path)
    if entry is None:
        raise InputChangedError(f"{file.path} was removed while the run read it; run again on a settled input")
    if entry.version != file.version:
        raise InputChangedError(f"{file.path} changed while the run read it; run again on a settled input")


@contextlib.contextmanager
def open_unchanged(file: InputFile) -> Iterator[BinaryIO]:
    """The file's bytes as stored; raises InputChangedError if it is replaced before or while it is read."""
    check_unchanged(file)
    with storage.storage_of(file.path).open(file.path, file.entry) as f:
        yield f
    check_unchanged(file)


class _ZstdReader(io.RawIOBase):
    """zstd frames one after the other; a truncated last frame raises EOFError, as gzip's reader does."""

    def __init__(self, raw: BinaryIO):
        self._raw = raw
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._started = False
        self._left = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Some uncompressed bytes, at least one before the end."""
        while True:
            block, self._left = self._left or self._raw.read(BLOCK), b""
            if not block:
                if self._started and not self._frame.eof:
                    raise EOFError("compressed file ended before its end-of-stream marker was reached")
                return b""
            data = self._feed(block)
            if data:
                return data

    def _feed(self, block: bytes) -> bytes:
        if self._frame.eof:
            self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._started = True
        data = self._frame.decompress(block)
        self._left = self._frame.unused_data if self._frame.eof else b""
        return data


_READERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".zst": _ZstdReader, ".bz2": bz2.open, ".xz": lzma.open}


def decompressed(file: InputFile, raw: BinaryIO) -> BinaryIO:
    """A sequential reader of a file's uncompressed bytes."""
    return cast(BinaryIO, _READERS[file.compression](raw)) if file.compression else raw
