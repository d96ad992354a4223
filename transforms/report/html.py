"""What all HTML pages have in common: how templates are filled, and their colours, type and charts
(`base.css`).
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment


def environment(*folders: Path) -> "Environment":
    """Templates of these folders and the common ones; whatever fills a hole is text, never
    markup.
    """
    # only who writes a page waits for it
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader([*folders, Path(__file__).with_name("templates")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
