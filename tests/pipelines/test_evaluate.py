"""`evaluate`: scores as computed by hand, one forward pass for all poolers, unique sentences once,
bad tasks.

Covers transforms/evaluation/encode_many.py.
Covers transforms/evaluation/scoring.py.
Covers transforms/evaluation/kinds/store_retrieval.py.
Covers transforms/evaluation/compared_methods.py.
Covers transforms/evaluation/evaluation_plan.py.
Covers transforms/evaluation/score_rows.py.
"""

import csv
import json
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

PAIRS = [
    (5.0, "a man is playing the guitar", "the man is playing a guitar"),
    (0.5, "a dog", "the street is big"),
    (3.0, "a child is riding", "a woman was riding"),
    (1.0, "red horse in the park", "an apple on the street"),
    (4.5, "cat dog", "dog cat"),
    (2.0, "the cat is small", "a horse is big"),
]


def write_pairs(path: Path, pairs: list[tuple[float, str, str]]) -> Path:
    """A file of scored pairs."""
    path.write_text(
        "score\tsentence1\tsentence2\n" + "".join(f"{s}\t{a}\t{b}\n" for s, a, b in pairs)
    )
    return path


@pytest.fixture
def tasks(tmp_path: Path) -> tuple[Path, Path]:
    """Two files of one task."""
    return write_pairs(tmp_path / "one.tsv", PAIRS[:4]), write_pairs(
        tmp_path / "two.tsv", PAIRS[2:]
    )


