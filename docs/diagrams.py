"""Write docs/pictures/*.svg, the diagrams of the pages: `python docs/diagrams.py`."""

from collections.abc import Callable
from html import escape
from pathlib import Path

PICTURES = Path(__file__).with_name("pictures")
PLAIN, WORK, KEPT, GONE = "#ffffff", "#dbe9fb", "#dff3e3", "#eeeeee"
LINE_HEIGHT = 17


class Drawing:
    """An SVG picture under construction; all measures are pixels."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width = width
        self.height = height
        self.title = title
        self.parts: list[str] = []

    def text(
        self,
        x: int,
        y: int,
        line: str,
        *,
        bold: bool = False,
        anchor: str = "middle",
    ) -> None:
        """Write one line of text with its base line at `y`."""
        weight = ' font-weight="bold"' if bold else ""
        place = f'x="{x}" y="{y}" text-anchor="{anchor}"'
        self.parts.append(f"<text {place}{weight}>{escape(line)}</text>")

    def box(
        self,
        x: int,
        y: int,
        width: int,
        height: int,
        lines: list[str],
        fill: str = PLAIN,
    ) -> None:
        """Draw a rectangle with centred lines of text; the first line is its name."""
        frame = f'x="{x}" y="{y}" width="{width}" height="{height}"'
        self.parts.append(f'<rect {frame} rx="5" fill="{fill}" stroke="#445"/>')
        top = y + (height - LINE_HEIGHT * len(lines)) // 2 + 13
        for place, line in enumerate(lines):
            self.text(x + width // 2, top + place * LINE_HEIGHT, line, bold=place == 0)

    def arrow(self, *points: tuple[int, int], dashed: bool = False) -> None:
        """Draw a line through the points that ends in an arrowhead."""
        path = " ".join(f"{x},{y}" for x, y in points)
        style = 'fill="none" stroke="#445" stroke-width="1.4"'
        if dashed:
            style += ' stroke-dasharray="5 4"'
        self.parts.append(f'<polyline points="{path}" {style} marker-end="url(#head)"/>')

    def svg(self) -> str:
        """The whole picture."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}" '
            'font-family="sans-serif" font-size="12.5" fill="#112">'
        )
        marker = (
            '<defs><marker id="head" markerWidth="9" markerHeight="8" refX="8" refY="4" '
            'orient="auto"><path d="M0,0 L9,4 L0,8 z" fill="#445"/></marker></defs>'
        )
        background = f'<rect width="{self.width}" height="{self.height}" fill="#ffffff"/>'
        title = f"<title>{escape(self.title)}</title>"
        return "\n".join([head, title, marker, background, *self.parts, "</svg>", ""])


def flow() -> Drawing:
    """The stages of a run, from input files to readers."""
    d = Drawing(900, 330, "A run: plan, embed, index, commit")
    d.box(20, 90, 110, 70, ["Input files", "Parquet, CSV,", "Markdown, ..."])
    d.box(175, 90, 130, 70, ["Plan", "compare with the", "last snapshot"], WORK)
    d.box(350, 90, 130, 70, ["Embed", "read, tokenise,", "model, pool"], WORK)
    d.box(525, 90, 130, 70, ["Index", "train, segments,", "measure recall"], WORK)
    d.box(700, 90, 150, 70, ["Commit", "all rows counted:", "replace the manifest"], WORK)
    d.box(350, 230, 130, 60, ["embeddings/", "rejects/"], KEPT)
    d.box(525, 230, 130, 60, ["index/"], KEPT)
    d.box(700, 230, 150, 60, ["manifest.json", "the current snapshot"], KEPT)
    d.arrow((130, 125), (175, 125))
    d.arrow((305, 125), (350, 125))
    d.arrow((480, 125), (525, 125))
    d.arrow((655, 125), (700, 125))
    d.arrow((415, 160), (415, 230))
    d.arrow((590, 160), (590, 230))
    d.arrow((775, 160), (775, 230))
    d.arrow((240, 90), (240, 45), (775, 45), (775, 90))
    d.text(507, 37, "unchanged files: their shards are carried over unread")
    d.text(327, 80, "new and changed files")
    d.text(880, 312, "search, files and open_store begin here", anchor="end")
    d.text(20, 250, "Blue: stages of the job", anchor="start")
    d.text(20, 270, "Green: files of the store", anchor="start")
    return d


