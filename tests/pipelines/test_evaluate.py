"""`evaluate`: scores as computed by hand, one forward pass for all poolers, unique sentences once, bad tasks."""

import json
from pathlib import Path

import numpy as np
import pytest
from helpers.commands import Run
from scipy import stats

from transforms.calibration import load_calibration
from transforms.calibration.quality import cosines
from transforms.encoder import Encoder

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
    path.write_text("score\tsentence1\tsentence2\n" + "".join(f"{s}\t{a}\t{b}\n" for s, a, b in pairs))
    return path


@pytest.fixture
def tasks(tmp_path: Path) -> tuple[Path, Path]:
    """Two files of one task."""
    return write_pairs(tmp_path / "one.tsv", PAIRS[:4]), write_pairs(tmp_path / "two.tsv", PAIRS[2:])


def rows_of(path: Path) -> list[dict]:
    """The JSON lines of an evaluation."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def by_hand(model: Path, pooler: str, pairs: list[tuple[float, str, str]], dim: int | None = None) -> float:
    """Spearman x100 of cosines, with scipy and the encoder alone."""
    encoder = Encoder.load(str(model), pooler=pooler, dtype="float32", normalize=False)
    first, second = (encoder.encode([pair[side] for pair in pairs])[:, :dim].astype(float) for side in (1, 2))
    cosine = (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
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


def test_every_pooler_scores_as_it_does_alone(run: Run, model: Path, tasks: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "scores.jsonl"
    poolers = [argument for pooler in POOLERS for argument in ("--pooler", pooler)]
    task = f"t={tasks[0]},{tasks[1]}"
    run("evaluate", "--model", model, "--task", task, *poolers, "--truncate-dim", 8, "--output", out).ok()
    found = {(r["pooler"], r["dim"], r["subset"]): r for r in rows_of(out)}
    both = PAIRS[:4] + PAIRS[2:]
    for pooler in POOLERS:
        full = max(dim for name, dim, _ in found if name == pooler)
        for dim in (8, full):
            one, two = (by_hand(model, pooler, part, dim) for part in (PAIRS[:4], PAIRS[2:]))
            scores = {
                subset: found[pooler, dim, subset]["spearman"] for subset in ("all", "mean", "wmean", "one", "two")
            }
            expected = {"all": by_hand(model, pooler, both, dim), "mean": (one + two) / 2, "wmean": (one + two) / 2}
            expected |= {"one": one, "two": two}
            assert scores == pytest.approx(expected, abs=1e-4), pooler
    assert found["mean", full, "all"]["n"] == 8
    assert found["mean", full, "all"]["alignment"] > 0


def test_each_sentence_goes_through_the_model_once(
    run: Run, model: Path, tasks: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    encode = Encoder.encode
    monkeypatch.setattr(Encoder, "encode", lambda self, texts: (seen.extend(texts), encode(self, texts))[1])
    options = ["--pooler", "mean", "--pooler", "ditto:*", "--pooler", "auto"]
    run("evaluate", "--model", model, "--task", f"a={tasks[0]}", "--task", f"b={tasks[1]}", *options).ok()
    assert sorted(seen) == sorted({text for pair in PAIRS for text in pair[1:]})


def test_every_head_is_scored_and_drawn(run: Run, model: Path, tasks: tuple[Path, Path], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "grid.jsonl"
    run(
        "evaluate", "--model", model, "--task", f"t={tasks[0]}", "--pooler", "ditto:*,states=last", "--output", out
    ).ok()
    heads = {r["pooler"] for r in rows_of(out)}
    assert heads == {f"ditto:{block}-{head},states=last" for block in (1, 2, 3) for head in (1, 2, 3, 4)}
    assert (tmp_path / "grid-t.png").read_bytes().startswith(b"\x89PNG")


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
def test_bad_options(run: Run, model: Path, tasks: tuple[Path, Path], options: list[str], said: str) -> None:
    run("evaluate", "--model", model, "--task", f"t={tasks[0]}", *options).failed(2, said)


def test_bad_places_and_names_are_found_before_anything_is_computed(
    run: Run, model: Path, tasks: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Encoder, "encode", lambda *_: pytest.fail("computed"))
    named = ["evaluate", "--model", model, "--task", f"t={tasks[0]}"]
    run(*named, "--output", "/no/such/scores.jsonl").failed(2, "/no/such/scores.jsonl", "no such folder")
    run(*named, "--output", tasks[0].parent).failed(2, tasks[0].parent, "is a folder")
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
    monkeypatch.setattr(Encoder, "encode", lambda self, texts: (seen.extend(texts), encode(self, texts))[1])
    options = [word for path in paths for word in ("--calibration", path)]
    options += ["--pooler", "mean", "--pooler", "cls", "--pooler", "max", "--truncate-dim", 3]
    run("evaluate", "--model", model, "--task", f"t={tasks[0]}", *options, "--output", out).ok()
    assert len(seen) == len(set(seen))
    monkeypatch.undo()
    found = {(r["pooler"], r["calibration"], r["dim"]): r["spearman"] for r in rows_of(out) if r["subset"] == "all"}
    width = max(dim for _, _, dim in found)
    wide, made = {("max", None, width), ("mean", str(paths[0]), width)}, {("mean", str(paths[1]), 5)}
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
