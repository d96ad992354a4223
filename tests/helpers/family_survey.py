"""Every family through the encoder, against the library's own model one text at a time, and the
table of what came out.

`python tests/helpers/family_survey.py FAMILY ...` prints the verdicts of some families.
"""

import copy
import inspect
import sys
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
import transformers
from helpers.families import (
    WORDS,
    NotMadeError,
    first_line,
    model_class,
    save_config_alone,
    save_family,
    text_families,
    turn_padding,
)
from transformers import AutoTokenizer

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.encoder import Encoder, choose_runner
from sentence_beam.transforms.encoder.probe import BatchSharing
from sentence_beam.transforms.encoder.texts_attention import attend_text_by_text

LENGTHS = (3, 1, 28, 10, 0, 10, 50, 16, 58, 85, 3)
TEXTS = [
    " ".join(WORDS[(7 * row + k * k) % len(WORDS)] for k in range(n))
    for row, n in enumerate(LENGTHS)
]
TOLERANCE = 1e-5
SHARING = {
    BatchSharing.PACKED: "without padding",
    BatchSharing.PADDED: "padded",
    BatchSharing.EQUAL: "texts of one length",
    BatchSharing.ALONE: "one text a batch",
}


@dataclass(frozen=True)
class Verdict:
    """What became of a family: `equal`, `wrong`, `refused` or `not made`; the reason, or how its
    texts share a batch.

    `dtype` is what `--dtype auto` comes to where a processor computes in bfloat16; `row` how the
    pass of a GPU takes texts, its kernel replaced by a loop over texts.
    """

    family: str
    result: str
    detail: str
    dtype: str = ""
    row: str = ""


def survey(family: str, row: bool = False) -> Verdict:
    """Make the family and compare; texts of all lengths in batches and alone, its tokenizer padding
    on both sides.

    `row`: as a GPU takes them, too.
    """
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / family
        try:
            save_family(family, folder)
        except NotMadeError as error:
            return _refused_by_config(family, folder, str(error))
        try:
            expected = reference(family, folder)
        except Exception as error:  # models raise every kind for inputs that they miss
            return _without_reference(family, folder, error)
        return _compare(family, folder, expected, row)


def _compare(family: str, folder: Path, expected: np.ndarray, row: bool) -> Verdict:
    sharing = ""
    for side in ("left", "right"):
        turn_padding(folder, side)
        try:
            encoder = load(folder)
        except OptionError as error:
            return Verdict(family, "refused", reason(error, folder))
        worst = max(error_of(vectors, expected) for vectors in several_ways(encoder))
        sharing = SHARING[encoder.together]
        if worst > TOLERANCE:
            return Verdict(family, "wrong", f"{sharing}, {side}: {worst:.0e}")
    taken, worst = in_one_row(folder, expected) if row else ("", 0.0)
    if worst > TOLERANCE:
        return Verdict(family, "wrong", f"in one row: {worst:.0e}")
    return Verdict(family, "equal", sharing, _narrow(folder, sharing), taken)


def in_one_row(folder: Path, expected: np.ndarray) -> tuple[str, float]:
    """How the pass of a GPU takes the family's texts, and how far its vectors are off; 0 where that
    pass is not taken.
    """
    with patch.object(choose_runner, "choose_kernel", lambda _: attend_text_by_text):
        encoder = load(folder)
    if encoder.together is not BatchSharing.PACKED:
        return f"{SHARING[encoder.together]}: {encoder.replicas[0].forward.objection}", 0.0
    return SHARING[encoder.together], max(
        error_of(vectors, expected) for vectors in several_ways(encoder)
    )


def load(folder: Path, dtype: str = "float32", **options: object) -> Encoder:
    """A mean pooler on the CPU, vectors as long as they are."""
    return Encoder.load(
        str(folder), pooler="mean", dtype=dtype, device="cpu", normalize=False, **options
    )


