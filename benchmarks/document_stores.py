"""Stores of documents in pieces: what is found in them by each SPEC of `--chunks`, and what cutting
costs `embed`.

    python -m benchmarks.document_stores [--count N] [--chunks SPEC ...] [--output FILE.json]

Documents are READMEs of the installed packages and the docstrings of a module, longer than MiniLM
takes, up to 16,000 characters, five of a package at most. Two sentences of each are queries that it
answers: its first one, and one at a random place. Both are taken out of it, and are in no other
document. Scored by `evaluate`. Processor seconds, one run.
"""

import argparse
import contextlib
import json
import random
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer

from benchmarks.common import Row, report
from deploy.demo.docstrings import module_docstrings, source_files
from sentence_beam.pipelines.cli import main as command
from sentence_beam.transforms.corpus import chunk
from sentence_beam.transforms.space import resolve_model
from sentence_beam.transforms.store import open_store

SPECS = ("none", "budget", "late", "budget:combine=mean", "budget:tokens=128")
LIMIT, LONGEST, OF_PACKAGE, TRIED = 256, 16_000, 5, 40
QUERIES = ("first", "inside")
METRICS = ("ndcg@10", "recall@100", "mrr@10")
# a sentence of words, no signature and no badge
_QUERY = re.compile(r"[A-Z](?:[\w'-]+[ ,:;]+){8,40}[\w'-]+\.")


@dataclass(frozen=True)
class Document:
    """A text, and two sentences that were taken out of it: its first one, and one from a random
    place.
    """

    id: str
    text: str
    first: str
    inside: str


def tokenizer() -> Tokenizer:
    """Return MiniLM's tokenizer, which cuts nothing off."""
    found = Tokenizer.from_file(str(resolve_model("minilm").folder / "tokenizer.json"))
    found.no_truncation()
    found.no_padding()
    return found


