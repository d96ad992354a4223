"""`evaluate`: scores as computed by hand, one forward pass for all poolers, unique sentences once,
bad tasks.

Covers transforms/evaluation/encode_many.py.
Covers transforms/evaluation/scoring.py.
Covers transforms/evaluation/kinds/store_retrieval.py.
Covers transforms/evaluation/compared_methods.py.
Covers transforms/evaluation/evaluation_plan.py.
"""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from helpers.commands import Run
from scipy import stats

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.calibration import load_calibration
from sentence_beam.transforms.calibration.quality import cosines
from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.evaluation import EvaluateOptions, predict
from sentence_beam.transforms.evaluation.encode_many import Encoded
from sentence_beam.transforms.evaluation.scoring import evaluate

Pairs = list[tuple[float, str, str]]
Scores = Callable[..., tuple[list[dict], str]]
PAIRS: Pairs = [
    (5.0, "a man is playing the guitar", "the man is playing a guitar"),
    (0.5, "a dog", "the street is big"),
    (3.0, "a child is riding", "a woman was riding"),
    (1.0, "red horse in the park", "an apple on the street"),
    (4.5, "cat dog", "dog cat"),
    (2.0, "the cat is small", "a horse is big"),
]
ONE, TWO = PAIRS[:4], PAIRS[2:]
EVALUATION = "sentence_beam.transforms.evaluation"


def write_pairs(path: Path, pairs: Pairs, header: str = "score\tsentence1\tsentence2") -> Path:
    """A file of scored pairs."""
    path.write_text("".join([f"{header}\n", *(f"{s}\t{a}\t{b}\n" for s, a, b in pairs)]))
    return path


def texts_of(pairs: Pairs) -> list[str]:
    """The texts of pairs, each once."""
    return sorted({text for pair in pairs for text in pair[1:]})


def given(flag: str, *values: object) -> list[object]:
    """A flag that is repeated for each value."""
    return [word for value in values for word in (flag, value)]


@pytest.fixture
def tasks(tmp_path: Path) -> tuple[Path, Path]:
    """Two files of one task."""
    return write_pairs(tmp_path / "one.tsv", ONE), write_pairs(tmp_path / "two.tsv", TWO)


@pytest.fixture
def scores(run: Run, model: Path, tmp_path: Path) -> Scores:
    """`evaluate` with the tiny model: the rows that it writes, and what it prints."""

    def call(*options: object) -> tuple[list[dict], str]:
        out = tmp_path / "scores.jsonl"
        said = run("evaluate", "--model", model, "--output", out, *options).ok().out
        return rows_of(out), said

    return call


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that go through the model."""
    texts: list[str] = []
    encode = Encoder.encode
    monkeypatch.setattr(
        Encoder, "encode", lambda self, some: (texts.extend(some), encode(self, some))[1]
    )
    return texts


def rows_of(path: Path) -> list[dict]:
    """The JSON lines of an evaluation."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def by_hand(
    model: Path, pooler: str, pairs: Pairs, dim: int | None = None, calibration: str | None = None
) -> float:
    """Spearman x100 of cosines, with scipy and the encoder alone."""
    encoder = Encoder.load(str(model), pooler=pooler, dtype="float32", normalize=False)
    first, second = (encoder.encode([pair[side] for pair in pairs]) for side in (1, 2))
    if calibration is not None:
        first, second = (load_calibration(calibration).apply(side) for side in (first, second))
    similar = cosines(first[:, :dim], second[:, :dim])
    return 100 * stats.spearmanr(similar, [pair[0] for pair in pairs]).statistic


def test_every_pooler_scores_as_it_does_alone(
    scores: Scores, model: Path, tasks: tuple[Path, Path]
) -> None:
    poolers = ["mean", "cls", "static", "ditto:2-1", "sbert-wk", "auto"]
    poolers.append("remove-biases:variant=generic,top=0")
    task = f"t={tasks[0]},{tasks[1]}"
    rows, _ = scores("--task", task, *given("--pooler", *poolers), "--dim", 8)
    found = {(row["pooler"], row["dim"], row["subset"]): row for row in rows}
    for pooler in poolers:
        full = max(dim for name, dim, _ in found if name == pooler)
        for dim in (8, full):
            one, two = (by_hand(model, pooler, part, dim) for part in (ONE, TWO))
            expected = {"one": one, "two": two, "mean": (one + two) / 2, "wmean": (one + two) / 2}
            expected["all"] = by_hand(model, pooler, ONE + TWO, dim)
            each = {subset: found[pooler, dim, subset]["spearman"] for subset in expected}
            assert each == pytest.approx(expected, abs=1e-4), pooler
    assert found["mean", full, "all"]["n"] == 8
    assert found["mean", full, "all"]["alignment"] > 0


