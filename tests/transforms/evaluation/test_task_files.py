"""Tables of tasks: every format that `train` reads, quoted CSV among them, gives the same rows.

Covers transforms/evaluation/pair_files.py.
"""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.evaluation import task_files
from sentence_beam.transforms.evaluation.diagnostics.pair_figures import read
from sentence_beam.transforms.evaluation.pair_files import read_pairs, read_subsets

HEADER = ["score", "sentence1", "sentence2"]
ROWS = [[5.0, "a man, who sings", 'a "man" sings'], [0.5, "a dog", "the street"]]
SEPARATED = {".tsv": "\t", ".csv": ",", ".txt": "\t", ".csv.gz": ";"}


def write(path: Path) -> str:
    """ROWS as a file of the format that its name says."""
    ending = path.name.removeprefix("a")
    rows = [dict(zip(HEADER, row, strict=True)) for row in ROWS]
    if ending == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif ending == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        data = separated(SEPARATED[ending]).encode()
        path.write_bytes(gzip.compress(data) if ending.endswith(".gz") else data)
    return str(path)


def separated(delimiter: str) -> str:
    """ROWS with values in quotes, but for TSV, which has none."""
    plain = delimiter == "\t"
    cells = [HEADER, *([str(score), *texts] for score, *texts in ROWS)]
    quoted = [
        [cell if plain else '"' + cell.replace('"', '""') + '"' for cell in row] for row in cells
    ]
    return "".join(delimiter.join(row) + "\n" for row in quoted)


@pytest.mark.parametrize("ending", [*SEPARATED, ".jsonl", ".parquet"])
def test_every_format_gives_the_same_pairs(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / f"a{ending}")
    (pairs,) = read_subsets(path)
    assert pairs.gold.tolist() == [5.0, 0.5]
    assert [pairs.first, pairs.second] == [[row[1] for row in ROWS], [row[2] for row in ROWS]]
    drawn = read(f"x={path}", 10)
    assert sorted(drawn.first) == sorted(row[1] for row in ROWS)


def test_a_line_end_in_quotes_is_of_its_value(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('score,sentence1,sentence2\n1,"two\nlines",b\nno,c,d\n')
    with pytest.raises(OptionError, match="a.csv, row 2: 'no' is no score; mend the row"):
        read_pairs(str(path))


def test_the_files_of_the_sts_benchmark_have_tabs_and_no_header(tmp_path: Path) -> None:
    path = tmp_path / "sts-dev.csv"
    path.write_text("main\tMSRvid\t2012test\t0001\t5.000\tA man, with a hat.\tA man.\n")
    pairs = read_pairs(str(path))
    assert (pairs.gold.tolist(), pairs.first, pairs.second) == (
        [5.0],
        ["A man, with a hat."],
        ["A man."],
    )


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "a.csv",
            "gold,sentence1,sentence2\n1,a,b\n",
            "no column score in its header .gold, sentence1, sentence2.",
        ),
        (
            "a.csv",
            "score,sentence1,sentence2\n1,a\n",
            "row 1: not as many values as the header has names",
        ),
        (
            "a.jsonl",
            '{"score": 1, "sentence1": "a", "sentence2": "b"}\nno\n',
            "row 2: not a JSON object",
        ),
        ("a.csv", "", "a.csv is empty; leave it out of task"),
        ("a.csv", b"score,sentence1,sentence2\n1,caf\xe9,b\n", "row 1: not UTF-8"),
        ("a.tsv", "", "no column score in its header .none."),
    ],
)
def test_a_table_that_cannot_be_used_is_named(
    tmp_path: Path, name: str, text: str | bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(OptionError, match=said):
        read_pairs(str(tmp_path / name))


def test_a_file_that_is_missing_is_named_by_the_option(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="task .*nowhere.csv: no file matches"):
        task_files.read_header(str(tmp_path / "nowhere.csv"))


def questions(folder: Path, labels: list[object], sides: str = "sentence1\tsentence2") -> str:
    """A task of questions with these labels."""
    rows = "".join(f"{label}\ta {i}\tb {i}\n" for i, label in enumerate(labels))
    (folder / "qa.tsv").write_text(f"label\t{sides}\n{rows}")
    return f"qa:x={folder / 'qa.tsv'}"


def answered(task: str, labels: tuple[str, ...] = ()) -> dict[str, bool]:
    """Whether each text is of an answer."""
    found = read(task, 100, labels)
    return dict(zip(found.first, found.answers.tolist(), strict=True))


def test_labels_say_which_pairs_are_answers(tmp_path: Path) -> None:
    """Of the hub's QNLI, 0 is an answer, and -1 is hidden; another data set has 1."""
    hub = questions(tmp_path, [0, 1, -1], "question\tsentence")
    assert answered(hub, ("0",)) == {"a 0": True, "a 1": False}
    assert answered(hub, ("1",)) == {"a 0": False, "a 1": True}
    words = questions(tmp_path, ["entailment", "not_entailment", "Yes", "no"])
    assert list(answered(words).values()).count(True) == 2
    assert answered(words)["a 0"]


def test_which_numbers_are_answers_is_not_guessed(tmp_path: Path) -> None:
    with pytest.raises(
        OptionError,
        match="its labels are '0', '1'; say which are answers by labels, as in labels 0",
    ):
        read(questions(tmp_path, [0, 1]), 100)
    with pytest.raises(
        OptionError, match="labels entailment is none of its labels; there are '0', '1'"
    ):
        read(questions(tmp_path, [0, 1]), 100, ("entailment",))
