"""Write triplets of docstrings to train on: `python -m benchmarks.docstring_triplets FOLDER`.

A triplet is a docstring's first paragraph, another of its paragraphs, and a paragraph of another
docstring of its file, of NumPy, pandas, torch and the standard library.
"""

import ast
import random
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("numpy", "pandas", "torch", "ast")  # the last is in the standard library's folder
NOT_PROSE = (">>>", "Parameters\n", "Args:", "Returns")
LEAST, DEV, TRAIN = 30, 500, 3200  # characters of a paragraph; rows


def paragraphs(path: Path) -> list[list[str]]:
    """The paragraphs of each docstring of a file that has several."""
    try:
        tree = ast.parse(path.read_text(encoding="utf8"))
    except (SyntaxError, ValueError):
        return []
    docs = [
        ast.get_docstring(node) or ""
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    ]
    split = [
        [part for part in doc.split("\n\n") if not part.lstrip().startswith(NOT_PROSE)]
        for doc in docs
    ]
    clean = [
        [text for part in parts if len(text := " ".join(part.split())) > LEAST] for parts in split
    ]
    return [parts for parts in clean if len(parts) > 1]


def triplets(generator: random.Random) -> Iterator[tuple[str, str, str]]:
    """Rows of an anchor, a text that is near it and one that is not."""
    for package in PACKAGES:
        spec = find_spec(package)
        root = Path(spec.origin or "").parent if spec else Path("nowhere")
        for path in sorted(root.rglob("*.py")):
            if "site-packages" in str(path.relative_to(root)) or "test" in str(path):
                continue
            found = paragraphs(path)
            for place, parts in enumerate(found):
                if others := found[:place] + found[place + 1 :]:
                    yield (
                        parts[0],
                        generator.choice(parts[1:]),
                        generator.choice(generator.choice(others)),
                    )


def main(folder: str) -> None:
    """Write docstrings-dev.tsv and docstrings-train.tsv."""
    generator = random.Random(12)
    first: dict[str, tuple[str, str, str]] = {}
    for row in triplets(generator):
        if len(set(row)) == 3:
            first.setdefault(row[0], row)
    rows = list(first.values())
    generator.shuffle(rows)
    for name, some in (("dev", rows[:DEV]), ("train", rows[DEV : DEV + TRAIN])):
        lines = ["\t".join(row) + "\n" for row in [("anchor", "positive", "negative"), *some]]
        (Path(folder) / f"docstrings-{name}.tsv").write_text("".join(lines), encoding="utf8")


if __name__ == "__main__":
    main(sys.argv[1])
