"""What `benchmarks.gpu_check` asks of vectors: those of a GPU beside the processor's, bits, and
want of memory.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.gpu_machine import Place
from benchmarks.random_models import FAMILIES, PADDED, known, small
from sentence_beam.transforms.calibration import parse_calibration
from sentence_beam.transforms.calibration.fitting import fit_calibration
from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.encoder.probe import BatchSharing

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
# In 16 bits a family's own pass and texts in one row read layers and heads in other ways.
NARROW_POOLERS = tuple(
    (family, pooler)
    for family in ("bert", "modernbert")
    for pooler in ("cls", "last-token", "first-last", "ditto:1-2", "sbert-wk:start=1,window=1")
)
TOKEN_LAYERS = ("CNN", "LSTM")
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


def families(scope: Scope, found: list[str], place: Place, where: Path) -> Iterator[Finding]:
    """Every family on the device beside the processor, in float32 and in 16 bits."""
    for family in filter(known, scope.families):
        work = partial(_family, family, _small(family, where), _texts(scope, found), place)
        yield tried(family, work)


def narrow_poolers(scope: Scope, found: list[str], place: Place, where: Path) -> Iterator[Finding]:
    """Poolers in 16 bits, without padding if the device can do it, beside the processor."""
    texts = _texts(scope, found)
    work = partial(Encoder.encode, texts=texts)
    for family, pooler in NARROW_POOLERS:
        if pooler in scope.poolers and family in scope.families:
            what = f"pooler {pooler}, {family}"
            folder = _small(family, where)
            yield tried(what, partial(_narrow, what, folder, work, place, pooler))
    folder = _small("bert", where)
    pieces = partial(_pieces, texts=texts)
    yield tried("late pieces", partial(_narrow, "late pieces", folder, pieces, place))
    half = replace(place, dtype="float16")
    yield tried("bert in float16", partial(_narrow, "bert in float16", folder, work, half))
    for name in TOKEN_LAYERS:
        what = f"{name} over the tokens"
        yield tried(what, partial(_trained, what, name, folder, work, place, where))


def poolers(scope: Scope, found: list[str], place: Place, where: Path) -> Iterator[Finding]:
    """Every pooler in float32 on the device beside the processor."""
    for pooler in scope.poolers:
        what = f"pooler {pooler}"
        work = partial(
            _float32, what, _small("bert", where), _texts(scope, found), place, pooler=pooler
        )
        yield tried(what, work)


def calibrations(scope: Scope, found: list[str], place: Place, where: Path) -> Iterator[Finding]:
    """Every calibration in float32 on the device beside the processor."""
    folder = _small("bert", where)
    rows = Encoder.load(folder, pooler="mean", dtype="float32", device="cpu", normalize=False)
    sample = rows.encode(found[: scope.sample])
    fitted_on = {"space": rows.space.to_json(), "store": "", "run": ""}
    for method in scope.calibrations:
        fitted = fit_calibration(parse_calibration(method), None, sample, fitted_on).calibration
        what = f"calibration {method}"
        options = {"pooler": "mean", "normalize": False, "calibration": fitted}
        work = partial(_float32, what, folder, _texts(scope, found), place, **options)
        yield tried(what, work)


def same_bits(scope: Scope, found: list[str], place: Place, where: Path) -> Iterator[Finding]:
    """`--deterministic`: the bits of texts in another order, and of a part of them."""
    for family in DETERMINISTIC:
        if family in scope.families and known(family):
            work = partial(_bits, family, _small(family, where), _texts(scope, found), place.device)
            yield tried(f"{family} --deterministic", work)


def _texts(scope: Scope, found: list[str]) -> list[str]:
    return [*found[: scope.texts], " ".join(found[:20]), "", "one"]


def _small(family: str, where: Path) -> str:
    """The folder of a small model of a family, made when first used."""
    if not (where / family).exists():
        small(family, where)
    return str(where / family)


def _family(family: str, folder: str, texts: list[str], place: Place) -> Finding:
    """A family in float32 and in 16 bits, and whether it is padded."""
    work = partial(Encoder.encode, texts=texts)
    exact = work(Encoder.load(folder, pooler="mean", dtype="float32", device="cpu"))
    wide = _off(
        work(Encoder.load(folder, pooler="mean", dtype="float32", device=place.device)), exact
    )
    encoder = Encoder.load(folder, pooler="mean", dtype=place.dtype, device=place.device)
    ours = _spread(work(encoder), exact)
    theirs = _spread(
        work(Encoder.load(folder, pooler="mean", dtype=place.dtype, device="cpu")), exact
    )
    return Finding(
        f"{family}, {_padding(encoder)}",
        f"{wide:.1e}; {ours / theirs:.2f}x",
        f"float32 <= {FLOAT32:.0e}; {place.dtype} <= {NARROW:g}x the processor's",
        wide <= FLOAT32 and ours <= NARROW * theirs and _pads_as_it_should(encoder, family, place),
    )


def _padding(encoder: Encoder) -> str:
    if encoder.together is BatchSharing.PACKED:
        return "without padding"
    return f"padded: {encoder.replicas[0].forward.objection or 'no kernel'}"


def _pads_as_it_should(encoder: Encoder, family: str, place: Place) -> bool:
    is_packed = encoder.together is BatchSharing.PACKED
    return is_packed == (place.packs and family not in PADDED)


def _narrow(
    what: str,
    folder: str,
    work: Callable[[Encoder], np.ndarray],
    place: Place,
    pooler: str = "mean",
) -> Finding:
    """A pooler in 16 bits: how far from float32, as a multiple of the processor's 16 bits."""
    exact = work(Encoder.load(folder, pooler=pooler, dtype="float32", device="cpu"))
    encoder = Encoder.load(folder, pooler=pooler, dtype=place.dtype, device=place.device)
    ours = _spread(work(encoder), exact)
    theirs = _spread(
        work(Encoder.load(folder, pooler=pooler, dtype=place.dtype, device="cpu")), exact
    )
    holds = ours <= NARROW * theirs and _pads_as_it_should(encoder, "bert", place)
    return Finding(
        f"{what}, {_padding(encoder)}",
        f"{ours / theirs:.2f}x",
        f"{place.dtype} <= {NARROW:g}x the processor's",
        holds,
    )


