"""Models that were trained with prompts, recognised by name, card and config.json."""

import shlex
import subprocess
from pathlib import Path

import pytest
from helpers.pages import tables
from helpers.prompted import set_prompts
from helpers.tiny_models import edit_json, save_tiny_model

from sentence_beam.transforms.space import resolve_model
from sentence_beam.transforms.space.trained_prompts import (
    FAMILIES,
    TrainedPrompts,
    find_trained_prompts,
    quote,
)

SENTENCE = "Represent this sentence for searching relevant passages: "
CHINESE = "为这个句子生成表示以用于检索相关文章："
INSTRUCT = "Instruct: Given a web search query, retrieve relevant passages that answer the query\n"
E5 = ("passage: ", "query: ")
NOMIC = ("search_document: ", "search_query: ")
NAMES = {
    "intfloat/e5-base-v2": E5,
    "intfloat/e5-small": E5,
    "intfloat/multilingual-e5-large": E5,
    "multilingual_e5_small": E5,
    "mixedbread-ai/deepset-mxbai-embed-de-large-v1": E5,
    "intfloat/multilingual-e5-large-instruct": ("", f"{INSTRUCT}Query: "),
    "intfloat/e5-mistral-7b-instruct": ("", f"{INSTRUCT}Query: "),
    "Alibaba-NLP/gte-Qwen2-1.5B-instruct": ("", f"{INSTRUCT}Query: "),
    "Qwen/Qwen3-Embedding-0.6B": ("", f"{INSTRUCT}Query:"),
    "google/embeddinggemma-300m": ("title: none | text: ", "task: search result | query: "),
    "nomic-ai/nomic-embed-text-v1.5": NOMIC,
    "nomic-ai/modernbert-embed-base": NOMIC,
    "BAAI/bge-base-en-v1.5": ("", SENTENCE),
    "BAAI/bge-small-zh-v1.5": ("", CHINESE),
    "Snowflake/snowflake-arctic-embed-m": ("", SENTENCE),
    "Snowflake/snowflake-arctic-embed-m-v1.5": ("", SENTENCE),
    "Snowflake/snowflake-arctic-embed-l-v2.0": ("", "query: "),
    "mixedbread-ai/mxbai-embed-large-v1": ("", SENTENCE),
}
WITHOUT = (
    *("sentence-transformers/all-MiniLM-L6-v2", "BAAI/bge-m3", "thenlper/gte-base", "minilm"),
    *("sentence-transformers/sentence-t5-base", "Salesforce/codet5-base", "BAAI/bge-reranker-base"),
    *("Alibaba-NLP/gte-modernbert-base", "jinaai/jina-embeddings-v2-base-en", "store5-base"),
)
CARDS = {
    "E5": (
        """# Each input text should start with "query: " or "passage: ".
        input_texts = ['query: how much protein', "passage: As a general guideline"]""",
        E5,
    ),
    "E5-instruct": (
        r"""    return f'Instruct: {task_description}\nQuery: {query}'""",
        ("", f"{INSTRUCT}Query: "),
    ),
    "Qwen3": (r"return f'Instruct: {task}\nQuery:{query}'", ("", f"{INSTRUCT}Query:")),
    "Gemma": (
        'prompts: "task: search result | query: ", "title: none | text: "',
        ("title: none | text: ", "task: search result | query: "),
    ),
    "Nomic": ("`search_document: <text here>` and `search_query: <text here>`", NOMIC),
    "mxbai": (f"provide the prompt `{SENTENCE.strip()}` for query", ("", SENTENCE)),
    "Arctic 2.0": ("query_prefix = 'query: '\nqueries = [query_prefix]", ("", "query: ")),
    "BGE": (f"---\nlanguage:\n- en\n---\n| bge-zh | {CHINESE} | {SENTENCE}|", ("", SENTENCE)),
    "Chinese BGE": (f"---\nlanguage:\n- zh\n---\n| {CHINESE} | {SENTENCE}|", ("", CHINESE)),
}


def prompts_of(root: Path, **config: str) -> tuple[str, str] | None:
    trained = find_trained_prompts(root, config)
    return None if trained is None else (trained.document, trained.query)


@pytest.mark.parametrize("name", NAMES)
def test_a_model_is_known_by_its_name(tmp_path: Path, name: str) -> None:
    assert prompts_of(tmp_path / name.rpartition("/")[2]) == NAMES[name]
    cached = tmp_path / f"models--{name.replace('/', '--')}" / "snapshots" / "0a1b"
    assert prompts_of(cached) == NAMES[name]
    assert prompts_of(tmp_path / "mine", _name_or_path=name) == NAMES[name]


