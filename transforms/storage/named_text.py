"""Text files that options name."""

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.storage.base import FolderError, absolute
from sentence_beam.transforms.storage.dispatch import read_bytes


def read_text(path: str, option: str) -> str:
    """Return the text of a file that an option names.

    Raises OptionError if it is missing or not UTF-8.
    """
    return text_of(read_named(path, option), path, option)


def read_named(path: str, option: str) -> bytes:
    """Return the bytes of a file that an option names. Raises OptionError if it cannot be read."""
    try:
        return read_bytes(absolute(path))
    except FileNotFoundError as error:
        raise OptionError(f"{option} {path}: there is no such file; check the path") from error
    except FolderError as error:
        raise OptionError(f"{option} {path} is a folder; name a file") from error
    except OSError as error:
        raise OptionError(f"{option} {path} cannot be read ({error}); check the path") from error


def text_of(data: bytes, path: str, option: str) -> str:
    """Return the text of a file's bytes. Raises OptionError if they are not UTF-8."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise OptionError(
            f"{option} {path} cannot be read as UTF-8 text ({error}); check the path"
        ) from error


def lines_of(text: str) -> list[str]:
    """Return the lines of a text, which end with LF or CRLF; an empty end is no line.

    `str.splitlines` ends lines at nine other characters too, which texts and JSON may hold.

    >>> lines_of("one\\u2028line\\r\\n\\nthree\\n")
    ['one\\u2028line', '', 'three']
    """
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    if lines[-1] == "":
        lines.pop()
    return lines
