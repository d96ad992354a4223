"""Find the files that an `--input` names by a pattern, a folder or a table."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import OptionError, SentenceBeamError, cite
from sentence_beam.transforms.corpus.beside import name_ending
from sentence_beam.transforms.corpus.files import (
    BROKEN,
    InputFile,
    find_ending,
    find_fixed_part,
    is_utf8,
    make_link_error,
)
from sentence_beam.transforms.corpus.formats.registry import (
    FORMATS,
    find_compression,
    find_format,
    list_plain_formats,
)
from sentence_beam.transforms.corpus.lake_parts import WHOLE, LakePart
from sentence_beam.transforms.corpus.lakes import (
    DATA_FORMATS,
    find_hudi_folders,
    find_tables_inside,
    is_table,
    list_folders_around,
    list_table_entries,
    make_table_hint,
)
from sentence_beam.transforms.corpus.left_out import MARKED, is_document, leave_out
from sentence_beam.transforms.corpus.syntax import AS_FOUND, Syntax
from sentence_beam.transforms.storage import Entry
from sentence_beam.transforms.storage.base import Matched
from sentence_beam.transforms.storage.globs import Glob, get_folder, get_literal_part

KINDS = 8  # kinds of files that a message counts


File = TypeVar("File", InputFile, Entry)


class Inputs(NamedTuple, Generic[File]):
    """The files that one `--input` names, and the paths beside them (see storage.base.Matched).

    The files are read as `InputFile`, or sorted by path as their storage lists them. `folders` are
    folders that match as a file would, and from which no file is read. `left_out` has the reason
    against each matching file that holds no rows (see left_out).
    """

    files: list[File]
    beside: list[str]
    folders: list[str]
    left_out: dict[str, str]


def match_inputs(
    pattern: str, file_format: str = "auto", syntax: Syntax = AS_FOUND
) -> list[InputFile]:
    """Return the files that one `--input` names, without checksums, sorted by path.

    A folder means its files of a known format. Raises OptionError if nothing matches, a folder
    holds several formats, or the format of a file is unknown.
    """
    return find_inputs(pattern, file_format, hidden=False, syntax=syntax).files


def find_inputs(
    pattern: str,
    file_format: str,
    hidden: bool,
    syntax: Syntax = AS_FOUND,
    part: LakePart = WHOLE,
    broken_too: bool = False,
    store: str | None = None,
) -> Inputs[InputFile]:
    """Return the files as `match_inputs` does, and the paths beside them; of a table, a part.

    `hidden` includes hidden files. `broken_too` includes broken links, as BROKEN; else they raise
    SentenceBeamError. `store` is the path of a store, whose folder is never an input.
    """
    if is_table(pattern):
        files = [
            _make_input(entry, relative, file_format)
            for entry, relative in list_table_entries(pattern, part)
        ]
        return Inputs(files, [], [], {})
    pattern = storage.absolute(pattern)
    listed, root = _list_files(Finder(pattern, file_format, hidden, broken_too, store))
    if not listed.files:
        raise OptionError(_describe_no_match(pattern, listed.left_out))
    files = [
        _make_input(entry, entry.path.removeprefix(root), file_format, syntax)
        for entry in listed.files
    ]
    return Inputs(files, listed.beside, listed.folders, listed.left_out)


@dataclass(frozen=True)
class Finder:
    """Lists the files that an `--input` names; the fields are the arguments of `find_inputs`."""

    pattern: str
    file_format: str
    hidden: bool
    broken_too: bool
    store: str | None

    def list_pattern(self) -> Inputs[Entry]:
        """Return the files that the pattern names, and those in folders that it names.

        A folder is read as a whole if the pattern names none of its files. It is passed over if the
        pattern continues into it and its name is not that of a file. Raises SentenceBeamError for a
        special file, a broken link (unless `broken_too`), and a folder that cannot be read.
        """
        matched, left_out = self._match(self.pattern)
        # a local literal may be a path into which a shell expanded a pattern
        if not Glob(self.pattern).is_literal or storage.is_local(self.pattern):
            self._check_no_table(find_fixed_part(self.pattern).rstrip("/"), matched)
        if matched.special:
            raise make_special_error(matched.special[0])
        glob = Glob(self.pattern, self.hidden)
        unmarked = Glob(self.pattern, self.hidden, marked=False)
        entries = matched.files
        beside = list(matched.beside)
        passed: list[str] = []
        for folder in filter(glob.takes, matched.folders):
            if holds_any(folder, entries) or self._holds_store(folder):
                continue
            if glob.enters(folder + "/") and not find_format(folder):
                passed.append(folder)
                continue
            is_marked = not unmarked.takes(folder)
            inside = self.list_folder(folder, is_marked)
            if not inside.files and not inside.left_out and not is_marked:
                raise OptionError(
                    f"{cite('input')} {self._name_of(folder)} is a folder without files where a"
                    f" file should be; remove it or narrow {cite('input')}"
                )
            entries = sort_by_path([*entries, *inside.files])
            beside += inside.beside
            passed += inside.folders
            left_out |= inside.left_out
        return Inputs(entries, sorted(set(beside)), passed, left_out)

    def list_folder(self, folder: str, is_marked: bool = False) -> Inputs[Entry]:
        """Return the files of one known format in a folder and below it, and the paths beside them.

        With `file_format`: the files with names of that format (for `file`: of plain text), or all
        if none has. Without: Markdown beside files of another format is left out as documentation.
        `is_marked` says that the folder's own name has a leading `_`. Raises OptionError for files
        of several formats, SentenceBeamError for a special file with the name of an input.
        """
        pattern = f"{folder}/**"
        matched, left_out = self._match(pattern, is_marked)
        self._check_no_table(folder, matched)
        chosen = sort_by_path(self._choose_format(folder, _group_by_format(folder, matched.files)))
        if matched.files and not chosen:
            counts = _count_kinds({"": matched.files})
            raise OptionError(
                f"{cite('input')} {self._name_of(folder)} is a folder without a file of a known"
                f" format: {counts}; say {cite('format')}, or name other files"
            )
        unmarked = Glob(pattern, self.hidden, marked=False)
        for path in matched.special:
            could_be_input = self.file_format != "auto" or find_format(path)
            if could_be_input and unmarked.takes(path):
                raise make_special_error(path)
        passed = [path for path in matched.folders if not holds_any(path, chosen)]
        paths = {entry.path for entry in chosen}
        others = [entry.path for entry in matched.files if entry.path not in paths]
        return Inputs(chosen, sorted([*matched.beside, *others]), passed, left_out)

    def _choose_format(self, folder: str, groups: dict[str, list[Entry]]) -> list[Entry]:
        """Return the files to read of a folder, whose files are grouped by `_group_by_format`."""
        if self.file_format != "auto":
            return self._choose_requested(groups)
        formats = set(groups) - {""}
        kinds = sorted(formats - {"file"} or formats)
        if len(kinds) > 1:
            ending = find_ending(groups[kinds[0]][0].path)
            raise OptionError(
                f"{cite('input')} {self._name_of(folder)} is a folder of several formats:"
                f" {_count_kinds(groups)}; name one kind by a pattern, as in {cite('input')}"
                f" '{folder}/**/*{ending}'"
            )
        return [entry for kind in kinds for entry in groups[kind]]

    def _choose_requested(self, groups: dict[str, list[Entry]]) -> list[Entry]:
        """Return the files with names of the requested format; all if no name has it."""
        formats = list_plain_formats() if self.file_format == "file" else (self.file_format,)
        chosen = [entry for kind in formats for entry in groups.get(kind, [])]
        return chosen or [entry for entries in groups.values() for entry in entries]

    def _match(self, pattern: str, is_marked: bool = False) -> tuple[Matched, dict[str, str]]:
        """Match a pattern; with `broken_too` the broken links are among the files.

        Returns the files without those that hold no rows, and the reasons against these. With
        `is_marked` a leading `_` stands above the pattern. Raises SentenceBeamError for other
        broken links, and for one that may have led to a folder.
        """
        matched = storage.storage_of(pattern).match(pattern, self.hidden)
        glob = Glob(pattern, self.hidden)
        marked = self._find_marked(pattern, matched, is_marked) if not glob.is_literal else set()
        links = []
        for path in matched.broken:
            if path in marked:
                continue
            if not self.broken_too or (glob.enters(path + "/") and not find_format(path)):
                raise make_link_error(path)
            links.append(Entry(path, 0, "", BROKEN))
        files = [entry for entry in matched.files if entry.path not in marked]
        reasons = dict.fromkeys(marked, MARKED)
        if not glob.is_literal:
            files, others = leave_out(matched._replace(files=files))
            reasons |= others
        return matched._replace(files=sort_by_path([*files, *links])), reasons

    def _find_marked(self, pattern: str, matched: Matched, is_marked: bool) -> set[str]:
        """Return the matching paths whose names begin with `_`, except documents."""
        unmarked = Glob(pattern, self.hidden, marked=False)
        paths = [*(entry.path for entry in matched.files), *matched.broken]
        return {
            path
            for path in paths
            if (is_marked or ("/_" in path and not unmarked.takes(path)))
            and not is_document(path, self.file_format)
        }

    def _check_no_table(self, folder: str, matched: Matched) -> None:
        """Raise OptionError if the files belong to a table of Delta Lake, Iceberg or Hudi.

        The table may have deleted some of their rows. `folder` holds everything that was matched.
        """
        files = [entry for entry in matched.files if find_format(entry.path) in DATA_FORMATS]
        if not files:
            return
        hudi = find_hudi_folders(matched)
        around = [folder, *list_folders_around(folder)]
        for table in dict.fromkeys([*around, *hudi, *find_tables_inside(matched)]):
            if table not in around and not holds_any(table, files):
                continue
            hint = make_table_hint(table, hudi)
            if hint is not None:
                raise OptionError(
                    f"{cite('input')} {self._name_of(table)} is a table, whose files may hold rows"
                    f" that it has deleted; {hint}"
                )

    def _holds_store(self, folder: str) -> bool:
        return self.store is not None and f"{self.store}/".startswith(f"{folder}/")

    def _name_of(self, folder: str) -> str:
        """Return the name of a folder in messages, after the pattern if that is another."""
        return folder if folder == self.pattern else f"{self.pattern}: {folder}"


def _list_files(finder: Finder) -> tuple[Inputs[Entry], str]:
    """Return the files that the finder's pattern names, and the folder that their ids leave out.

    The pattern may also be the name of a file with wildcard characters in it, or a folder.
    """
    pattern = finder.pattern
    listed = finder.list_pattern()
    if listed.files:
        return listed, find_fixed_part(pattern)
    literal = storage.storage_of(pattern).stat(pattern)
    if literal is not None:
        return Inputs([literal], [], [], {}), get_folder(pattern)
    if get_literal_part(pattern) == pattern:
        return finder.list_folder(pattern), pattern + "/"
    return listed, find_fixed_part(pattern)


def _group_by_format(folder: str, files: Iterable[Entry]) -> dict[str, list[Entry]]:
    """Group a folder's files by the format in their names; "" if they have none."""
    groups: dict[str, list[Entry]] = {}
    for entry in files:
        groups.setdefault(find_format(entry.path.removeprefix(folder)), []).append(entry)
    return groups


