"""Little data to train on, in the words of the tiny models' vocabulary."""

import json
import random
from pathlib import Path

from helpers.tiny_models import WORDS

PAIRS = 64


def sentences(count: int, seed: int = 0) -> list[str]:
    """Different sentences of a few words."""
    generator, words = random.Random(seed), WORDS.split()
    found: dict[str, None] = {}
    while len(found) < count:
        found[" ".join(generator.sample(words, generator.randint(3, 7)))] = None
    return list(found)


def scored_rows(count: int = PAIRS, seed: int = 0) -> list[dict]:
    """Pairs with scores from 0 to 5."""
    texts, generator = sentences(2 * count, seed), random.Random(seed)
    return [
        {"score": round(5 * generator.random(), 1), "sentence1": one, "sentence2": other}
        for one, other in zip(texts[:count], texts[count:], strict=True)
    ]


def labelled_rows(count: int = PAIRS, seed: int = 0) -> list[dict]:
    """Pairs with one of three labels."""
    rows = [
        {"sentence1": row["sentence1"], "sentence2": row["sentence2"]}
        for row in scored_rows(count, seed)
    ]
    return [{**row, "label": ("no", "perhaps", "yes")[place % 3]} for place, row in enumerate(rows)]


def triplet_rows(count: int = PAIRS, seed: int = 0) -> list[dict]:
    """Triplets."""
    texts = sentences(3 * count, seed)
    sides = (texts[:count], texts[count : 2 * count], texts[2 * count :])
    return [
        dict(zip(("anchor", "positive", "negative"), row, strict=True))
        for row in zip(*sides, strict=True)
    ]


def write_tsv(path: Path, rows: list[dict]) -> Path:
    """Rows as a tab-separated file with a header."""
    lines = ["\t".join(rows[0]), *("\t".join(str(value) for value in row.values()) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf8")
    return path


def record(folder: Path) -> dict:
    """What a training wrote about itself."""
    return json.loads((folder / "training.json").read_text())


def weights(folder: Path) -> bytes:
    """The bytes of a model's weights."""
    return (folder / "model.safetensors").read_bytes()
