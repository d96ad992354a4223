"""One collection in many layouts: the same rows in other files, of other names, formats, sizes and
compressions.
"""

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from helpers.corpora import COMPRESSORS, write_jsonl

Row = tuple[str, str | None, str]  # id, text, lang
Files = dict[str, list[Row]]
SUFFIXES = [".parquet", ".jsonl", *(f".jsonl{suffix}" for suffix in COMPRESSORS)]


def write_layout(folder: Path, files: Files, rng: random.Random) -> None:
    """Write files of rows with the columns id, text and lang; the suffix of a name is its
    format.
    """
    for name, rows in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".parquet"):
            columns = zip(*rows, strict=True) if rows else ([], [], [])
            arrays = [pa.array(column, pa.string()) for column in columns]
            packed = rng.choice(["none", "snappy", "zstd"])
            size = rng.choice([1, 3, 100])
            table = pa.table(arrays, names=["id", "text", "lang"])
            pq.write_table(
                table,
                folder / name,
                row_group_size=size,
                compression=packed,
                use_dictionary=rng.random() < 0.5,
            )
        else:
            write_jsonl(
                folder / name, [{"id": i, "text": text, "lang": lang} for i, text, lang in rows]
            )


def spread(rows: list[Row], rng: random.Random) -> Files:
    """The rows in any order in one to five files of any kind."""
    shuffled, count = rng.sample(rows, len(rows)), rng.randint(1, 5)
    names = [
        f"{rng.choice(['', 'sub/'])}{rng.randrange(10**6)}{rng.choice(SUFFIXES)}"
        for _ in range(count)
    ]
    files: Files = {name: [] for name in names}
    for row in shuffled:
        files[rng.choice(names)].append(row)
    return files
