"""SPECs of chunks: how documents are cut into pieces."""

from dataclasses import dataclass, replace
from typing import Any

from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.space.spec_options import Grammar, Option

_TOKENS = Option((), None, number=True)
_BY = Option(("text", "markdown"), "text")
_ENDS = Option(("greedy", "stable"), "greedy")
# The options of each kind; a number that is not given (None) comes from the model.
CHUNKS: dict[str, dict[str, Option]] = {
    "none": {},
    "sentences": {"tokens": _TOKENS},
    "budget": {
        "tokens": _TOKENS,
        "overlap": Option((), 0, number=True),
        "by": _BY,
        "ends": _ENDS,
        "combine": Option(("none", "mean"), "none"),
    },
    "late": {"window": _TOKENS, "overlap": _TOKENS, "tokens": _TOKENS, "by": _BY, "ends": _ENDS},
}
GRAMMAR = Grammar("chunks", CHUNKS)
LATE_TOKENS = 128  # default of a late piece's most tokens: as long as a quote in a search result


@dataclass(frozen=True)
class ChunksSpec:
    """The cutting of documents into pieces, and the use of their vectors.

    `kind`: none, sentences, budget or late. `tokens`: most tokens of a piece without its overlap
    (None: the model's most). `overlap`: most tokens that a piece repeats of the previous one; for
    `late`, tokens that windows share (None: an eighth of the window). `by`: text or markdown.
    `ends`: greedy or stable. `combine`: none, or mean for one vector a document. `window`: most
    tokens of a forward pass of `late` (None: the model's most).
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
        """The chunks of a SPEC. Raises OptionError, in one line with the allowed values."""
        kind, values = GRAMMAR.read(text)
        defaults: dict[str, Any] = {key: option.default for key, option in CHUNKS[kind].items()}
        chunks = cls(kind, **(defaults | values))
        _check_numbers(text, chunks)
        return chunks

    @property
    def cuts(self) -> bool:
        """Whether documents are cut."""
        return self.kind != "none"

    @property
    def overlap_of_pieces(self) -> int:
        """The most tokens that a piece repeats of the previous one."""
        return (self.overlap or 0) if self.kind == "budget" else 0

    @property
    def in_pooled(self) -> dict[str, Any]:
        """Parameters that decide a vector beside the model's input text; part of the pooler."""
        if self.kind == "late":
            return {"late": {"window": self.window, "overlap": self.overlap}}
        if self.combine == "mean":
            return {"mean": str(self)}
        return {}

    def check_prefix(self, prefix: str) -> None:
        """Raise OptionError if pieces have a prefix without --chunks, or a kind that takes none."""
        if prefix and not self.cuts:
            raise OptionError(
                f"{cite('chunk_prefix')} stands before pieces of documents; say {cite('chunks')},"
                f" as in {cite('chunks')} budget"
            )
        if prefix and self.kind == "late":
            raise OptionError(
                f"{cite('chunk_prefix')}: pieces of {cite('chunks')} {self} know what stands around"
                f" them; put it before the whole document, as {cite('text_template')} does"
            )

    def budget(self, room: int | None) -> int:
        """The most tokens of a piece if the model has `room` for so many (None: for any number).

        Raises OptionError if there is no room, if no number is known, or if the overlap fills the
        budget.
        """
        tokens = self.tokens
        if tokens is None and self.kind == "late":
            tokens = LATE_TOKENS
        if tokens is None and room is None:
            raise OptionError(
                f"chunks {self}: this model takes any number of tokens; say how many, as in"
                f" {replace(self, tokens=256)}"
            )
        if room is not None and room < 1:
            raise OptionError(
                f"chunks {self}: what stands before a piece leaves no token for it; make that"
                " shorter"
            )
        most = min(number for number in (tokens, room) if number is not None)
        if self.overlap_of_pieces >= most:
            raise OptionError(
                f"chunks {self}: an overlap of {self.overlap} leaves no room in {most} tokens;"
                " give less"
            )
        return most

    def __str__(self) -> str:
        """The canonical SPEC: keys in a fixed order, without defaults."""
        values = {key: getattr(self, key) for key in CHUNKS[self.kind]}
        return GRAMMAR.write(self.kind, values)


UNCUT = ChunksSpec()


def _check_numbers(text: str, chunks: ChunksSpec) -> None:
    for key in ("tokens", "window"):
        if getattr(chunks, key) == 0:
            raise OptionError(f"chunks {text!r}: {key}=0 is no length; give 1 or more")
    name = "window" if chunks.kind == "late" else "tokens"
    whole = getattr(chunks, name)
    if whole is not None and (chunks.overlap or 0) >= whole:
        raise OptionError(
            f"chunks {text!r}: overlap={chunks.overlap} is no less than {name}={whole}; give less"
        )
