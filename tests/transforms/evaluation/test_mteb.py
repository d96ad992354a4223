"""MTEB runs our encoder: a local task has the score that sentence-transformers gets, and the one
that evaluate gives.
"""

from pathlib import Path

import numpy as np
import pytest
from helpers.tiny_models import WORDS, save_tiny_model
from scipy import stats

from sentence_beam.transforms.calibration.quality import cosines
from sentence_beam.transforms.encoder import Encoder

pytestmark = pytest.mark.skipif(
    not __import__("importlib.util").util.find_spec("mteb"), reason="mteb is not installed"
)


def local_task(pairs: list[tuple[float, str, str]]):
    """An STS task of MTEB's whose data are these pairs."""
    from datasets import Dataset, DatasetDict
    from mteb.abstasks.sts import AbsTaskSTS
    from mteb.abstasks.task_metadata import TaskMetadata

    class LocalSts(AbsTaskSTS):
        metadata = TaskMetadata(
            name="LocalSts", description="pairs made here", reference=None, type="STS", category="t2t",
            modalities=["text"], eval_splits=["test"], eval_langs=["eng-Latn"], main_score="cosine_spearman",
            dataset={"path": "local", "revision": "1"}, date=("2026-01-01", "2026-01-02"), domains=["Written"],
            task_subtypes=[], license="cc0-1.0", annotations_creators="derived", dialect=[], sample_creation="created",
            bibtex_citation="",
        )  # fmt: skip
        min_score, max_score = 0, 5

        def load_data(self, *args: object, **kwargs: object) -> None:
            gold, first, second = zip(*pairs, strict=True)
            columns = {"score": list(gold), "sentence1": list(first), "sentence2": list(second)}
            self.dataset = DatasetDict(test=Dataset.from_dict(columns))
            self.data_loaded = True

    return LocalSts()


def test_a_local_task_scores_as_with_sentence_transformers(tmp_path: Path) -> None:
    import mteb
    from sentence_transformers import SentenceTransformer

    from sentence_beam.mteb import MtebEncoder

    model, generator = save_tiny_model("bert", tmp_path / "tiny"), np.random.default_rng(0)
    texts = [" ".join(generator.choice(WORDS.split(), generator.integers(2, 9))) for _ in range(60)]
    pairs = [
        (float(generator.uniform(0, 5)), a, b) for a, b in zip(texts[::2], texts[1::2], strict=True)
    ]

    def main_score(encoder: object) -> float:
        options = {
            "cache": None,
            "overwrite_strategy": "always",
            "co2_tracker": False,
            "show_progress_bar": False,
        }
        return mteb.evaluate(encoder, [local_task(pairs)], **options)[0].get_score()

    encoder = Encoder.load(str(model), pooler="mean", dtype="float32")
    ours = main_score(MtebEncoder(encoder))
    assert ours == pytest.approx(
        main_score(SentenceTransformer(str(model), device="cpu")), abs=1e-6
    )
    vectors = encoder.encode(texts)
    expected = stats.spearmanr(
        cosines(vectors[::2], vectors[1::2]), [pair[0] for pair in pairs]
    ).statistic
    assert ours == pytest.approx(expected, abs=1e-4)
    other = MtebEncoder(Encoder.load(str(model), pooler="cls", dtype="float32"))
    assert main_score(other) != ours
    assert other.mteb_model_meta.revision != MtebEncoder(encoder).mteb_model_meta.revision


def test_queries_and_documents_have_encoders_of_their_own(tmp_path: Path) -> None:
    from mteb.types import PromptType

    from sentence_beam.mteb import MtebEncoder

    model = str(save_tiny_model("bert", tmp_path / "tiny"))
    prompts = {None: "", PromptType.query: "the red dog ", PromptType.document: "a cat "}
    encoders = {
        of: Encoder.load(model, dtype="float32", prompt=prompt) for of, prompt in prompts.items()
    }
    found = MtebEncoder(*encoders.values())
    task = {"task_metadata": None, "hf_split": "test", "hf_subset": "default"}
    for of, encoder in encoders.items():
        vectors = found.encode([{"text": ["a man"]}, {"text": ["dog"]}], prompt_type=of, **task)
        np.testing.assert_array_equal(vectors, encoder.encode(["a man", "dog"]))