def test_every_head_is_scored_and_drawn(
    scores: Scores, tasks: tuple[Path, Path], tmp_path: Path
) -> None:
    options = ["--pooler", "ditto:*,states=last", "--report", tmp_path / "grid.html"]
    rows, _ = scores("--task", f"t={tasks[0]}", *options)
    assert "every attention head" in (tmp_path / "grid.html").read_text()
    heads = {f"ditto:{block}-{head},states=last" for block in (1, 2, 3) for head in (1, 2, 3, 4)}
    assert {row["pooler"] for row in rows} == heads
    drawn = ElementTree.parse(tmp_path / "scores-t.svg")
    assert len(drawn.findall(".//{*}rect/{*}title")) == 12


def test_mistakes_are_found_before_anything_is_computed(
    run: Run, model: Path, tasks: tuple[Path, Path], seen: list[str]
) -> None:
    tasks[1].write_text("score\tsentence1\tsentence2\nx\ta\tb\n")
    named = ["evaluate", "--model", model, "--task", f"t={tasks[0]}"]
    for options, *said in (
        (["--output", "/no/such/scores.jsonl"], "/no/such/scores.jsonl", "no such folder"),
        (["--report", "/no/such/page.html"], "--report /no/such/page.html", "no such folder"),
        (["--task", f"bad={tasks[1]}"], "two.tsv", "line 2"),
        (["--task", "bad=/no/such.tsv"], "/no/such.tsv"),
        (["--pooler", "nosuch"], "nosuch"),
        (["--pooler", "ditto:9-1"], "9-1"),
    ):
        run(*named, *options).failed(2, *said)
    assert seen == []


def fitted(run: Run, model: Path, folder: Path, pooler: str, method: str) -> Path:
    """A calibration fitted on the sentences of all pairs."""
    texts, store = folder / "texts.txt", folder / f"store-{pooler}"
    texts.write_text("\n".join(texts_of(PAIRS)))
    base = ["--model", model, "--pooler", pooler, "--dtype", "float32"]
    run("embed", "--input", texts, "--store", store, *base).ok()
    run("fit", "--store", store, "--method", method, "--output", folder / f"{pooler}-{method}").ok()
    return folder / f"{pooler}-{method}"


def test_calibrations_are_scored_beside_the_poolers_they_were_fitted_on(
    run: Run, scores: Scores, model: Path, tasks: tuple[Path, Path], tmp_path: Path
) -> None:
    of_mean, narrow, of_cls = (
        str(fitted(run, model, tmp_path, pooler, method))
        for pooler, method in (
            ("mean", "standardize"),
            ("mean", "whitening:5"),
            ("cls", "remove-top:1"),
        )
    )
    options = given("--calibration", of_mean, narrow, of_cls)
    options += [*given("--pooler", "mean", "cls", "max"), "--dim", 3]
    rows, said = scores("--task", f"t={tasks[0]}", *options)
    found = {
        (row["pooler"], row["calibration"], row["dim"]): row["spearman"]
        for row in rows
        if row["subset"] == "all"
    }
    width = max(dim for _, _, dim in found)
    methods = {(pooler, None, width) for pooler in ("mean", "cls", "max")}
    methods |= {("mean", of_mean, width), ("mean", narrow, 5), ("cls", of_cls, width)}
    assert set(found) == methods | {(pooler, path, 3) for pooler, path, _ in methods}
    for (pooler, path, dim), score in found.items():
        assert score == pytest.approx(by_hand(model, pooler, ONE, dim, path), abs=1e-4)
    seen = "was fitted on 8 of its 8 texts: 'a man is playing the guitar', 'a dog'"
    assert f"note: t: {of_mean} {seen}" in said

    asked = ["evaluate", "--model", model, "--task", f"t={tasks[0]}", "--calibration"]
    run(*asked, of_mean, "--pooler", "max").failed(2, of_mean, "(pooler differ)")
    run(*asked, of_mean, "--pooler", "mean", "--max-tokens", 5).failed(2, "(max_tokens differ)")
    run(*asked, of_mean, "--pooler", "mean", "--dtype", "bfloat16").failed(2, "(dtype differ)")
    run(*asked, tmp_path).failed(2, "calibration.json is missing")


