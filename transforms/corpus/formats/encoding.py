"""The encoding of text in files: UTF-8, or UTF-16 by a byte order mark or by its NUL bytes."""

from collections.abc import Iterable

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.corpus.files import InputFile

BOM = b"\xef\xbb\xbf"
UTF16_BOMS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
HEAD = 1 << 12  # bytes that show the encoding
FEW = 2  # NUL bytes at least
OTHERS = 4  # times the NUL bytes in the other places, at least
SPACE = 0x20  # upper bytes of most alphabets are smaller
OFTEN = 0.25  # share of places with NUL bytes in text of Latin letters, at least
SELDOM = 0.01  # in text of other letters, where only blanks, digits and line ends have them


def find_encoding(head: bytes) -> str:
    """The encoding by the byte order mark at the head of a file, or by NUL bytes; else UTF-8.

    This is for CSV, TSV and JSON. Text, documents and JSON lines are always UTF-8, because they are
    cut by bytes.
    """
    if head.startswith(BOM):
        return "utf-8-sig"
    if head[:2] in UTF16_BOMS:
        return "utf-16"
    return _guess_by_nul_bytes(head) or "utf-8"


def _guess_by_nul_bytes(head: bytes) -> str | None:
    """The encoding of text with NUL bytes in every second place; None for other text."""
    head = head[:HEAD]
    counts = {"utf-16-be": head[0::2].count(0), "utf-16-le": head[1::2].count(0)}
    seldom, often = sorted(counts.values())
    if often < FEW or seldom * OTHERS > often:
        return None
    encoding = max(counts, key=lambda name: counts[name])
    share = often / (len(head) // 2)
    if share >= OFTEN:
        return encoding
    upper = head[encoding == "utf-16-le" :: 2].replace(b"\0", b"")
    has_alphabet = 2 * sum(byte < SPACE for byte in upper) > len(upper)
    return encoding if share >= SELDOM and (has_alphabet or not _is_utf8(head)) else None


def _is_utf8(head: bytes) -> bool:
    """Whether bytes are UTF-8, which may end within a character."""
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data"
    return True


def choose_errors(encoding: str) -> str:
    """Python's word for decoding wrong bytes.

    In UTF-8 they become lone surrogates, so that their rows are rejected.
    """
    return "surrogateescape" if encoding.startswith("utf-8") else "strict"


def describe_not_utf8(names: Iterable[str]) -> str:
    """The end of a message about columns: the file is not UTF-8 if their names show that."""
    characters = set("".join(names))
    if any("\udc80" <= character <= "\udcff" for character in characters):
        return "; the file is not UTF-8, convert it"
    return "; the file is not UTF-8 text, its names have NUL bytes" if "\0" in characters else ""


def refuse_utf16(file: InputFile, head: bytes) -> None:
    """Raise SentenceBeamError for the head of a file in UTF-16.

    Most text in UTF-16 would be accepted as UTF-8 with NUL bytes.
    """
    if head[:2] in UTF16_BOMS:
        raise SentenceBeamError(
            f"{file.path} is UTF-16 (by its byte order mark); convert it to UTF-8"
        )
    if _guess_by_nul_bytes(head):
        raise SentenceBeamError(f"{file.path} is UTF-16 (by its NUL bytes); convert it to UTF-8")