def rows_of(path: Path) -> list[dict]:
    """The JSON lines of an evaluation."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def by_hand(
    model: Path, pooler: str, pairs: list[tuple[float, str, str]], dim: int | None = None
) -> float:
    """Spearman x100 of cosines, with scipy and the encoder alone."""
    encoder = Encoder.load(str(model), pooler=pooler, dtype="float32", normalize=False)
    first, second = (
        encoder.encode([pair[side] for pair in pairs])[:, :dim].astype(float) for side in (1, 2)
    )
    cosine = (
        (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
    )
    return 100 * stats.spearmanr(cosine, [pair[0] for pair in pairs]).statistic


POOLERS = [
    "mean",
    "cls",
    "static",
    "ditto:2-1",
    "sbert-wk",
    "remove-biases:variant=generic,top=0",
    "auto",
]


def test_every_pooler_scores_as_it_does_alone(
    run: Run, model: Path, tasks: tuple[Path, Path], tmp_path: Path
) -> None:
    out = tmp_path / "scores.jsonl"
    poolers = [argument for pooler in POOLERS for argument in ("--pooler", pooler)]
    task = f"t={tasks[0]},{tasks[1]}"
    run("evaluate", "--model", model, "--task", task, *poolers, "--dim", 8, "--output", out).ok()
    found = {(r["pooler"], r["dim"], r["subset"]): r for r in rows_of(out)}
    both = PAIRS[:4] + PAIRS[2:]
    for pooler in POOLERS:
        full = max(dim for name, dim, _ in found if name == pooler)
        for dim in (8, full):
            one, two = (by_hand(model, pooler, part, dim) for part in (PAIRS[:4], PAIRS[2:]))
            scores = {
                subset: found[pooler, dim, subset]["spearman"]
                for subset in ("all", "mean", "wmean", "one", "two")
            }
            expected = {
                "all": by_hand(model, pooler, both, dim),
                "mean": (one + two) / 2,
                "wmean": (one + two) / 2,
            }
            expected |= {"one": one, "two": two}
            assert scores == pytest.approx(expected, abs=1e-4), pooler
    assert found["mean", full, "all"]["n"] == 8
    assert found["mean", full, "all"]["alignment"] > 0


def test_each_sentence_goes_through_the_model_once(
    run: Run, model: Path, tasks: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    encode = Encoder.encode
    monkeypatch.setattr(
        Encoder, "encode", lambda self, texts: (seen.extend(texts), encode(self, texts))[1]
    )
    options = ["--pooler", "mean", "--pooler", "ditto:*", "--pooler", "auto"]
    run(
        "evaluate", "--model", model, "--task", f"a={tasks[0]}", "--task", f"b={tasks[1]}", *options
    ).ok()
    assert sorted(seen) == sorted({text for pair in PAIRS for text in pair[1:]})


def test_every_head_is_scored_and_drawn(
    run: Run, model: Path, tasks: tuple[Path, Path], tmp_path: Path
) -> None:
    out, report = tmp_path / "grid.jsonl", tmp_path / "grid.html"
    heads = ["--pooler", "ditto:*,states=last"]
    run(
        "evaluate",
        "--model",
        model,
        "--task",
        f"t={tasks[0]}",
        *heads,
        "--output",
        out,
        "--report",
        report,
    ).ok()
    assert "every attention head" in report.read_text()
    heads = {r["pooler"] for r in rows_of(out)}
    assert heads == {
        f"ditto:{block}-{head},states=last" for block in (1, 2, 3) for head in (1, 2, 3, 4)
    }
    drawn = ElementTree.parse(tmp_path / "grid-t.svg")
    assert len(drawn.findall(".//{*}rect/{*}title")) == 12


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a\tb\n1\t2\n", "no column score"),
        ("score\tsentence1\tsentence2\n", "holds no scored pair"),
        ("score\tsentence1\tsentence2\nx\ta\tb\n", "line 2"),
        ("score\tsentence1\tsentence2\n1\ta\n", "line 2"),
    ],
)
def test_bad_task_files(run: Run, model: Path, tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "bad.tsv").write_text(content)
    run("evaluate", "--model", model, "--task", f"t={tmp_path}/bad.tsv").failed(2, "bad.tsv", said)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--task", "nothing"], "NAME=PATH"),
        (["--task", "t=/no/such.tsv"], "/no/such.tsv"),
        (["--pooler", "nosuch"], "nosuch"),
        (["--pooler", "ditto:9-1"], "9-1"),
    ],
)
def test_bad_options(
    run: Run, model: Path, tasks: tuple[Path, Path], options: list[str], said: str
) -> None:
    run("evaluate", "--model", model, "--task", f"t={tasks[0]}", *options).failed(2, said)


def test_bad_places_and_names_are_found_before_anything_is_computed(
    run: Run, model: Path, tasks: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Encoder, "encode", lambda *_: pytest.fail("computed"))
    named = ["evaluate", "--model", model, "--task", f"t={tasks[0]}"]
    run(*named, "--output", "/no/such/scores.jsonl").failed(
        2, "/no/such/scores.jsonl", "no such folder"
    )
    run(*named, "--output", tasks[0].parent).failed(2, tasks[0].parent, "is a folder")
    run(*named, "--report", "/no/such/page.html").failed(
        2, "--report /no/such/page.html", "no such folder"
    )
    run(*named, "--task", f"t={tasks[1]}").failed(2, "t is given twice", "t=PATH,PATH")
    run(*named, "--task", f"a/b={tasks[1]}").failed(2, "a/b", "slash")


def test_a_table_named_from_here_is_found_from_everywhere(
    run: Run, embed: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("a man is riding\nthe dog\n")
    monkeypatch.chdir(tmp_path)
    run("fit", "--input", "a.txt", "--method", "tfidf", "--output", "table", "--model", model).ok()
    embed(tmp_path / "a.txt", "--pooler", "tfidf:table").ok()
    monkeypatch.chdir("/")
    embed(tmp_path / "a.txt").ok()


def fitted(run: Run, model: Path, folder: Path, pooler: str, method: str) -> Path:
    """A calibration fitted on the sentences of all pairs."""
    texts = sorted({text for pair in PAIRS for text in pair[1:]})
    (folder / "texts.txt").write_text("\n".join(texts))
    store = folder / f"store-{pooler}"
    base = ["--model", model, "--pooler", pooler, "--dtype", "float32"]
    run("embed", "--input", folder / "texts.txt", "--store", store, *base).ok()
    run("fit", "--store", store, "--method", method, "--output", folder / f"{pooler}-{method}").ok()
    return folder / f"{pooler}-{method}"


def test_calibrations_are_scored_beside_the_poolers_they_were_fitted_on(
    run: Run, model: Path, tasks: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [
        fitted(run, model, tmp_path, "mean", "standardize"),
        fitted(run, model, tmp_path, "mean", "whitening:5"),
        fitted(run, model, tmp_path, "cls", "remove-top:1"),
    ]
    seen: list[str] = []
    encode, out = Encoder.encode, tmp_path / "scores.jsonl"
    monkeypatch.setattr(
        Encoder, "encode", lambda self, texts: (seen.extend(texts), encode(self, texts))[1]
    )
    options = [word for path in paths for word in ("--calibration", path)]
    options += ["--pooler", "mean", "--pooler", "cls", "--pooler", "max", "--dim", 3]
    run("evaluate", "--model", model, "--task", f"t={tasks[0]}", *options, "--output", out).ok()
    assert len(seen) == len(set(seen))
    monkeypatch.undo()
    found = {
        (r["pooler"], r["calibration"], r["dim"]): r["spearman"]
        for r in rows_of(out)
        if r["subset"] == "all"
    }
    width = max(dim for _, _, dim in found)
    wide, made = (
        {("max", None, width), ("mean", str(paths[0]), width)},
        {("mean", str(paths[1]), 5)},
    )
    made |= {("cls", str(paths[2]), width), ("mean", None, width), ("cls", None, width)}
    assert set(found) == wide | made | {(pooler, path, 3) for pooler, path, _ in wide | made}
    for pooler, path, dim in found:
        vectors = Encoder.load(str(model), pooler=pooler, dtype="float32", normalize=False)
        first, second = (vectors.encode([pair[side] for pair in PAIRS[:4]]) for side in (1, 2))
        if path is not None:
            first, second = (load_calibration(path).apply(side) for side in (first, second))
        similar = cosines(first[:, :dim], second[:, :dim])
        expected = 100 * stats.spearmanr(similar, [pair[0] for pair in PAIRS[:4]]).statistic
        assert found[pooler, path, dim] == pytest.approx(expected, abs=1e-4)


def test_a_calibration_of_another_space_is_refused_by_field(
    run: Run, model: Path, tasks: tuple[Path, Path], tmp_path: Path
) -> None:
    path = fitted(run, model, tmp_path, "mean", "standardize")
    evaluate = ["evaluate", "--model", model, "--task", f"t={tasks[0]}", "--calibration", path]
    run(*evaluate, "--pooler", "cls").failed(2, path, "(pooler differ)")
    run(*evaluate, "--pooler", "mean", "--max-tokens", 5).failed(2, "(max_tokens differ)")
    run(*evaluate, "--pooler", "mean", "--dtype", "bfloat16").failed(2, "(dtype differ)")
    run(*evaluate[:-1], tmp_path).failed(2, "calibration.json is missing")


def scores(run: Run, model: Path, out: Path, *options: object) -> tuple[list[dict], str]:
    """The rows that a command wrote, and what it printed."""
    said = run("evaluate", "--model", model, "--output", out, *options).ok().out
    return rows_of(out), said


def test_scores_have_intervals_and_differences_from_the_first_method(
    run: Run, model: Path, tasks: tuple[Path, Path], tmp_path: Path
) -> None:
    methods = ["--pooler", "mean", "--pooler", "mean:count=all", "--pooler", "cls"]
    rows, said = scores(
        run, model, tmp_path / "o.jsonl", "--task", f"t={tasks[0]},{tasks[1]}", *methods
    )
    first, same, other = (row for row in rows if row["subset"] == "all")
    assert first["score"] == first["spearman"]
    assert first["low"] <= first["score"] <= first["high"]
    assert [first[key] for key in ("against", "diff", "diff_low", "diff_high", "p", "p_holm")] == [
        None
    ] * 6
    assert [same[key] for key in ("diff", "diff_low", "diff_high", "p", "p_holm")] == [
        0,
        0,
        0,
        1,
        1,
    ]
    assert other["against"] == "mean, 24 dims"
    assert other["diff"] == pytest.approx(other["score"] - first["score"], abs=1e-5)
    assert other["p"] <= other["p_holm"] <= 1
    assert (first["bytes_row"], first["kind"], first["metric"]) == (96, "sts", "spearman")
    assert first["sentences_s"] > 0
    again, _ = scores(
        run, model, tmp_path / "again.jsonl", "--task", f"t={tasks[0]},{tasks[1]}", *methods
    )
    assert [{**row, "sentences_s": 0} for row in again] == [
        {**row, "sentences_s": 0} for row in rows
    ]
    assert "mean:count=all" in said


def test_average_and_the_best_by_dev(
    run: Run, model: Path, tasks: tuple[Path, Path], tmp_path: Path
) -> None:
    named = [
        word
        for name, path in zip(("dev", "one", "two"), (tasks[0], *tasks), strict=True)
        for word in ("--task", f"{name}={path}")
    ]
    rows, said = scores(
        run,
        model,
        tmp_path / "o.jsonl",
        *named,
        "--pooler",
        "mean",
        "--pooler",
        "cls",
        "--pooler",
        "max",
    )
    of_all = {(row["task"], row["pooler"]): row["score"] for row in rows if row["subset"] == "all"}
    for pooler in ("mean", "cls", "max"):
        expected = (of_all["one", pooler] + of_all["two", pooler]) / 2
        assert of_all["Avg.", pooler] == pytest.approx(expected, abs=1e-5)
    assert all(row["spearman"] == row["score"] for row in rows)
    best = max(("mean", "cls", "max"), key=lambda pooler: of_all["dev", pooler])
    line = next(line for line in said.splitlines() if "best by dev" in line)
    assert line == (
        f"note: best by dev of 3: {best}, 24 dims: dev {of_all['dev', best]:.2f}; one {of_all['one', best]:.2f}, "
        f"two {of_all['two', best]:.2f}, Avg. {of_all['Avg.', best]:.2f}"
    )


def test_a_subset_of_equal_golds_is_named_and_spoils_no_mean(
    run: Run, model: Path, tasks: tuple[Path, Path], tmp_path: Path
) -> None:
    flat = write_pairs(tmp_path / "flat.tsv", [(1.0, *pair[1:]) for pair in PAIRS])
    rows, said = scores(run, model, tmp_path / "o.jsonl", "--task", f"t={tasks[0]},{flat}")
    by = {row["subset"]: row["score"] for row in rows}
    assert by["flat"] is None
    assert by["mean"] == by["wmean"] == by["one"]
    assert (
        "note: t: spearman is undefined in flat, left out of mean and wmean (1 method): all scores are equal"
        in said
    )
    _, said = scores(run, model, tmp_path / "o.jsonl", "--task", f"t={flat}")
    assert "note: t: spearman is undefined (1 method): all scores are equal" in said


def test_csv(run: Run, model: Path, tasks: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "o.csv"
    run("evaluate", "--model", model, "--task", f"t={tasks[0]}", "--output", out).ok()
    rows = list(csv.DictReader(out.open(newline="")))
    assert [row["subset"] for row in rows] == ["all", "mean", "wmean", "one"]
    assert float(rows[0]["score"]) == float(rows[0]["spearman"])
    assert rows[0]["against"] == ""


def test_what_is_in_the_cache_is_not_computed_again(
    run: Run, model: Path, tasks: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [
        "--cache",
        tmp_path / "cache",
        "--pooler",
        "mean",
        "--pooler",
        "cls",
        "--dim",
        8,
    ]
    rows, _ = scores(run, model, tmp_path / "o.jsonl", "--task", f"t={tasks[0]}", *asked)
    seen: list[str] = []
    encode = Encoder.encode
    monkeypatch.setattr(
        Encoder, "encode", lambda self, texts: (seen.extend(texts), encode(self, texts))[1]
    )
    again, _ = scores(run, model, tmp_path / "again.jsonl", "--task", f"t={tasks[0]}", *asked)
    assert again == rows
    assert seen == []
    renamed = tmp_path / "copy.tsv"
    renamed.write_bytes(tasks[0].read_bytes())
    scores(run, model, tmp_path / "o.jsonl", "--task", f"t={tasks[0]}", *asked, "--pooler", "max")
    assert sorted(seen) == sorted({text for pair in PAIRS[:4] for text in pair[1:]})
    seen.clear()
    scores(run, model, tmp_path / "o.jsonl", "--task", f"t={tasks[1]}", *asked)
    assert sorted(seen) == sorted({text for pair in PAIRS[2:] for text in pair[1:]})
    seen.clear()
    for path in (tmp_path / "cache").iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    repaired, _ = scores(run, model, tmp_path / "o.jsonl", "--task", f"t={tasks[0]}", *asked)
    assert seen
    assert [row["score"] for row in repaired] == [row["score"] for row in rows]


def test_all_kinds_share_one_forward_pass(
    run: Run, model: Path, tasks: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("ir_measures")
    texts = [text for pair in PAIRS for text in pair[1:]]
    labels = "".join(f"{i % 2}\t{text}\n" for i, text in enumerate(texts))
    (tmp_path / "labels.tsv").write_text("label\ttext\n" + labels)
    (tmp_path / "pairs.tsv").write_text(
        "label\tsentence1\tsentence2\n" + "".join(f"{int(s > 2)}\t{a}\t{b}\n" for s, a, b in PAIRS)
    )
    (tmp_path / "triplets.tsv").write_text(
        "anchor\tpositive\tnegative\n" + "\t".join(texts[:3]) + "\n"
    )
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text(
        "".join(json.dumps({"_id": f"d{i}", "text": t}) + "\n" for i, t in enumerate(texts))
    )
    (folder / "queries.jsonl").write_text(json.dumps({"_id": "q", "text": texts[0]}) + "\n")
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\td0\t1\n")
    words = [
        f"classification:c={tmp_path}/labels.tsv",
        f"clustering:k={tmp_path}/labels.tsv",
        f"pairs:p={tmp_path}/pairs.tsv",
    ]
    words += [f"triplets:x={tmp_path}/triplets.tsv", f"retrieval:r={folder}", f"s={tasks[0]}"]
    words += [
        f"relatedness:g={tasks[0]},{tasks[0]},{tasks[1]}",
        f"nli:n={','.join([f'{tmp_path}/pairs.tsv'] * 3)}",
    ]
    seen: list[str] = []
    encode = Encoder.encode
    monkeypatch.setattr(
        Encoder, "encode", lambda self, texts: (seen.extend(texts), encode(self, texts))[1]
    )
    named = [word for task in words for word in ("--task", task)]
    rows, said = scores(
        run,
        model,
        tmp_path / "o.jsonl",
        *named,
        "--pooler",
        "mean",
        "--pooler",
        "ditto:1-2",
        "--dim",
        6,
    )
    assert sorted(seen) == sorted(set(texts))
    metrics = {(row["kind"], row["metric"]) for row in rows}
    assert metrics == {
        ("classification", "accuracy"), ("clustering", "v_measure"), ("pairs", "ap"), ("pairs", "f1"),
        ("triplets", "accuracy"), ("retrieval", "ndcg@10"), ("retrieval", "recall@100"), ("retrieval", "mrr@10"),
        ("retrieval", "map@100"), ("sts", "spearman"), ("relatedness", "pearson"), ("relatedness", "spearman"),
        ("nli", "accuracy"), ("nli", "f1"),
    }  # fmt: skip
    assert {(row["pooler"], row["dim"]) for row in rows} == {
        (p, d) for p in ("mean", "ditto:1-2") for d in (6, 24)
    }
    assert next(row["score"] for row in rows if row["metric"] == "mrr@10") == 100
    assert "note: n: " in said


def test_a_wide_sweep_takes_tasks_one_after_the_other(
    run: Run, model: Path, tasks: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = [
        "--task",
        f"a={tasks[0]}",
        "--task",
        f"b={tasks[1]}",
        "--pooler",
        "mean",
        "--pooler",
        "ditto:*,states=last",
    ]
    rows, _ = scores(run, model, tmp_path / "o.jsonl", *named)
    monkeypatch.setattr("sentence_beam.transforms.evaluation.predict.SPILLED", 1)
    monkeypatch.setattr(
        "sentence_beam.transforms.evaluation.encode_many.CHUNK_BYTES", 3 * 13 * 24 * 4
    )
    chunks: list[int] = []
    encode = Encoder.encode
    monkeypatch.setattr(
        Encoder, "encode", lambda self, texts: (chunks.append(len(texts)), encode(self, texts))[1]
    )
    small, _ = scores(run, model, tmp_path / "small.jsonl", *named)
    assert max(chunks) == 3
    assert [row["score"] for row in small] == pytest.approx(
        [row["score"] for row in rows], abs=1e-3
    )


def test_vectors_that_are_not_finite_are_refused(
    run: Run, model: Path, tasks: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Encoder, "encode", lambda self, texts: np.full((len(texts), self.dim), np.nan, np.float32)
    )
    run("evaluate", "--model", model, "--task", f"t={tasks[0]}").failed(
        1, "pooler auto", "is not finite", "--dtype float32"
    )


def fail_for(monkeypatch: pytest.MonkeyPatch, name: str, error: Exception) -> None:
    """Have a step of the evaluation fail."""

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(name, fail)


def test_methods_that_were_done_before_one_failed_are_scored(
    run: Run, model: Path, tasks: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`cls` and `auto` are two forward passes; the second fails."""
    asked = ["evaluate", "--model", model, "--task", f"a={tasks[0]}", "--task", f"b={tasks[1]}"]
    asked += ["--pooler", "cls", "--pooler", "mean"]
    check, seen = predict.check_finite, []

    def check_the_first(found: Encoded, texts: dict[str, int]) -> None:
        seen.append(found.pooler)
        if len(seen) > 1:
            raise SentenceBeamError("the second pooler fails")
        check(found, texts)

    monkeypatch.setattr(predict, "check_finite", check_the_first)
    out = tmp_path / "o.jsonl"
    ended = run(*asked, "--output", out)
    ended.failed(1, "the second pooler fails")
    assert "note: unfinished" in ended.out
    found = {(row["task"], row["subset"]): row for row in rows_of(out)}
    assert {row["pooler"] for row in found.values()} == {seen[0]}
    expected = by_hand(model, seen[0], PAIRS[:4])
    assert found["a", "all"]["score"] == pytest.approx(expected, abs=1e-4)
    assert found["Avg.", "all"]["n"] == len(PAIRS[:4]) + len(PAIRS[2:])


