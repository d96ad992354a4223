"""Files of watched queries: what is read, left out and refused."""

from pathlib import Path

import pytest
from helpers.corpora import write_jsonl, write_lines

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.steps.watch.query_files import read_query_file


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
