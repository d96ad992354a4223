"""Every kind of task: its layouts, its score by hand or by the library it is of, and data that
cannot be scored.

Covers transforms/evaluation/kinds/probing.py.
Covers transforms/evaluation/kinds/relatedness.py.
Covers transforms/evaluation/kinds/retrieval.py.
Covers transforms/evaluation/kinds/sts.py.
Covers transforms/evaluation/tasks.py.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.evaluation.kinds.relatedness import bins
from sentence_beam.transforms.evaluation.task import TaskVectors, hash_content
from sentence_beam.transforms.evaluation.tasks import read_task, read_tasks

sklearn = pytest.importorskip("sklearn")
ir_measures = pytest.importorskip("ir_measures")


def write(path: Path, header: str, rows: Sequence[Sequence[object]]) -> Path:
    """A tab-separated file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [header.replace(" ", "\t")] if header else []
    path.write_text("\n".join([*lines, *("\t".join(map(str, row)) for row in rows)]) + "\n")
    return path


def vectors(texts: dict[str, np.ndarray]) -> TaskVectors:
    """Vectors by text."""
    return TaskVectors(
        np.stack(list(texts.values())).astype(np.float32), {text: i for i, text in enumerate(texts)}
    )


def random_vectors(task, dim: int = 6, seed: int = 0) -> TaskVectors:
    generator = np.random.default_rng(seed)
    return vectors(
        {text: generator.normal(size=dim) for text in dict.fromkeys([*task.texts, *task.queries])}
    )


def score(task, found: TaskVectors, metric: str | None = None) -> float:
    """The score of one method."""
    evidence = task.evidence([task.predict(found)])
    return 100 * float(evidence[metric or next(iter(evidence))].scores()["all"][0])


# --- sts layouts


def test_official_folder_benchmark_and_sick(tmp_path: Path) -> None:
    write(tmp_path / "STS" / "STS.input.b.txt", "", [["x", "y"], ["p", "q"], ['"', "r"]])
    (tmp_path / "STS" / "STS.gs.b.txt").write_text("5\n\n1.5\n")
    write(tmp_path / "STS" / "STS.input.a.txt", "", [["m", "n"]])
    (tmp_path / "STS" / "STS.gs.a.txt").write_text("2\n")
    (tmp_path / "STS" / "correlation.pl").write_text("")
    write(
        tmp_path / "sts-test.csv",
        "",
        [
            ["g", "f", "2012", "1", "4.2", 'a "quote', "two"],
            ["g", "f", "y", "2", "0", "c", "d", "extra"],
        ],
    )
    sick = "pair_ID sentence_A sentence_B entailment_label relatedness_score SemEval_set"
    write(
        tmp_path / "SICK.txt",
        sick,
        [[1, "a", "b", "NEUTRAL", 3.5, "TRAIN"], [2, "c", "d", "ENTAILMENT", 4.5, "TEST"]],
    )
    paths = ",".join(str(tmp_path / name) for name in ("STS", "sts-test.csv", "SICK.txt"))
    task = read_task(f"s={paths}", "logistic")
    read = [(s.name, s.gold.tolist(), s.first, s.second) for s in task.subsets]
    assert read == [
        ("a", [2.0], ["m"], ["n"]),
        ("b", [5.0, 1.5], ["x", '"'], ["y", "r"]),
        ("sts-test", [4.2, 0.0], ['a "quote', "c"], ["two", "d"]),
        ("SICK", [4.5], ["c"], ["d"]),
    ]


def test_files_of_one_name_stay_apart(tmp_path: Path) -> None:
    rows = [[i, f"a{i}", f"b{i}"] for i in range(4)]
    paths = [
        write(tmp_path / folder / "x.tsv", "score sentence1 sentence2", rows) for folder in "ab"
    ]
    task = read_task(f"s={paths[0]},{paths[1]}", "logistic")
    assert [subset.name for subset in task.subsets] == ["x", "x (2)"]


def test_a_folder_whose_files_do_not_match_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "STS.input.a.txt", "", [["x", "y"]])
    (tmp_path / "STS.gs.a.txt").write_text("1\n2\n")
    with pytest.raises(
        OptionError, match=r"STS\.input\.a\.txt has 1 lines and .*STS\.gs\.a\.txt 2"
    ):
        read_task(f"s={tmp_path}", "logistic")


# --- relatedness


