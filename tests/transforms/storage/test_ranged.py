"""A reader of remote files: few requests, and an error if the file is shorter than was said."""

import pytest

from sentence_beam.transforms.storage.ranged import FIRST, RangedReader


@pytest.mark.parametrize("size", [100, 3 * FIRST])
def test_a_file_that_is_shorter_than_was_said_is_an_error(size: int) -> None:
    data = bytes(size // 2)
    reader = RangedReader(size, lambda start, stop: data[start:stop])
    reader.seek(-8, 2)
    with pytest.raises(OSError, match=f"ends before the {size:,} bytes"):
        reader.read(8)


def test_a_small_file_takes_one_request() -> None:
    asked = []

    def fetch(start: int, stop: int) -> bytes:
        asked.append((start, stop))
        return bytes(range(start, stop))

    reader = RangedReader(100, fetch)
    reader.seek(-8, 2)
    assert reader.read(8) == bytes(range(92, 100))
    reader.seek(4)
    assert reader.read() == bytes(range(4, 100))
    assert asked == [(0, 100)]
