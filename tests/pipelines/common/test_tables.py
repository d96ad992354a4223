"""Tables on terminals of several widths and encodings: none is wider, and nothing that texts hold
ends a command.
"""

import contextlib
import fcntl
import io
import json
import os
import pty
import struct
import termios
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.commands import Run
from helpers.corpora import sentences, write_lines, write_parquet
from hypothesis import given
from hypothesis import strategies as st

from sentence_beam.pipelines.cli import main
from sentence_beam.pipelines.common import tables
from sentence_beam.pipelines.common.tables import (
    Column,
    count_columns_of,
    cut_end,
    cut_excerpt,
    cut_middle,
)
from sentence_beam.transforms.base.errors import printable

TEXTS = [
    f"{text} {'and so on ' * 40} the end of row {number}"
    for number, text in enumerate(sentences(12))
]
TEXTS[3] = "\x1b[2J東京" + "は" * 300 + " naïve\u202e café 👩‍💻"
IDS = ["", "é" * 300, *(f"{'long-' * 2000}{number}" for number in range(2, 12))]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A store whose rows have texts and ids of any length, with a snapshot before; its input is
    beside it.
    """
    folder = tmp_path_factory.mktemp("made")
    embed = [
        "embed",
        "--input",
        f"{folder}/in/*",
        "--store",
        f"{folder}/store",
        "--model",
        str(model),
    ]
    embed += ["--id-column", "id", "--max-rejects", "1", "--max-deletes", "1", "--quiet"]
    write_parquet(folder / "in" / "a.parquet", [*TEXTS, ""], id=[*IDS, "bad-" * 2000])
    assert main(embed) == 0
    write_parquet(folder / "in" / "a.parquet", [*TEXTS[:9], ""], id=[*IDS[:9], "bad-" * 2000])
    assert main(embed) == 0
    write_lines(folder / "few.txt", TEXTS[:3])
    rows = [f"{number}\t{text}\t{text[::-1]}" for number, text in enumerate(sentences(9))]
    write_lines(folder / "sts.tsv", ["score\tsentence1\tsentence2", *rows])
    return folder


def commands(made: Path, model: Path) -> dict[str, list[object]]:
    """Every command that prints a table, by name."""
    store, inputs = ["--store", made / "store"], ["--input", made / "few.txt", "--model", model]
    poolers = [
        "--pooler",
        "mean",
        "--pooler",
        "ditto:1-1,states=first-last,scale=sum",
        "--model",
        model,
    ]
    return {
        "search": ["search", *store, "--query", f"{'dog ' * 30}end of row", "-k", 12],
        "pairs": ["pairs", *inputs],
        "diff": ["diff", *store],
        "history": ["history", *store],
        "rejects": ["rejects", *store],
        "plan": ["plan", *inputs],
        "evaluate": ["evaluate", "--task", f"a-task={made}/sts.tsv", *poolers],
    }


@contextlib.contextmanager
def terminal(width: int, patch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Standard output is a terminal of a width; the list has its lines after the block."""
    reading, writing = pty.openpty()
    fcntl.ioctl(writing, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    parts: list[bytes] = []

    def read() -> None:
        with contextlib.suppress(OSError):  # that is how a pseudo-terminal ends
            while part := os.read(reading, 1 << 16):
                parts.append(part)

    thread, lines = threading.Thread(target=read), list[str]()
    thread.start()
    with open(writing, "w", encoding="utf8") as out, patch.context() as inside:
        inside.setattr("sys.stdout", out)
        yield lines
    thread.join()
    os.close(reading)
    lines += b"".join(parts).decode().splitlines()


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize(
    "name", ["search", "pairs", "diff", "history", "rejects", "plan", "evaluate"]
)
def test_no_table_is_wider_than_the_terminal(
    made: Path, model: Path, name: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with terminal(width, monkeypatch) as lines:
        assert main([str(part) for part in commands(made, model)[name]]) == 0
    assert lines
    assert max(map(count_columns_of, lines)) <= width
    assert "\x1b" not in "".join(lines)
    if name in ("search", "pairs"):
        assert max(map(count_columns_of, lines)) > width - 20, "texts take the room that there is"


def test_the_lines_of_a_search_on_a_terminal(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search = ["search", "--store", str(made / "store"), "--query", "the END of rows 7", "-k", "9"]
    with terminal(80, monkeypatch) as lines:
        main(search)
    assert lines[0] == "query: the END of rows 7"
    (seventh,) = (line for line in lines if line.endswith("the end of row 7"))
    assert seventh[15:41].startswith("long-long-lo…") or "…" in seventh[15:41]
    with terminal(80, monkeypatch) as lines:
        main([*search, "--full"])
    assert any(IDS[7] in line and " ".join(TEXTS[7].split()) in line for line in lines)


def test_without_a_terminal_ids_are_whole_and_make_no_other_line_wide(run: Run, made: Path) -> None:
    lines = (
        run("search", "--store", made / "store", "--query", "dog", "-k", 9).ok().out.splitlines()
    )
    assert all(any(one in line for line in lines) for one in IDS[2:9])
    assert min(map(len, lines[2:])) < 500


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_no_encoding_of_the_terminal_ends_a_command(
    made: Path, model: Path, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for command in commands(made, model).values():
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2))
        with monkeypatch.context() as patch:
            patch.setattr("sys.stdout", out)
            patch.setattr("sys.stderr", err)
            assert main([str(part) for part in [*command, "--quiet"]]) == 0
        out.seek(0)
        assert out.read()


def test_json_is_json_in_every_encoding(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for encoding in ("ascii", "utf-8"):
        out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        monkeypatch.setattr("sys.stdout", out)
        assert (
            main(
                [
                    "search",
                    "--store",
                    str(made / "store"),
                    "--query",
                    "naïve 東京",
                    "-k",
                    "9",
                    "--json",
                ]
            )
            == 0
        )
        out.seek(0)
        found.append(json.loads(out.read()))
    assert found[0] == found[1]
    assert "é" * 300 in [row["id"] for row in found[0]["results"][0]["rows"]]


# --- the parts of a table

LONG = st.text(max_size=300).map(printable)


@pytest.mark.parametrize(
    "cut",
    [cut_end, cut_middle, cut_excerpt, lambda text, width: cut_excerpt(text, width, text[-9:])],
)
@given(text=LONG, width=st.integers(4, 60))
def test_what_is_cut_fits_and_what_fits_is_not_cut(
    cut: Callable[[str, int], str], text: str, width: int
) -> None:
    found = cut(text, width)
    assert count_columns_of(found) <= width
    assert count_columns_of(text) > width or found == text


@pytest.mark.parametrize(
    ("text", "query", "found"),
    [
        ("a red dog", "cat", "a red dog"),
        (f"{'one two ' * 20}a red dog barks{' three' * 20}", "red dogs", "dog"),
        (f"{'one two ' * 20}the last words", "WORD", "the last words"),
        (f"a dog {'one two ' * 20} a red cat", "the red cat of a dog", "red cat"),
        (f"{'あ' * 90}東京タワー{'い' * 90}", "東京", "東京タワー"),
        (f"{'one ' * 30}a.b(c) [d", "a.b(c) [", "a.b(c) [d"),
    ],
)
def test_an_excerpt_shows_what_was_looked_for(text: str, query: str, found: str) -> None:
    assert found in cut_excerpt(text, 40, query)


def test_the_middle_of_an_id_goes_and_its_end_stays() -> None:
    assert cut_middle("corpus/2026/part-00017.parquet#4711", 20) == "corpus/20…rquet#4711"


def test_where_the_output_lacks_the_character_dots_are_three(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert cut_end("abcdefghij", 8) == "abcde..."


def test_what_a_terminal_would_obey_is_shown_as_an_escape() -> None:
    assert printable("a\x1b[2Jb\u202ec") == "a\\x1b[2Jb\\u202ec"
    assert printable("👩‍💻 naïve") == "👩‍💻 naïve"


def test_columns_go_in_their_order_where_the_terminal_is_narrow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    columns = [Column("a"), Column("b", spare=1), Column("c", spare=2), Column("d", spare=0)]
    rows = [["x" * 10, "y" * 10, "z" * 10, ""]]
    seen: list[Any] = []
    for width in (34, 33, 22, 10):
        monkeypatch.setattr(tables, "find_terminal_width", lambda width=width: width)
        seen.append(tables.format_table(columns, rows)[0].split())
    assert seen == [["a", "b", "c"], ["a", "b"], ["a", "b"], ["a"]]
