"""The files that an `--input` names: those of a pattern, of a folder or of a table."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from transforms import storage
from transforms.base.errors import OptionError, SentenceBeamError
from transforms.corpus.files import (
    BROKEN,
    InputFile,
    broken_link,
    ending_of,
    fixed_part,
    is_utf8,
)
from transforms.corpus.formats.registry import FORMATS, compression_of, format_of, plain_formats
from transforms.corpus.lakes import (
    DATA_FORMATS,
    DELTA_LOG,
    FOLDER,
    WHOLE,
    TablePart,
    input_of_table,
    is_table,
    table_entries,
)
from transforms.storage import Entry
from transforms.storage.base import Matched
from transforms.storage.globs import Glob, folder_of, literal_part


class Inputs(NamedTuple):
    """The files that one `--input` names, and the paths of what lies beside them (see
    storage.base.Matched).

    `folders` are folders that could have been named as files, and of which no file is taken.
    """

    files: list[InputFile]
    beside: list[str]
    folders: list[str]


def match_inputs(
    pattern: str, file_format: str = "auto", hidden: bool = False, delimiter: str | None = None
) -> list[InputFile]:
    """The files that one `--input` names, without checksums, sorted by path; `hidden` ones among
    them, if asked for.

    A folder stands for the files in it that have a known format. Raises OptionError where nothing
    matches, a folder holds several formats, or a file's format cannot be recognised.
    """
    return find_inputs(pattern, file_format, hidden, delimiter).files


def find_inputs(
    pattern: str,
    file_format: str,
    hidden: bool,
    delimiter: str | None = None,
    part: TablePart = WHOLE,
    broken_too: bool = False,
    store: str | None = None,
) -> Inputs:
    """The same files, and what lies beside them; of a table a part.

    `broken_too` says that links to nothing are files too, as BROKEN; else they raise
    SentenceBeamError. `store` is the path of one that may lie among them, which is no input.
    """
    if is_table(pattern):
        entries_below = list(table_entries(pattern, part))
        return Inputs(
            [_input_file(entry, relative, file_format) for entry, relative in entries_below], [], []
        )
    pattern = storage.absolute(pattern)
    finder = Finder(pattern, file_format, hidden, broken_too, store)
    found, root = finder.of_pattern(), fixed_part(pattern)
    literal = None if found.entries else storage.storage_of(pattern).stat(pattern)
    if literal is not None:  # a name that looks like a pattern
        found, root = FoundFiles([literal], [], []), folder_of(pattern)
    if not found.entries and literal_part(pattern) == pattern:
        found, root = finder.of_folder(pattern), pattern + "/"
    if not found.entries:
        raise OptionError(_nothing_matches(pattern))
    files = [
        _input_file(entry, entry.path.removeprefix(root), file_format) for entry in found.entries
    ]
    if delimiter is not None:
        files = [replace(file, delimiter=delimiter) for file in files]
    return Inputs(files, found.beside, found.folders)


class FoundFiles(NamedTuple):
    """As `Inputs`, the files as their storage lists them, sorted by path."""

    entries: list[Entry]
    beside: list[str]
    folders: list[str]


@dataclass(frozen=True)
class Finder:
    """Looks for what an `--input` names; the fields are as for `find_inputs`."""

    pattern: str
    file_format: str
    hidden: bool
    broken_too: bool
    store: str | None

    def of_pattern(self) -> FoundFiles:
        """The files that the pattern names, and those of folders that it names.

        A folder is read as a whole if the pattern names none of its files. One whose name is none
        of a file's and that the pattern leads into is left alone. Raises SentenceBeamError for a
        special file, a link to nothing that is not to be a file, and a folder that cannot be read
        as one.
        """
        matched = self._matched(self.pattern)
        # as a shell makes them of a pattern
        if not Glob(self.pattern).is_literal or storage.is_local(self.pattern):
            self._check_no_table(fixed_part(self.pattern).rstrip("/"), matched)
        if matched.special:
            raise special_file(matched.special[0])
        glob = Glob(self.pattern, self.hidden)
        entries, beside, passed = matched.files, matched.beside, []
        for folder in filter(glob.takes, matched.folders):
            if holds_any(folder, entries) or self._holds_store(folder):
                continue
            if glob.enters(folder + "/") and not format_of(folder):
                passed.append(folder)
                continue
            inside = self.of_folder(folder)
            if not inside.entries:
                raise OptionError(
                    f"--input {self._naming(folder)} is a folder without files where a file should"
                    " be; remove it or narrow --input"
                )
            entries = by_path([*entries, *inside.entries])
            beside, passed = [*beside, *inside.beside], [*passed, *inside.folders]
        return FoundFiles(entries, sorted(set(beside)), passed)

    def of_folder(self, folder: str) -> FoundFiles:
        """The files of one known format in a folder and below it, and what else lies there.

        With a format given: the files whose names say it (for `file`: of plain text), or all where
        none does. Without: Markdown beside files of another format describes them and is left out.
        Names that begin with `_`, of files and folders, are left to other tools, as `_SUCCESS` is.
        Raises OptionError for files of several formats, SentenceBeamError for a special file that
        would be taken if it were one.
        """
        matched = self._matched(f"{folder}/**")
        self._check_no_table(folder, matched)
        named: dict[str, list[Entry]] = {}
        for entry in matched.files:
            below = entry.path.removeprefix(folder)
            named.setdefault("_" if "/_" in below else format_of(below), []).append(entry)
        taken = by_path(self._of_one_format(folder, named))
        if matched.files and not taken:
            raise OptionError(
                f"--input {self._naming(folder)} is a folder without a file of a known format, as "
                f"{matched.files[0].path}; say --format, or name other files"
            )
        for path in matched.special:
            if "/_" not in path.removeprefix(folder) and (
                self.file_format != "auto" or format_of(path)
            ):
                raise special_file(path)
        passed = [path for path in matched.folders if not holds_any(path, taken)]
        paths = {entry.path for entry in taken}
        others = [entry.path for entry in matched.files if entry.path not in paths]
        return FoundFiles(taken, sorted([*matched.beside, *others]), passed)

    def _of_one_format(self, folder: str, named: dict[str, list[Entry]]) -> list[Entry]:
        """The files that are taken of a folder's, which are given by the formats that their names
        say.
        """
        known = set(named) - {"", "_"}
        kinds = sorted(known - {"file"} or known)
        if self.file_format != "auto":
            said = plain_formats() if self.file_format == "file" else (self.file_format,)
            taken = [entry for kind in said for entry in named.get(kind, [])]
            return taken or [entry for kind, some in named.items() if kind != "_" for entry in some]
        if len(kinds) > 1:
            counts = " and ".join(
                f"{len(named[kind]):,} {kind} (as {named[kind][0].path})" for kind in kinds
            )
            raise OptionError(
                f"--input {self._naming(folder)} is a folder of several formats, {counts}; name one"
                " kind by a pattern, as in --input"
                f" '{folder}/**/*{ending_of(named[kinds[0]][0].path)}'"
            )
        return [entry for kind in kinds for entry in named[kind]]

    def _matched(self, pattern: str) -> Matched:
        """What a pattern matches, links to nothing among the files if asked for.

        Raises SentenceBeamError for another such link, and for one that may have been to a folder.
        """
        matched = storage.storage_of(pattern).match(pattern, self.hidden)
        glob = Glob(pattern, self.hidden) if matched.broken else None
        for path in matched.broken:
            if not self.broken_too or (glob and glob.enters(path + "/") and not format_of(path)):
                raise broken_link(path)
        links = [Entry(path, 0, "", BROKEN) for path in matched.broken]
        return matched._replace(files=by_path([*matched.files, *links]))

    def _check_no_table(self, folder: str, matched: Matched) -> None:
        """Raise OptionError for files of a table of Delta Lake or Iceberg, some of which it may not
        have any more.

        `folder` is the one that all of what was matched is in.
        """
        files = [entry for entry in matched.files if format_of(entry.path) in DATA_FORMATS]
        inside = [
            folder_of(path)[:-1]
            for path in matched.folders
            if path.endswith((f"/{DELTA_LOG}", f"/{FOLDER}"))
        ]
        around = [folder, *folders_around(folder)]
        for table in dict.fromkeys([*around, *inside] if files else ()):
            said = input_of_table(table) if table in around or holds_any(table, files) else None
            if said is not None:
                raise OptionError(
                    f"--input {self._naming(table)} is a table, whose files may hold rows that it"
                    f" has deleted; say --input {said}"
                )

    def _holds_store(self, folder: str) -> bool:
        return self.store is not None and f"{self.store}/".startswith(f"{folder}/")

    def _naming(self, folder: str) -> str:
        """A folder as messages name it, after the pattern that does."""
        return folder if folder == self.pattern else f"{self.pattern}: {folder}"


def by_path(entries: Iterable[Entry]) -> list[Entry]:
    """The entries sorted by path, each once."""
    return sorted({entry.path: entry for entry in entries}.values(), key=lambda entry: entry.path)


def folders_around(folder: str) -> list[str]:
    """The folders that could be that of a table which has its data in a folder: in `data`, in one
    of a partition.

    >>> folders_around("/lake/docs/data/lang=en"), folders_around("/lake/docs")
    (['/lake/docs/data', '/lake/docs'], [])
    """
    found: list[str] = []
    name = folder.rpartition("/")[2]
    while name == "data" or "=" in name:
        folder = folder.rpartition("/")[0]
        found.append(folder)
        name = folder.rpartition("/")[2]
    return found


def holds_any(folder: str, entries: Sequence[Entry]) -> bool:
    """Whether one of the entries, which are sorted by path, is below a folder."""
    start = bisect_left(entries, f"{folder}/", key=lambda entry: entry.path)
    return start < len(entries) and entries[start].path.startswith(f"{folder}/")


def special_file(path: str) -> SentenceBeamError:
    """The error of what is neither a file nor a folder."""
    return SentenceBeamError(
        f"{path} is neither a file nor a folder, but a pipe, a socket or a device; remove it,"
        " narrow --input, or say --input - for standard input"
    )


def _nothing_matches(pattern: str) -> str:
    if storage.storage_of(pattern).match(pattern, hidden=True).files:
        return (
            f"--input {pattern}: no file matches but hidden ones; write their dot, or say embed"
            " --hidden"
        )
    if literal_part(pattern) != pattern:
        return f"--input {pattern}: no file matches; check the pattern"
    return f"--input {pattern}: no file matches, and it is no folder with files; check the path"


def _input_file(entry: storage.Entry, relative: str, file_format: str) -> InputFile:
    if not is_utf8(entry.path):  # ids and manifests could not hold it
        raise OptionError(
            f"--input {entry.path!a}: the name is not UTF-8; rename the file or narrow --input"
        )
    if storage.is_rows(entry.path):
        file_format = "parquet"  # whatever files of the store are
    if file_format == "auto":
        file_format = format_of(relative)
    if not file_format:
        *others, last = FORMATS
        raise OptionError(
            f"{entry.path}: cannot tell the format from the name; say --format {', '.join(others)}"
            f" or {last}, or narrow --input"
        )
    compression = compression_of(relative, file_format)
    return InputFile(
        entry.path, relative, file_format, compression, entry.size, entry.checksum, entry.version
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
    return any(
        entry.path.startswith(folder)
        for entry in storage.storage_of(pattern).match(pattern, hidden).files
    )
