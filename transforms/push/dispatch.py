"""The database that `--to` names; its client is imported when it is needed."""

import contextlib
from collections.abc import Iterator
from urllib.parse import urlsplit

from transforms.base.errors import MissingExtraError, OptionError
from transforms.base.extras import pip_line
from transforms.push.target import Target

KINDS = "postgresql://USER@HOST/DATABASE#TABLE, qdrant:URL#COLLECTION or lance:FOLDER#TABLE"


@contextlib.contextmanager
def open_target(text: str) -> Iterator[Target]:
    """The target of `--to`. Raises OptionError for a name of none, SentenceBeamError if it
    cannot be reached.
    """
    place, hash_sign, name = text.rpartition("#")
    if not hash_sign or not name:
        raise OptionError(f"--to {shown(text)}: no table or collection is named; write {KINDS}")
    if not place.startswith(("postgresql://", "postgres://", "qdrant:", "lance:")) or place in (
        "qdrant:",
        "lance:",
    ):
        raise OptionError(f"--to {shown(text)}: no such kind of database; write {KINDS}")
    try:
        opened = _open(place, name)
    except ImportError as error:
        module = (error.name or "a package").partition(".")[0]
        raise MissingExtraError(
            f"--to {shown(text)} needs {module}, which is not installed; {pip_line('push')}"
        ) from error
    with opened as target:
        yield target


def _open(place: str, name: str) -> contextlib.AbstractContextManager[Target]:
    where = shown(f"{place}#{name}")
    if place.startswith("qdrant:"):
        from transforms.push.qdrant import opened as qdrant  # only where the extra is installed

        return qdrant(place.removeprefix("qdrant:"), name, where)
    if place.startswith("lance:"):
        from transforms.push.lance import opened as lance

        return lance(place.removeprefix("lance:"), name, where)
    from transforms.push.postgres import opened as postgres

    return postgres(place, name, where)


def shown(text: str) -> str:
    """A target's name without passwords and what else may stand in a URL's query.

    >>> shown("postgresql://me:secret@host:5432/db?sslmode=require#docs")
    'postgresql://me@host:5432/db#docs'
    >>> shown("lance:s3://bucket/tables?token=secret#docs")
    'lance:s3://bucket/tables#docs'
    """
    prefix = next((kind for kind in ("qdrant:", "lance:") if text.startswith(kind)), "")
    url = text.removeprefix(prefix)
    if "://" not in url:
        return text
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    name = f"#{parts.fragment}" if parts.fragment else ""
    return f"{prefix}{parts.scheme}://{user.partition(':')[0]}{at}{host}{parts.path}{name}"
