"""The installed command embeds and searches with models of eight families."""

from pathlib import Path

import numpy as np
from helpers.families import save_family
from helpers.installation import command, without_packages
from helpers.variants import variants
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import StaticEmbedding
from tokenizers import Tokenizer

from sentence_beam import Encoder, open_store

TEXTS = ["a b c", "d e f g h", "a b", "x y z 1 2 3", "q"]
# a pooler each, and packages without which the command has to search
FAMILIES = {
    "mpnet": ("mean", ("sentence-transformers", "accelerate", "peft", "model2vec")),
    "bert": ("sbert-wk", ("pandas", "polars", "duckdb")),
    "roberta": ("mean", ("pandas",)),
    "distilbert": ("ditto:1-2", ("google-cloud-storage", "google-cloud-bigquery", "boto3")),
    "t5": ("mean", ("scikit-learn", "ir-measures", "mteb", "datasets")),
    "modernbert": ("mean", ("starlette", "uvicorn", "psycopg", "qdrant-client", "lancedb")),
    "qwen3": ("mean", ("pyiceberg", "deltalake", "openvino", "nncf", "pandas")),
    "static": ("auto", ("sentence-transformers", "pandas", "scikit-learn")),
}
# the first family searches without any of them
FAMILIES["mpnet"] = ("mean", tuple({name for _, names in FAMILIES.values() for name in names}))


def save_model(family: str, folder: Path) -> None:
    """Save a tiny model with random weights and its tokenizer."""
    if family != "static":
        save_family(family, folder)
        return
    save_family("bert", folder / "bert")
    tokenizer = Tokenizer.from_file(str(folder / "bert/tokenizer.json"))
    SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=32)], device="cpu").save(
        str(folder)
    )


def expected_vectors(folder: Path, pooler: str) -> np.ndarray:
    """Vectors of the texts by sentence-transformers, by our encoder if it lacks the pooler."""
    if pooler in ("mean", "auto"):
        theirs = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
        return theirs.encode(TEXTS, normalize_embeddings=pooler == "mean")
    return Encoder.load(str(folder), pooler=pooler, dtype="float32", device="cpu").encode(TEXTS)


@variants("family", FAMILIES, kept=(0,))
def test_the_vectors_are_those_of_sentence_transformers_and_a_text_finds_itself(
    tmp_path: Path, family: str
) -> None:
    pooler, packages = FAMILIES[family]
    save_model(family, tmp_path / "model")
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    embed = ("embed", "--input", "texts.txt", "--store", "store", "--dtype", "float32")
    command(tmp_path, *embed, "--model", "model", "--pooler", pooler, "--quiet").ok()
    rows = open_store(str(tmp_path / "store")).dataset().to_table()
    assert rows["text"].to_pylist() == TEXTS
    vectors = np.stack(rows["embedding"].to_numpy())
    expected = expected_vectors(tmp_path / "model", pooler)
    assert np.abs(vectors - expected).max() <= 2e-5 * np.abs(expected).max()

    script = without_packages(tmp_path / "installation", packages)
    search = ("search", "--store", "store", "--query", TEXTS[1], "-k", "1")
    found = command(tmp_path, *search, script=script).ok()
    assert TEXTS[1] in found.out
