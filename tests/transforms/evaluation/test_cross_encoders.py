"""Cross-encoders beside poolers: every kind of task, beside sentence-transformers' own scores.

Covers transforms/encoder/pair_scorer.py.
"""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from helpers.cross_encoders import save_cross_encoder
from helpers.tiny_models import edit_json, save_tiny_model
from helpers.training import labelled_rows, scored_rows, sentences, triplet_rows, write_tsv
from safetensors.numpy import load_file, save_file
from scipy import stats

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.encoder.pair_scorer import PairScorer
from sentence_beam.transforms.evaluation import EvaluateOptions
from sentence_beam.transforms.evaluation.scoring import evaluate
from sentence_beam.transforms.evaluation.tasks import read_task

pytest.importorskip("sklearn")
pytest.importorskip("ir_measures")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model, and two cross-encoders over it."""
    root = tmp_path_factory.mktemp("cross")
    save_tiny_model("bert", root / "bert")
    save_cross_encoder(root / "scores")
    save_cross_encoder(root / "labels", ("no", "perhaps", "yes"))
    return root


def by_the_library(folder: Path, first: Sequence[str], second: Sequence[str]) -> np.ndarray:
    """What sentence-transformers' CrossEncoder gives pairs."""
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(str(folder), device="cpu", local_files_only=True)
    return np.asarray(
        model.predict(list(zip(first, second, strict=True)), show_progress_bar=False), np.float64
    )


def test_pairs_are_scored_as_by_the_library(folder: Path, tmp_path: Path) -> None:
    rows = scored_rows()
    path = write_tsv(tmp_path / "s.tsv", rows)
    duplicates = [{"label": int(row["score"] > 2.5), **row} for row in rows]
    tasks = (
        f"s={path}",
        f"pairs:p={write_tsv(tmp_path / 'p.tsv', duplicates)}",
        f"classification:c={tmp_path / 'c.tsv'}",
    )
    write_tsv(
        tmp_path / "c.tsv", [{"label": n % 2, "text": text} for n, text in enumerate(sentences(40))]
    )
    cross = str(folder / "scores")
    asked = EvaluateOptions(
        tasks=tasks,
        model=str(folder / "bert"),
        poolers=("mean",),
        cross_encoders=(cross,),
        cache=str(tmp_path / "kept"),
    )
    found = evaluate(asked)
    ours = {
        row["task"]: row
        for row in found.rows
        if row["pooler"] == f"cross-encoder:{cross}" and row["subset"] == "all"
    }
    scores = by_the_library(
        folder / "scores", [row["sentence1"] for row in rows], [row["sentence2"] for row in rows]
    )
    gold = [row["score"] for row in rows]
    assert np.ptp(scores) > 0.01
    assert ours["s"]["score"] == pytest.approx(
        100 * stats.spearmanr(scores, gold).statistic, abs=1e-4
    )
    assert ours["s"]["pearson"] == pytest.approx(
        100 * stats.pearsonr(scores, gold).statistic, abs=1e-3
    )
    assert (ours["s"]["dim"], ours["s"]["bytes_row"], ours["s"]["against"]) == (
        0,
        0,
        "mean, 24 dims",
    )
    assert set(ours) == {"s", "p"}
    assert "c: it has no pairs of texts, so no cross-encoder is scored on it" in found.notes
    again = evaluate(asked)
    assert [row for row in again.rows if row["kind"] == "sts"] == [
        row for row in found.rows if row["kind"] == "sts"
    ]
    assert len(list((tmp_path / "kept").glob("[!.]*"))) == 5


def test_labels_and_triplets(folder: Path, tmp_path: Path) -> None:
    rows = labelled_rows()
    path = write_tsv(tmp_path / "n.tsv", rows)
    task = read_task(f"nli:n={path},{path}", "logistic")
    labels = PairScorer.load(str(folder / "labels"), "--cross-encoder", "cpu")
    outputs = by_the_library(
        folder / "labels", [row["sentence1"] for row in rows], [row["sentence2"] for row in rows]
    )
    names = np.array(["no", "perhaps", "yes"])[outputs.argmax(axis=1)]
    right = [name == row["label"] for name, row in zip(names, rows, strict=True)]
    assert task.predict_pairs(labels, {})["correct"].tolist() == right
    triplets = triplet_rows()
    three = read_task(f"triplets:t={write_tsv(tmp_path / 't.tsv', triplets)}", "logistic")
    scores = PairScorer.load(str(folder / "scores"), "--cross-encoder", "cpu")
    sides = ([row[side] for row in triplets] for side in ("anchor", "positive", "negative"))
    anchors, near, far = sides
    wanted = by_the_library(folder / "scores", anchors, near) > by_the_library(
        folder / "scores", anchors, far
    )
    assert three.predict_pairs(scores, {})["correct"].tolist() == wanted.tolist()
    with pytest.raises(OptionError, match=r"gives labels \(no, perhaps, yes\), no score"):
        three.predict_pairs(labels, {})
    with pytest.raises(OptionError, match="gives scores, no labels"):
        task.predict_pairs(scores, {})


