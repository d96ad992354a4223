"""A long listing in parts that are requested side by side, whatever its names are.

A service lists by name, page after page. Here the rest after a page is cut in two, at a name half
way between the last one seen and the end, and both parts are listed at once. A million objects of
one folder need fewer than two requests a page, and the requests do not wait for each other.
"""

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Generic, NamedTuple, TypeVar

AT_ONCE = 8  # about as many connections as the client keeps
# Most names are made of these characters; others are listed in whichever part they fall.
FIRST, LAST = ord(" "), ord("~")
DIGITS = 8

T = TypeVar("T")


class Page(NamedTuple, Generic[T]):
    """Some objects of a listing, the last name seen, and whether the requested range has more."""

    found: list[T]
    last: str
    more: bool


def list_objects(
    page: Callable[[str, str], Page[T]], prefix: str, low: str = "", high: str = ""
) -> list[T]:
    """Return all objects whose names begin with the prefix, in no order. Raises what `page` raises.

    The rest of a name comes after `low` and up to `high`. `page(after, upto)` returns the first
    objects with names in (after, upto]; "" is no bound.
    """
    after = low and prefix + low
    end = high and prefix + high
    first = page(after, end)
    items = list(first.found)
    if not first.more:
        return items
    with ThreadPoolExecutor(AT_ONCE) as pool:
        waiting: dict[Future[Page[T]], str] = {}

        def ask(after: str, upto: str) -> None:
            waiting[pool.submit(page, after, upto)] = upto

        _ask_rest(ask, prefix, first.last, end)
        try:
            while waiting:
                done, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    upto = waiting.pop(future)
                    part = future.result()
                    items += part.found
                    if part.more:
                        _ask_rest(ask, prefix, part.last, upto)
        finally:
            pool.shutdown(cancel_futures=True)
    return items


def _ask_rest(ask: Callable[[str, str], None], prefix: str, last: str, upto: str) -> None:
    """Request the objects after a name, in two parts if a name lies between it and the end."""
    middle = find_between(last, upto, len(prefix))
    if middle is None:
        ask(last, upto)
    else:
        ask(last, middle)
        ask(middle, upto)


def find_between(low: str, high: str, fixed: int = 0) -> str | None:
    """Return a name about half way between two, or None; an empty `high` is the end of the listing.

    The first `fixed` characters of both agree.

    >>> between("in/a", "in/c", 3), between("in/a", "in/b", 3), between("in/~", "", 3)
    ('in/b', 'in/aOOOOOOO', 'in/~OOOOOOO')
    """
    end = high or low[:fixed] + chr(LAST) * DIGITS
    while fixed < min(len(low), len(end)) and low[fixed] == end[fixed]:
        fixed += 1
    middle = (_read_number(low[fixed:]) + _read_number(end[fixed:])) // 2
    name = low[:fixed] + _write_name(middle)
    return name if low < name and (not high or name < high) else None


def _read_number(text: str) -> int:
    """Read the first characters of a text as the digits of a number."""
    value = 0
    for character in text[:DIGITS].ljust(DIGITS, chr(FIRST)):
        digit = min(max(ord(character), FIRST), LAST) - FIRST
        value = value * (LAST - FIRST + 1) + digit
    return value


def _write_name(value: int) -> str:
    text = ""
    for _ in range(DIGITS):
        value, digit = divmod(value, LAST - FIRST + 1)
        text = chr(FIRST + digit) + text
    return text.rstrip(chr(FIRST)) or chr(FIRST)
