"""A long listing in parts that are asked for side by side, whatever its names are.

A service lists by name, a page after the other. Here what is left after a page is cut in two, at a
name half way between the last one seen and the end, and both parts are listed: a million objects of
one folder need less than twice the requests that they have pages, and these do not wait for each
other.
"""

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Generic, NamedTuple, TypeVar

AT_ONCE = 8  # as many connections as the client keeps, about
# most names are made of these; others are listed in whichever part they fall
FIRST, LAST = ord(" "), ord("~")
DIGITS = 8

T = TypeVar("T")


class Page(NamedTuple, Generic[T]):
    """Some objects of a listing, the last name seen, and whether there are more up to the name that
    was asked for.
    """

    found: list[T]
    last: str
    more: bool


def listed(page: Callable[[str, str], Page[T]], prefix: str) -> list[T]:
    """All objects whose names begin with the prefix, in no order. Raises what `page` raises.

    `page` gives the first of those that come after one name, and not after another; "" is no bound.
    """
    first = page("", "")
    found = list(first.found)
    if not first.more:
        return found
    with ThreadPoolExecutor(AT_ONCE) as pool:
        waiting: dict[Future[Page[T]], str] = {}

        def ask(after: str, upto: str) -> None:
            waiting[pool.submit(page, after, upto)] = upto

        _ask_rest(ask, prefix, first.last, "")
        try:
            while waiting:
                done, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    upto, part = waiting.pop(future), future.result()
                    found += part.found
                    if part.more:
                        _ask_rest(ask, prefix, part.last, upto)
        finally:
            pool.shutdown(cancel_futures=True)
    return found


def _ask_rest(ask: Callable[[str, str], None], prefix: str, last: str, upto: str) -> None:
    """Ask for what comes after a name, in two parts where there is a name between it and the
    end.
    """
    middle = between(last, upto, len(prefix))
    if middle is None:
        ask(last, upto)
    else:
        ask(last, middle)
        ask(middle, upto)


def between(low: str, high: str, fixed: int = 0) -> str | None:
    """A name about half way between two, "" being the end; None without one. Their first `fixed`
    characters agree.

    >>> between("in/a", "in/c", 3), between("in/a", "in/b", 3), between("in/~", "", 3)
    ('in/b', 'in/aOOOOOOO', 'in/~OOOOOOO')
    """
    end = high or low[:fixed] + chr(LAST) * DIGITS
    while fixed < min(len(low), len(end)) and low[fixed] == end[fixed]:
        fixed += 1
    middle = (_number(low[fixed:]) + _number(end[fixed:])) // 2
    name = low[:fixed] + _name(middle)
    return name if low < name and (not high or name < high) else None


def _number(text: str) -> int:
    """The first characters of a text as the digits of a number."""
    value = 0
    for place in range(DIGITS):
        digit = min(max(ord(text[place]), FIRST), LAST) - FIRST if place < len(text) else 0
        value = value * (LAST - FIRST + 1) + digit
    return value


def _name(value: int) -> str:
    text = ""
    for _ in range(DIGITS):
        value, digit = divmod(value, LAST - FIRST + 1)
        text = chr(FIRST + digit) + text
    return text.rstrip(chr(FIRST)) or chr(FIRST)
