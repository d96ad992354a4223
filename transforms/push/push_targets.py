"""The database that `--to` names; its client is imported when it is used."""

import contextlib
from collections.abc import Iterator
from urllib.parse import urlsplit

from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.base.extras import requiring_extra
from sentence_beam.transforms.push.target import Target

OWN_PREFIXES = ("qdrant:", "lance:")
PREFIXES = ("postgresql://", "postgres://", *OWN_PREFIXES)
KINDS = "postgresql://USER@HOST/DATABASE#TABLE, qdrant:URL#COLLECTION or lance:FOLDER#TABLE"


@contextlib.contextmanager
def open_target(text: str) -> Iterator[Target]:
    """The target of `--to`.

    Raises OptionError for an unknown kind of database, SentenceBeamError if it cannot be reached.
    """
    place, hash_sign, name = text.rpartition("#")
    if not hash_sign or not name:
        raise OptionError(
            f"{cite('to')} {redact(text)}: no table or collection is named; write {KINDS}"
        )
    if not place.startswith(PREFIXES) or place in OWN_PREFIXES:
        raise OptionError(f"{cite('to')} {redact(text)}: no such kind of database; write {KINDS}")
    with requiring_extra("push", f"{cite('to')} {redact(text)}"):
        opened = _open(place, name)
    with opened as target:
        yield target


def _open(place: str, name: str) -> contextlib.AbstractContextManager[Target]:
    where = redact(f"{place}#{name}")
    if place.startswith("qdrant:"):
        from sentence_beam.transforms.push.qdrant import (
            connect as connect_qdrant,  # each needs its extra
        )

        return connect_qdrant(place.removeprefix("qdrant:"), name, where)
    if place.startswith("lance:"):
        from sentence_beam.transforms.push.lance import connect as connect_lance

        return connect_lance(place.removeprefix("lance:"), name, where)
    from sentence_beam.transforms.push.postgres import connect as connect_postgres

    return connect_postgres(place, name, where)


def redact(text: str) -> str:
    """A target's name without passwords and a URL's query.

    >>> redact("postgresql://me:secret@host:5432/db?sslmode=require#docs")
    'postgresql://me@host:5432/db#docs'
    >>> redact("lance:s3://bucket/tables?token=secret#docs")
    'lance:s3://bucket/tables#docs'
    """
    prefix = next((kind for kind in OWN_PREFIXES if text.startswith(kind)), "")
    url = text.removeprefix(prefix)
    if "://" not in url:
        return text
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    name = f"#{parts.fragment}" if parts.fragment else ""
    return f"{prefix}{parts.scheme}://{user.partition(':')[0]}{at}{host}{parts.path}{name}"


def has_password(text: str) -> bool:
    """Whether a target's URL has a password, or a query that may have one.

    >>> has_password("postgresql://me:secret@host/db#docs"), has_password("postgresql://host/db#a")
    (True, False)
    """
    prefix = next((kind for kind in OWN_PREFIXES if text.startswith(kind)), "")
    parts = urlsplit(text.removeprefix(prefix))
    return parts.password is not None or "password" in parts.query