def several_ways(encoder: Encoder) -> list[np.ndarray]:
    """The vectors of all texts: together, in smaller batches, and one text at a time."""
    together = encoder.encode(TEXTS)
    encoder.tokens_per_batch = 120
    smaller = encoder.encode(TEXTS)
    return [together, smaller, np.stack([encoder.encode(text) for text in TEXTS])]


def reference(family: str, folder: Path) -> np.ndarray:
    """The mean of the last states by transformers, each text alone and unpadded, with all inputs it
    has a name for.

    BigBird changes with the texts that it has seen: every text gets a model of its own.
    """
    model = model_class(family).from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    takes = inspect.signature(model.forward).parameters
    vectors = []
    for text in TEXTS:
        inputs = {
            name: value
            for name, value in tokenizer(text, return_tensors="pt").items()
            if name in takes
        }
        with torch.inference_mode():
            vectors.append(_states(copy.deepcopy(model), inputs).double().mean(0).numpy())
    return np.stack(vectors)


def _states(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """The last states; of an encoder-decoder that wants more than a text the encoder's, without a
    cache if need be.
    """
    try:
        return model(**inputs).last_hidden_state[0]
    except Exception:
        if model.config.is_encoder_decoder:
            return model.get_encoder()(**inputs).last_hidden_state[0]
        if not getattr(model.config, "use_cache", False):
            raise
        return model(**inputs, use_cache=False).last_hidden_state[0]


def error_of(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference, as a part of the largest component; infinite where a number is
    none.
    """
    error = np.abs(found - expected).max() / np.abs(expected).max()
    return float(error) if np.isfinite(error) else np.inf


def _narrow(folder: Path, sharing: str) -> str:
    """The dtype by default where there is bfloat16; texts that float32 keeps apart share no batch
    in that one either.
    """
    try:
        encoder = load(folder, "bfloat16")
    except OptionError:
        return "float32"
    shared = [SHARING[kind] for kind in BatchSharing]  # from all texts to none
    narrow = SHARING[encoder.together]
    assert shared.index(narrow) >= shared.index(sharing), (
        f"{folder.name}: {narrow} in bfloat16, {sharing} in float32"
    )
    assert np.isfinite(encoder.encode(TEXTS)).all()
    return "bfloat16"


def _refused_by_config(family: str, folder: Path, why: str) -> Verdict:
    """A model that is too much to make may be refused for what its config.json says."""
    try:
        save_config_alone(family, folder)
        load(folder)
    except OptionError as error:
        if "config.json" in str(error):
            return Verdict(family, "refused", reason(error, folder))
    except NotMadeError:
        pass
    return Verdict(family, "not made", why)


def _without_reference(family: str, folder: Path, error: Exception) -> Verdict:
    """A model that transformers cannot run on a text alone has to be refused."""
    try:
        load(folder)
    except OptionError as refusal:
        return Verdict(family, "refused", reason(refusal, folder))
    return Verdict(
        family, "wrong", f"transformers cannot run it ({first_line(error)}), the encoder does"
    )


def reason(error: Exception, folder: Path) -> str:
    """The message without the folder's name."""
    return first_line(error).replace(str(folder), "").lstrip("/: ")


def table(verdicts: Sequence[Verdict]) -> str:
    """All verdicts as the rows of three Markdown tables."""
    lines = [
        f"Surveyed with transformers {transformers.__version__}: {len(verdicts)} families.",
        "",
    ]
    parts = {
        "equal": ("batches", "`--dtype auto`", "on a GPU"),
        "refused": ("because",),
        "not made": ("because",),
    }
    for result, columns in parts.items():
        rows = sorted((v for v in verdicts if v.result == result), key=lambda v: v.family)
        lines += [f"## {result.capitalize()} ({len(rows)})", ""]
        lines += [f"| family | {' | '.join(columns)} |", "|---" * (1 + len(columns)) + "|"]
        for row in rows:
            cells = [_cell(row.detail), row.dtype, _cell(row.row)][: len(columns)]
            lines.append(f"| `{row.family}` | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    for name in sys.argv[1:] or text_families():
        print(*vars(survey(name, row=True)).values(), sep="\t", flush=True)
