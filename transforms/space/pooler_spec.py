"""SPECs of poolers, and `a+b`, which joins the vectors of two.

`template=` takes the rest of the text. `+` joins nothing inside `template=`, and inside a path only
before the name of a pooler.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.space.spec_options import Grammar, Option, Value

COUNTS = ("all", "no-special", "drop-last-special", "no-prompt")
COUNT = Option(COUNTS, "all")
LAYER = Option(("last",), "last", number=True)
PATH = Option((), None, form="PATH", pattern=".+")

# The options of each pooler; `count` (which tokens are counted) is one of all that choose tokens.
POOLERS: dict[str, dict[str, Option]] = {
    "auto": {},
    "mean": {"count": COUNT, "layer": LAYER},
    "cls": {"count": COUNT, "layer": LAYER},
    "cls-tanh": {"count": COUNT},
    "max": {"count": COUNT, "layer": LAYER},
    "mean-sqrt-len": {"count": COUNT, "layer": LAYER},
    "last-token": {"count": COUNT, "layer": LAYER},
    "weighted-mean": {
        "count": COUNT,
        "layer": LAYER,
        "rank": Option(("counted", "attended"), "counted"),
    },
    "static": {"count": COUNT, "from": Option(("raw", "embeddings"), "raw")},
    "first-last": {"count": COUNT, "first": Option(("embeddings", "block1"), "embeddings")},
    "last2": {"count": COUNT},
    "ditto": {
        "head": Option(
            (), None, form="L-H (block-head, both from 1)", pattern="[1-9][0-9]*-[1-9][0-9]*"
        ),
        "states": Option(("first-last", "last", "static"), "first-last"),
        "scale": Option(("none", "sum", "count"), "none"),
        "count": COUNT,
    },
    "sbert-wk": {
        "start": Option(("auto",), "auto", number=True),
        "window": Option((), 2, number=True),
        "weights": Option(("combined", "alignment", "novelty", "even", "last"), "combined"),
        "mix": Option((), 0.5, decimal=True),
        "tokens": Option(("variance", "even"), "variance"),
        "variant": Option(("reference", "paper"), "reference"),
        "importance": Option(("selected", "all"), "selected"),
        "count": Option(COUNTS, "drop-last-special"),
    },
    "tfidf": {
        "table": PATH,
        "idf": Option(("log2", "smooth"), "log2"),
        "unseen": Option(("zero", "max"), "zero"),
        "weight": Option(("idf", "tf-idf"), "idf"),
        "scale": Option(("sum", "none", "norm"), "sum"),
        "count": COUNT,
    },
    "sif": {
        "table": PATH,
        "a": Option((), 0.001, decimal=True),
        "states": Option(("static", "last"), "static"),
        "count": Option(COUNTS, "no-special"),
    },
    "remove-biases": {
        "table": Option(("none",), "none", form="PATH", pattern=".+"),
        "variant": Option(("reference", "generic"), "reference"),
        "top": Option((), 36, number=True),
        "subwords": Option(("remove", "keep"), "remove"),
        "punctuation": Option(("remove", "keep"), "remove"),
        "case": Option(("lower", "keep", "drop"), "lower"),
    },
    "cnn": {},
    "prompt": {
        "denoise": Option(("no", "yes"), "no"),
        "template": Option((), None, form="TEXT", pattern=".+"),
    },
}
# The key of an item without `key=`.
POSITIONAL = {"ditto": "head", "tfidf": "table", "sif": "table", "remove-biases": "table"}
GRAMMAR = Grammar("pooler", POOLERS, POSITIONAL, rest="template", joined=", joined by +")
_TAKES_PATH = frozenset(
    name for name, key in POSITIONAL.items() if POOLERS[name][key].form == "PATH"
)


@dataclass(frozen=True)
class PoolerPart:
    """A pooler of a concatenation, with all its options, sorted by key."""

    name: str
    options: tuple[tuple[str, Value], ...]

    def option(self, key: str) -> Value:
        """The value of one option. Raises `KeyError` if this pooler does not have it."""
        return dict(self.options)[key]

    def to_json(self) -> dict[str, Value]:
        """The pooler as JSON: `{"name": ..., key: value, ...}`."""
        return {"name": self.name, **dict(self.options)}

    def dim(self, hidden: int, embedding: int) -> int:
        """The width of this part's vector."""
        options = dict(self.options)
        is_static = options.get("from") == "raw" or options.get("states") == "static"
        return embedding if is_static or self.name == "remove-biases" else hidden

    @property
    def table(self) -> str | None:
        """The path of its token statistics; in a resolved pooler, their digest.

        None without statistics.
        """
        table = dict(self.options).get("table", "none")
        return None if table == "none" else str(table)

    @property
    def rewrites_text(self) -> bool:
        """Whether it changes the text before encoding, so that no other pooler can be joined."""
        if self.name == "remove-biases":
            return self.option("variant") == "reference" or self.option("case") == "lower"
        return self.name == "prompt"

    def replaced(self, **options: Value) -> "PoolerPart":
        """The same pooler with other values of some options."""
        return make_part(self.name, **{**dict(self.options), **options})

    def __str__(self) -> str:
        return GRAMMAR.write(self.name, dict(self.options))