def test_bins_are_sentevals() -> None:
    assert bins(np.array([5.0, 1.0, 3.25, 0.4, 0.0])).tolist() == [
        [0, 0, 0, 0, 1],
        [1, 0, 0, 0, 0],
        [0, 0, 0.75, 0.25, 0],
        pytest.approx([0.4, 0, 0, 0, 0]),
        [0, 0, 0, 0, 0],
    ]


def test_a_regressor_learns_what_a_cosine_cannot_say(tmp_path: Path) -> None:
    generator, known, paths = np.random.default_rng(0), {}, []
    for name, number in (("train", 300), ("dev", 60), ("test", 80)):
        rows = []
        for i in range(number):
            first, second = generator.normal(size=(2, 4))
            known[f"{name}a{i}"], known[f"{name}b{i}"] = first, second
            rows.append(
                [
                    round(5 - min(4.0, 1.5 * abs(first[0] - second[0])), 2),
                    f"{name}a{i}",
                    f"{name}b{i}",
                ]
            )
        paths.append(str(write(tmp_path / f"{name}.tsv", "score sentence1 sentence2", rows)))
    task = read_task(f"relatedness:r={','.join(paths)}", "logistic")
    found = task.predict(vectors(known))
    assert 100 * stats.pearsonr(found["predicted"], task.test.gold).statistic == pytest.approx(
        score(task, vectors(known))
    )
    assert score(task, vectors(known)) > 85
    assert score(task, vectors(known)) == score(task, vectors(known))
    assert not task.notes


def test_relatedness_of_one_sick_file(tmp_path: Path) -> None:
    sick = "pair_ID sentence_A sentence_B entailment_label relatedness_score SemEval_set"
    rows = [
        [i, f"a{i}", f"b{i % 3}", "NEUTRAL", 1 + i % 5, s]
        for i, s in enumerate(["TRAIN", "TRIAL", "TEST"] * 5)
    ]
    task = read_task(f"relatedness:r={write(tmp_path / 'SICK.txt', sick, rows)}", "logistic")
    assert [len(split.gold) for split in (task.train, task.dev, task.test)] == [5, 5, 5]


# --- classifiers


def labelled(tmp_path: Path, name: str, labels: Sequence[object], prefix: str = "") -> Path:
    return write(
        tmp_path / f"{name}.tsv",
        "label text",
        [[label, f"{prefix}{name}{i}"] for i, label in enumerate(labels)],
    )


