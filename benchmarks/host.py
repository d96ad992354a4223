"""The host's part of encoding: tokens a second from texts to batches, on one core and on all.

    python -m benchmarks.host [--sentences FOLDER] [--rows 20000] [--runs 5] [--output FILE.json]

FOLDER holds STS sets (`*.tsv` with sentence1 and sentence2). MiniLM's tokenizer and the planning of
batches in one process: what a GPU waits for. "New words": an empty table of words; "known words":
the same texts again. One core: all threads are pinned to it, in turn with all cores.

More cores than the machine has are counted: while the work runs on one thread, another wakes up
every millisecond and notes whether Python's lock was taken. What is done under the lock is done by
one core at a time, so 16 cores are at most one over that share as fast as one.
"""

import argparse
import os
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path

from benchmarks.common import SENTENCES, Row, median_ratio, real_texts, report, seconds
from sentence_beam.pipelines.common import command
from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.encoder.tokenize import TextTokenizer
from sentence_beam.transforms.space import resolve_model

NEW, KNOWN = KINDS = ("new words", "known words")
TEXTS_AT_ONCE = 4096
KNOWN_PASSES = 9  # of each tokenizer: one takes a twentieth of a second
MANY = 16
BAR = 1.3  # times the time that cores in proportion would take
WAKE_UP = 1e-3  # seconds
LOCK_PASSES = {NEW: 5, KNOWN: 40}  # two seconds, or 2,000 wake-ups
# A wake-up that is later than this part of those of an idle process waited for the lock; as many of
# the others are later by chance.
ON_TIME = 0.95

Work = Callable[[], object]


def lateness(work: Work) -> list[float]:
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


def share_under_lock(work: Work) -> float:
    """Return the share of the work's time in which its thread has Python's lock."""
    idle = sorted(lateness(partial(time.sleep, 1.0)))
    limit = idle[int(ON_TIME * len(idle))]
    late = lateness(work)
    share = sum(each > limit for each in late) / len(late)
    return max(0.0, (share - 1 + ON_TIME) / ON_TIME)


def pin(cores: set[int]) -> None:
    """Let all threads of this process run on these cores alone."""
    for thread in os.listdir("/proc/self/task"):
        with suppress(ProcessLookupError):  # it has ended
            os.sched_setaffinity(int(thread), cores)


class Host:
    """An encoder and texts, whose words are new after `forget`."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts
        self.files = resolve_model("minilm")
        self.encoder = Encoder.load("minilm", dtype="float32", device="cpu")
        self.tokens = len(self.encoder.tokenize(texts).ids)

    def forget(self) -> None:
        """Begin again with a tokenizer that knows no words."""
        self.encoder.text_tokenizer = TextTokenizer(self.files)

    def plan(self) -> None:
        """Tokenize the texts and cut them into batches."""
        self.encoder.plan(self.encoder.tokenize(self.texts))

    def plan_in_this_thread(self) -> None:
        """Do the same, a part of the texts after the other."""
        bounds = [*range(0, len(self.texts), TEXTS_AT_ONCE), len(self.texts)]
        for start, stop in pairwise(bounds):
            part = self.encoder.text_tokenizer.tokenize_part(self.texts[start:stop])
            self.encoder.plan(part)

    def passes(self, kind: str) -> None:
        """Do it several times, with words of a kind."""
        for _ in range(LOCK_PASSES[kind]):
            if kind == NEW:
                self.forget()
            self.plan_in_this_thread()


def times_by_cores(host: Host, runs: int) -> dict[str, dict[str, list[float]]]:
    """Return the seconds of each kind of words: on one core, and on all."""
    every = os.sched_getaffinity(0)
    took: dict[str, dict[str, list[float]]] = {kind: {"one": [], "all": []} for kind in KINDS}
    for _ in range(runs):
        for name, cores in (("one", {min(every)}), ("all", every)):
            host.forget()
            pin(cores)
            took[NEW][name].append(seconds(host.plan))
            pin(cores)  # the threads that the first pass started
            known = [seconds(host.plan) for _ in range(KNOWN_PASSES)]
            took[KNOWN][name].append(statistics.median(known))
    pin(every)
    return took


def main() -> None:
    """Measure what the head of this file says, and print a table; `--output` gets it as JSON
    too.
    """
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--sentences", type=Path, help=SENTENCES)
    p.add_argument("--rows", type=int, default=20_000)
    p.add_argument("--runs", type=int, default=5)
    p.add_argument("--output")
    args = p.parse_args()
    command.quiet_logs()
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    host = Host(real_texts(args.sentences, args.rows))
    cores = len(os.sched_getaffinity(0))
    took = times_by_cores(host, args.runs)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    rows: list[Row] = []
    locks = {}
    for kind in KINDS:
        one, every = took[kind]["one"], took[kind]["all"]
        rate = f"{host.tokens / statistics.median(one):,.0f} tokens/s"
        rows.append((f"{kind}, one core", rate, ""))
        rate = f"{host.tokens / statistics.median(every):,.0f} tokens/s"
        over = cores * median_ratio(every, one)
        bar = f"bar {BAR}x; {over:.2f} times the time of {cores} cores in proportion"
        rows.append((f"{kind}, {cores} cores", rate, bar))
        host.forget()
        host.plan()
        locks[kind] = share_under_lock(partial(host.passes, kind))
        over = max(1.0, MANY * locks[kind])
        bar = f"bar {BAR}x; {100 * locks[kind]:.0f} % of the time under Python's lock"
        rows.append((f"{kind}, {MANY} cores, counted", f"{over:.2f} times", bar))
    data = {"seconds": took, "lock": locks, "tokens": host.tokens}
    report(f"from text to batches, {args.rows:,} texts", rows, args.output, data)


if __name__ == "__main__":
    main()
