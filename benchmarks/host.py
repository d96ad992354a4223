"""The host's part of encoding: tokens a second from texts to batches, on one core and on all.

    python -m benchmarks.host [--sentences FOLDER] [--rows 20000] [--runs 3] [--output FILE.json]

FOLDER holds STS sets (`*.tsv` with sentence1 and sentence2). MiniLM's tokenizer and the planning of
batches in one process: what a GPU waits for. "New words": an empty memory of words; "known words":
the same texts again. One core is a process pinned to it.

More cores than the machine has are counted: while the work runs on one core, a thread wakes up
every millisecond and notes whether Python's lock was taken. What is done under the lock is done by
one core at a time, so 16 cores are at most one over that share as fast as one.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.common import SENTENCES, Row, real_texts, report, seconds
from pipelines.common import command
from transforms.encoder import Encoder
from transforms.encoder.tokenize import TEXTS_AT_ONCE, TextTokenizer
from transforms.space import resolve_model

KINDS = ("new words", "known words")
MANY = 16
BAR = 1.3  # times the time that cores in proportion would take
WAKE_UP = 1e-3  # seconds
# a wake-up that is later than this part of those of an idle process waited for the lock
ON_TIME = 0.95


def lateness(work: Callable[[], object]) -> list[float]:
    """Return by how many seconds each wake-up of a thread was late while the work ran."""
    late: list[float] = []
    ended = threading.Event()

    def wake_up() -> None:
        while not ended.is_set():
            begun = time.perf_counter()
            time.sleep(WAKE_UP)
            late.append(time.perf_counter() - begun - WAKE_UP)

    thread = threading.Thread(target=wake_up)
    thread.start()
    work()
    ended.set()
    thread.join()
    return late


def share_under_lock(work: Callable[[], object]) -> float:
    """Return the share of the work's time in which its thread has Python's lock."""
    idle = sorted(lateness(partial(time.sleep, 1.0)))
    limit = idle[int(ON_TIME * len(idle))]
    late = lateness(work)
    return sum(each > limit for each in late) / len(late)


def batches(encoder: Encoder, texts: list[str]) -> None:
    """Tokenize texts and cut them into batches."""
    encoder.plan(encoder.tokenize(texts))


def in_this_thread(encoder: Encoder, texts: list[str]) -> None:
    """Do the same, a part of the texts after the other."""
    for start in range(0, len(texts), TEXTS_AT_ONCE):
        encoder.plan(encoder.text_tokenizer.tokenize_part(texts[start : start + TEXTS_AT_ONCE]))


def alone(texts: list[str], runs: int) -> dict[str, float]:
    """Return the seconds of new and of known words, the tokens, and the shares under the lock."""
    files = resolve_model("minilm")
    encoder = Encoder.load("minilm", dtype="float32", device="cpu")
    took: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(runs):
        encoder.text_tokenizer = TextTokenizer(files)
        for kind in KINDS:
            took[kind].append(seconds(partial(batches, encoder, texts)))
    found = {kind: statistics.median(times) for kind, times in took.items()}
    found["tokens"] = len(encoder.tokenize(texts).ids)
    if len(os.sched_getaffinity(0)) > 1:
        encoder.text_tokenizer = TextTokenizer(files)
        for kind in KINDS:
            work = partial(in_this_thread, encoder, texts)
            found[f"{kind}: lock"] = share_under_lock(work)
    return found


def measured(arguments: list[str], cores: set[int], **environment: str) -> dict[str, float]:
    """Run `alone` in a process of its own that has these cores."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.host", "--alone", *arguments],
        preexec_fn=partial(os.sched_setaffinity, 0, cores),
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measure what the head of this file says, and print a table; `--output` gets it as JSON
    too.
    """
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--sentences", type=Path, help=SENTENCES)
    p.add_argument("--rows", type=int, default=20_000)
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--output")
    p.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.alone:
        command.quiet_logs()
        print(json.dumps(alone(real_texts(args.sentences, args.rows), args.runs)))
        return
    arguments = ["--rows", str(args.rows), "--runs", str(args.runs)]
    if args.sentences:
        arguments += ["--sentences", str(args.sentences)]
    cores = os.sched_getaffinity(0)
    one = measured(arguments, {min(cores)})
    every = measured(arguments, cores)
    serial = measured(arguments, cores, TOKENIZERS_PARALLELISM="false")
    rows: list[Row] = []
    for kind in KINDS:
        rate = f"{one['tokens'] / one[kind]:,.0f} tokens/s"
        rows.append((f"{kind}, one core", rate, ""))
        rate = f"{every['tokens'] / every[kind]:,.0f} tokens/s"
        over = len(cores) * every[kind] / one[kind]
        bar = f"bar {BAR}x; {over:.2f} times the time of {len(cores)} cores in proportion"
        rows.append((f"{kind}, {len(cores)} cores", rate, bar))
        lock = serial[f"{kind}: lock"]
        over = max(1.0, MANY * lock)
        bar = f"bar {BAR}x; {100 * lock:.0f} % of the time under Python's lock"
        rows.append((f"{kind}, {MANY} cores, counted", f"{over:.2f} times", bar))
    data = {"one": one, "every": every, "serial": serial}
    report(f"from text to batches, {args.rows:,} texts", rows, args.output, data)


if __name__ == "__main__":
    main()