def test_found_documents_are_put_into_another_order(folder: Path, tmp_path: Path) -> None:
    import ir_measures

    texts = sentences(30)
    documents = {f"d{n:02d}": text for n, text in enumerate(texts[:24])}
    queries = {f"q{n}": text for n, text in enumerate(texts[24:])}
    root = tmp_path / "beir"
    (root / "qrels").mkdir(parents=True)
    for name, held in (("corpus", documents), ("queries", queries)):
        lines = [json.dumps({"_id": key, "text": text}) for key, text in held.items()]
        (root / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    grades = [(q, d, 1) for n, q in enumerate(queries) for d in list(documents)[n::7]]
    lines = ["query-id\tcorpus-id\tscore", *(f"{q}\t{d}\t{g}" for q, d, g in grades)]
    (root / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n")
    cross = str(folder / "scores")
    asked = EvaluateOptions(
        tasks=(f"retrieval:r={root}",),
        model=str(folder / "bert"),
        poolers=("mean",),
        cross_encoders=(cross,),
    )
    found = evaluate(asked)
    ours = {
        row["metric"]: row["score"]
        for row in found.rows
        if row["pooler"].startswith("cross-encoder:")
    }
    run = []
    for q, query in queries.items():
        scores = by_the_library(
            folder / "scores", [query] * len(documents), list(documents.values())
        )
        run += [
            ir_measures.ScoredDoc(q, d, score) for d, score in zip(documents, scores, strict=True)
        ]
    names = {
        "ndcg@10": ir_measures.nDCG @ 10,
        "mrr@10": ir_measures.RR @ 10,
        "recall@100": ir_measures.R @ 100,
    }
    qrels = [ir_measures.Qrel(*row) for row in grades]
    wanted = ir_measures.calc_aggregate(list(names.values()), qrels, run)
    for metric, measure in names.items():
        assert ours[metric] == pytest.approx(100 * wanted[measure], abs=1e-4)
    assert "r: cross-encoders order the documents that the first method finds" in found.notes


def test_folders_without_a_cross_encoder_are_refused(folder: Path, tmp_path: Path) -> None:
    for name, said in (
        (tmp_path / "gone", "is no folder"),
        (folder / "bert", "holds no cross-encoder"),
    ):
        with pytest.raises(OptionError, match=f"--rerank {name} {said}"):
            PairScorer.load(str(name), "--rerank")
    pickled = shutil.copytree(folder / "scores", tmp_path / "pickled")
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    with pytest.raises(OptionError, match="holds no safetensors weights"):
        PairScorer.load(str(pickled), "--rerank")
    adapted = shutil.copytree(folder / "scores", tmp_path / "adapted")
    edit_json(adapted / "adapter_config.json", base_model_name_or_path="org/base")
    with pytest.raises(OptionError, match="adapter of org/base, .* merge_and_unload"):
        PairScorer.load(str(adapted), "--rerank")
    named = shutil.copytree(folder / "scores", tmp_path / "named")
    weights = load_file(named / "model.safetensors")
    renamed = {f"module.{name}": value for name, value in weights.items()}
    save_file(renamed, named / "model.safetensors", {"format": "pt"})
    with pytest.raises(OptionError, match="begin with 'module.'"):
        PairScorer.load(str(named), "--rerank")
    coded = shutil.copytree(folder / "scores", tmp_path / "coded")
    (coded / "modules.json").write_text(
        json.dumps([{"idx": 0, "name": "0", "path": "", "type": "evil.Module"}])
    )
    with pytest.raises(
        OptionError, match="its module evil.Module is code of its own, which is not run"
    ):
        PairScorer.load(str(coded), "--rerank")
    edit_json(
        coded / "config.json",
        auto_map={"AutoModelForSequenceClassification": "evil.Model"},
    )
    (coded / "modules.json").unlink()
    (coded / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    with pytest.raises(OptionError, match=r"config\.json: auto_map names evil\.Model"):
        PairScorer.load(str(coded), "--rerank")
    assert not (tmp_path / "ran").exists()
