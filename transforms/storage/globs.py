"""Globs: the one place that says which files a pattern names, on every storage.

`*` and `?` stay inside a name, `[...]` is one character of it. `**` between slashes is any number
of folders, also none; inside a name it is a `*` that does not end at a folder. `{a,b}` is either. A
name that begins with `.` is hidden: only a pattern that writes the `.` itself, or `hidden`, names
it.
"""

import itertools
import re
from collections.abc import Collection, Iterable

from transforms.base.errors import OptionError
from transforms.storage.base import Entry, Matched, is_local

MOST_WAYS = 10_000
ANY_FOLDERS = "**"
PIECE = re.compile(r"\*\*+|\[(?=(!?\]?[^\]/]*))\1\]|.", re.DOTALL)
WILDCARD = re.compile(r"[*?\[]")


class Glob:
    """A pattern to be compared with full paths; `literal` is its part before the first wildcard.

    Raises OptionError for a pattern that has no meaning.
    """

    def __init__(self, pattern: str, hidden: bool = False):
        self.literal = literal_part(pattern)
        self.is_literal = self.literal == pattern
        if (
            not self.is_literal
            and not is_local(pattern)
            and "/" not in self.literal.partition("://")[2]
        ):
            raise OptionError(
                f"{pattern} has a pattern for a bucket; name one, and repeat the option for others"
            )
        self._folder = len(folder_of(self.literal))
        try:
            ways = [way for spread in _ways(pattern) for way in _deep(spread.split("/"))]
            self._names = re.compile("|".join(_path(way, hidden) for way in ways), re.DOTALL)
            above = dict.fromkeys(folder for way in ways for folder in _folders(way, hidden))
            self._above = re.compile("|".join(above), re.DOTALL)
        except (re.error, RecursionError, OverflowError) as error:
            raise OptionError(
                f"{pattern} cannot be used as a pattern ({error}); mend it"
            ) from error

    def takes(self, path: str) -> bool:
        """Whether the pattern names a file."""
        return self._names.fullmatch(path) is not None

    def enters(self, folder: str) -> bool:
        """Whether files that the pattern names can be in a folder (with its final slash)."""
        return self._above.fullmatch(folder) is not None

    def seen_part(self, path: str) -> str:
        """The path of a file, or of the hidden folder above it, with a final slash, that the
        pattern does not enter.
        """
        at = path.find("/.", max(self._folder - 1, 0))
        while at >= 0 and (end := path.find("/", at + 1)) >= 0:
            if not self.enters(path[: end + 1]):
                return path[: end + 1]
            at = path.find("/.", end)
        return path


def matched(glob: Glob, listed: Collection[Entry]) -> Matched:
    """The files of a listing that a glob names, and what lies beside them."""
    files: list[Entry] = []
    others: list[str] = []
    for entry in listed:
        if glob.takes(entry.path):
            files.append(entry)
        else:
            others.append(entry.path)
    folders = _folders_of((entry.path for entry in listed), glob.literal.rfind("/") + 1)
    return Matched(files, beside(glob, files, others), folders=folders)


def _folders_of(paths: Iterable[str], above: int) -> tuple[str, ...]:
    """The folders that files are in, sorted, whose paths have more than so many characters."""
    found: set[str] = set()
    for path in paths:
        folder = folder_of(path)
        while len(folder) > above and folder not in found:
            found.add(folder)
            folder = folder_of(folder)
    return tuple(sorted(folder.rstrip("/") for folder in found))


def beside(glob: Glob, files: list[Entry], others: Iterable[str]) -> list[str]:
    """Those of the other paths that lie in the folders of the files, sorted."""
    folders = {folder_of(entry.path) for entry in files}
    return sorted(path for path in set(map(glob.seen_part, others)) if folder_of(path) in folders)


def folder_of(path: str) -> str:
    """The folder of a file, or the folder above a folder, with its final slash.

    >>> folder_of("in/a.txt"), folder_of("in/.git/")
    ('in/', 'in/')
    """
    return path[: path.rstrip("/").rfind("/") + 1]


def literal_part(pattern: str) -> str:
    """The part of a pattern before its first wildcard.

    >>> literal_part("in/a-{b,c}.txt"), literal_part("in/{a}-[0-9].txt"), literal_part("in/a.txt")
    ('in/a-', 'in/{a}-', 'in/a.txt')
    """
    found = WILDCARD.search(pattern)
    literal = pattern[: found.start()] if found else pattern
    pieces = _pieces(pattern)
    group = _first_group(pieces)
    return literal if group is None else literal[: len("".join(pieces[: group[0]]))]


