"""The page to try a store: a form, hits, and what the store is, as HTML without any script."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from transforms.report.html import environment
from transforms.serve.answers import plain
from transforms.serve.followed import Followed
from transforms.serve.question import DEFAULT_K, MOST_CHARACTERS, MOST_HITS
from transforms.serve.texts import shown

if TYPE_CHECKING:
    from jinja2 import Environment

SHOWN = {"rank", "score", "id", "text", "passage", "piece", "pieces", "start", "end"}
MOST_VALUE = 1200  # characters of a value that are shown


class Form(NamedTuple):
    """What a person asked for, as it was written."""

    q: str = ""
    id: str = ""
    k: str = str(DEFAULT_K)
    where: str = ""


def page(
    served: Followed,
    form: Form,
    hits: Sequence[dict[str, Any]] | None = None,
    error: str = "",
    like: dict[str, Any] | None = None,
) -> str:
    """The page with the hits of a question (None: none was asked) or the line of an error.

    `like` is the row that the hits are like.
    """
    manifest = served.manifest
    return (
        _environment()
        .get_template("search.html")
        .render(
            store=manifest.root,
            name=manifest.root.rstrip("/").rsplit("/")[-1],
            manifest=manifest,
            columns=[(field.name, field.type) for field in served.searcher.rows.columns]
            if manifest.shard_paths
            else [],
            examples=served.examples,
            form=form,
            k=form.k or DEFAULT_K,
            hits=None if hits is None else [_row(hit, form.q) for hit in hits],
            like=None if like is None else _row(like, ""),
            error=error,
            problem=served.problem,
            most_hits=MOST_HITS,
            most_characters=MOST_CHARACTERS,
        )
    )


def style() -> str:
    """The style sheet of the page: that of all pages, and the page's own."""
    return _environment().get_template("style.css").render()


@cache
def _environment() -> "Environment":
    return environment(Path(__file__).with_name("templates"))


def _row(row: dict[str, Any], query: str) -> dict[str, Any]:
    """A row as the page has it: its id, text and piece, a hit's rank and score, and all else that
    is not null.
    """
    rest = [
        (name, _cut(_value(value)))
        for name, value in row.items()
        if name not in SHOWN and value is not None
    ]
    score = row.get("score")
    return {
        "rank": row.get("rank"),
        "score": f"{score:.4f}" if isinstance(score, float) else score,
        "id": row["id"],
        "text": shown(row.get("passage") or row["text"] or "", query),
        "piece": f"piece {row['piece'] + 1} of {row['pieces']}" if row.get("pieces") else "",
        "rest": rest,
    }


def _value(value: Any) -> str:
    """A value as filters have it, without quotes."""
    return str(value).lower() if isinstance(value, bool) else str(plain(value))


def _cut(text: str) -> str:
    return text if len(text) <= MOST_VALUE else f"{text[:MOST_VALUE]} …"
