"""Long listings in parts: every name once, in less than twice the requests that there are pages,
side by side.
"""

from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentence_beam.transforms.storage.listing import Page, find_between, list_objects

NAMES = {
    "numbered": lambda n: f"in/part-{n:07d}-of-1000000.parquet",
    "hashed": lambda n: f"in/{n * 2654435761 % (1 << 32):08x}.parquet",
    "in folders": lambda n: f"in/date=2026-{n % 12 + 1:02d}-{n % 28 + 1:02d}/part-{n:06d}.parquet",
    "in one long name": lambda n: f"in/{'x' * 60}-{n:06d}",
    "without an end in common": lambda n: f"in/{n}",
}


class Service:
    """A bucket that lists so many names a page; `depth` is how many requests waited for each other
    at most.
    """

    def __init__(self, names: list[str], size: int):
        self.names, self.size = sorted(names), size
        self.requests = 0
        self._depth: dict[str, int] = {}
        self.depth = 0

    def page(self, after: str, upto: str) -> Page[str]:
        self.requests += 1
        start = bisect_right(self.names, after)
        stop = bisect_right(self.names, upto) if upto else len(self.names)
        found = self.names[start : min(stop, start + self.size)]
        deep = self._depth.pop(after, 0) + 1
        self.depth = max(self.depth, deep)
        if found:
            self._depth[found[-1]] = deep
        return Page(found, found[-1] if found else "", stop - start > self.size)


@pytest.mark.parametrize("how", NAMES)
def test_a_hundred_thousand_names_take_less_than_twice_the_requests_that_there_are_pages(
    how: str,
) -> None:
    names = [NAMES[how](n) for n in range(100_000)]
    service = Service(names, 100)
    assert sorted(list_objects(service.page, "in/")) == service.names
    assert service.requests < 2 * 1000
    assert service.depth < 1000 / 2


def test_a_short_listing_is_one_request() -> None:
    service = Service(["in/a", "in/b"], 100)
    assert list_objects(service.page, "in/") == ["in/a", "in/b"]
    assert service.requests == 1


@given(
    st.sets(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), max_size=60),
    st.integers(1, 5),
)
def test_every_name_is_listed_once(tails: set[str], size: int) -> None:
    service = Service([f"in/{tail}" for tail in tails], size)
    assert sorted(list_objects(service.page, "in/")) == service.names


@given(st.text(max_size=12), st.text(max_size=12))
def test_a_name_between_two_is_between_them(one: str, other: str) -> None:
    low, high = sorted((one, other))
    middle = find_between(low, high)
    assert middle is None or low < middle < high or not high


def test_an_error_of_one_request_is_raised() -> None:
    service = Service([f"in/{n:04d}" for n in range(1000)], 10)

    def failing(after: str, upto: str) -> Page[str]:
        if service.requests > 20:
            raise OSError("no answer")
        return service.page(after, upto)

    with pytest.raises(OSError, match="no answer"):
        list_objects(failing, "in/")