def test_scores_have_intervals_and_differences_from_the_first_method(
    run: Run, scores: Scores, model: Path, tasks: tuple[Path, Path], tmp_path: Path
) -> None:
    asked = ["--task", f"t={tasks[0]},{tasks[1]}"]
    asked += given("--pooler", "mean", "mean:count=all", "cls")
    rows, said = scores(*asked)
    assert "mean:count=all" in said
    first, same, other = (row for row in rows if row["subset"] == "all")
    assert first["low"] <= first["score"] == first["spearman"] <= first["high"]
    diff = ("diff", "diff_low", "diff_high", "p", "p_holm")
    assert [first[key] for key in ("against", *diff)] == [None] * 6
    assert [same[key] for key in diff] == [0, 0, 0, 1, 1]
    assert other["against"] == "mean, 24 dims"
    assert other["diff"] == pytest.approx(other["score"] - first["score"], abs=1e-5)
    assert other["p"] <= other["p_holm"] <= 1
    assert (first["bytes_row"], first["kind"], first["metric"]) == (96, "sts", "spearman")
    assert first["sentences_s"] > 0
    again, _ = scores(*asked)
    for row in (*rows, *again):
        row["sentences_s"] = 0
    assert again == rows
    out = tmp_path / "o.csv"
    run("evaluate", "--model", model, *asked, "--output", out).ok()
    written = list(csv.DictReader(out.open(newline="")))
    assert [row["subset"] for row in written] == [row["subset"] for row in rows]
    assert float(written[0]["score"]) == pytest.approx(first["score"])
    assert written[0]["against"] == ""


def test_average_and_the_best_by_dev(
    scores: Scores, tasks: tuple[Path, Path], tmp_path: Path
) -> None:
    """A file whose scores are all equal is named, and spoils no mean."""
    flat = write_pairs(tmp_path / "flat.tsv", [(1.0, *pair[1:]) for pair in PAIRS])
    named = (f"dev={tasks[0]}", f"one={tasks[0]}", f"two={tasks[1]},{flat}", f"flat={flat}")
    poolers = ("mean", "cls", "max")
    rows, said = scores(*given("--task", *named[:3]), *given("--pooler", *poolers))
    of_all = {(row["task"], row["pooler"]): row["score"] for row in rows if row["subset"] == "all"}
    for pooler in poolers:
        expected = (of_all["one", pooler] + of_all["two", pooler]) / 2
        assert of_all["Avg.", pooler] == pytest.approx(expected, abs=1e-5)
    assert all(row["spearman"] == row["score"] for row in rows)
    best = max(poolers, key=lambda pooler: of_all["dev", pooler])
    each = {task: f"{task} {of_all[task, best]:.2f}" for task in ("dev", "one", "two", "Avg.")}
    line = next(line for line in said.splitlines() if "best by dev" in line)
    assert line == (
        f"note: best by dev of 3: {best}, 24 dims: {each['dev']}; {each['one']}, {each['two']},"
        f" {each['Avg.']}"
    )
    by = {
        row["subset"]: row["score"]
        for row in rows
        if (row["task"], row["pooler"]) == ("two", "mean")
    }
    assert by["flat"] is None
    assert by["mean"] == by["wmean"] == by["two"]
    left = "in flat, left out of mean and wmean (3 methods): all scores are equal"
    assert f"note: two: spearman is undefined {left}" in said
    _, said = scores("--task", named[3])
    assert "note: flat: spearman is undefined (1 method): all scores are equal" in said


def test_what_is_in_the_cache_is_not_computed_again(
    scores: Scores, tasks: tuple[Path, Path], tmp_path: Path, seen: list[str]
) -> None:
    asked = ["--cache", tmp_path / "cache", *given("--pooler", "mean", "cls"), "--dim", 8]
    one = ["--task", f"t={tasks[0]}", *asked]
    rows, _ = scores(*one)
    seen.clear()
    assert scores(*one)[0] == rows
    assert seen == []
    scores(*one, "--pooler", "max")
    assert sorted(seen) == texts_of(ONE)
    seen.clear()
    scores("--task", f"t={tasks[1]}", *asked)
    assert sorted(seen) == texts_of(TWO)
    seen.clear()
    for path in (tmp_path / "cache").iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    repaired, _ = scores(*one)
    assert sorted(seen) == texts_of(ONE)
    assert [row["score"] for row in repaired] == [row["score"] for row in rows]


