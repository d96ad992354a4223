"""Prompts that models were trained with, for models whose folder registers none.

A model is recognised by its name, its card (README.md) or the name in its config.json.
"""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

CARD = "README.md"
_MOST = 1 << 20  # bytes of a card that are read; those with scores of MTEB have 100,000
_CACHED = "models--"  # begins the name of a model's folder in the hub's cache

_SENTENCE = "Represent this sentence for searching relevant passages: "
_CHINESE = "为这个句子生成表示以用于检索相关文章："
_INSTRUCT = "Instruct: Given a web search query, retrieve relevant passages that answer the query\n"


@dataclass(frozen=True)
class PromptFamily:
    """Models that were trained with the same prompts; "" means none.

    `names` matches a model's name, each of `card` its card. `document` is put before rows, `query`
    before queries, `other` before texts that are neither: of pairs, or to classify.
    """

    title: str
    names: str
    card: tuple[str, ...]
    document: str = ""
    query: str = ""
    other: str = ""

    def has_name(self, name: str) -> bool:
        """Whether a name is that of such a model."""
        return bool(re.search(self.names, re.sub(r"[\s_]+", "-", name.lower())))

    def has_card(self, card: str) -> bool:
        """Whether a card is that of such a model."""
        return all(re.search(words, card) for words in self.card)


# The first family that matches counts.
FAMILIES = (
    PromptFamily(
        "E5-instruct",
        r"e5-.*instruct|e5-mistral|sfr-embedding|linq-embed",
        (r"Instruct: \{\w+\}\\nQuery: ",),
        query=f"{_INSTRUCT}Query: ",
    ),
    PromptFamily(
        "GTE-instruct",
        r"gte-qwen.*instruct",
        (r"Instruct: \{\w+\}\\nQuery: ",),
        query=f"{_INSTRUCT}Query: ",
    ),
    PromptFamily(
        "Qwen3-Embedding",
        r"qwen3-embedding",
        (r"Instruct: \{\w+\}\\nQuery:\{",),
        query=f"{_INSTRUCT}Query:",
    ),
    PromptFamily(
        "EmbeddingGemma",
        r"embedding-?gemma",
        (r"title: none \| text: ",),
        document="title: none | text: ",
        query="task: search result | query: ",
        other="task: sentence similarity | query: ",
    ),
    PromptFamily(
        "Nomic",
        r"nomic-embed|modernbert-embed",
        (r"search_document: ", r"search_query: "),
        document="search_document: ",
        query="search_query: ",
        other="classification: ",
    ),
    PromptFamily(
        "E5",
        r"(?<![a-z0-9])e5-(small|base|large)|mxbai-embed-de",
        (r"[\"'`]query: ", r"[\"'`]passage: "),
        document="passage: ",
        query="query: ",
        other="query: ",
    ),
    PromptFamily(
        "Arctic 2.0",
        r"arctic-embed-.*v2",
        (r"query_prefix = [\"']query: [\"']",),
        query="query: ",
    ),
    # the cards of all BGE models list the prompts of both languages
    PromptFamily(
        "Chinese BGE",
        r"bge-(small|base|large)-zh",
        (_CHINESE, r"(?m)^(language: *|\s*- *)zh *$"),
        query=_CHINESE,
    ),
    PromptFamily("BGE", r"bge-(small|base|large)-en", (_SENTENCE.rstrip(),), query=_SENTENCE),
    PromptFamily("Arctic", r"arctic-embed", (_SENTENCE.rstrip(),), query=_SENTENCE),
    PromptFamily("mxbai", r"mxbai-embed", (_SENTENCE.rstrip(),), query=_SENTENCE),
)


@dataclass(frozen=True)
class TrainedPrompts:
    """The prompts of a model's family; `source` names the card that asks for them."""

    source: str
    document: str
    query: str
    other: str = ""

    def missing(self, prompt: str | None, query_prompt: str | None) -> "TrainedPrompts | None":
        """Return the prompts that rows and queries lack; None if they lack none.

        `prompt` and `query_prompt` are those that a user gave, None for none. An empty `prompt`
        says that no prompt is wanted, also before queries.
        """
        document = self.document if prompt is None else ""
        query = self.query if query_prompt is None and prompt != "" else ""
        if not document and not query:
            return None
        return replace(self, document=document, query=query)

    def request(self, rows: str = "rows") -> str:
        """Return what the card asks for: the prompts, and the texts that they precede."""
        places = {rows: self.document, "queries": self.query}
        prompts = [f"{prompt!r} before {texts}" for texts, prompt in places.items() if prompt]
        return f"{self.source} asks for {' and '.join(prompts)}"

    @property
    def options(self) -> str:
        """The options that give these prompts."""
        flags = {"--prompt": self.document, "--query-prompt": self.query}
        return " ".join(f"{flag} {quote(prompt)}" for flag, prompt in flags.items() if prompt)


def quote(text: str) -> str:
    """Return a text as a shell's word."""
    if "\n" not in text:
        return shlex.quote(text)
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"$'{escaped}'"


def find_trained_prompts(root: Path, config: Mapping[str, Any]) -> TrainedPrompts | None:
    """Return the prompts of the model in a folder with this config.json; None for other models.

    The folder's name counts first, then the card, then the name in config.json, which may be that
    of the model that this one was made from.
    """
    card = _read_card(root)
    name = _read_name(root)
    made_from = str(config.get("_name_or_path") or "")
    by_name = [family for family in FAMILIES if family.has_name(name)]
    by_card = [family for family in FAMILIES if family.has_card(card)]
    by_config = [family for family in FAMILIES if family.has_name(made_from)]
    for family in [*by_name[:1], *by_card, *by_config]:
        source = f"the card of {family.title} models (config.json has the name {made_from})"
        if family in by_name:
            source = f"the card of {family.title} models (the name {name})"
        if family in by_card:
            source = f"the model's card ({CARD})"
        return TrainedPrompts(source, family.document, family.query, family.other)
    return None


def _read_name(root: Path) -> str:
    """Return the name of a model's folder; in the hub's cache, the model's id."""
    for part in reversed(root.parts):
        if part.startswith(_CACHED):
            return part.removeprefix(_CACHED).replace("--", "/")
    return root.name


def _read_card(root: Path) -> str:
    """Return the text of a model's card; "" if it is missing or cannot be read."""
    try:
        with (root / CARD).open("rb") as file:
            return file.read(_MOST).decode("utf8", "replace")
    except OSError:
        return ""
