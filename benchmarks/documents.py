"""Documents cut into pieces: speed, places of cuts and the cost of an edit, beside other libraries.

    python -m benchmarks.documents [--documents FILE.jsonl] [--texts FOLDER] [--hard]
        [--output FILE.json]

FILE has `text` and `ends`, the places after each sentence; FOLDER has Markdown and plain files,
by default those of installed packages. Processor seconds, one run each. Peers that are measured if
installed: chonkie, langchain-text-splitters and semantic-text-splitter (`pip install` them into a
venv of their own).
"""

import argparse
import importlib.util
import json
import multiprocessing
import random
import time
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from benchmarks.common import report
from sentence_beam.transforms.corpus import Cutter, chunk
from sentence_beam.transforms.corpus.chunks.ends import Level, text_ends
from sentence_beam.transforms.space import resolve_model
from sentence_beam.transforms.space.chunks_spec import ChunksSpec

Span = tuple[int, int]
Split = Callable[[str], list[Span]]
Row = tuple[str, str, str]
BUDGET, SMALL, LONG, EDITED = 254, 96, 60_000, 40
HARD = {
    "10 MB of one letter": "a" * 10_000_000,
    "10 MB of words": "word " * 2_000_000,
    "10 MB of words without blanks": "word" * 2_500_000,
    "10 MB of initials": "A. " * 3_333_333,
    "1 MB of CJK": "漢字仮名交" * 200_000,
    "100,000 sentences": "This is a sentence of the document. " * 100_000,
}


def tokenizer() -> Tokenizer:
    """MiniLM's tokenizer, which cuts nothing off."""
    found = Tokenizer.from_file(str(resolve_model("minilm").folder / "tokenizer.json"))
    found.no_truncation()
    found.no_padding()
    return found


def byte_level(texts: list[str]) -> Tokenizer:
    """A byte-level BPE tokenizer trained on the texts: the tokens of parts do not add up to those
    of the whole.
    """
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=30_000, show_progress=False))
    return made


def peers(tokens: Tokenizer, budget: int) -> Iterator[tuple[str, Split]]:
    """Yield how each installed library cuts a text, by the same tokenizer and budget."""

    def count(text: str) -> int:
        return len(tokens.encode(text, add_special_tokens=False))

    if _installed("chonkie"):
        from chonkie import RecursiveChunker, SentenceChunker

        for chunker in (
            RecursiveChunker(tokens, chunk_size=budget),
            SentenceChunker(tokens, chunk_size=budget, chunk_overlap=0),
        ):
            yield (
                f"chonkie {type(chunker).__name__}",
                lambda text, own=chunker: _own_spans(own, text),
            )
    if _installed("langchain_text_splitters"):
        from langchain_text_splitters import RecursiveCharacterTextSplitter

        splitter = RecursiveCharacterTextSplitter(
            chunk_size=budget, chunk_overlap=0, length_function=count, add_start_index=True
        )
        yield "langchain-text-splitters recursive", lambda text: _langchain(splitter, text)
    if _installed("semantic_text_splitter"):
        from semantic_text_splitter import TextSplitter

        semantic = TextSplitter.from_huggingface_tokenizer(tokens, budget)
        yield (
            "semantic-text-splitter",
            lambda text: [(at, at + len(part)) for at, part in semantic.chunk_indices(text)],
        )


def _own_spans(chunker: Any, text: str) -> list[Span]:
    return [(each.start_index, each.end_index) for each in chunker(text)]


def _langchain(splitter: Any, text: str) -> list[Span]:
    documents = splitter.create_documents([text])
    return [
        (each.metadata["start_index"], each.metadata["start_index"] + len(each.page_content))
        for each in documents
    ]


