"""Data of a training: columns by name in every format, rows that are rejected, rows that training
and dev share.

Covers transforms/training/training_examples.py.
Covers transforms/training/roles.py.
"""

import gzip
import json
import tomllib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.training import scored_rows

from sentence_beam.transforms.base.errors import DataGateError, OptionError
from sentence_beam.transforms.training import recipes
from sentence_beam.transforms.training.data import read_data
from sentence_beam.transforms.training.roles import assign_columns
from sentence_beam.transforms.training.train_options import TrainOptions
from sentence_beam.transforms.training.training_examples import count_overlap, read_examples
from sentence_beam.transforms.training.training_targets import find_labels

ROWS = [{**row, "sentence1": f'"{row["sentence1"]}', "more": 1} for row in scored_rows(8)]


def options(**changes: object) -> TrainOptions:
    return TrainOptions(**{"inputs": (), "objective": "regression", "output": "model", **changes})


def write(path: Path, rows: list[dict]) -> Path:
    names = list(rows[0])
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".arrow":
        table = pa.Table.from_pylist(rows)
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".csv":
        quoted = [['"' + str(row[name]).replace('"', '""') + '"' for name in names] for row in rows]
        path.write_text("\n".join([",".join(names), *(",".join(row) for row in quoted)]) + "\n")
    else:
        text = (
            "\n".join(
                ["\t".join(names), *("\t".join(str(row[name]) for name in names) for row in rows)]
            )
            + "\n"
        )
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize(
    "name", ["a.tsv", "a.tsv.gz", "a.csv", "a.jsonl", "a.json", "a.parquet", "a.arrow"]
)
def test_every_format_gives_the_same_rows_whatever_the_order_of_columns(
    tmp_path: Path, name: str
) -> None:
    turned = [{key: row[key] for key in sorted(row)} for row in ROWS]
    paths = [
        write(tmp_path / f"{number}{name}", rows) for number, rows in enumerate((ROWS, turned))
    ]
    found = [read_examples("--input", [f"here={path}"], options()) for path in paths]
    for examples in found:
        assert examples.columns["text1"] == [row["sentence1"] for row in ROWS]
        assert examples.columns["text2"] == [row["sentence2"] for row in ROWS]
        assert examples.columns["score"] == [row["score"] for row in ROWS]
        assert examples.origin == [(0, number) for number in range(1, 9)]
        assert examples.sources[0].name == "here"
        assert len(examples.sources[0].sha256) == 64


def test_several_files_limit_and_names(tmp_path: Path) -> None:
    for name in ("a.tsv", "b.tsv"):
        write(tmp_path / name, ROWS)
    found = read_examples("--input", [str(tmp_path / "*.tsv")], options(), limit=10)
    assert [(source.name, source.rows) for source in found.sources] == [("a", 8), ("b", 2)]
    assert found.where(9) == f"{tmp_path}/b.tsv, row 2"


def test_the_syntax_of_files_that_options_say(tmp_path: Path) -> None:
    table = tmp_path / "a.tsv"
    table.write_text('made by hand\na man;"a dog;4.5\na cat;a dog;NA\n')
    spec = "skip=1,quote=none,columns=sentence1/sentence2/score,null=NA"
    said = options(csv=spec, delimiter=";", max_rejects=1)
    found = read_examples("--input", [str(table)], said)
    assert list(found.tuples()) == [("a man", '"a dog')]
    assert sum(found.sources[0].rejected.values()) == 1
    rows = [{"sentence1": "a man", "sentence2": "a dog", "score": 1}]
    (tmp_path / "a.json").write_text(json.dumps({"n": 1, "data": rows}))
    found = read_examples("--input", [str(tmp_path / "a.json")], options(json_rows="data"))
    assert list(found.tuples()) == [("a man", "a dog")]


def test_rows_that_are_too_few_or_have_no_score_are_named(tmp_path: Path) -> None:
    path = str(write(tmp_path / "a.tsv", ROWS))
    with pytest.raises(OptionError, match="8 rows are fewer than a batch of 9; say batch 8 or"):
        read_data(options(inputs=(path,), batch=9, scores=(0.0, 5.0)))
    swapped = options(inputs=(path,), columns=("score", "sentence1", "sentence2"))
    with pytest.raises(OptionError, match="row 1: .* in column sentence2 is no score"):
        read_data(swapped)


def test_a_limit_leaves_dev_rows_alone(tmp_path: Path) -> None:
    train, dev = (str(write(tmp_path / name, ROWS)) for name in ("train.tsv", "dev.tsv"))
    found = read_data(options(inputs=(train,), dev=dev, limit=4, batch=4, scores=(0.0, 5.0)))
    assert (len(found.train), found.dev and len(found.dev)) == (4, 8)