@pytest.mark.parametrize("name", WITHOUT)
def test_a_model_that_was_trained_without_prompts_has_none(tmp_path: Path, name: str) -> None:
    assert prompts_of(tmp_path / name.rpartition("/")[2], _name_or_path=name) is None


@pytest.mark.parametrize("family", CARDS)
def test_a_model_is_known_by_its_card(tmp_path: Path, family: str) -> None:
    card, prompts = CARDS[family]
    (tmp_path / "README.md").write_text(card, encoding="utf8")
    assert prompts_of(tmp_path) == prompts
    trained = find_trained_prompts(tmp_path, {})
    assert trained is not None
    assert trained.source == "the model's card (README.md)"


def test_a_card_about_something_else_says_nothing(tmp_path: Path) -> None:
    card = "Scores of passages for a query: see the table. A query: what a user types."
    (tmp_path / "README.md").write_text(card)
    assert prompts_of(tmp_path) is None
    (tmp_path / "README.md").write_bytes(b"\xff\xfe\0")
    assert prompts_of(tmp_path) is None


def test_the_name_counts_before_the_card_and_the_card_before_the_config(tmp_path: Path) -> None:
    root = tmp_path / "bge-base-zh"
    root.mkdir()
    (root / "README.md").write_text(SENTENCE)
    assert prompts_of(root) == ("", CHINESE)
    other = root.rename(tmp_path / "mine")
    assert prompts_of(other, _name_or_path="intfloat/e5-base") == ("", SENTENCE)


def test_a_folder_that_registers_a_prompt_needs_no_advice(tmp_path: Path) -> None:
    """Empty prompts, which sentence-transformers writes for every model, register none."""
    folder = save_tiny_model("bert", tmp_path / "e5-base-v2")
    trained = resolve_model(str(folder)).trained_prompts
    assert trained is not None
    assert trained.source == "the card of E5 models (the name e5-base-v2)"
    set_prompts(folder, {"query": "", "document": ""})
    assert resolve_model(str(folder)).trained_prompts == trained
    set_prompts(folder, {"query": "query: "})
    assert resolve_model(str(folder)).trained_prompts is None


def test_the_name_in_config_json_is_read(tmp_path: Path) -> None:
    folder = save_tiny_model("bert", tmp_path / "mine")
    edit_json(folder / "config.json", _name_or_path="intfloat/e5-base-v2")
    trained = resolve_model(str(folder)).trained_prompts
    assert trained is not None
    assert "(config.json has the name intfloat/e5-base-v2)" in trained.source


BOTH = TrainedPrompts("the card", "passage: ", "query: ")
QUERY = TrainedPrompts("the card", "", "query: ")


@pytest.mark.parametrize(
    ("trained", "prompt", "query_prompt", "options"),
    [
        (BOTH, None, None, "--prompt 'passage: ' --query-prompt 'query: '"),
        (BOTH, "passage: ", None, "--query-prompt 'query: '"),
        (BOTH, None, "query: ", "--prompt 'passage: '"),
        (BOTH, None, "", "--prompt 'passage: '"),
        (BOTH, "", None, None),
        (BOTH, "x", "y", None),
        (QUERY, None, None, "--query-prompt 'query: '"),
        (QUERY, None, "", None),
        (QUERY, "", None, None),
    ],
)
def test_what_is_given_is_not_missing(
    trained: TrainedPrompts, prompt: str | None, query_prompt: str | None, options: str | None
) -> None:
    missing = trained.missing(prompt, query_prompt)
    assert (missing.options if missing is not None else None) == options


@pytest.mark.parametrize("text", ["query: ", f"{INSTRUCT}Query: ", "it's\n\\n", CHINESE])
def test_a_prompt_is_quoted_for_the_shell(text: str) -> None:
    program = f"printf '%s' {quote(text)}"
    done = subprocess.run(["bash", "-c", program], capture_output=True, check=True)
    assert done.stdout.decode() == text
    if "\n" not in text:
        assert shlex.split(quote(text)) == [text]
    assert len(quote(text).splitlines()) == 1


def test_the_page_lists_the_families() -> None:
    page = (Path(__file__).parents[3] / "docs/models.md").read_text(encoding="utf8")
    listed = {}
    for row in tables(page.partition("### Prompts that no folder registers")[2])[0]:
        prompts = [cell.replace("\\|", "|").strip("`") for cell in row[1:]]
        listed |= dict.fromkeys(row[0].split(", "), prompts)
    assert set(listed) == {family.title for family in FAMILIES}
    for family in FAMILIES:
        if "\n" in family.query:
            assert listed[family.title][1].startswith("Instruct: ")
        else:
            assert listed[family.title] == [family.document, family.query], family.title
