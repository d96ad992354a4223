"""What `benchmarks.gpu_check` asks of vectors: those of a GPU beside the processor's, bits, and
want of memory.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.random_models import FAMILIES, PADDED, known, small
from transforms.calibration import parse_calibration
from transforms.calibration.fit import fit_calibration
from transforms.encoder import Encoder
from transforms.encoder.probe import BatchSharing

# In float32, of the largest component; in 16 bits, as a multiple of what the processor's own 16
# bits come to.
FLOAT32, NARROW = 2e-5, 2.0
POOLERS = (
    (
        "mean",
        "cls",
        "cls-tanh",
        "max",
        "mean-sqrt-len",
        "last-token",
        "weighted-mean",
        "static",
        "first-last",
        "last2",
    )
    + ("ditto:1-2", "sbert-wk:start=1,window=1", "remove-biases", "mean+max")
    + ('prompt:template=This sentence : "{text}" means [MASK].',)
)
CALIBRATIONS = (
    "standardize",
    "remove-top:2",
    "standardize+remove-top:2",
    "whitening",
    "whitening:16",
)
DETERMINISTIC = ("bert", "modernbert", "qwen3", "mpnet")


@dataclass(frozen=True)
class Finding:
    """A line of the table: what, how much, what it should be, and whether it is (None: nothing to
    hold it to).

    `value` is the number that is held to a bar of speed; `seconds` how long it took to find out.
    """

    what: str
    measured: str
    bar: str
    holds: bool | None = None
    value: float | None = None
    seconds: float | None = None


def tried(what: str, work: Callable[[], Finding]) -> Finding:
    """What is found; where that fails, the error, so that the other lines are there all the
    same.
    """
    try:
        return work()
    except ModuleNotFoundError as error:  # of what `embed` needs beside the encoder
        return Finding(what, "not measured", f"{error.name} is not installed")
    except Exception as error:
        return Finding(
            what, f"{type(error).__name__}: {' '.join(str(error).split())[:200]}", "no error", False
        )


@dataclass(frozen=True)
class Scope:
    """How much is checked: texts, those of a calibration's sample, those of batches too large, and
    what by which.
    """

    texts: int
    sample: int
    crowd: int
    families: tuple[str, ...] = tuple(FAMILIES)
    poolers: tuple[str, ...] = POOLERS
    calibrations: tuple[str, ...] = CALIBRATIONS


def exactness(scope: Scope, found: list[str], device: str, where: Path) -> Iterator[Finding]:
    """Every family, pooler and calibration on the device beside the processor, and the bits of
    `--deterministic`.
    """
    texts = [*found[: scope.texts], " ".join(found[:20]), "", "one"]
    folders = {family: str(small(family, where)) for family in scope.families if known(family)}
    for family, folder in folders.items():
        yield tried(family, partial(_family, family, folder, texts, device))
    for pooler in scope.poolers:
        what = f"pooler {pooler}"
        yield tried(what, partial(_float32, what, folders["bert"], texts, device, pooler=pooler))
    rows = Encoder.load(
        folders["bert"], pooler="mean", dtype="float32", device="cpu", normalize=False
    )
    sample, fitted_on = (
        rows.encode(found[: scope.sample]),
        {"space": rows.space.to_json(), "store": "", "run": ""},
    )
    for method in scope.calibrations:
        fitted = fit_calibration(parse_calibration(method), None, sample, fitted_on).calibration
        what, options = (
            f"calibration {method}",
            {"pooler": "mean", "normalize": False, "calibration": fitted},
        )
        yield tried(what, partial(_float32, what, folders["bert"], texts, device, **options))
    for family in DETERMINISTIC:
        if family in folders:
            yield tried(
                f"{family} --deterministic", partial(_bits, family, folders[family], texts, device)
            )


def _family(family: str, folder: str, texts: list[str], device: str) -> Finding:
    """A family in float32 and in 16 bits, and whether it is padded."""
    exact = Encoder.load(folder, pooler="mean", dtype="float32", device="cpu").encode(texts)
    wide = _off(
        Encoder.load(folder, pooler="mean", dtype="float32", device=device).encode(texts), exact
    )
    encoder = Encoder.load(folder, pooler="mean", dtype="bfloat16", device=device)
    ours = _spread(encoder.encode(texts), exact)
    theirs = _spread(
        Encoder.load(folder, pooler="mean", dtype="bfloat16", device="cpu").encode(texts), exact
    )
    packed = encoder.together is BatchSharing.PACKED
    how = (
        "without padding"
        if packed
        else f"padded: {encoder.replicas[0].forward.objection or 'no kernel'}"
    )
    return Finding(
        f"{family}, {how}",
        f"{wide:.1e}; {ours / theirs:.2f}x",
        f"float32 <= {FLOAT32:.0e}; bfloat16 <= {NARROW:g}x the processor's",
        wide <= FLOAT32 and ours <= NARROW * theirs and packed == (family not in PADDED),
    )


def _float32(what: str, folder: str, texts: list[str], device: str, **options: Any) -> Finding:
    exact = Encoder.load(folder, dtype="float32", device="cpu", **options).encode(texts)
    off = _off(Encoder.load(folder, dtype="float32", device=device, **options).encode(texts), exact)
    return Finding(what, f"{off:.1e}", f"float32 <= {FLOAT32:.0e}", off <= FLOAT32)


def _bits(family: str, folder: str, texts: list[str], device: str) -> Finding:
    encoder = Encoder.load(folder, device=device, deterministic=True)
    together = encoder.encode(texts)
    others = [
        encoder.encode(texts),
        encoder.encode(texts[::-1])[::-1],
        encoder.encode(texts[: len(texts) // 3]),
    ]
    equal = all(np.array_equal(other, together[: len(other)]) for other in others)
    return Finding(
        f"{family} --deterministic", "equal" if equal else "not equal", "the same bits", equal
    )


def _off(found: np.ndarray, exact: np.ndarray) -> float:
    """The largest difference, as a part of the largest component."""
    return float(np.abs(found - exact).max() / np.abs(exact).max())


def _spread(found: np.ndarray, exact: np.ndarray) -> float:
    """The root of the mean square of all differences."""
    return float(np.sqrt(np.square(found - exact, dtype=np.float64).mean()))


def out_of_memory(
    scope: Scope,
    found: list[str],
    device: str,
    where: Path,
    scarce: Callable[[Encoder], AbstractContextManager[None]],
) -> Finding:
    """A batch that is too large for the memory left by `scarce`: halved, its vectors those of small
    batches.
    """
    few, folder = found[:100], str(small("bert", where))
    texts = few * -(-scope.crowd // len(few))
    expected = Encoder.load(folder, device=device, tokens_per_batch=512).encode(few)
    encoder = Encoder.load(folder, device=device, tokens_per_batch=1 << 20)
    encoder.encode(few)  # what libraries keep of the memory for themselves is taken
    with scarce(encoder):
        made = encoder.embed(encoder.tokenize(texts))
    off = _off(made.vectors[: len(few)], expected)
    holds = made.stats.oom_splits > 0 and off <= 0.02
    return Finding(
        "out of memory",
        f"{made.stats.oom_splits} batches halved, {off:.0e}",
        ">= 1, <= 2e-2",
        holds,
    )


def quiet() -> None:
    """No warnings of what is tried on purpose."""
    for name in ("transforms", "sentence_transformers", "transformers"):
        logging.getLogger(name).setLevel(logging.ERROR)
    torch.set_float32_matmul_precision("highest")