def test_columns_are_never_taken_by_their_order() -> None:
    names = ["gold", "one", "other"]
    assert assign_columns("f", names, "classification", ["one", "other", "gold"]) == {
        "text1": "one", "text2": "other", "label": "gold"
    }  # fmt: skip
    with pytest.raises(OptionError, match="no column text1, sentence1, premise or question1"):
        assign_columns("f", names, "classification", [])
    with pytest.raises(OptionError, match=r"f has no column a \(columns\); its columns: gold, one"):
        assign_columns("f", names, "classification", ["a", "one", "gold"])
    with pytest.raises(OptionError, match="has the roles text1,text2,label; name each once"):
        assign_columns("f", names, "classification", ["one", "other"])
    with pytest.raises(OptionError, match=r"say columns with those for anchor,positive\[,negative"):
        assign_columns("f", names, "ranking", [])
    with pytest.raises(OptionError, match="both text1 and sentence1"):
        assign_columns("f", ["text1", "sentence1", "text2", "label"], "classification", [])
    with pytest.raises(OptionError, match="two columns 'label'"):
        assign_columns("f", ["text1", "text2", "label", "label"], "classification", [])
    assert assign_columns("f", ["positive", "anchor"], "ranking", []) == {
        "anchor": "anchor",
        "positive": "positive",
    }
    assert list(assign_columns("f", ["negative", "positive", "anchor"], "ranking", [])) == [
        "anchor",
        "positive",
        "negative",
    ]


def test_one_file_with_negatives_and_one_without(tmp_path: Path) -> None:
    write(tmp_path / "a.tsv", [{"anchor": "a", "positive": "b"}])
    write(tmp_path / "b.tsv", [{"anchor": "a", "positive": "b", "negative": "c"}])
    with pytest.raises(OptionError, match="one has a column negative and one has not"):
        read_examples("--input", [str(tmp_path / "*.tsv")], options(objective="ranking"))


def test_what_is_rejected(tmp_path: Path) -> None:
    lines = [
        *(json.dumps(row) for row in ROWS * 3),
        "{no",
        json.dumps({**ROWS[0], "sentence1": 5}),
        "[]",
    ]
    lines += [json.dumps({**ROWS[0], "score": None}), json.dumps({**ROWS[0], "sentence2": None})]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(lines) + "\n")
    found = read_examples("--input", [str(path)], options(max_rejects=0.2))
    assert len(found) == 24
    assert found.sources[0].rejected == {
        "not a JSON object": 2, "text is not a string": 1, "no score": 1, "null text": 1
    }  # fmt: skip
    with pytest.raises(DataGateError, match="5 of 29 rows cannot be used"):
        read_examples("--input", [str(path)], options())


def test_labels_as_numbers_and_without_consensus(tmp_path: Path) -> None:
    rows = [{"text1": f"a{n}", "text2": f"b{n}", "label": float(n % 3)} for n in range(12)]
    path = write(tmp_path / "a.parquet", rows)
    found = read_examples("--input", [str(path)], options(objective="classification"))
    assert find_labels(found, (), ()) == ("0", "1", "2")
    assert find_labels(found, (), ("2", "0", "1")) == ("2", "0", "1")
    snli = [
        {"text1": f"a{n}", "text2": f"b{n}", "label": "-" if n == 4 else "yes"} for n in range(12)
    ]
    write(tmp_path / "b.tsv", snli)
    found = read_examples(
        "--input", [str(tmp_path / "b.tsv")], options(objective="classification", max_rejects=0.1)
    )
    assert found.sources[0].rejected == {"no label": 1}


HUB = [{"premise": f"a{n}", "hypothesis": f"b{n}", "label": n % 4 - 1} for n in range(24)]


@pytest.mark.parametrize("recipe", ["sbert-nli", "salbert-nli"])
def test_recipes_read_nli_as_the_hub_has_it(tmp_path: Path, recipe: str) -> None:
    """0, 1, 2 are entailment, neutral, contradiction; -1 is no consensus. Another file may have
    words.
    """
    words = [
        {"premise": f"c{n}", "hypothesis": f"d{n}", "label": ("neutral", "-", "entailment")[n % 3]}
        for n in range(6)
    ]
    paths = tuple(
        str(write(tmp_path / name, rows)) for name, rows in (("a.parquet", HUB), ("b.tsv", words))
    )
    given = tuple(tomllib.loads(recipes.find_recipe(recipe).read_text())["labels"].split(","))
    asked = options(
        objective="classification", inputs=paths, labels=given, batch=2, max_rejects=0.4
    )
    found = read_data(asked)
    assert found.labels == ("contradiction", "entailment", "neutral")
    assert [source.rejected for source in found.train.sources] == [{"no label": 6}, {"no label": 2}]
    names = ["entailment", "neutral", "contradiction"] * 6 + ["neutral", "entailment"] * 2
    assert found.train.columns["label"] == names
    assert found.values["label"] == [found.labels.index(name) for name in names]


def test_minus_one_is_a_label_if_labels_say_so(tmp_path: Path) -> None:
    path = str(write(tmp_path / "a.parquet", HUB))
    asked = options(objective="classification", labels=("-1", "0", "1", "2"))
    assert not read_examples("--input", [path], asked).sources[0].rejected
    with pytest.raises(DataGateError, match="6 of 24 rows cannot be used .6 no label"):
        read_examples("--input", [path], options(objective="classification"))
    with pytest.raises(OptionError, match="labels: b=1 repeats a label or a number"):
        read_examples("--input", [path], options(objective="classification", labels=("a=1", "b=1")))


def test_rows_that_training_and_dev_share(tmp_path: Path) -> None:
    other = [
        {**ROWS[0], "sentence1": ROWS[0]["sentence2"], "sentence2": ROWS[0]["sentence1"]},
        *scored_rows(4, seed=3),
    ]
    paths = [
        write(tmp_path / "a.tsv", ROWS),
        write(tmp_path / "b.parquet", [{**row, "more": 1} for row in other]),
    ]
    train, dev = (read_examples("--input", [str(path)], options()) for path in paths)
    assert count_overlap(train, dev) == 1
