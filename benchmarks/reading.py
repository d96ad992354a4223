"""Files that one reader reads, because they cannot be cut: MB of text a second, by processor time.

    python -m benchmarks.reading [--megabytes 60] [--output FILE.json]

CSV with quotes, the same with gzip, and a JSON array; rows have an id, a number and a text of 100
or of 1,000 characters. Megabytes are those of the unpacked file.
"""

import argparse
import csv
import gzip
import json
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.common import Row, report
from sentence_beam.transforms.corpus import Columns, match_inputs, plan_file, read_span
from sentence_beam.transforms.corpus.spans import UNIT_TOKENS

CHARACTERS = (100, 1000)
RUNS = 3
WORDS = [f"word{number:04d}" for number in range(5000)]


def write_files(folder: Path, characters: int, megabytes: int) -> list[Path]:
    """Write the same rows in each of the formats."""
    rng = np.random.default_rng(0)
    rows = []
    for number in range(megabytes * 1_000_000 // (characters + 30)):
        text = " ".join(WORDS[pick] for pick in rng.integers(0, len(WORDS), characters // 9))
        rows.append({"id": f"id{number}", "number": number, "text": f'{text}, "quoted"'})
    table = folder / f"{characters}.csv"
    with open(table, "w", newline="", encoding="utf8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    packed = folder / f"{characters}.csv.gz"
    packed.write_bytes(gzip.compress(table.read_bytes(), 6))
    array = folder / f"{characters}.json"
    array.write_text(json.dumps(rows), encoding="utf8")
    return [table, packed, array]


def seconds_to_read(path: Path) -> float:
    """Return the processor seconds that reading all units of a file takes."""
    (file,) = match_inputs(str(path))
    (span,) = plan_file(file, "text", UNIT_TOKENS)
    start = time.process_time()
    for _ in read_span(span, Columns(id="id"), UNIT_TOKENS):
        pass
    return time.process_time() - start


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--megabytes", type=int, default=60)
    parser.add_argument("--output", metavar="FILE.json")
    options = parser.parse_args()
    speeds: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for characters in CHARACTERS:
            paths = write_files(Path(folder), characters, options.megabytes)
            sizes = [paths[0], paths[0], paths[2]]
            for path, unpacked in zip(paths, sizes, strict=True):
                seconds = min(seconds_to_read(path) for _ in range(RUNS))
                speeds[path.name] = unpacked.stat().st_size / 1e6 / seconds
    rows: list[Row] = [(name, f"{speed:.0f} MB/s", "") for name, speed in speeds.items()]
    report("Reading by one reader", rows, options.output, {"megabytes_a_second": speeds})


if __name__ == "__main__":
    main()