def print_rows(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the rows, and print each."""
    for row in rows:
        print("  ".join(row).rstrip(), flush=True)
        yield row


def packages() -> list[Path]:
    """Return the folders that packages are installed in."""
    return sorted({Path(str(each.locate_file(""))).resolve() for each in metadata.distributions()})


def found_texts(chance: random.Random) -> Iterator[tuple[str, str, str]]:
    """(package, id, text) of READMEs, then of modules in any order, whose docstrings are below
    their names.
    """
    for about in sorted(
        (each.metadata for each in metadata.distributions()), key=lambda about: about["Name"]
    ):
        yield (
            about["Name"],
            f"readme/{about['Name']}",
            str(about.get_payload() or about.get("Description") or ""),  # type: ignore[attr-defined]
        )
    modules = sorted(each for root in packages() for each in source_files(root))
    chance.shuffle(modules)
    of_package = Counter[str]()
    for module, path in modules:
        package = module.partition(".")[0]
        of_package[package] += 1
        if of_package[package] <= TRIED:
            # packages hold templates that are not Python yet
            with contextlib.suppress(SyntaxError, ValueError):
                parts = module_docstrings(module, path.read_bytes())
                yield (
                    package,
                    f"module/{module}",
                    "\n\n".join(f"{name}\n\n{text}" for name, text in parts),
                )


def documents(tokens: Tokenizer, count: int) -> list[Document]:
    """`count` documents or a few less, always the same on a machine."""
    chance, of_package, found = random.Random(1), Counter[str](), dict[str, Document]()
    for package, name, text in found_texts(chance):
        if len(found) == count:
            break
        if 1000 < len(text) <= LONGEST and of_package[package] < OF_PACKAGE and name not in found:
            document = _without_queries(name, text, tokens, chance)
            if document is not None:
                of_package[package] += 1
                found[name] = document
    return _unambiguous(list(found.values()))


def _without_queries(
    name: str, text: str, tokens: Tokenizer, chance: random.Random
) -> Document | None:
    sentences = (text[start:end] for start, end in chunk(text, "sentences", tokens, LIMIT))
    usable = [
        each
        for each in sentences
        if text.count(each) == 1 and _QUERY.fullmatch(" ".join(each.split()))
    ]
    if len(usable) < 2:
        return None
    first, inside = usable[0], chance.choice(usable[1:])
    left = text.replace(first, "").replace(inside, "")
    if len(tokens.encode(left, add_special_tokens=False)) <= LIMIT:
        return None
    return Document(name, left, *(" ".join(each.split()) for each in (first, inside)))


def _unambiguous(found: list[Document]) -> list[Document]:
    """The documents whose queries are in no other one, and of no other one."""
    everything = "\n".join(" ".join(document.text.split()) for document in found)
    often = Counter(query for document in found for query in (document.first, document.inside))
    return [
        each
        for each in found
        if not any(q in everything or often[q] > 1 for q in (each.first, each.inside))
    ]


def write_all(found: list[Document], folder: Path) -> None:
    """The documents as Parquet, their queries and judgements as `evaluate` reads them."""
    pq.write_table(
        pa.table({"id": [d.id for d in found], "text": [d.text for d in found]}),
        folder / "all.parquet",
    )
    for kind in QUERIES:
        lines = [json.dumps({"_id": d.id, "text": getattr(d, kind)}) for d in found]
        (folder / f"{kind}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf8")
        judged = ["query-id\tcorpus-id\tscore", *(f"{d.id}\t{d.id}\t1" for d in found)]
        (folder / f"{kind}.tsv").write_text("\n".join(judged) + "\n", encoding="utf8")


def embed(source: Path, store: Path, spec: str) -> float:
    """Processor seconds of `embed` in this process."""
    started = time.process_time()
    how = [
        "--input",
        str(source),
        "--store",
        str(store),
        "--id-column",
        "id",
        "--chunks",
        spec,
        "--quiet",
    ]
    if command(["embed", *how]) != 0:
        raise SystemExit(f"embed --chunks {spec} failed")
    return time.process_time() - started


def scores(folder: Path, store: Path, spec: str) -> list[dict]:
    """Return the scores that `evaluate` gives a store."""
    tasks = [
        f"retrieval:{kind}={store},{folder / kind}.jsonl,{folder / kind}.tsv" for kind in QUERIES
    ]
    output = store.with_suffix(".jsonl")
    named = [argument for task in tasks for argument in ("--task", task)]
    with contextlib.redirect_stdout(None):
        status = command(["evaluate", *named, "--output", str(output)])
    if status != 0:
        raise SystemExit(f"evaluate of {spec} failed")
    read = [json.loads(line) for line in output.read_text(encoding="utf8").splitlines()]
    return [{**line, "chunks": spec} for line in read if line.get("metric") in METRICS]


def retrieval(folder: Path, specs: list[str], lines: list[dict]) -> Iterator[Row]:
    """Each store's scores with their 95 % intervals, which are added to `lines`; what cutting costs
    with `budget`.
    """
    for place, spec in enumerate(specs):
        store = folder / f"store{place}"
        took, opened = embed(folder / "all.parquet", store, spec), open_store(str(store))
        amount = f"{len(opened)}; {opened.manifest.tokens.real}; {took:.0f}"
        yield f"{spec}: rows; tokens; processor seconds", amount, ""
        for line in scores(folder, store, spec):
            lines.append(line)
            value = f"{line['score']:.1f} [{line['low']:.1f}, {line['high']:.1f}]"
            yield f"{spec}: {line['task']} {line['metric']}", value, ""
        if spec == "budget" and place > 0:  # the first one loaded torch and the model
            yield over_rows(folder, store, took)


def over_rows(folder: Path, store: Path, took: float) -> Row:
    """The speed of an `embed` that cut documents and took so long, over that of the same pieces
    given as rows.
    """
    pieces = open_store(str(store)).dataset().to_table(columns=["id", "piece", "text"]).to_pylist()
    rows = [{"id": f"{row['id']}#{row['piece']}", "text": row["text"]} for row in pieces]
    pq.write_table(pa.Table.from_pylist(rows), folder / "pieces.parquet")
    plain = embed(folder / "pieces.parquet", folder / "plain", "none")
    return (
        f"embed --chunks budget over {len(rows)} pieces as rows, speed",
        f"{plain / took:.2f}",
        ">= 0.95",
    )


def main() -> None:
    """Measure what the head of this file says, and print a table; `--output` gets it as JSON
    too.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--chunks", action="append", metavar="SPEC")
    parser.add_argument("--output")
    options = parser.parse_args()
    lines: list[dict] = []
    with tempfile.TemporaryDirectory() as place:
        found = documents(tokenizer(), options.count)
        write_all(found, Path(place))
        kinds = Counter(document.id.partition("/")[0] for document in found)
        size = sum(len(document.text) for document in found)
        print(
            f"{len(found)} documents ({dict(kinds)}), {size / 1e6:.2f} million characters",
            flush=True,
        )
        specs = options.chunks or list(SPECS)
        rows = [*print_rows(retrieval(Path(place), specs, lines))]
    report("documents in stores", rows, options.output, {"scores": lines})


if __name__ == "__main__":
    main()
