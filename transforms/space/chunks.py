"""SPECs of chunks: how documents are cut into pieces, `name` or `name:key=value,...`."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from transforms.base.errors import OptionError
from transforms.base.values import nearest
from transforms.space.spec import Option, Value

_TOKENS = Option((), None, number=True)
_BY = Option(("text", "markdown"), "text")
_ENDS = Option(("greedy", "stable"), "greedy")
# What may be said of each; a number that is not given (None) comes from the model.
CHUNKS: dict[str, dict[str, Option]] = {
    "none": {},
    "sentences": {},
    "budget": {
        "tokens": _TOKENS,
        "overlap": Option((), 0, number=True),
        "by": _BY,
        "ends": _ENDS,
        "combine": Option(("none", "mean"), "none"),
    },
    "late": {"window": _TOKENS, "overlap": _TOKENS, "tokens": _TOKENS, "by": _BY, "ends": _ENDS},
}
LATE_TOKENS = 128  # a late piece's most tokens where none are given: what a search result quotes


@dataclass(frozen=True)
class ChunksSpec:
    """How documents are cut into pieces, and what becomes of their vectors.

    `kind` none, sentences, budget or late; `tokens` most tokens of a piece's own (None: what the
    model takes); `overlap` most tokens that a piece repeats of the one before, with `late` those
    that windows share (None: an eighth of the window); `by` text or markdown; `ends` greedy or
    stable; `combine` none or mean: a document's vector from its pieces'; `window` most tokens that
    go through the model at once with `late` (None: what the model takes).
    """

    kind: str = "none"
    tokens: int | None = None
    overlap: int | None = 0
    by: str = "text"
    ends: str = "greedy"
    combine: str = "none"
    window: int | None = None

    @classmethod
    def parse(cls, text: str) -> "ChunksSpec":
        """The chunks meant by a SPEC; `OptionError` (one line, with what is allowed) where there
        are none.
        """
        kind, colon, rest = text.partition(":")
        if kind not in CHUNKS:
            near = nearest(kind, CHUNKS)
            hint = f"; did you mean {near}?" if near else ""
            raise OptionError(f"chunks {text!r} is not known; allowed: {', '.join(CHUNKS)}{hint}")
        given: dict[str, Value] = {}
        for item in rest.split(",") if colon else []:
            key, _, word = item.partition("=")
            if key in given:
                raise OptionError(f"chunks {text!r}: {key!r} is given twice; say it once")
            given[key] = _value(text, kind, key, word)
        defaults: dict[str, Any] = {key: option.default for key, option in CHUNKS[kind].items()}
        chunks = cls(kind, **(defaults | given))
        _check_numbers(text, chunks)
        return chunks

    @property
    def cuts(self) -> bool:
        """Whether documents are cut at all."""
        return self.kind != "none"

    @property
    def overlap_of_pieces(self) -> int:
        """The most tokens that a piece repeats of the one before it."""
        return (self.overlap or 0) if self.kind == "budget" else 0

    @property
    def in_pooled(self) -> dict[str, Any]:
        """What of this decides a vector beside the text that goes into the model; part of the
        pooler.
        """
        if self.kind == "late":
            return {"late": {"window": self.window, "overlap": self.overlap}}
        return {"mean": str(self)} if self.combine == "mean" else {}

    def check_prefix(self, prefix: str) -> None:
        """Raise `OptionError` where something is to stand before pieces that there are not, or that
        do not take it.
        """
        if prefix and not self.cuts:
            raise OptionError(
                "--chunk-prefix stands before pieces of documents; say --chunks, as in --chunks"
                " budget"
            )
        if prefix and self.kind == "late":
            raise OptionError(
                f"--chunk-prefix: pieces of --chunks {self} know what stands around them; put it"
                " before the whole document, as --text-template does"
            )

    def budget(self, room: int | None) -> int:
        """The most tokens of a piece where the model has `room` for so many (None: for any number).

        Raises `OptionError` where nothing has room, where no number is known, or where the overlap
        fills the budget.
        """
        tokens = self.tokens or (LATE_TOKENS if self.kind == "late" else None)
        if tokens is None and room is None:
            raise OptionError(
                f"chunks {self}: this model takes any number of tokens; say how many, as in"
                " tokens=256"
            )
        if room is not None and room < 1:
            raise OptionError(
                f"chunks {self}: what stands before a piece leaves no token for it; make that"
                " shorter"
            )
        found = min(number for number in (tokens, room) if number is not None)
        if self.overlap_of_pieces >= found:
            raise OptionError(
                f"chunks {self}: an overlap of {self.overlap} leaves no room in {found} tokens;"
                " give less"
            )
        return found

    def __str__(self) -> str:
        """The canonical SPEC: keys in one order, defaults left out."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        said = [
            (key, values[key])
            for key, option in CHUNKS[self.kind].items()
            if values[key] != option.default
        ]
        items = ",".join(f"{key}={value}" for key, value in said)
        return f"{self.kind}:{items}" if items else self.kind


def _value(text: str, kind: str, key: str, word: str) -> Value:
    schema = CHUNKS[kind]
    if key not in schema:
        near = nearest(key, schema)
        hint = f"; did you mean {near}?" if near else ""
        raise OptionError(f"chunks {text!r}: {key!r} is not known; {_allowed(kind, schema)}{hint}")
    value = schema[key].parse(word)
    if value is None:
        raise OptionError(
            f"chunks {text!r}: {key}={word!r} is not allowed; say {key}={schema[key].allowed()}"
        )
    return value


def _allowed(kind: str, schema: Mapping[str, Option]) -> str:
    keys = ", ".join(f"{key}={option.allowed()}" for key, option in schema.items())
    return f"allowed for {kind}: {keys}" if keys else f"{kind} takes no options"


def _check_numbers(text: str, chunks: ChunksSpec) -> None:
    for key in ("tokens", "window"):
        if getattr(chunks, key) == 0:
            raise OptionError(f"chunks {text!r}: {key}=0 is no length; give 1 or more")
    whole = chunks.window if chunks.kind == "late" else chunks.tokens
    name = "window" if chunks.kind == "late" else "tokens"
    if whole is not None and (chunks.overlap or 0) >= whole:
        raise OptionError(
            f"chunks {text!r}: overlap={chunks.overlap} is no less than {name}={whole}; give less"
        )
