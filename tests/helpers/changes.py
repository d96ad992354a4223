"""What befalls a collection from one night to the next."""

import random
from collections.abc import Callable

from helpers.corpora import sentences
from helpers.layouts import SUFFIXES, Files, Row

Change = Callable[[Files, random.Random], None]


def first_night(rng: random.Random, rows: int) -> Files:
    """Some files with some rows, a few texts more than once."""
    files: Files = {f"a{SUFFIXES[0]}": []}
    for number in range(rng.randint(1, 3)):
        files[f"f{number}{rng.choice(SUFFIXES)}"] = []
    for _ in range(rows):
        files[rng.choice(list(files))].append(new_row(rng))
    return files


def new_row(rng: random.Random) -> Row:
    """A row with a text that may have been there before, or none."""
    text = None if rng.random() < 0.03 else sentences(1, rng.randrange(200))[0]
    return f"i{rng.randrange(10**6)}", text, rng.choice(["de", "en"])


def _some(files: Files, rng: random.Random) -> tuple[list[Row], list[int]]:
    """The rows of a file and the places of up to five of them."""
    rows = files[rng.choice(sorted(files))]
    return rows, rng.sample(range(len(rows)), min(len(rows), rng.randint(1, 5)))


def add(files: Files, rng: random.Random) -> None:
    """Rows anywhere in a file."""
    rows, _ = _some(files, rng)
    for _ in range(rng.randint(1, 6)):
        rows.insert(rng.randint(0, len(rows)), new_row(rng))


def edit(files: Files, rng: random.Random) -> None:
    """Other texts under the same ids."""
    rows, places = _some(files, rng)
    for place in places:
        rows[place] = (rows[place][0], new_row(rng)[1], rows[place][2])


def relabel(files: Files, rng: random.Random) -> None:
    """Other kept values."""
    rows, places = _some(files, rng)
    for place in places:
        rows[place] = (*rows[place][:2], rng.choice(["fr", "it"]))


def delete(files: Files, rng: random.Random) -> None:
    """Rows gone."""
    rows, places = _some(files, rng)
    for place in sorted(places, reverse=True):
        del rows[place]


def move(files: Files, rng: random.Random) -> None:
    """Rows of one file in another."""
    rows, places = _some(files, rng)
    moved = [rows[place] for place in places]
    for place in sorted(places, reverse=True):
        del rows[place]
    files[rng.choice(sorted(files))].extend(moved)


def rename(files: Files, rng: random.Random) -> None:
    """A file under another name, in another folder perhaps."""
    name = rng.choice(sorted(files))
    files[_name(rng, name[name.index(".") :])] = files.pop(name)


def repack(files: Files, rng: random.Random) -> None:
    """A file in another format or compression."""
    files[_name(rng, rng.choice(SUFFIXES))] = files.pop(rng.choice(sorted(files)))


def split(files: Files, rng: random.Random) -> None:
    """A file in two."""
    name = rng.choice(sorted(files))
    rows = files[name]
    at = rng.randint(0, len(rows))
    files[name], files[_name(rng, rng.choice(SUFFIXES))] = rows[:at], rows[at:]


def merge(files: Files, rng: random.Random) -> None:
    """Two files in one."""
    if len(files) > 1:
        one, other = rng.sample(sorted(files), 2)
        files[one] = files[one] + files.pop(other)


def duplicate(files: Files, rng: random.Random) -> None:
    """A file twice, ids and all."""
    name = rng.choice(sorted(files))
    files[_name(rng, name[name.index(".") :])] = list(files[name])


def shuffle(files: Files, rng: random.Random) -> None:
    """All rows in any order anywhere."""
    rows = [row for name in files for row in files[name]]
    rng.shuffle(rows)
    for name in files:
        files[name] = []
    for row in rows:
        files[rng.choice(sorted(files))].append(row)


def swap(files: Files, rng: random.Random) -> None:
    """Two files under each other's name."""
    one, other = (rng.choice(sorted(files)) for _ in range(2))
    files[one], files[other] = files[other], files[one]


def drop(files: Files, rng: random.Random) -> None:
    """A file gone."""
    if len(files) > 1:
        del files[rng.choice(sorted(files))]


CHANGES: list[Change] = [
    add, edit, relabel, delete, move, rename, repack, split, merge, duplicate, shuffle, swap, drop,
]  # fmt: skip


def _name(rng: random.Random, suffix: str) -> str:
    return f"{rng.choice(['', 'sub/', 'sub/deep/'])}n{rng.randrange(10**6)}{suffix}"