def test_all_kinds_share_one_forward_pass(
    scores: Scores, tasks: tuple[Path, Path], tmp_path: Path, seen: list[str]
) -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("ir_measures")
    texts = [text for pair in PAIRS for text in pair[1:]]
    labels = "".join(f"{i % 2}\t{text}\n" for i, text in enumerate(texts))
    (tmp_path / "labels.tsv").write_text("label\ttext\n" + labels)
    labelled = [(int(score > 2), a, b) for score, a, b in PAIRS]
    pairs = write_pairs(tmp_path / "pairs.tsv", labelled, "label\tsentence1\tsentence2")
    triplet = "\t".join(texts[:3])
    (tmp_path / "triplets.tsv").write_text(f"anchor\tpositive\tnegative\n{triplet}\n")
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    corpus = (json.dumps({"_id": f"d{i}", "text": text}) + "\n" for i, text in enumerate(texts))
    (folder / "corpus.jsonl").write_text("".join(corpus))
    (folder / "queries.jsonl").write_text(json.dumps({"_id": "q", "text": texts[0]}) + "\n")
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\td0\t1\n")
    words = [
        f"classification:c={tmp_path}/labels.tsv", f"clustering:k={tmp_path}/labels.tsv", f"pairs:p={pairs}",
        f"triplets:x={tmp_path}/triplets.tsv", f"retrieval:r={folder}", f"s={tasks[0]}",
        f"relatedness:g={tasks[0]},{tasks[0]},{tasks[1]}", f"nli:n={pairs},{pairs},{pairs}",
    ]  # fmt: skip
    poolers = ("mean", "ditto:1-2")
    rows, said = scores(*given("--task", *words), *given("--pooler", *poolers), "--dim", 6)
    assert sorted(seen) == texts_of(PAIRS)
    metrics = {(row["kind"], row["metric"]) for row in rows}
    assert metrics == {
        ("classification", "accuracy"), ("clustering", "v_measure"), ("pairs", "ap"), ("pairs", "f1"),
        ("triplets", "accuracy"), ("retrieval", "ndcg@10"), ("retrieval", "recall@100"), ("retrieval", "mrr@10"),
        ("retrieval", "map@100"), ("sts", "spearman"), ("relatedness", "pearson"), ("relatedness", "spearman"),
        ("nli", "accuracy"), ("nli", "f1"),
    }  # fmt: skip
    methods = {(row["pooler"], row["dim"]) for row in rows}
    assert methods == {(pooler, dim) for pooler in poolers for dim in (6, 24)}
    assert next(row["score"] for row in rows if row["metric"] == "mrr@10") == 100
    assert "note: n: " in said


