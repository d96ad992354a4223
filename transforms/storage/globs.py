"""Globs: which files a pattern matches, on every storage.

`*` and `?` match inside a name, `[...]` matches one character. `**` between slashes matches any
number of folders, also none; inside a name it is a `*` that may cross folders. `{a,b}` is either. A
name that begins with `.` is hidden: only a pattern that writes the `.` itself, or `hidden`, matches
it. A name that begins with `_` is marked, unless it names a partition (`_day=1`): with
`marked=False` only a pattern that writes the `_` itself matches it.
"""

import itertools
import re
from collections.abc import Collection, Iterable

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.storage.base import Entry, Matched, is_local

MOST_WAYS = 10_000
ANY_FOLDERS = "**"
PIECE = re.compile(r"\*\*+|\[(?=(!?\]?[^\]/]*))\1\]|.", re.DOTALL)
WILDCARD = re.compile(r"[*?\[]")


class Glob:
    """A pattern that is matched against full paths; `literal` is its part before a wildcard.

    Raises OptionError for a malformed pattern.
    """

    def __init__(self, pattern: str, hidden: bool = False, marked: bool = True):
        self.literal = get_literal_part(pattern)
        self.is_literal = self.literal == pattern
        if (
            not self.is_literal
            and not is_local(pattern)
            and "/" not in self.literal.partition("://")[2]
        ):
            raise OptionError(
                f"{pattern} has a pattern for a bucket; name one, and repeat the option for others"
            )
        self._folder = len(get_folder(self.literal))
        try:
            ways = [way for spread in _spell_out(pattern) for way in _deepen(spread.split("/"))]
            unwritten = _list_unwritten(hidden, marked)
            self._names = re.compile(
                "|".join(_write_path(way, unwritten) for way in ways), re.DOTALL
            )
            above = dict.fromkeys(
                folder for way in ways for folder in _write_folders(way, unwritten)
            )
            self._above = re.compile("|".join(above), re.DOTALL)
        except (re.error, RecursionError, OverflowError) as error:
            raise OptionError(
                f"{pattern} cannot be used as a pattern ({error}); mend it"
            ) from error

    def takes(self, path: str) -> bool:
        """Return whether the pattern matches a file."""
        return self._names.fullmatch(path) is not None

    def enters(self, folder: str) -> bool:
        """Return whether a folder (with its final slash) can hold files that match."""
        return self._above.fullmatch(folder) is not None

    def find_seen_part(self, path: str) -> str:
        """Return a file's path, or the hidden folder above it that the pattern does not enter.

        The folder has a final slash.
        """
        at = path.find("/.", max(self._folder - 1, 0))
        while at >= 0 and (end := path.find("/", at + 1)) >= 0:
            if not self.enters(path[: end + 1]):
                return path[: end + 1]
            at = path.find("/.", end)
        return path


def match_entries(glob: Glob, listed: Collection[Entry]) -> Matched:
    """Sort a listing into the files that a glob matches and what lies beside them."""
    files: list[Entry] = []
    others: list[str] = []
    for entry in listed:
        if glob.takes(entry.path):
            files.append(entry)
        else:
            others.append(entry.path)
    folders = _find_folders((entry.path for entry in listed), glob.literal.rfind("/") + 1)
    return Matched(files, find_beside(glob, files, others), folders=folders)


def _find_folders(paths: Iterable[str], above: int) -> tuple[str, ...]:
    """Return the folders of files, sorted, whose paths have more than `above` characters."""
    folders: set[str] = set()
    for path in paths:
        folder = get_folder(path)
        while len(folder) > above and folder not in folders:
            folders.add(folder)
            folder = get_folder(folder)
    return tuple(sorted(folder.rstrip("/") for folder in folders))


def find_beside(glob: Glob, files: list[Entry], others: Iterable[str]) -> list[str]:
    """Return the other paths that lie in the folders of the files, sorted."""
    folders = {get_folder(entry.path) for entry in files}
    return sorted(
        path for path in set(map(glob.find_seen_part, others)) if get_folder(path) in folders
    )


def get_folder(path: str) -> str:
    """Return the parent folder of a file or folder, with its final slash.

    >>> folder_of("in/a.txt"), folder_of("in/.git/")
    ('in/', 'in/')
    """
    return path[: path.rstrip("/").rfind("/") + 1]


def get_literal_part(pattern: str) -> str:
    """Return the part of a pattern before its first wildcard.

    >>> literal_part("in/a-{b,c}.txt"), literal_part("in/{a}-[0-9].txt"), literal_part("in/a.txt")
    ('in/a-', 'in/{a}-', 'in/a.txt')
    """
    wildcard = WILDCARD.search(pattern)
    literal = pattern if wildcard is None else pattern[: wildcard.start()]
    pieces = _cut(pattern)
    group = _find_group(pieces)
    return literal if group is None else literal[: len("".join(pieces[: group[0]]))]


def _cut(pattern: str) -> list[str]:
    """Return the wildcards, sets and plain characters of a pattern."""
    return [piece[0] for piece in PIECE.finditer(pattern)]


