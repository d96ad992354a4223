"""Files of watched queries and of judgements: what is read, left out and refused."""

from pathlib import Path

import pytest
from helpers.corpora import write_jsonl, write_lines

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.steps.watch.query_files import read_judgement_file, read_query_file


def test_lines_are_queries_whose_ids_are_their_texts(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "q.txt", [" a dog ", "", "a man", "a dog"])
    found = read_query_file(str(path))
    assert found.ids == found.texts == ("a dog", "a man")
    assert found.notes == (
        f"1 empty query of {path} left out",
        f"1 query of {path} named twice, kept once",
    )


@pytest.mark.parametrize("ending", ["tsv", "csv", "jsonl"])
def test_tables_have_ids(tmp_path: Path, ending: str) -> None:
    rows = [("q1", "a dog"), ("q2", "a man"), ("q1", "a dog")]
    path = tmp_path / f"q.{ending}"
    if ending == "jsonl":
        write_jsonl(path, [{"id": name, "text": text} for name, text in rows])
    else:
        mark = "\t" if ending == "tsv" else ","
        write_lines(path, [mark.join(row) for row in [("id", "text"), *rows]])
    found = read_query_file(str(path))
    assert (found.ids, found.texts) == (("q1", "q2"), ("a dog", "a man"))
    assert len(found.notes) == 1


def test_files_without_a_query_or_with_two_of_one_id_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="holds no query"):
        read_query_file(str(write_lines(tmp_path / "none.txt", ["", "  "])))
    twice = write_lines(tmp_path / "twice.tsv", ["id\ttext", "q1\tone", "q1\ttwo"])
    with pytest.raises(OptionError, match="two queries have the id 'q1'"):
        read_query_file(str(twice))


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("j.tsv", ["query-id\tcorpus-id\tscore", "q1\tr 1\t2", "", "q2\tr2\t0"]),
        ("j.csv", ["query-id,corpus-id,score", "q1,r 1,2", "q2,r2,0"]),
        ("j.tsv", ["q1\t0\tr 1\t2", "q2\t0\tr2\t0"]),
    ],
)
def test_judgements_are_read(tmp_path: Path, name: str, lines: list[str]) -> None:
    found = read_judgement_file(str(write_lines(tmp_path / name, lines)), ["q1", "q2"])
    assert found.grades == {"q1": {"r 1": 2}, "q2": {"r2": 0}}
    assert found.notes == ()


def test_trecs_qrels_may_have_blanks(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "qrels", ["q1 0 r1 1", "q2  Q0  r2  0"])
    assert read_judgement_file(str(path), ["q1", "q2"]).grades == {"q1": {"r1": 1}, "q2": {"r2": 0}}


def test_judgements_of_unknown_queries_are_counted_and_some_named(tmp_path: Path) -> None:
    lines = ["q1\tr1\t1", *(f"x{n}\tr1\t1" for n in range(5)), "x0\tr2\t1"]
    found = read_judgement_file(str(write_lines(tmp_path / "j.tsv", lines)), ["q1"])
    assert found.grades == {"q1": {"r1": 1}}
    assert found.notes == (
        "6 judgements of unknown queries left out: 'x0', 'x1', 'x2', and 2 more",
    )
    with pytest.raises(OptionError, match="judges none of the queries"):
        read_judgement_file(str(tmp_path / "j.tsv"), ["other"])


@pytest.mark.parametrize("line", ["q1\tr1", "q1\tr1\tgood", "q1 a b c d", "q1\tr1\t1.5"])
def test_a_line_that_judges_nothing_is_named(tmp_path: Path, line: str) -> None:
    path = write_lines(tmp_path / "j.tsv", ["q1\tr1\t1", line])
    with pytest.raises(OptionError, match=r"j\.tsv, line 2"):
        read_judgement_file(str(path), ["q1"])