def test_a_wide_sweep_takes_tasks_one_after_the_other(
    scores: Scores, tasks: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each sentence of both goes through the model once, if memory allows; then in small chunks."""
    named = given("--task", f"a={tasks[0]}", f"b={tasks[1]}")
    named += given("--pooler", "mean", "ditto:*,states=last", "auto")
    chunks: list[int] = []
    encode = Encoder.encode
    monkeypatch.setattr(
        Encoder, "encode", lambda self, texts: (chunks.append(len(texts)), encode(self, texts))[1]
    )
    rows, _ = scores(*named)
    assert sum(chunks) == len(texts_of(PAIRS))
    chunks.clear()
    monkeypatch.setattr(f"{EVALUATION}.predict.SPILLED", 1)
    monkeypatch.setattr(f"{EVALUATION}.encode_many.CHUNK_BYTES", 3 * 14 * 24 * 4)
    small, _ = scores(*named)
    assert max(chunks) == 3
    assert sum(chunks) == len(texts_of(ONE)) + len(texts_of(TWO))
    expected = [row["score"] for row in rows]
    assert [row["score"] for row in small] == pytest.approx(expected, abs=1e-3)


def test_methods_that_were_done_before_one_failed_are_scored(
    run: Run, model: Path, tasks: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`cls` and `auto` are two forward passes; the second fails."""
    asked = ["evaluate", "--model", model, *given("--task", f"a={tasks[0]}", f"b={tasks[1]}")]
    check, seen = predict.check_finite, []

    def check_the_first(found: Encoded, texts: dict[str, int]) -> None:
        seen.append(found.pooler)
        if len(seen) > 1:
            raise SentenceBeamError("the second pooler fails")
        check(found, texts)

    monkeypatch.setattr(predict, "check_finite", check_the_first)
    out = tmp_path / "o.jsonl"
    ended = run(*asked, *given("--pooler", "cls", "mean"), "--output", out)
    ended.failed(1, "the second pooler fails")
    assert "note: unfinished" in ended.out
    found = {(row["task"], row["subset"]): row for row in rows_of(out)}
    assert {row["pooler"] for row in found.values()} == {seen[0]}
    expected = by_hand(model, seen[0], ONE)
    assert found["a", "all"]["score"] == pytest.approx(expected, abs=1e-4)
    assert found["Avg.", "all"]["n"] == len(ONE) + len(TWO)


def test_tasks_that_were_scored_before_one_failed_are_written(
    run: Run, model: Path, tasks: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ["evaluate", "--model", model, *given("--task", f"a={tasks[0]}", f"b={tasks[1]}")]
    out = tmp_path / "o.jsonl"

    def broken(*_: object, **__: object) -> None:
        raise ValueError("broken")

    with monkeypatch.context() as patch:
        patch.setattr(f"{EVALUATION}.scoring.average_tasks", broken)
        assert "ValueError: broken" in run(*asked, "--output", out).err
    assert [row["task"] for row in rows_of(out) if row["subset"] == "all"] == ["a", "b"]
    monkeypatch.setattr(f"{EVALUATION}.scores_page.render_page", broken)
    ended = run(*asked, "--report", tmp_path / "o.html")
    assert ended.status == 1
    assert "ValueError: broken" in ended.err
    assert "Avg." in ended.out


def test_a_store_is_searched_exactly_and_by_its_index(
    run: Run, scores: Scores, model: Path, tmp_path: Path
) -> None:
    pytest.importorskip("ir_measures")
    generator = np.random.default_rng(0)
    words = "a man woman child horse dog cat apple park street red blue big small".split()
    texts = list(dict.fromkeys(" ".join(generator.choice(words, 5)) for _ in range(400)))
    rows_file, queries, store = (
        tmp_path / name for name in ("rows.jsonl", "queries.jsonl", "store")
    )
    rows_file.write_text(
        "".join(json.dumps({"id": f"d{i}", "text": t}) + "\n" for i, t in enumerate(texts))
    )
    options = ["--id-column", "id", "--model", model, "--dim", 8, "--dtype", "float32"]
    run("embed", "--input", rows_file, "--store", store, *options, "--index", "IVF4,SQ8").ok()
    queries.write_text(
        "".join(json.dumps({"_id": f"q{i}", "text": t}) + "\n" for i, t in enumerate(texts[:30]))
    )
    judged = "".join(f"q{i}\td{i}\t1\n" for i in range(30))
    (tmp_path / "qrels.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
    rows, _ = scores("--task", f"retrieval:r={store},{queries},{tmp_path}/qrels.tsv")
    found = {(row["search"], row["metric"]): row for row in rows}
    assert {search for search, _ in found} == {"pooled", "exact", "index"}
    assert found["exact", "recall@100"]["score"] == 100
    assert found["pooled", "mrr@10"]["score"] >= found["exact", "mrr@10"]["score"] - 5
    pooled, exact, index = (found[search, "map@100"] for search in ("pooled", "exact", "index"))
    assert (pooled["dim"], exact["dim"]) == (24, 8)
    assert index["against"].endswith("24 dims, pooled")
    assert index["bytes_row"] < pooled["bytes_row"]
    assert index["score"] == pytest.approx(exact["score"], abs=10)


def test_from_python(model: Path, tasks: tuple[Path, Path]) -> None:
    found = evaluate(EvaluateOptions(tasks=(f"t={tasks[0]}",), model=str(model), poolers=("mean",)))
    assert [row["subset"] for row in found.rows] == ["all", "mean", "wmean", "one"]
    assert found.rows[0]["score"] == pytest.approx(by_hand(model, "mean", ONE), abs=1e-4)
