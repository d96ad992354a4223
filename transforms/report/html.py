"""Templates of HTML pages, and the style that all pages share (`base.css`)."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment


def make_environment(*folders: Path) -> "Environment":
    """Return a Jinja environment for the templates of these folders and the shared ones.

    Values are escaped: they are text, never markup.
    """
    # imported here because most commands write no page
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader([*folders, Path(__file__).with_name("templates")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
