"""Lines of every input of every command end with LF or CRLF alone: characters that look like line
ends stay in texts.
"""

import csv
import io
import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from sentence_beam.pipelines.search import read_lines as read_queries_as_text
from sentence_beam.transforms.corpus.collection_rows import read_values
from sentence_beam.transforms.corpus.files import InputFile
from sentence_beam.transforms.corpus.find import match_inputs
from sentence_beam.transforms.corpus.formats.csv_dialect import read_dialect
from sentence_beam.transforms.corpus.formats.csv_rows import read_csv
from sentence_beam.transforms.corpus.query_rows import QueryFiles, read_queries
from sentence_beam.transforms.corpus.syntax import AS_FOUND
from sentence_beam.transforms.evaluation.diagnostics.pair_figures import read as read_diagnosed
from sentence_beam.transforms.evaluation.kinds.probing import make
from sentence_beam.transforms.evaluation.tasks import read_task
from sentence_beam.transforms.training.train_options import TrainOptions
from sentence_beam.transforms.training.training_examples import read_examples

ENDS = {"U+2028": "\u2028", "U+0085": "\x85", "form feed": "\f", "U+001C": "\x1c"}
LONE_CR = {"carriage return": "\r"}
FORMATS = ("tsv", "csv", "jsonl", "json")
OTHERS = [f"sentence number {i} is another" for i in range(30)]
Row = dict[str, object]