def _count_kinds(groups: dict[str, list[Entry]]) -> str:
    """Return the kinds of files with their numbers for a message; unknown ones by their endings."""
    kinds = {kind: entries for kind, entries in sorted(groups.items()) if kind}
    others: dict[str, list[Entry]] = {}
    for entry in groups.get("", []):
        others.setdefault(name_ending(entry.path), []).append(entry)
    kinds |= dict(sorted(others.items(), key=lambda item: (-len(item[1]), item[0])))
    counts = [
        f"{len(entries):,} {kind} (as {entries[0].path})"
        for kind, entries in list(kinds.items())[:KINDS]
    ]
    rest = sum(map(len, list(kinds.values())[KINDS:]))
    if rest:
        counts.append(f"{rest:,} others")
    return ", ".join(counts)


def sort_by_path(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries sorted by path, each once."""
    return sorted({entry.path: entry for entry in entries}.values(), key=lambda entry: entry.path)


def holds_any(folder: str, entries: Sequence[Entry]) -> bool:
    """Whether one of the entries, sorted by path, is below a folder."""
    start = bisect_left(entries, f"{folder}/", key=lambda entry: entry.path)
    return start < len(entries) and entries[start].path.startswith(f"{folder}/")


def make_special_error(path: str) -> SentenceBeamError:
    """Return the error for a path that is neither a file nor a folder."""
    return SentenceBeamError(
        f"{path} is neither a file nor a folder, but a pipe, a socket or a device; remove it,"
        f" narrow {cite('input')}, or say {cite('input')} - for standard input"
    )


def _describe_no_match(pattern: str, left_out: dict[str, str]) -> str:
    """Return the message for a pattern without files to read."""
    if left_out:
        counts = Counter(left_out.values())
        listed = ", ".join(f"{count:,} {reason}" for reason, count in counts.most_common())
        return (
            f"{cite('input')} {pattern}: no file matches but {listed}, which are left out; name"
            " other files, or these without a wildcard"
        )
    if storage.storage_of(pattern).match(pattern, hidden=True).files:
        return (
            f"{cite('input')} {pattern}: no file matches but hidden ones; write their dot, or say"
            f" embed {cite('hidden=True')}"
        )
    if get_literal_part(pattern) != pattern:
        return f"{cite('input')} {pattern}: no file matches; check the pattern"
    return (
        f"{cite('input')} {pattern}: no file matches, and it is no folder with files; check the"
        " path"
    )


def _make_input(
    entry: Entry, relative: str, file_format: str, syntax: Syntax = AS_FOUND
) -> InputFile:
    if not is_utf8(entry.path):  # ids and manifests could not hold it
        raise OptionError(
            f"{cite('input')} {entry.path!a}: the name is not UTF-8; rename the file or narrow"
            f" {cite('input')}"
        )
    if storage.is_rows(entry.path):
        file_format = "parquet"
    if file_format == "auto":
        file_format = find_format(relative)
    if not file_format:
        *others, last = FORMATS
        raise OptionError(
            f"{entry.path}: cannot tell the format from the name; say {cite('format')}"
            f" {', '.join(others)} or {last}, or narrow {cite('input')}"
        )
    compression = find_compression(relative, file_format)
    own = (entry.size, entry.checksum, entry.version)
    return InputFile(entry.path, relative, file_format, compression, *own, syntax)


def overlaps(pattern: str, folder: str, hidden: bool = False) -> bool:
    """Whether a pattern names files inside a folder, now or when a store writes there."""
    if is_table(pattern):
        return False  # a table lists its files
    pattern = storage.absolute(pattern)
    folder = storage.absolute(folder) + "/"
    if get_literal_part(pattern) == pattern and storage.storage_of(pattern).stat(pattern) is None:
        pattern += "/**"  # the pattern is a folder
    glob = Glob(pattern, hidden)
    if not folder.startswith(find_fixed_part(pattern)) and not pattern.startswith(folder):
        return False
    would_be = folder + "embeddings/0123456789abcdef-000000000000-0123456789abcdef.parquet"
    if glob.takes(would_be):
        return True
    return any(
        entry.path.startswith(folder)
        for entry in storage.storage_of(pattern).match(pattern, hidden).files
    )
