"""The pages of the documentation as tests read them: headings, tables, blocks of code, links."""

import re
import shlex
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = sorted([*(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("recipes/*.md")])
BESIDE = [
    ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md")
]
DEPLOY = sorted((ROOT / "deploy").glob("*/README.md"))

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^(#+) (.*)$", re.MULTILINE)
_TABLE = re.compile(r"^\|.*\|\n\|[-|]+\|\n((?:\|.*\|\n?)+)", re.MULTILINE)
_LINK = re.compile(r"\]\((?!https?:)([^)\s]*)\)")
_ASSIGNMENT = re.compile(r"[A-Z_]+=.*")
_STATUS = re.compile(r"^\$ echo \$\?\n(\d+)\n", re.MULTILINE)
FILES = (
    "csv",
    "jsonl",
)  # languages of blocks that are files, which the paragraph before them names


@dataclass(frozen=True)
class Block:
    """A block of code: its language, text, the heading it is below, and the line it begins in.

    `file` is the name of the file whose content the block shows.
    """

    language: str
    text: str
    heading: str
    line: int
    file: str = ""

    @property
    def status(self) -> int:
        """The exit status of the last command: what the block's `echo $?` prints, else 0."""
        found = _STATUS.search(self.text)
        return int(found[1]) if found else 0

    @property
    def commands(self) -> list[list[str]]:
        """The commands after prompts, cut into words; variables that are set for one command are
        left out.
        """
        joined = _STATUS.sub("", self.text).replace("\\\n", " ")
        return [_words(line[2:]) for line in joined.splitlines() if line.startswith(("$ ", "# "))]

    @property
    def printed(self) -> list[str]:
        """The lines that are not commands."""
        joined = _STATUS.sub("", self.text).replace("\\\n", " ")
        return [line for line in joined.splitlines() if not line.startswith(("$ ", "# "))]


def _words(command: str) -> list[str]:
    words = shlex.split(command, comments=False)
    while words and _ASSIGNMENT.fullmatch(words[0]):
        words = words[1:]
    return words


@dataclass(frozen=True)
class Page:
    """A page of Markdown."""

    path: Path

    @property
    def name(self) -> str:
        """The path in the repository."""
        return self.path.relative_to(ROOT).as_posix()

    @cached_property
    def text(self) -> str:
        """The whole page."""
        return self.path.read_text(encoding="utf8")

    @cached_property
    def prose(self) -> str:
        """The page without its blocks of code."""
        return _BLOCK.sub("", self.text)

    @cached_property
    def blocks(self) -> list[Block]:
        """The blocks of code in order."""
        found = []
        for block in _BLOCK.finditer(self.text):
            before = self.text[: block.start()]
            heading = _HEADING.findall(_BLOCK.sub("", before))[-1][1]
            file = _file_of(block[1], before)
            found.append(Block(block[1], block[2], heading, before.count("\n") + 1, file))
        return found

    @cached_property
    def anchors(self) -> set[str]:
        """What links to headings of this page may end in."""
        return {
            re.sub(r"[^\w -]", "", title).lower().replace(" ", "-")
            for _, title in _HEADING.findall(self.prose)
        }

    @cached_property
    def links(self) -> list[tuple[Path, str]]:
        """File and anchor of every link that does not leave the repository."""
        cut = (link.partition("#")[::2] for link in _LINK.findall(self.prose))
        return [
            ((self.path.parent / file).resolve() if file else self.path, anchor)
            for file, anchor in cut
        ]

    @property
    def paragraphs(self) -> list[str]:
        """Paragraphs, list items and rows of tables, each on one line."""
        parts = re.split(r"\n\s*\n|\n(?=[-|] ?|\d+\. )", self.prose)
        return [" ".join(part.split()) for part in parts]

    def section(self, heading: str) -> str:
        """The text below a heading, up to the next one of its level or above."""
        level = heading.split()[0]
        found = re.search(
            rf"^{re.escape(heading)}\n(.*?)(?=^#{{1,{len(level)}}} |\Z)",
            self.text,
            re.MULTILINE | re.DOTALL,
        )
        assert found, f"{self.name} has no heading {heading!r}"
        return found[1]


def _file_of(language: str, before: str) -> str:
    """The last file name that the paragraph before a block has in backticks, if the block shows a
    file.
    """
    if language not in FILES:
        return ""
    paragraph = before.rstrip().rpartition("\n\n")[2]
    return [name for name in names(paragraph) if name.endswith(f".{language}")][-1]


def tables(text: str) -> list[list[list[str]]]:
    """Every table's rows as cells, headings left out."""
    return [
        [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows.splitlines()]
        for rows in _TABLE.findall(text)
    ]


def names(cell: str) -> list[str]:
    """What is in backticks."""
    return re.findall(r"`([^`]+)`", cell)
