"""Five corpora for the benchmark of watched queries, made of what is installed.

They are docstrings of the standard library, docstrings of packages, paragraphs of package
descriptions, long docstrings, and comments of the standard library.
"""

import contextlib
import sysconfig
import tokenize
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

from deploy.demo.docstrings import module_docstrings, source_files


def paragraphs(texts: Iterator[str], least: int, most: int) -> Iterator[str]:
    """Yield distinct paragraphs of so many characters, in one line each."""
    seen = set()
    for text in texts:
        for part in text.split("\n\n"):
            flat = " ".join(part.split())
            if least <= len(flat) <= most and flat not in seen and flat[0].isalpha():
                seen.add(flat)
                yield flat


def docstrings(root: str) -> Iterator[str]:
    """Yield the docstrings below a folder."""
    for module, path in sorted(source_files(Path(sysconfig.get_path(root)))):
        with contextlib.suppress(SyntaxError, ValueError):
            yield from (text for _, text in module_docstrings(module, path.read_bytes()))


def descriptions() -> Iterator[str]:
    """Yield the descriptions of installed packages."""
    for about in sorted(metadata.distributions(), key=lambda found: found.metadata["Name"] or ""):
        yield str(about.metadata.get_payload())


def comments() -> Iterator[str]:
    """Yield the comments of the standard library, neighbouring lines together."""
    for _, path in sorted(source_files(Path(sysconfig.get_path("stdlib")))):
        block: list[str] = []
        with (
            contextlib.suppress(SyntaxError, ValueError, tokenize.TokenError),
            path.open("rb") as f,
        ):
            for token in tokenize.tokenize(f.readline):
                if token.type == tokenize.COMMENT:
                    block.append(token.string.lstrip("# "))
                elif token.type != tokenize.NL and block:
                    yield " ".join(block)
                    block = []


CORPORA: dict[str, Callable[[], Iterator[str]]] = {
    "standard library": lambda: paragraphs(docstrings("stdlib"), 60, 400),
    "packages": lambda: paragraphs(docstrings("purelib"), 60, 400),
    "descriptions": lambda: paragraphs(descriptions(), 80, 600),
    "long docstrings": lambda: paragraphs(docstrings("purelib"), 400, 1500),
    "comments": lambda: paragraphs(comments(), 60, 500),
}
