"""The encoding of text in files: UTF-8, or UTF-16 by a byte order mark."""

from transforms.base.errors import SentenceBeamError
from transforms.corpus.files import InputFile

BOM = b"\xef\xbb\xbf"
UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")


def encoding_of(head: bytes) -> str:
    """The encoding by the byte order mark at the head of a file; UTF-8 without one.

    This is for CSV, TSV and JSON. Text, documents and JSON lines are always UTF-8, because they are
    cut by bytes.
    """
    if head.startswith(BOM):
        return "utf-8-sig"
    if head.startswith(UTF16_BOMS):
        return "utf-16"
    return "utf-8"


def errors_of(encoding: str) -> str:
    """Python's word for decoding wrong bytes.

    In UTF-8 they become lone surrogates, so that their rows are rejected.
    """
    if encoding.startswith("utf-8"):
        return "surrogateescape"
    return "strict"


def refuse_utf16(file: InputFile, head: bytes) -> None:
    """Raise SentenceBeamError for a byte order mark of UTF-16.

    Most text in UTF-16 would be accepted as UTF-8 with NUL bytes.
    """
    if head.startswith(UTF16_BOMS):
        raise SentenceBeamError(
            f"{file.path} is UTF-16 (by its byte order mark); convert it to UTF-8"
        )
