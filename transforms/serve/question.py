"""Questions: what a request asks for, within bounds, and the error of one that asks for something
else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from transforms.base.errors import SentenceBeamError

DEFAULT_K = 10
MOST_HITS = 100
MOST_CHARACTERS = 8000  # of a query, an id or a filter
PARAMETERS = {"q": "what to look for", "id": "the row that hits are to be like"}


class RefusedError(SentenceBeamError):
    """A request that is not answered, with its HTTP status."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Question:
    """The k rows nearest to a `text`, or to the row with an `id`, of those that a filter wants
    (empty: of all).

    One of `text` and `id` is not None.
    """

    text: str | None
    id: str | None
    k: int
    where: str

    @property
    def together(self) -> tuple[bool, int, str]:
        """What is equal for questions that are answered together."""
        return self.id is None, self.k, self.where


def question(pairs: Sequence[tuple[str, str]], asked: str) -> Question:
    """The question of a request's parameters, of which `asked` (q or id) says what is looked for.

    Raises RefusedError for a parameter that there is not, that comes twice, is missing, or beyond
    its bounds.
    """
    given = _once(pairs, (asked, "k", "where"))
    value = given.get(asked, "")
    if not value.strip():
        raise RefusedError(
            400, f"{asked} is missing or empty; say {PARAMETERS[asked]}, as in ?{asked}=..."
        )
    where = given.get("where", "").strip()
    text, name = (value, None) if asked == "q" else (None, value)
    return Question(text, name, _number(given.get("k", "")), where)


def _once(pairs: Sequence[tuple[str, str]], known: Sequence[str]) -> Mapping[str, str]:
    """The parameters by name."""
    found: dict[str, str] = {}
    for name, value in pairs:
        if name not in known:
            raise RefusedError(
                400, f"there is no parameter {name[:40]!r}; there are {', '.join(known)}"
            )
        if name in found:
            raise RefusedError(400, f"{name} is given twice; give it once")
        if len(value) > MOST_CHARACTERS:
            raise RefusedError(
                413, f"{name} has {len(value):,} characters; {MOST_CHARACTERS:,} are the most"
            )
        found[name] = value
    return found


def _number(text: str) -> int:
    """The number of hits; an empty text stands for the default."""
    if not text:
        return DEFAULT_K
    if not (
        text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= MOST_HITS and len(text) < 9
    ):
        raise RefusedError(
            400, f"k is {text[:40]!r} and has to be a whole number from 1 to {MOST_HITS}"
        )
    return int(text)