def test_tasks_that_were_scored_before_one_failed_are_written(
    run: Run, model: Path, tasks: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ["evaluate", "--model", model, "--task", f"a={tasks[0]}", "--task", f"b={tasks[1]}"]
    out, page = tmp_path / "o.jsonl", tmp_path / "o.html"
    fail_for(
        monkeypatch,
        "sentence_beam.transforms.evaluation.scoring.average_tasks",
        ValueError("no average"),
    )
    assert "ValueError: no average" in run(*asked, "--output", out).err
    assert [row["task"] for row in rows_of(out) if row["subset"] == "all"] == ["a", "b"]
    monkeypatch.undo()
    fail_for(
        monkeypatch, "sentence_beam.transforms.evaluation.scores_page.page", ValueError("no page")
    )
    ended = run(*asked, "--report", page)
    assert ended.status == 1
    assert "ValueError: no page" in ended.err
    assert "Avg." in ended.out


def test_texts_that_a_calibration_was_fitted_on_are_named(
    run: Run, model: Path, tasks: tuple[Path, Path], tmp_path: Path
) -> None:
    path = fitted(run, model, tmp_path, "mean", "standardize")
    _, said = scores(
        run,
        model,
        tmp_path / "o.jsonl",
        "--task",
        f"t={tasks[0]}",
        "--pooler",
        "mean",
        "--calibration",
        path,
    )
    assert (
        f"note: t: {path} was fitted on 8 of its 8 texts: 'a man is playing the guitar', 'a dog'"
        in said
    )


def test_a_store_is_searched_exactly_and_by_its_index(
    run: Run, model: Path, tmp_path: Path
) -> None:
    pytest.importorskip("ir_measures")
    generator = np.random.default_rng(0)
    words = "a man woman child horse dog cat apple park street red blue big small".split()
    texts = list(dict.fromkeys(" ".join(generator.choice(words, 5)) for _ in range(400)))
    store = tmp_path / "store"
    (tmp_path / "rows.jsonl").write_text(
        "".join(json.dumps({"id": f"d{i}", "text": t}) + "\n" for i, t in enumerate(texts))
    )
    options = [
        "--id-column",
        "id",
        "--model",
        model,
        "--dim",
        8,
        "--dtype",
        "float32",
        "--index",
        "IVF4,SQ8",
    ]
    run("embed", "--input", tmp_path / "rows.jsonl", "--store", store, *options).ok()
    (tmp_path / "queries.jsonl").write_text(
        "".join(json.dumps({"_id": f"q{i}", "text": t}) + "\n" for i, t in enumerate(texts[:30]))
    )
    (tmp_path / "qrels.tsv").write_text(
        "query-id\tcorpus-id\tscore\n" + "".join(f"q{i}\td{i}\t1\n" for i in range(30))
    )
    task = f"retrieval:r={store},{tmp_path}/queries.jsonl,{tmp_path}/qrels.tsv"
    rows, _ = scores(run, model, tmp_path / "o.jsonl", "--task", task)
    found = {(row["search"], row["metric"]): row for row in rows}
    assert {search for search, _ in found} == {"pooled", "exact", "index"}
    assert found["exact", "recall@100"]["score"] == 100
    assert found["pooled", "mrr@10"]["score"] >= found["exact", "mrr@10"]["score"] - 5
    assert (found["pooled", "map@100"]["dim"], found["exact", "map@100"]["dim"]) == (24, 8)
    assert found["index", "map@100"]["against"].endswith("24 dims, pooled")
    assert found["index", "map@100"]["bytes_row"] < found["pooled", "map@100"]["bytes_row"]
    assert found["index", "map@100"]["score"] == pytest.approx(
        found["exact", "map@100"]["score"], abs=10
    )


def test_from_python(model: Path, tasks: tuple[Path, Path]) -> None:
    found = evaluate(EvaluateOptions(tasks=(f"t={tasks[0]}",), model=str(model), poolers=("mean",)))
    assert [row["subset"] for row in found.rows] == ["all", "mean", "wmean", "one"]
    assert found.rows[0]["score"] == pytest.approx(by_hand(model, "mean", PAIRS[:4]), abs=1e-4)
