"""The page to try a store: a form, hits and the store's properties, HTML without scripts."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sentence_beam.transforms.base.plain_values import to_json_value
from sentence_beam.transforms.report.html import make_environment
from sentence_beam.transforms.serve.followed import Followed
from sentence_beam.transforms.serve.question import DEFAULT_K, MOST_CHARACTERS, MOST_HITS
from sentence_beam.transforms.serve.texts import cut_text

if TYPE_CHECKING:
    from jinja2 import Environment

SHOWN = {"rank", "score", "id", "text", "passage", "piece", "pieces", "start", "end"}
MOST_VALUE = 1200  # characters of a value that are shown


class Form(NamedTuple):
    """The fields of the form as a person wrote them."""

    q: str = ""
    id: str = ""
    k: str = str(DEFAULT_K)
    where: str = ""


def render_page(
    served: Followed,
    form: Form,
    hits: Sequence[dict[str, Any]] | None = None,
    error: str = "",
    like: dict[str, Any] | None = None,
    root_path: str = "",
) -> str:
    """Return the page with the hits of a question (None: no question) or the line of an error.

    `like` is the row that the hits are similar to. Links are relative without a `root_path`, with
    which they begin otherwise.
    """
    manifest = served.manifest
    fields = served.searcher.rows.columns if len(manifest.shards) else ()
    rows = [_make_row(hit, form.q) for hit in hits] if hits is not None else None
    like_row = _make_row(like, "") if like is not None else None
    template = _load_environment().get_template("search.html")
    return template.render(
        base=f"{root_path}/" if root_path else "./",
        store=manifest.root,
        name=manifest.root.rstrip("/").rsplit("/")[-1],
        manifest=manifest,
        columns=[(field.name, field.type) for field in fields],
        examples=served.examples,
        form=form,
        k=form.k or DEFAULT_K,
        hits=rows,
        like=like_row,
        error=error,
        problem=served.problem,
        most_hits=MOST_HITS,
        most_characters=MOST_CHARACTERS,
    )


def render_style() -> str:
    """Return the style sheet: the shared one and the page's own."""
    return _load_environment().get_template("style.css").render()


@cache
def _load_environment() -> "Environment":
    return make_environment(Path(__file__).with_name("templates"))


def _make_row(row: dict[str, Any], query: str) -> dict[str, Any]:
    """Return a row for the template: id, text, piece, rank and score, and the other values.

    Null values are left out of `rest`.
    """
    rest = [
        (name, _show_value(value))
        for name, value in row.items()
        if name not in SHOWN and value is not None
    ]
    score = row.get("score")
    if isinstance(score, float):
        score = f"{score:.4f}"
    piece = f"piece {row['piece'] + 1} of {row['pieces']}" if row.get("pieces") else ""
    return {
        "rank": row.get("rank"),
        "score": score,
        "id": row["id"],
        "text": cut_text(row.get("passage") or row["text"] or "", query),
        "piece": piece,
        "rest": rest,
    }


def _show_value(value: Any) -> str:
    """Return a value as filters write it, without quotes; long ones are cut."""
    text = str(value).lower() if isinstance(value, bool) else str(to_json_value(value))
    return text if len(text) <= MOST_VALUE else f"{text[:MOST_VALUE]} …"
