"""Token statistics on disk: a JSON file that describes them and names the file with counts."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.space.hashing import canonical_json, sha256_file, sha256_text
from sentence_beam.transforms.space.json_files import read_json

FORMAT = "sentence-beam token statistics 1"
METHODS = ("tfidf", "token-counts")
TABLE = "token_statistics.json"
_KEYS = {"format", "method", "tokenizer", "documents", "vocabulary", "counts", "sha256"}


@dataclass(frozen=True)
class TokenTable:
    """Token statistics.

    The keys are `method`, `tokenizer` (a digest), `documents`, `vocabulary`, `counts` (a file) and
    `sha256`.
    """

    described: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """sha256 over everything, including the digest of the counts."""
        return sha256_text(canonical_json(self.described))


def read_table(folder: str | Path) -> TokenTable:
    """The table in a folder; its counts are checked against their digest.

    Raises `OptionError` if there is no table, or if it is damaged.
    """
    path = Path(folder).expanduser()
    if not (path / TABLE).is_file():
        raise OptionError(
            f"{folder} holds no {TABLE}; make one with: sentence-beam fit --method"
            " tfidf|token-counts"
        )
    described = read_json(path / TABLE)
    if described.get("format") != FORMAT or set(described) != _KEYS:
        raise OptionError(f"{path / TABLE} is of another format; fit the statistics again")
    counts = path / described["counts"]
    if not counts.is_file() or sha256_file(counts) != described["sha256"]:
        raise OptionError(f"{counts} is missing or was changed; fit the statistics again")
    return TokenTable(described)