@dataclass(frozen=True)
class PoolerSpec:
    """A pooler, or several, whose vectors are joined in this order."""

    parts: tuple[PoolerPart, ...]

    @property
    def is_auto(self) -> bool:
        """Whether the pooler is `auto`: the model's own modules."""
        return self.parts[0].name == "auto"

    def dim(self, hidden: int, embedding: int) -> int:
        """The width of the joined vector, from the widths of states and of embedding rows."""
        return sum(part.dim(hidden, embedding) for part in self.parts)

    def to_json(self) -> dict[str, Any]:
        """The SPEC as JSON: `{"parts": [...]}` with all parameters."""
        return {"parts": [part.to_json() for part in self.parts]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "PoolerSpec":
        """The SPEC that `to_json` wrote.

        Raises `OptionError` for names, keys or values that are not allowed.
        """
        return cls(tuple(_read_part(part) for part in value["parts"]))

    def __str__(self) -> str:
        return "+".join(str(part) for part in self.parts)


AUTO = PoolerSpec((PoolerPart("auto", ()),))


def parse_pooler(text: str) -> PoolerSpec:
    """The pooler of a SPEC. Raises `OptionError`, in one line with the allowed values."""
    parts = tuple(_parse_part(piece) for piece in _split_parts(text))
    alone = [part.name for part in parts if part.name == "auto" or part.rewrites_text]
    if len(parts) > 1 and alone:
        mend = " (or say case=keep)" if alone[0] == "remove-biases" else ""
        raise OptionError(
            f"pooler {text!r}: {alone[0]} stands alone, it cannot be joined with others{mend}"
        )
    return PoolerSpec(parts)


def make_part(name: str, **options: Value) -> PoolerPart:
    """The part with these options, which must be allowed, and the defaults of all others."""
    filled = {key: options.get(key, option.default) for key, option in POOLERS[name].items()}
    GRAMMAR.check_complete(name, filled)
    values = sorted((key, value) for key, value in filled.items() if value is not None)
    return PoolerPart(name, tuple(values))


def _split_parts(text: str) -> list[str]:
    """Split at every +, but not inside a template.

    Inside a path, + splits only before the name of a pooler.
    """
    head, template = GRAMMAR.split_rest(text)
    first, *others = head.split("+")
    parts = [first]
    for piece in others:
        name = piece.partition(":")[0]
        if parts[-1].partition(":")[0] in _TAKES_PATH and name not in POOLERS:
            parts[-1] += f"+{piece}"
        else:
            parts.append(piece)
    parts[-1] += template
    return parts


def _parse_part(text: str) -> PoolerPart:
    name, values = GRAMMAR.read(text)
    if name in _CHECKS:
        _CHECKS[name](text, values)
    return make_part(name, **values)


def _check_remove_biases(text: str, values: dict[str, Value]) -> None:
    """Check options of `remove-biases`: a table means the generic variant.

    The reference has neither table nor options. Removing the most frequent tokens needs a table.
    """
    if "table" in values:
        values.setdefault("variant", "generic")
    if values.get("variant", "reference") == "reference":
        if values.keys() - {"variant"}:
            raise OptionError(
                f"pooler {text!r}: the reference takes no other options; say variant=generic or a"
                " PATH"
            )
    elif values.get("table", "none") == "none" and values.get("top") != 0:
        raise OptionError(
            f"pooler {text!r}: the most frequent tokens need a PATH of token counts; give it, or"
            " top=0"
        )


def _check_sbert_wk(text: str, values: dict[str, Value]) -> None:
    """Check options of `sbert-wk`: `mix` needs combined weights.

    `importance` needs tokens of different weights.
    """
    if not 0 <= float(values.get("mix", 0.5)) <= 1:
        raise OptionError(
            f"pooler {text!r}: mix={values['mix']} is not allowed; say mix=0 to mix=1, alignment's"
            " share"
        )
    if "mix" in values and values.get("weights", "combined") != "combined":
        raise OptionError(f"pooler {text!r}: mix goes with weights=combined; leave one of them out")
    if "importance" in values and values.get("tokens") == "even":
        raise OptionError(
            f"pooler {text!r}: importance goes with tokens=variance; leave one of them out"
        )


def _check_sif(text: str, values: dict[str, Value]) -> None:
    if values.get("a") == 0:
        raise OptionError(f"pooler {text!r}: with a=0 no token weighs anything; say a above 0")


# Functions that raise OptionError for options that exclude each other, and add implied ones.
_CHECKS: dict[str, Callable[[str, dict[str, Value]], None]] = {
    "remove-biases": _check_remove_biases,
    "sbert-wk": _check_sbert_wk,
    "sif": _check_sif,
}


def _read_part(value: Mapping[str, Any]) -> PoolerPart:
    name = str(value["name"])
    GRAMMAR.check_name(name)
    words = {key: str(word) for key, word in value.items() if key != "name"}
    values = {key: GRAMMAR.value(name, name, key, word) for key, word in words.items()}
    return make_part(name, **values)
