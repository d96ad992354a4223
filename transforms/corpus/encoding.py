"""The encoding of text in files: UTF-8, or UTF-16 by a byte order mark."""

from transforms.base.errors import SentenceBeamError
from transforms.corpus.files import InputFile

BOM = b"\xef\xbb\xbf"
UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")


def encoding_of(head: bytes) -> str:
    """The encoding that a byte order mark at the head of a file says; UTF-8 without one.

    It decides for CSV, TSV and JSON. Text, documents and JSON lines are cut by bytes, and UTF-8
    alone.
    """
    if head.startswith(BOM):
        return "utf-8-sig"
    return "utf-16" if head.startswith(UTF16_BOMS) else "utf-8"


def errors_of(encoding: str) -> str:
    """Python's word for how to decode bytes that are wrong: as lone surrogates in UTF-8, whose rows
    are rejected.
    """
    return "surrogateescape" if encoding.startswith("utf-8") else "strict"


def refuse_utf16(file: InputFile, head: bytes) -> None:
    """Raise SentenceBeamError for a mark of UTF-16: most of such text would pass for UTF-8 with NUL
    bytes.
    """
    if head.startswith(UTF16_BOMS):
        raise SentenceBeamError(
            f"{file.path} is UTF-16 (by its byte order mark); convert it to UTF-8"
        )