def write(folder: Path, ending: str, rows: Iterable[Row]) -> Path:
    """A file of rows, with CRLF and LF as line ends."""
    path, rows = folder / f"rows.{ending}", list(rows)
    if ending == "json":
        text = json.dumps(rows, ensure_ascii=False)
    elif ending == "jsonl":
        text = "".join(json.dumps(row, ensure_ascii=False) + "\r\n" for row in rows)
    elif ending == "csv":
        out = io.StringIO()
        writer = csv.DictWriter(out, list(rows[0]), quoting=csv.QUOTE_ALL, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        text = out.getvalue()
    else:
        lines = [list(rows[0]), *(row.values() for row in rows)]
        text = "".join("\t".join(map(str, line)) + "\r\n" for line in lines)
    path.write_bytes(text.encode())
    return path


def paired(value: str, text: str) -> list[Row]:
    """Pairs of which one side of the first is the text; labels and scores are 0 and 1."""
    return [
        {value: i % 2, "sentence1": first, "sentence2": "a man"}
        for i, first in enumerate([text, *OTHERS])
    ]


def labelled(text: str) -> list[Row]:
    return [{"label": i % 2, "text": one} for i, one in enumerate([text, *OTHERS])]


def of_task(word: str) -> list[str]:
    return list(read_task(word, "logistic").texts)


def of_training(objective: str, path: Path) -> list[str]:
    options = TrainOptions(inputs=(str(path),), objective=objective, output="out")
    return [
        text
        for column in read_examples("--input", [str(path)], options).texts.values()
        for text in column
    ]


def one_file(path: Path) -> InputFile:
    (file,) = match_inputs(str(path))
    return file


TABLES: dict[str, Callable[[Path, str, str], Iterable[str]]] = {
    "embed, fit, distill": lambda folder, ending, text: [
        str(row.values[0])
        for row in read_values(one_file(write(folder, ending, labelled(text))), ["text"])
    ],
    "neighbours --queries": lambda folder, ending, text: (
        read_queries(
            QueryFiles((str(write(folder, ending, labelled(text))),), None, AS_FOUND, "text", None)
        ).texts
    ),
    "sts": lambda folder, ending, text: of_task(
        f"x={write(folder, ending, paired('score', text))}"
    ),
    "relatedness": lambda folder, ending, text: of_task(
        "relatedness:x=" + ",".join([str(write(folder, ending, paired("score", text)))] * 3)
    ),
    "nli": lambda folder, ending, text: of_task(
        "nli:x=" + ",".join([str(write(folder, ending, paired("label", text)))] * 3)
    ),
    "pairs": lambda folder, ending, text: of_task(
        f"pairs:x={write(folder, ending, paired('label', text))}"
    ),
    "classification": lambda folder, ending, text: of_task(
        f"classification:x={write(folder, ending, labelled(text))}"
    ),
    "clustering": lambda folder, ending, text: of_task(
        f"clustering:x={write(folder, ending, labelled(text))}"
    ),
    "triplets": lambda folder, ending, text: of_task(
        f"triplets:x={write(folder, ending, [{'anchor': text, 'positive': 'a', 'negative': 'b'}])}"
    ),
    "diagnose sts": lambda folder, ending, text: (
        read_diagnosed(f"x={write(folder, ending, paired('score', text))}", 100).first
    ),
    "diagnose qa": lambda folder, ending, text: (
        read_diagnosed(f"qa:x={write(folder, ending, paired('label', text))}", 100, ("1",)).first
    ),
    "train --input": lambda folder, ending, text: of_training(
        "classification", write(folder, ending, paired("label", text))
    ),
}


@pytest.mark.parametrize("end", [*ENDS, *LONE_CR])
@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize("reader", TABLES)
def test_texts_of_tables_are_whole(tmp_path: Path, reader: str, ending: str, end: str) -> None:
    text = f"one{(ENDS | LONE_CR)[end]}text"
    found = list(TABLES[reader](tmp_path, ending, text))
    assert text in found
    assert set(found) <= {text, "a man", "a", "b", *OTHERS}


def sts_folder(folder: Path, text: str) -> list[str]:
    lines = [f"{one}\ta man\n" for one in [text, *OTHERS]]
    (folder / "STS.input.a.txt").write_bytes("".join(lines).encode())
    (folder / "STS.gs.a.txt").write_text("".join(f"{i % 5}\n" for i in range(len(lines))))
    return of_task(f"x={folder}")


def sts_benchmark(folder: Path, text: str) -> list[str]:
    lines = [
        f"main\tMSRvid\t2012\t{i}\t{i % 5}\t{one}\ta man\r\n"
        for i, one in enumerate([text, *OTHERS])
    ]
    (folder / "sts-dev.csv").write_bytes("".join(lines).encode())
    return of_task(f"x={folder / 'sts-dev.csv'}")


def sick(folder: Path, text: str) -> list[str]:
    rows = [f"{i}\t{one}\ta man\t3.5\tNEUTRAL\tTEST\n" for i, one in enumerate([text, *OTHERS])]
    header = (
        "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\tSemEval_set\n"
    )
    (folder / "SICK.txt").write_bytes((header + "".join(rows)).encode())
    return of_task(f"x={folder / 'SICK.txt'}")


def probing(folder: Path, text: str) -> list[str]:
    parts = ("tr", "va", "te")
    lines = [f"{parts[i % 3]}\t{i % 2}\t{one}\n" for i, one in enumerate([text, *OTHERS])]
    (folder / "p.txt").write_bytes("".join(lines).encode())
    return of_task(f"probing:x={folder / 'p.txt'}")


def probing_made(folder: Path, text: str) -> list[str]:
    """All sentences are texts of five words, half of them with a longer rest; blanks in them are
    one blank each.
    """
    inside = text.removeprefix("one").removesuffix("text")
    sentences = [f"a b c d{inside}number{i}{' x' * 5 * (i % 2)}" for i in range(40)]
    (folder / "s.txt").write_bytes("".join(f"{one}\n" for one in sentences).encode())
    found = make("sentence-length", str(folder / "s.txt"), "logistic").texts
    whole = {" ".join(one.split()) for one in sentences}
    assert set(found) <= whole
    return [text, *found] if len(found) == len(whole) else found


def beir(part: str) -> Callable[[Path, str], list[str]]:
    def read(folder: Path, text: str) -> list[str]:
        (folder / "qrels").mkdir()
        for name in ("corpus", "queries"):
            rows = [{"_id": f"{name}{i}", "text": one} for i, one in enumerate([text, *OTHERS])]
            lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            (folder / f"{name}.jsonl").write_bytes(lines.encode())
        judged = "".join(f"queries{i}\tcorpus{i}\t1\n" for i in range(3))
        (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
        task = read_task(f"retrieval:x={folder}", "logistic")
        return list(getattr(task, part))

    return read


def queries_as_text(folder: Path, text: str) -> list[str]:
    (folder / "q.txt").write_bytes("\r\n".join([text, *OTHERS]).encode())
    return read_queries_as_text(str(folder / "q.txt"))


def text_files(folder: Path, text: str) -> list[str]:
    (folder / "in.txt").write_bytes("\r\n".join([text, *OTHERS]).encode())
    return list(read_queries(QueryFiles((str(folder / "in.txt"),))).texts)


PLAIN = {
    "STS.input and STS.gs": sts_folder,
    "sts-*.csv": sts_benchmark,
    "SICK.txt": sick,
    "probing": probing,
    "--make": probing_made,
    "corpus.jsonl": beir("texts"),
    "queries.jsonl": beir("queries"),
    "search --queries": queries_as_text,
    "text files": text_files,
}


@pytest.mark.parametrize("end", [*ENDS, *LONE_CR])
@pytest.mark.parametrize("reader", PLAIN)
def test_texts_of_other_files_are_whole(tmp_path: Path, reader: str, end: str) -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("ir_measures")
    text = f"one{(ENDS | LONE_CR)[end]}text"
    assert text in PLAIN[reader](tmp_path, text)


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        (b"text\tn\r\none\rtwo\t1\r\nthree\t2\n", ["one\rtwo", "three"]),
        # no LF at all: lines end at carriage returns
        (b"text\tn\rone\t1\rtwo\t2\r", ["one", "two"]),
        (b"text\tn\r\r\none\t1\r\r\n", ["one"]),
        (b'text\tn\n"a\r\nb"\t1\nc\rd\t2\r', ["a\r\nb", "c\rd"]),
        (b"text\tn\n" + b"a" * (1 << 20) + b"\rb\t1\n", ["a" * (1 << 20) + "\rb"]),
        (b"text\tn\n" + b"a" * ((1 << 20) - 1) + b"\rb\t1\n", ["a" * ((1 << 20) - 1) + "\rb"]),
    ],
    ids=["lone", "classic", "doubled", "quoted", "behind a piece", "at its end"],
)
def test_carriage_returns_as_embed_reads_them(
    tmp_path: Path, content: bytes, texts: list[str]
) -> None:
    path = tmp_path / "rows.tsv"
    path.write_bytes(content)
    assert [
        row[0] for block in read_csv(one_file(path), read_dialect(one_file(path))) for row in block
    ] == texts