def _installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def cpu(work: Callable[[], Any]) -> float:
    """Processor seconds of one call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def told(rows: Iterable[Row]) -> Iterator[Row]:
    """The rows, each printed when it is there."""
    for row in rows:
        print("  ".join(row).rstrip(), flush=True)
        yield row


def packages() -> list[Path]:
    """The folders that packages are installed in."""
    return sorted({Path(str(each.locate_file(""))).resolve() for each in metadata.distributions()})


def read_texts(folder: Path | None) -> list[str]:
    """Markdown and plain texts of some length, 300 at most."""
    folders = [folder] if folder else packages()
    paths = sorted(
        {
            path
            for each in folders
            for name in ("*.md", "METADATA", "*.txt")
            for path in each.rglob(name)
        }
    )
    texts = (path.read_text(encoding="utf8", errors="ignore") for path in paths)
    return [text for text in texts if len(text) > 2000][:300]


def speed(tokens: Tokenizer, texts: list[str]) -> Iterator[Row]:
    """Megabytes a second of chunking, and the share of the speed of tokenizing alone."""
    size = sum(len(text.encode()) for text in texts) / 1e6
    alone = cpu(lambda: tokens.encode_batch_fast(texts, add_special_tokens=False))
    yield "tokenizing alone", f"{size / alone:.2f} MB/s", f"{size:.1f} MB, {len(texts)} texts"
    for spec in (
        "budget",
        "budget:by=markdown",
        "budget:ends=stable",
        "budget:overlap=32",
        "sentences",
    ):
        cutter = Cutter(ChunksSpec.parse(spec), tokens, BUDGET)
        took = cpu(lambda own=cutter: own.cut(texts))
        yield f"{spec}, over tokenizing", f"{size / took:.2f} MB/s, {alone / took:.2f}", ">= 0.6"
    other = byte_level(texts)
    alone_there = cpu(lambda: other.encode_batch_fast(texts, add_special_tokens=False))
    took = cpu(lambda: Cutter(ChunksSpec.parse("budget"), other, BUDGET).cut(texts))
    yield (
        "budget, byte-level BPE, over its tokenizing",
        f"{size / took:.2f} MB/s, {alone_there / took:.2f}",
        "",
    )
    for name, split in peers(tokens, BUDGET):
        took = cpu(lambda own=split: [own(text) for text in texts])
        yield f"{name}, over tokenizing", f"{size / took:.2f} MB/s, {alone / took:.2f}", ""


def quality(tokens: Tokenizer, documents: list[dict[str, Any]]) -> Iterator[Row]:
    """Count the cuts at the end of a sentence or paragraph."""
    hits = found = wanted = 0
    for document in documents:
        text, ends = document["text"], text_ends(document["text"])
        paragraphs = {
            place for place in document["ends"] if text[place : place + 2] in ("\n\n", "")
        }
        gold = set(document["ends"]) - paragraphs
        own = {
            int(place)
            for place, level in zip(ends.places, ends.levels, strict=True)
            if level == Level.SENTENCE
        }
        hits, found, wanted = (
            hits + len(own & gold),
            found + len(own - paragraphs),
            wanted + len(gold),
        )
    yield (
        "sentence ends, F1 (precision / recall)",
        (
            f"{200 * hits / (found + wanted):.1f} ({100 * hits / found:.1f} /"
            f" {100 * hits / wanted:.1f})"
        ),
        ">= 87",
    )
    ours = [
        (spec, _splitter(spec, tokens))
        for spec in (f"budget:tokens={SMALL}", f"budget:tokens={SMALL},ends=stable")
    ]
    for name, split in [*ours, *peers(tokens, SMALL)]:
        good = cuts = pieces = over = 0
        for document in documents:
            text, spans = document["text"], split(document["text"])
            ends = {len(text[:end].rstrip()) for _, end in spans[:-1]}
            good, cuts, pieces = (
                good + len(ends & set(document["ends"])),
                cuts + len(ends),
                pieces + len(spans),
            )
            over += sum(
                len(tokens.encode(text[start:end], add_special_tokens=False)) > SMALL
                for start, end in spans
            )
        yield (
            f"{name}: cuts at such ends; pieces; over {SMALL} tokens",
            f"{100 * good / max(1, cuts):.1f} %; {pieces}; {over}",
            ">= 93 %",
        )


def _splitter(spec: str, tokens: Tokenizer) -> Split:
    cutter = Cutter(ChunksSpec.parse(spec), tokens, BUDGET)
    return lambda text: cutter.cut([text])[0].spans


def edits(tokens: Tokenizer, texts: list[str]) -> Iterator[Row]:
    """The share of pieces that are new after one sentence was put into a document of 60 kB at a
    random place.
    """
    joined, chance = "\n\n".join(texts), random.Random(1)
    long = [
        joined[start : start + LONG]
        for start in range(0, min(len(joined) - LONG, EDITED * LONG), LONG)
    ]
    ours = [(spec, _splitter(spec, tokens)) for spec in ("budget", "budget:ends=stable")]
    for (name, split), bar in zip(
        [*ours, *peers(tokens, BUDGET)], ["<= 10 %", "<= 4 %", *[""] * 9], strict=False
    ):
        new = total = 0
        for text in long:
            place = text.find(" ", chance.randrange(len(text) // 2))
            edited = f"{text[:place]} Here is a sentence that was not there before.{text[place:]}"
            before = {text[start:end] for start, end in split(text)}
            after = split(edited)
            new, total = (
                new + sum(edited[start:end] not in before for start, end in after),
                total + len(after),
            )
        yield (
            f"{name}: pieces to embed again; pieces of {len(long)}",
            f"{100 * new / total:.1f} %; {total}",
            bar,
        )


def hard() -> Iterator[Row]:
    """Texts that no one writes, each in a process of its own: seconds, and memory beside what was
    there.
    """
    processes = multiprocessing.get_context("spawn")
    for name in HARD:
        with processes.Pool(1) as one:
            pieces, took, more = one.apply(_hard, (name,))
        yield f"{name}: {pieces} pieces", f"{took:.1f} s, {more:.0f} MB", "< 10 s, < 300 MB"


def _hard(name: str) -> tuple[int, float, float]:
    """The pieces of a text, the processor seconds, and by how many MB the most memory of this
    process grew.
    """
    text, tokens, pieces = HARD[name], tokenizer(), list[Span]()
    chunk("A short text, after which everything is loaded.", "budget", tokens, BUDGET)
    before = most_memory()
    took = cpu(lambda: pieces.extend(chunk(text, "budget", tokens, BUDGET)))
    more = most_memory() - before
    assert all(one[1] <= other[0] for one, other in pairwise(pieces))
    return len(pieces), took, more


def most_memory() -> float:
    """MB that this process took at most; unlike `ru_maxrss`, without what the one took that started
    it.
    """
    status = Path("/proc/self/status").read_text()
    return next(
        int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM")
    )


def main() -> None:
    """Measure what the head of this file says, and print a table; `--output` gets it as JSON
    too.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--documents", type=Path)
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--hard", action="store_true")
    parser.add_argument("--output")
    options = parser.parse_args()
    tokens, texts = tokenizer(), read_texts(options.texts)
    rows = [*told(speed(tokens, texts)), *told(edits(tokens, texts))]
    if options.documents:
        rows += told(
            quality(tokens, [json.loads(line) for line in options.documents.open(encoding="utf8")])
        )
    if options.hard:
        rows += told(hard())
    names = (
        "chonkie",
        "langchain-text-splitters",
        "semantic-text-splitter",
        "nupunkt",
        "tokenizers",
    )
    versions = {name: _version(name) for name in names}
    print(", ".join(f"{name} {version}" for name, version in versions.items()))
    report("documents", rows, options.output, {"peers": versions})


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "is not installed"


if __name__ == "__main__":
    main()