def _find_group(pieces: list[str]) -> list[int] | None:
    """Return the places of brace, commas and closing brace of the first `{a,b}`, if any."""
    open_groups: list[list[int]] = []
    closed: list[list[int]] = []
    for place, piece in enumerate(pieces):
        if piece == "{":
            open_groups.append([place])
        elif open_groups and piece == ",":
            open_groups[-1].append(place)
        elif open_groups and piece == "}":
            group = open_groups.pop()
            if len(group) > 1:
                closed.append([*group, place])
    return min(closed, default=None)


def _spell_out(pattern: str) -> list[str]:
    """Return the patterns that a pattern with `{a,b}` stands for."""
    pieces = _cut(pattern)
    group = _find_group(pieces)
    if group is None:
        return [pattern]
    head = "".join(pieces[: group[0]])
    tails = _spell_out("".join(pieces[group[-1] + 1 :]))
    middles: list[str] = []
    for before, after in itertools.pairwise(group):
        middles += _spell_out("".join(pieces[before + 1 : after]))
    if len(middles) * len(tails) > MOST_WAYS:
        raise OptionError(
            f"{pattern} stands for more than {MOST_WAYS:,} patterns; repeat the option for some of "
            "them"
        )
    return [head + middle + tail for middle in middles for tail in tails]


def _deepen(names: list[str]) -> list[list[str]]:
    """Spell out each `**` inside a name of a path: as `*`, and as `*/**/*`."""
    ways: list[list[str]] = [[]]
    for name in names:
        pieces = _cut(name)
        deep = [place for place, piece in enumerate(pieces) if piece.startswith(ANY_FOLDERS)]
        if not deep:
            ways = [[*way, name] for way in ways]
        elif len(pieces) == 1:
            ways = [_append_any_folders(way) for way in ways]
        else:
            head = "".join(pieces[: deep[0]])
            rest = "*" + "".join(pieces[deep[0] + 1 :])
            spelled = [*_deepen([head + rest]), *_deepen([head + "*", ANY_FOLDERS, rest])]
            ways = [[*way, *more] for way in ways for more in spelled]
        if len(ways) > MOST_WAYS:
            raise OptionError(
                f"{'/'.join(names)} has too many ** inside names; put them between slashes"
            )
    return ways


def _append_any_folders(way: list[str]) -> list[str]:
    """Append `**` to a path's names, unless they end with one."""
    return way if way[-1:] == [ANY_FOLDERS] else [*way, ANY_FOLDERS]


def _list_unwritten(hidden: bool, marked: bool) -> dict[str, str]:
    """Return the first characters that a pattern has to write itself.

    Each has the regular expression that refuses names which begin with it.
    """
    refused = {}
    if not hidden:
        refused["."] = r"(?!\.)"
    if not marked:
        refused["_"] = r"(?!_[^/=]*(?:/|\Z))"
    return refused


def _write_path(names: list[str], unwritten: dict[str, str]) -> str:
    """Return the regular expression of a path's names; `**` at the end is every file below."""
    above, last = names[:-1], names[-1]
    if last == ANY_FOLDERS:
        above, last = names, "*"
    folders = "".join(_write_folder(name, unwritten) for name in above)
    return folders + _write_name(last, unwritten)


def _write_folders(names: list[str], unwritten: dict[str, str]) -> list[str]:
    """Return the regular expressions of the folders, with final slashes, on the way to a path."""
    above = names if names[-1] == ANY_FOLDERS else names[:-1]
    parts = [_write_folder(name, unwritten) for name in above]
    return ["".join(parts[:end]) for end in range(1, len(parts) + 1)]


def _write_folder(name: str, unwritten: dict[str, str]) -> str:
    if name == ANY_FOLDERS:
        return f"(?:{_write_name('*', unwritten)}/)*"
    return _write_name(name, unwritten) + "/"


def _write_name(name: str, unwritten: dict[str, str]) -> str:
    """Return the regular expression of one name."""
    expression = "".join(map(_translate, _cut(name)))
    if WILDCARD.search(name) is None:
        return expression
    refused = [look for sign, look in unwritten.items() if not name.startswith(sign)]
    return "".join(refused) + expression


def _translate(piece: str) -> str:
    """Return the regular expression of a wildcard, a set or a plain character."""
    if piece == "*":
        return "[^/]*"
    if piece == "?":
        return "[^/]"
    if len(piece) == 1:
        return re.escape(piece)
    if piece[1] == "!":
        return f"[^/{_write_ranges(piece[2:-1], piece)}]"
    return f"[{_write_ranges(piece[1:-1], piece)}]"


def _write_ranges(among: str, piece: str) -> str:
    """Return the characters and ranges of a set, escaped. Raises re.error for an empty range."""
    ranges = ""
    place = 0
    while place < len(among):
        low = among[place]
        high = among[place + 2 : place + 3]
        if among[place + 1 : place + 2] != "-" or not high:
            ranges += re.escape(low)
            place += 1
        elif low > high:
            raise re.error(f"the range {low}-{high} in {piece} has no characters")
        else:
            ranges += f"{re.escape(low)}-{re.escape(high)}"
            place += 3
    return ranges