def unit() -> Drawing:
    """The life of a unit: from the plan to the removal of its shard."""
    d = Drawing(900, 390, "The life of a unit")
    d.box(20, 50, 150, 72, ["Planned", "a file, a part of one,", "or several small ones"])
    d.box(225, 50, 160, 72, ["Read", "hash each row; find", "vectors of known texts"], WORK)
    d.box(440, 50, 150, 72, ["Embedded", "new texts only,", "each once"], WORK)
    d.box(645, 50, 190, 72, ["Written", "shard, then sidecar", "with the unit's counts"], KEPT)
    d.arrow((170, 86), (225, 86))
    d.arrow((385, 86), (440, 86))
    d.arrow((590, 86), (645, 86))
    d.arrow((95, 50), (95, 22), (740, 22), (740, 50), dashed=True)
    d.text(417, 16, "after a crash: the shard is there already and is checked")
    d.box(645, 190, 190, 72, ["Committed", "the manifest names it;", "readers see its rows"], KEPT)
    d.arrow((740, 122), (740, 190))
    d.text(730, 160, "all units counted", anchor="end")
    d.box(380, 190, 190, 72, ["Carried", "each later run with an", "unchanged file names it"], KEPT)
    d.arrow((645, 226), (570, 226))
    d.box(380, 305, 190, 60, ["Replaced", "only old snapshots name it"], GONE)
    d.arrow((475, 262), (475, 305))
    d.text(485, 288, "the file changed or left the input", anchor="start")
    d.box(70, 305, 200, 60, ["Removed", "no kept snapshot names it"], GONE)
    d.arrow((380, 335), (270, 335))
    d.text(325, 326, "vacuum")
    return d


def index() -> Drawing:
    """An index with lists, and how a query passes through it."""
    d = Drawing(900, 400, "An index with lists")
    d.box(20, 40, 130, 60, ["Query", "one vector"])
    d.box(240, 40, 420, 60, ["Quantizer", "trained once; finds lists for all segments"], WORK)
    d.arrow((150, 70), (240, 70))
    d.box(20, 170, 150, 80, ["Held-out rows", "about a thousand;", "always scanned whole"], KEPT)
    d.box(190, 170, 150, 80, ["Range 1", "the first lists,", "of most rows"], KEPT)
    d.box(360, 170, 150, 80, ["Range 2", "the next lists,", "of most rows"], KEPT)
    d.box(530, 170, 150, 80, ["Delta", "a later run: new", "and changed rows"], KEPT)
    d.box(720, 170, 150, 80, ["New ranges", "of all rows,", "from their codes"], KEPT)
    for x in (265, 435, 605):
        d.arrow((x, 100), (x, 170))
    d.arrow((85, 100), (85, 170))
    d.arrow((680, 210), (720, 210), dashed=True)
    d.text(785, 112, "Written if more than")
    d.text(785, 129, "10 % of the rows are")
    d.text(785, 146, "in deltas or deleted")
    for x in (20, 190, 360, 530):
        d.box(x, 275, 150, 42, ["Locator", "id, shard of a row"])
    d.box(
        190,
        345,
        490,
        42,
        ["Best rows of all segments", "deleted rows are null in the locator and never returned"],
        WORK,
    )
    for x in (95, 265, 435, 605):
        d.arrow((x, 250), (x, 275))
    for x in (265, 435, 605):
        d.arrow((x, 317), (x, 345))
    d.arrow((95, 317), (95, 366), (190, 366))
    return d


DIAGRAMS: dict[str, Callable[[], Drawing]] = {"flow": flow, "unit": unit, "index": index}


def main() -> None:
    """Write every diagram."""
    for name, draw in DIAGRAMS.items():
        (PICTURES / f"{name}.svg").write_text(draw().svg(), encoding="utf8")


if __name__ == "__main__":
    main()
