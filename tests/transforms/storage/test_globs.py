"""Globs: what a pattern names is what Python's `glob` finds, and the same on every storage.

Covers transforms/storage/beam_filesystem.py.
"""

import glob
import os
import re
from pathlib import Path

import pytest
from apache_beam.io.filesystem import FileMetadata
from helpers.examples import examples
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.storage.base import Entry
from sentence_beam.transforms.storage.beam_filesystem import BeamStorage
from sentence_beam.transforms.storage.globs import MOST_WAYS, Glob, get_literal_part, match_entries
from sentence_beam.transforms.storage.local import LocalStorage

NAMES = ["a", "b", "ab", ".a", ".b", "a.b", "a-", "]", "[a", "!a", "^", "a\\b", "a b", "{a", "é"]
NAME = st.text("ab.*?[]!^-\\é", min_size=1, max_size=6)
PATTERN = st.lists(
    st.one_of(NAME, st.just("**"), st.sampled_from(["*", "a", ".*", "?", "[ab]*"])),
    min_size=1,
    max_size=4,
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files and folders of odd names, three deep."""
    root = tmp_path_factory.mktemp("tree")
    for first in NAMES:
        (root / f"{first}d" / "a").mkdir(parents=True)
        (root / first).write_text("x")
        for second in NAMES[1:]:
            (root / f"{first}d" / second).write_text("x")
    for folder in ("ab", "b.a", ".h"):
        (root / "deep" / folder / ".g" / "b").mkdir(parents=True)
        for name in NAMES:
            (root / "deep" / folder / ".g" / "b" / name).write_text("x")
            (root / "deep" / folder / f"{name}.x").write_text("x")
    return root


def found(pattern: str, root: Path, hidden: bool) -> list[str]:
    """The files that Python finds."""
    names = glob.glob(pattern, root_dir=root, recursive=True, include_hidden=hidden)
    return sorted({name for name in names if os.path.isfile(os.path.join(root, name))})


@settings(max_examples=examples(300), deadline=None)
@given(names=PATTERN, hidden=st.booleans())
@example(names=["**", "*"], hidden=False)
@example(names=["**", "a"], hidden=True)
@example(names=["**"], hidden=False)
@example(names=["deep", "**", "b", "[!.]*"], hidden=True)
@example(names=["[a-b-]*", "**", "*.x"], hidden=False)
def test_a_pattern_names_what_python_finds(tree: Path, names: list[str], hidden: bool) -> None:
    names = [name if name == "**" else re.sub(r"\*+", "*", name) for name in names]
    assume(not {".", ".."} & set(names))
    pattern = "/".join(names)
    try:
        mine = LocalStorage().match(f"{tree}/{pattern}", hidden).files
    except OptionError:  # Python finds nothing for a range without characters
        return
    assert [os.path.relpath(entry.path, tree) for entry in mine] == found(pattern, tree, hidden)


@settings(max_examples=examples(300), deadline=None)
@given(
    names=st.lists(st.text("ab.*?{},", min_size=1, max_size=8), min_size=1, max_size=3),
    hidden=st.booleans(),
)
@example(names=["**", "{a,{b,.a}}{.x,}"], hidden=False)
def test_folders_on_the_way_to_a_name_are_entered(
    tree: Path, names: list[str], hidden: bool
) -> None:
    pattern = "/".join(names)
    assume(not {".", ".."} & set(names))
    every = [entry.path for entry in LocalStorage().below(str(tree))]
    named = Glob(f"{tree}/{pattern}", hidden)
    assume(not named.is_literal)
    found = LocalStorage().match(f"{tree}/{pattern}", hidden)
    mine = [entry.path for entry in found.files]
    assert mine == [path for path in every if named.takes(path)]
    listed = match_entries(
        named, [Entry(path, 0, "", "") for path in every if path.startswith(named.literal)]
    )
    assert [entry.path for entry in listed.files] == mine
    with_files = [
        path for path in found.folders if any(one.startswith(path + "/") for one in every)
    ]
    assert [path for path in listed.folders if named.takes(path)] == [
        path for path in with_files if named.takes(path)
    ]


@pytest.mark.parametrize(
    ("pattern", "same"),
    [
        ("a{b,c}d", ["abd", "acd"]),
        ("{a,b}/{c,d}", ["a/c", "a/d", "b/c", "b/d"]),
        ("{a,b{c,d}}", ["a", "bc", "bd"]),
        ("{a/b,c}.txt", ["a/b.txt", "c.txt"]),
        ("x{,y}", ["x", "xy"]),
        ("{a}", ["{a}"]),
        ("{}{a{b,c}}", ["{}{ab}", "{}{ac}"]),
        ("a,b}", ["a,b}"]),
        ("{a,b", ["{a,b"]),
        ("[{]a,b}", ["{a,b}"]),
    ],
)
def test_braces_are_those_of_the_shell(pattern: str, same: list[str]) -> None:
    for path in [*same, "abcd", "", "a", "b", "c", "b}"]:
        assert Glob(pattern).takes(path) == (path in same), path


def test_stars_inside_a_name_that_go_below_folders() -> None:
    for pattern, yes, no in [
        (
            "in/**.txt",
            ["in/a.txt", "in/b/c.txt", "in/b/c/d.txt"],
            ["in/.a.txt", "in/.b/c.txt", "in/b/.txt", "in/a.csv"],
        ),
        ("in/a**", ["in/a", "in/ab", "in/a/b", "in/ab/c/d"], ["in/b/a", "in/a/.b", "in/.a"]),
        ("in/a**b/c", ["in/ab/c", "in/a/b/c", "in/ax/y/zb/c"], ["in/a/b", "in/a/.b/c"]),
    ]:
        assert all(map(Glob(pattern).takes, yes)), pattern
        assert not any(map(Glob(pattern).takes, no)), pattern


@pytest.mark.parametrize("pattern", ["in/[b-a].txt", "in/[!z-a]*", "in/x[é-a]"])
def test_a_range_without_characters_is_refused(pattern: str) -> None:
    with pytest.raises(OptionError, match=re.escape(pattern) + ".*has no characters"):
        Glob(pattern)


@pytest.mark.parametrize("pattern", ["{a,b}" * 14, "in/" + "a**" * 14, "{a," * 1000 + "}" * 1000])
def test_a_pattern_that_stands_for_too_many_is_refused(pattern: str) -> None:
    with pytest.raises(OptionError):
        Glob(pattern)
    assert len(pattern) < MOST_WAYS


@pytest.mark.parametrize("pattern", ["gs://*/a.txt", "s3://{a,b}/*.txt", "hdfs://h*"])
def test_a_bucket_is_no_pattern(pattern: str) -> None:
    with pytest.raises(OptionError, match="bucket"):
        Glob(pattern)
    assert Glob("gs://a").is_literal
    assert Glob("hdfs:///in/*").takes("hdfs:///in/a")


def test_what_stands_before_the_first_wildcard() -> None:
    for pattern, literal in {
        "a/b*": "a/b",
        "a/{b,c}/*": "a/",
        "a/{b}/[c]": "a/{b}/",
        "a/b": "a/b",
        "a{b[,]": "a{b",
    }.items():
        assert get_literal_part(pattern) == literal


FILES = [
    "a.txt",
    "b.csv",
    ".c.txt",
    "d/a.txt",
    "d/.git/x.txt",
    ".g/a.txt",
    "d/e/b.txt",
    "d/e/f.csv",
    "d/e/g",
    "x/y.csv",
]


class Listed(BeamStorage):
    """A filesystem of Beam's that lists these files, whatever it is asked for."""


@pytest.fixture(params=["local", "beam", "gs"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[storage.Storage, str]:
    """The same files on each kind of storage, and where."""
    root = request.getfixturevalue("gs") if request.param == "gs" else str(tmp_path / "in")
    place = LocalStorage() if request.param == "beam" else storage.storage_of(root)
    for name in FILES:
        place.put_if_absent(f"{root}/{name}", b"x")
    if request.param == "beam":
        found = [
            type(
                "Match",
                (),
                {"metadata_list": [FileMetadata(f"{root}/{name}", 1) for name in FILES]},
            )
        ]
        beam = "sentence_beam.transforms.storage.beam_filesystem.FileSystems"
        monkeypatch.setattr(
            f"{beam}.match",
            lambda patterns: found if patterns[0].endswith("**") else pytest.fail("its own"),
        )
        monkeypatch.setattr(f"{beam}.checksum", lambda path: "1")
        place = BeamStorage()
    return place, root


@pytest.mark.parametrize(
    ("pattern", "hidden", "files", "beside"),
    [
        ("*.txt", False, ["a.txt"], [".c.txt", ".g/", "b.csv"]),
        ("*.txt", True, [".c.txt", "a.txt"], [".g/", "b.csv"]),
        ("**/*.txt", False, ["a.txt", "d/a.txt", "d/e/b.txt"],
         [".c.txt", ".g/", "b.csv", "d/.git/", "d/e/f.csv", "d/e/g"]),
        ("**", True, sorted(FILES), []),
        ("{d,x}/*", False, ["d/a.txt", "x/y.csv"], ["d/.git/"]),
        ("d/.git/*", False, ["d/.git/x.txt"], []),
        ("*/*/?.txt", False, ["d/e/b.txt"], ["d/e/f.csv", "d/e/g"]),
    ],
)  # fmt: skip
def test_every_storage_finds_the_same(
    place: tuple[storage.Storage, str],
    pattern: str,
    hidden: bool,
    files: list[str],
    beside: list[str],
) -> None:
    where, root = place
    result = where.match(f"{root}/{pattern}", hidden)
    assert [entry.path.removeprefix(f"{root}/") for entry in result.files] == files
    assert [path.removeprefix(f"{root}/") for path in result.beside] == beside


@pytest.mark.parametrize(
    ("pattern", "taken", "left"),
    [
        ("in/*.csv", ["in/a.csv", "in/a_b.csv"], ["in/_a.csv"]),
        ("in/**", ["in/a/b_/c", "in/_day=1/c"], ["in/_a/c", "in/b/_c", "in/b/_c/d"]),
        ("in/_*", ["in/_a", "in/_a=1"], []),
        ("in/_x/*", ["in/_x/a"], ["in/_x/_a"]),
        ("in/{_a,b}*", ["in/_ab", "in/bc"], []),
        ("_in/**/a", ["_in/a", "_in/b/a"], ["_in/_b/a"]),
        ("in/_a", ["in/_a"], []),
    ],
)
def test_an_underscore_at_the_beginning_of_a_name_must_be_written_if_asked_for(
    pattern: str, taken: list[str], left: list[str]
) -> None:
    unmarked = Glob(pattern, marked=False)
    assert [path for path in [*taken, *left] if unmarked.takes(path)] == taken
    assert all(map(Glob(pattern).takes, [*taken, *left]))