def _trained(
    what: str,
    name: str,
    folder: str,
    work: Callable[[Encoder], np.ndarray],
    place: Place,
    where: Path,
) -> Finding:
    """A CNN or an LSTM of sentence-transformers between the model and its pooling."""
    from sentence_transformers import (  # type: ignore[attr-defined]
        SentenceTransformer,
        models,
    )

    layers = models.CNN(64, 16, [1, 3]) if name == "CNN" else models.LSTM(64, 16)
    modules = [models.Transformer(folder), layers, models.Pooling(2 * 16)]
    SentenceTransformer(modules=modules, device="cpu").save(str(where / name))
    return _narrow(what, str(where / name), work, place, "auto")


def _pieces(encoder: Encoder, texts: list[str]) -> np.ndarray:
    """The vectors of pieces of documents, pooled from the states of their windows."""
    document = " ".join(texts)
    starts = range(0, min(len(document), 1200), 100)
    spans = [[(start, min(start + 100, len(document))) for start in starts]]
    return encoder.embed_pieces(encoder.windows([document], spans, window=64)).vectors


def _float32(what: str, folder: str, texts: list[str], place: Place, **options: Any) -> Finding:
    exact = Encoder.load(folder, dtype="float32", device="cpu", **options).encode(texts)
    encoder = Encoder.load(folder, dtype="float32", device=place.device, **options)
    off = _off(encoder.encode(texts), exact)
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
    for name in ("sentence_beam", "sentence_transformers", "transformers"):
        logging.getLogger(name).setLevel(logging.ERROR)
    torch.set_float32_matmul_precision("highest")
