"""Questions of requests within bounds, and the error for other requests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl

from sentence_beam.transforms.base.errors import SentenceBeamError

DEFAULT_K = 10
MOST_HITS = 100
MOST_CHARACTERS = 8000  # of a query, an id or a filter
PARAMETERS = {"q": "what to look for", "id": "the row that hits are to be like"}


class RefusedError(SentenceBeamError):
    """A request is refused, with an HTTP status."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Question:
    """A search for the k rows nearest to a `text`, or to the row with an `id`.

    Exactly one of `text` and `id` is None. `where` is a filter, empty for all rows.
    """

    text: str | None
    id: str | None
    k: int
    where: str

    @property
    def kind(self) -> tuple[bool, int, str]:
        """The properties that questions share if one search can answer them."""
        return self.id is None, self.k, self.where


def parse_parameters(query: bytes) -> list[tuple[str, str]]:
    """Return the names and values in the query of an address, in order.

    Raises RefusedError for bytes that are not UTF-8.
    """
    pairs = parse_qsl(
        query.decode(errors="surrogateescape"), keep_blank_values=True, errors="surrogateescape"
    )
    for name, value in pairs:
        try:
            (name + value).encode()
        except UnicodeEncodeError as error:
            byte = ord(error.object[error.start]) & 0xFF
            raise RefusedError(
                400,
                f"{name[:40]!a} has the byte %{byte:02X}, which is not UTF-8; write text as UTF-8",
            ) from None
    return pairs


def parse_question(pairs: Sequence[tuple[str, str]], key: str) -> Question:
    """Return the question of a request's parameters, whose text or id is the parameter `key`.

    Raises RefusedError for an unknown, repeated or missing parameter, and for one beyond its
    bounds.
    """
    parameters = _check_parameters(pairs, (key, "k", "where"))
    value = parameters.get(key, "")
    if not value.strip():
        raise RefusedError(
            400, f"{key} is missing or empty; say {PARAMETERS[key]}, as in ?{key}=..."
        )
    k = _parse_number(parameters.get("k", ""))
    where = parameters.get("where", "").strip()
    return Question(value, None, k, where) if key == "q" else Question(None, value, k, where)


def _check_parameters(
    pairs: Sequence[tuple[str, str]], allowed: Sequence[str]
) -> Mapping[str, str]:
    """Return the parameters by name."""
    parameters: dict[str, str] = {}
    for name, value in pairs:
        if name not in allowed:
            raise RefusedError(
                400, f"there is no parameter {name[:40]!r}; there are {', '.join(allowed)}"
            )
        if name in parameters:
            raise RefusedError(400, f"{name} is given twice; give it once")
        if len(value) > MOST_CHARACTERS:
            raise RefusedError(
                413, f"{name} has {len(value):,} characters; {MOST_CHARACTERS:,} are the most"
            )
        parameters[name] = value
    return parameters


def _parse_number(text: str) -> int:
    """Return the number of hits, the default for an empty text."""
    if not text:
        return DEFAULT_K
    is_number = text.isascii() and text.isdecimal() and len(text) < 9
    if not is_number or not 1 <= int(text) <= MOST_HITS:
        raise RefusedError(
            400, f"k is {text[:40]!r} and has to be a whole number from 1 to {MOST_HITS}"
        )
    return int(text)
