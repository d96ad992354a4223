"""What `--json` prints: the commands of one small store, run one after the other."""

import contextlib
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from helpers.corpora import sentences, write_lines, write_parquet
from helpers.tiny_models import WORDS

from sentence_beam.pipelines.cli import main

STORE = "--store store"
ROWS = "--input in/*.parquet --id-column id --model model"
# the commands in their order, by lines; {store} names the store
COMMANDS = f"""
plan {ROWS} --index auto --price-per-hour 1 {STORE}
embed {ROWS} --index auto {STORE}
rejects {STORE}
embed --input in/*.parquet more/b.parquet {STORE}
plan --price-per-hour 1 --input in/*.parquet more/b.parquet {STORE}
index --index Flat {STORE}
search --query dog --query cat {STORE}
search --id r1 --fold none {STORE}
search --queries queries.csv --text-column q --id-column n {STORE}
search --query dog --output hits.csv {STORE}
neighbours --queries queries.csv --text-column q -k 2 --output neighbours {STORE}
neighbours --of store -k 2 --output neighbours-of-rows {STORE}
dedup --min-score 0.9 --output dedup.csv {STORE}
cluster --clusters 2 --output clusters.csv {STORE}
pairs -k 3 {STORE}
pairs -k 3 --output pairs.csv {STORE}
export --output model-export {STORE}
export --vectors npy --output vectors {STORE}
files {STORE}
files --link links {STORE}
evaluate --task sts=sts.tsv --model model --pooler mean --pooler cls
diagnose {STORE}
fit --method standardize --output calibration {STORE}
fit --input in/*.parquet --method token-counts --model model --output counts
recalibrate --calibration calibration {STORE}
info {STORE}
history {STORE}
diff {STORE}
watch --draw 2 {STORE}
watch {STORE}
embed --input in/*.parquet {STORE}
report {STORE}
report --output report.html {STORE}
verify {STORE}
push --to lance:tables#docs --dry-run {STORE}
push --to lance:tables#docs {STORE}
forget --id r1 --dry-run {STORE}
forget --id r1 {STORE}
verify --forgotten {STORE}
watch --remove {STORE}
rollback -1 {STORE}
vacuum --dry-run {STORE}
vacuum {STORE}
distill --model model --input words.txt --dim 4 --output table
train --input sts.tsv --objective regression --scores 0,5 --model model --output trained --epochs 1 --batch 4 --dry-run
train --input sts.tsv --objective regression --scores 0,5 --model model --output trained --epochs 1 --batch 4
""".strip().splitlines()


def outputs(folder: Path, model: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each command line, and the object that it prints; all run in a new folder."""
    (folder / "model").symlink_to(model)
    texts = sentences(12)
    write_parquet(folder / "in/a.parquet", [*texts, None], id=[f"r{n}" for n in range(13)])
    write_parquet(folder / "more/b.parquet", texts[:3], id=["s0", "s1", "s2"])
    write_lines(folder / "queries.csv", ["n,q", "first,dog", "second,cat"])
    pairs = [f"{n % 6}\t{texts[n]}\t{texts[-n]}" for n in range(1, 9)]
    write_lines(folder / "sts.tsv", ["score\tsentence1\tsentence2", *pairs])
    write_lines(folder / "words.txt", WORDS.split())
    with contextlib.chdir(folder):
        for line in COMMANDS:
            yield line, run(line.split())


def run(words: Sequence[str]) -> dict[str, Any]:
    """Return what a command prints with --json."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        status = main([*words, "--json"])
    assert status == 0, words
    found: dict[str, Any] = json.loads(printed.getvalue())
    return found