def _pieces(pattern: str) -> list[str]:
    """The wildcards, sets and plain characters of a pattern."""
    return [found[0] for found in PIECE.finditer(pattern)]


def _first_group(pieces: list[str]) -> list[int] | None:
    """Places of the brace, the commas and the closing brace of the first `{a,b}`, None where there
    is none.
    """
    open_groups: list[list[int]] = []
    closed: list[list[int]] = []
    for place, piece in enumerate(pieces):
        if piece == "{":
            open_groups.append([place])
        elif open_groups and piece == ",":
            open_groups[-1].append(place)
        elif open_groups and piece == "}":
            group = open_groups.pop()
            closed += [[*group, place]] if len(group) > 1 else []
    return min(closed, default=None)


def _ways(pattern: str) -> list[str]:
    """The patterns that a pattern with `{a,b}` stands for."""
    pieces = _pieces(pattern)
    group = _first_group(pieces)
    if group is None:
        return [pattern]
    head, tails = "".join(pieces[: group[0]]), _ways("".join(pieces[group[-1] + 1 :]))
    options = itertools.pairwise(group)
    middles = [
        way for before, after in options for way in _ways("".join(pieces[before + 1 : after]))
    ]
    if len(middles) * len(tails) > MOST_WAYS:
        raise OptionError(
            f"{pattern} stands for more than {MOST_WAYS:,} patterns; repeat the option for some of"
            " them"
        )
    return [head + middle + tail for middle in middles for tail in tails]


def _deep(names: list[str]) -> list[list[str]]:
    """A path's names, with each `**` inside a name spelled out: as `*`, and as `*/**/*`."""
    ways: list[list[str]] = [[]]
    for name in names:
        pieces = _pieces(name)
        deep = [place for place, piece in enumerate(pieces) if piece.startswith(ANY_FOLDERS)]
        if not deep:
            ways = [[*way, name] for way in ways]
        elif len(pieces) == 1:
            ways = [way if way[-1:] == [ANY_FOLDERS] else [*way, ANY_FOLDERS] for way in ways]
        else:
            head, rest = "".join(pieces[: deep[0]]) + "*", "*" + "".join(pieces[deep[0] + 1 :])
            near = ["".join(pieces[: deep[0]]) + rest]
            ways = [
                [*way, *more]
                for way in ways
                for more in (*_deep(near), *_deep([head, ANY_FOLDERS, rest]))
            ]
        if len(ways) > MOST_WAYS:
            raise OptionError(
                f"{'/'.join(names)} has too many ** inside names; put them between slashes"
            )
    return ways


def _path(names: list[str], hidden: bool) -> str:
    """The regular expression of a path's names; `**` at the end is every file below."""
    last = "*" if names[-1] == ANY_FOLDERS else names[-1]
    above = names if names[-1] == ANY_FOLDERS else names[:-1]
    return "".join(_folder(name, hidden) for name in above) + _name(last, hidden)


def _folders(names: list[str], hidden: bool) -> list[str]:
    """The regular expressions of the folders, with final slashes, on the way to a path."""
    parts = [_folder(name, hidden) for name in (names if names[-1] == ANY_FOLDERS else names[:-1])]
    return ["".join(parts[:end]) for end in range(1, len(parts) + 1)]


def _folder(name: str, hidden: bool) -> str:
    return f"(?:{_name('*', hidden)}/)*" if name == ANY_FOLDERS else _name(name, hidden) + "/"


def _name(name: str, hidden: bool) -> str:
    """The regular expression of one name."""
    may_be_hidden = hidden or name.startswith(".") or WILDCARD.search(name) is None
    return ("" if may_be_hidden else r"(?!\.)") + "".join(map(_translated, _pieces(name)))


def _translated(piece: str) -> str:
    """The regular expression of a wildcard, a set or a plain character."""
    if piece in ("*", "?"):
        return {"*": "[^/]*", "?": "[^/]"}[piece]
    if len(piece) == 1:
        return re.escape(piece)
    among = piece[1:-1].removeprefix("!")
    ranges, place = "", 0
    while place < len(among):
        low, high = among[place], among[place + 2 : place + 3]
        if among[place + 1 : place + 2] != "-" or not high:
            ranges, place = ranges + re.escape(low), place + 1
        elif low > high:
            raise re.error(f"the range {low}-{high} in {piece} has no characters")
        else:
            ranges, place = f"{ranges}{re.escape(low)}-{re.escape(high)}", place + 3
    return f"[^/{ranges}]" if piece[1] == "!" else f"[{ranges}]"