def by_label(task, apart: float, seed: int = 0) -> TaskVectors:
    """Vectors whose place says their label, if `apart` is large."""
    generator, known = np.random.default_rng(seed), {}
    for part in task.parts:
        for label, text in zip(part.labels, part.texts, strict=True):
            known[text] = generator.normal(size=3) + apart * np.eye(3)[int(label)]
    return vectors(known)


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_separable_labels_are_found_and_random_ones_are_not(
    tmp_path: Path, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sentence_beam.transforms.evaluation.classifier.FOLDS", 3)
    labels = np.random.default_rng(0).integers(0, 2, 60)
    paths = ",".join(str(labelled(tmp_path, f"p{part}", labels)) for part in range(parts))
    task = read_task(f"classification:c={paths}", "logistic")
    assert score(task, by_label(task, 50)) == 100
    assert score(task, by_label(task, 0)) == pytest.approx(50, abs=25)


def test_mlp(tmp_path: Path) -> None:
    labels = [0, 1] * 30
    paths = ",".join(str(labelled(tmp_path, name, labels)) for name in ("a", "b"))
    task = read_task(f"classification:c={paths}", "mlp")
    assert score(task, by_label(task, 20)) == 100
    assert hash_content(task) != hash_content(read_task(f"classification:c={paths}", "logistic"))


def test_inference_sees_both_sides_alike(tmp_path: Path) -> None:
    paths = []
    for name in ("train", "dev", "test"):
        rows = [
            [i % 2, f"{name}x{i}", f"{name}x{i}" if i % 2 else f"{name}y{i}"] for i in range(60)
        ]
        paths.append(str(write(tmp_path / f"{name}.tsv", "label sentence1 sentence2", rows)))
    task = read_task(f"nli:n={','.join(paths)}", "logistic")
    assert score(task, random_vectors(task)) == 100


def test_nli_as_the_hub_has_it(tmp_path: Path) -> None:
    """Sentences are premise and hypothesis; pairs without consensus are no class of their own."""
    rows = [[label, f"a {n}", f"b {n}"] for n, label in enumerate((0, 1, 2, -1) * 3)]
    path = write(tmp_path / "snli.tsv", "label premise hypothesis", [*rows, ["-", "a", "b"]])
    task = read_task(f"nli:n={path},{path},{path}", "logistic")
    assert [set(part.labels) for part in task.parts] == [{"0", "1", "2"}] * 3
    assert task.parts[0].first == [row[1] for row in rows if row[0] != -1]
    assert task.notes[0] == "12 pairs without consensus (label - or -1) left out"


def test_texts_in_train_and_test_are_counted_and_named(tmp_path: Path) -> None:
    train = write(
        tmp_path / "train.tsv", "label text", [[i % 2, t] for i, t in enumerate("abcdef")]
    )
    test = write(tmp_path / "test.tsv", "label text", [[0, "a"], [1, "b"], [1, "new"]])
    (note,) = read_task(f"classification:c={train},{test}", "logistic").notes
    assert note == "2 of 3 test texts are training texts too: 'a', 'b'"


def test_probing_in_sentevals_layout(tmp_path: Path) -> None:
    rows = [
        [part, "IO"[i % 2], f"text {part} {i}"] for part in ("tr", "va", "te") for i in range(20)
    ]
    task = read_task(f"probing:p={write(tmp_path / 'bigram_shift.txt', '', rows)}", "logistic")
    assert [len(part.texts) for part in task.parts] == [20, 20, 20]
    assert task.kind == "probing"


@pytest.mark.parametrize("probe", ["sentence-length", "word-content", "bigram-shift"])
def test_probing_made_of_any_text(tmp_path: Path, probe: str) -> None:
    generator = np.random.default_rng(0)
    words = [f"{'abcdefghij'[i // 10]}{'klmnopqrst'[i % 10]}" for i in range(100)]
    lines = [" ".join(generator.choice(words, generator.integers(3, 30))) for _ in range(1500)]
    (tmp_path / "text.txt").write_text("\n".join(lines))
    (task,) = read_tasks([], [f"{probe}={tmp_path / 'text.txt'}"], "logistic")
    train, dev, test = task.parts
    assert len(train.texts) == 8 * len(dev.texts) == 8 * len(test.texts)
    assert len(set(map(train.labels.count, set(train.labels)))) == 1, "labels are equally frequent"
    assert set(train.labels) == set(test.labels)
    (again,) = read_tasks([], [f"{probe}={tmp_path / 'text.txt'}"], "logistic")
    assert hash_content(again) == hash_content(task)
    known = set(lines)
    for label, text in zip(train.labels, train.texts, strict=True):
        if probe == "sentence-length":
            low, high = map(int, label.split("-"))
            assert low <= len(text.split()) <= high
        if probe == "word-content":
            assert text.split().count(label) == 1
        if probe == "bigram-shift":
            assert (text in known) == (label == "O")


# --- pairs, triplets, clusters


def test_pairs_and_triplets(tmp_path: Path) -> None:
    rows = [[int(i < 5), f"a{i}", f"a{i}" if i < 5 else f"b{i}"] for i in range(12)]
    task = read_task(
        f"pairs:p={write(tmp_path / 'p.tsv', 'label sentence1 sentence2', rows)}", "logistic"
    )
    assert (score(task, random_vectors(task)), score(task, random_vectors(task), "f1")) == (
        100,
        100,
    )
    path = write(
        tmp_path / "t.tsv",
        "anchor positive negative",
        [["a", "b", "c"], ["a", "c", "b"], ["a", "b", "b"]],
    )
    known = {"a": np.array([1.0, 0]), "b": np.array([1.0, 0.1]), "c": np.array([0.0, 1])}
    assert score(read_task(f"triplets:t={path}", "logistic"), vectors(known)) == pytest.approx(
        100 / 3
    )


def test_clusters_far_apart_are_found(tmp_path: Path) -> None:
    path = labelled(tmp_path, "c", [i % 3 for i in range(60)])
    task = read_task(f"clustering:c={path}", "logistic")
    known = {
        text: 20 * np.eye(3)[label] + np.random.default_rng(label).normal(size=3)
        for text, label in zip(task.texts, task.labels, strict=True)
    }
    assert task.predict(vectors(known))["clusters"].shape == (10, 60)
    assert score(task, vectors(known)) > 60
    assert score(task, random_vectors(task)) < 30


# --- retrieval


def beir(
    folder: Path,
    documents: dict[str, str],
    queries: dict[str, str],
    grades: Sequence[tuple[str, str, int]],
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    corpus = [{"_id": key, "title": "", "text": text} for key, text in documents.items()]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in corpus))
    (folder / "queries.jsonl").write_text(
        "".join(json.dumps({"_id": k, "text": t}) + "\n" for k, t in queries.items())
    )
    write(folder / "qrels" / "test.tsv", "query-id corpus-id score", grades)
    return folder


