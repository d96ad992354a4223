"""The rows of each stripe of an ORC file, from its footer.

pyarrow tells the rows of a stripe only when it reads the stripe. The layout is that of ORC's
`orc_proto.proto`: FileTail.footer, Footer.stripes, StripeInformation.numberOfRows.
"""

from collections.abc import Iterator

FOOTER = 2  # fields of the messages FileTail, Footer and StripeInformation
STRIPES = 3
ROWS = 5
VARINT, FIXED_64, BYTES, FIXED_32 = 0, 1, 2, 5  # kinds of a field's value
FIXED_BYTES = {FIXED_64: 8, FIXED_32: 4}


def stripe_rows(tail: bytes) -> list[int]:
    """Return the rows of each stripe, by the uncompressed tail of a file.

    Raises ValueError for a tail that is damaged.
    """
    try:
        return [
            sum(int(rows) for number, rows in _fields(stripe) if number == ROWS)
            for footer in _messages(tail, FOOTER)
            for stripe in _messages(footer, STRIPES)
        ]
    except (IndexError, TypeError) as error:
        raise ValueError("its footer is damaged") from error


def _messages(data: bytes, wanted: int) -> Iterator[bytes]:
    return (
        value for number, value in _fields(data) if number == wanted and isinstance(value, bytes)
    )


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and value of each field of a message of Protocol Buffers."""
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        kind = key & 7
        if kind == VARINT:
            value, place = _varint(data, place)
            yield key >> 3, value
            continue
        size = FIXED_BYTES.get(kind)
        if kind == BYTES:
            size, place = _varint(data, place)
        if size is None:
            raise ValueError("its footer is damaged")
        yield key >> 3, data[place : place + size]
        place += size


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """The number at a place, seven bits a byte, and the place after it."""
    number = 0
    shift = 0
    while True:
        byte = data[place]
        place += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return number, place