def test_retrieval_is_ir_measures(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    documents = {f"d{i}": f"document {i}" for i in range(150)}
    queries = {f"q{i}": f"query {i}" for i in range(20)}
    grades = [
        (q, d, int(generator.integers(0, 3)))
        for q in queries
        for d in generator.choice(list(documents), 6, False)
    ]
    task = read_task(f"retrieval:r={beir(tmp_path, documents, queries, grades)}", "logistic")
    known = random_vectors(task)
    unit = {
        t: known.rows[i].astype(float) / np.linalg.norm(known.rows[i].astype(float))
        for t, i in known.place.items()
    }
    run = [
        ir_measures.ScoredDoc(q, d, float(unit[queries[q]] @ unit[text]))
        for q in queries
        for d, text in documents.items()
    ]
    qrels = [ir_measures.Qrel(*row) for row in grades]
    names = {"ndcg@10": "nDCG@10", "recall@100": "R@100", "mrr@10": "RR@10"}
    expected = ir_measures.calc_aggregate(
        [ir_measures.parse_measure(name) for name in names.values()], qrels, run
    )
    for metric, name in names.items():
        assert score(task, known, metric) == pytest.approx(
            100 * expected[ir_measures.parse_measure(name)], abs=1e-7
        )


def test_equal_scores_are_ranked_by_id_whatever_the_order_of_the_file(tmp_path: Path) -> None:
    scores = []
    for place, order in enumerate(("ab", "ba")):
        documents = {key: f"text {key}" for key in order}
        folder = beir(tmp_path / str(place), documents, {"q": "asked"}, [("q", "b", 1)])
        task = read_task(f"retrieval:r={folder}", "logistic")
        scores.append(
            score(task, vectors(dict.fromkeys(["text a", "text b", "asked"], np.ones(3))), "mrr@10")
        )
    assert scores == [50, 50]


def test_queries_without_an_answer_count_nothing_and_are_named(tmp_path: Path) -> None:
    folder = beir(
        tmp_path,
        {"a": "x", "b": "y"},
        {"q": "x", "none": "y"},
        [("q", "a", 1), ("none", "a", 0), ("q", "gone", 1)],
    )
    task = read_task(f"retrieval:r={folder}", "logistic")
    assert score(task, random_vectors(task), "mrr@10") == 50
    assert [note.partition(":")[0] for note in task.notes] == [
        "1 queries have no relevant document and count 0",
        "1 relevant documents are not in the corpus and are never found",
    ]


def test_a_document_of_the_query_s_id_is_dropped_as_in_beir(tmp_path: Path) -> None:
    """As on ArguAna: every query is a document, and its own nearest one. 100 others are found
    beside it.
    """
    documents = {f"d{i:03}": f"text {i}" for i in range(130)}
    queries = {key: documents[key] for key in list(documents)[:20]}
    grades = [(key, f"d{i + 20:03}", 1) for i, key in enumerate(queries)]
    folder = beir(tmp_path, documents, queries, grades)
    task = read_task(f"retrieval:r={folder}", "logistic")
    kept = read_task(f"retrieval:r={folder},same-ids=keep", "logistic")
    known = random_vectors(task)
    unit = {t: known.rows[i] / np.linalg.norm(known.rows[i]) for t, i in known.place.items()}

    def by_hand(measure: str, drop: bool) -> float:
        run = []
        for q, asked in queries.items():
            found = [
                (float(unit[asked] @ unit[text]), d)
                for d, text in documents.items()
                if not (drop and d == q)
            ]
            run += [ir_measures.ScoredDoc(q, d, s) for s, d in sorted(found, reverse=True)[:100]]
        parsed = ir_measures.parse_measure(measure)
        return (
            100
            * ir_measures.calc_aggregate([parsed], [ir_measures.Qrel(*row) for row in grades], run)[
                parsed
            ]
        )

    for metric, measure in (
        ("ndcg@10", "nDCG@10"),
        ("recall@100", "R@100"),
        ("mrr@10", "RR@10"),
        ("map@100", "AP"),
    ):
        assert score(task, known, metric) == pytest.approx(by_hand(measure, drop=True), abs=1e-7)
        assert score(kept, known, metric) == pytest.approx(by_hand(measure, drop=False), abs=1e-7)
    assert score(task, known, "map@100") > score(kept, known, "map@100")
    assert hash_content(task) != hash_content(kept)
    (note,) = task.notes
    assert note.startswith(
        "20 queries have a document of their id, dropped from the results as in BEIR"
    )
    assert kept.notes == []


# --- data that cannot be scored

BAD = [
    ("classification:x={}", "label text", [["", "a"]], "line 2: the label is missing"),
    ("classification:x={}", "label text", [["1", "a"], ["1", "b"]], "all labels are '1'"),
    ("classification:x={}", "label words", [["1", "a"]], "no column text"),
    ("classification:x={}", "label text", [], "holds no labelled text"),
    ("pairs:x={}", "label sentence1 sentence2", [["1", "a", "b"]], "label 1 and pairs with label 0"),
    ("pairs:x={}", "label sentence1 sentence2", [["2", "a", "b"]], "line 2: label '2' is not 1 or 0"),
    ("triplets:x={}", "anchor positive negative", [["a", "b"]], "line 2"),
    ("clustering:x={}", "label text", [["1", "a"], ["1", "b"]], "all labels are '1'"),
    ("relatedness:x={}", "score sentence1 sentence2", [["1", "a", "b"]], "TRAIN,DEV,TEST"),
    ("relatedness:x={0},{0},{0}", "score sentence1 sentence2", [["7", "a", "b"]], "score 7 is not from 0 to 5"),
    ("nli:x={}", "label sentence1 sentence2", [["1", "a", "b"]], "TRAIN,DEV,TEST"),
    ("probing:x={}", "tr 1", [], "line 1: not tr, va or te"),
    ("s={}", "score sentence1 sentence2", [["nan", "a", "b"]], "line 2: 'nan' is no score"),
    ("s={}", "score sentence1 sentence2", [], "holds no scored pair"),
    ("s={}", "score sentence1 sentence2", [["1", "a"]], "line 2"),
    ("nothing", "", [], "NAME=PATH"),
    ("a/b={}", "", [], "the name a/b must not hold a slash"),
    ("nosuch:x={}", "", [], "there is no kind nosuch"),
    ("retrieval:x={0},{0}", "", [], "say a FOLDER, or STORE,queries.jsonl,qrels.tsv"),
    ("retrieval:x={},same-ids=no", "", [], "say same-ids=drop or same-ids=keep, once"),
    ("Avg.={}", "", [], "choose another name"),
]  # fmt: skip


@pytest.mark.parametrize(("word", "header", "rows", "said"), BAD)
def test_bad_data_is_named(tmp_path: Path, word: str, header: str, rows: list, said: str) -> None:
    path = write(tmp_path / "x.tsv", header, rows)
    with pytest.raises(OptionError, match=said) as error:
        read_task(word.format(path), "logistic")
    assert "\n" not in str(error.value)


def test_two_tasks_of_one_name_are_refused(tmp_path: Path) -> None:
    word = f"x={write(tmp_path / 'x.tsv', 'score sentence1 sentence2', [[1, 'a', 'b']])}"
    with pytest.raises(OptionError, match="task x is given twice; say x=PATH,PATH for several"):
        read_tasks([word, word], [], "logistic")


def test_a_label_that_was_never_trained_is_refused(tmp_path: Path) -> None:
    train, test = labelled(tmp_path, "train", [0, 1, 0, 1]), labelled(tmp_path, "test", [0, 2])
    with pytest.raises(OptionError, match="test label '2' is none of the training labels"):
        read_task(f"classification:c={train},{test}", "logistic")


def test_judgements_of_unknown_queries_and_broken_lines_are_refused(tmp_path: Path) -> None:
    folder = beir(tmp_path, {"a": "x"}, {"q": "x"}, [("other", "a", 1)])
    with pytest.raises(OptionError, match=r"test\.tsv, line 2: query 'other' is not in"):
        read_task(f"retrieval:r={folder}", "logistic")
    (folder / "queries.jsonl").write_text("{\n")
    with pytest.raises(OptionError, match=r"queries\.jsonl, line 1: not a JSON object"):
        read_task(f"retrieval:r={folder}", "logistic")
