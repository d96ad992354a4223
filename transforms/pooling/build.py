"""From a pooler's SPEC to the pooler."""

from collections.abc import Callable

from transforms.errors import OptionError
from transforms.pooling.average import Mean, MeanSqrtLen, WeightedMean
from transforms.pooling.concat import Concat
from transforms.pooling.layers import TwoLayerMean
from transforms.pooling.maximum import Max
from transforms.pooling.pooler import Pooler
from transforms.pooling.single_token import FirstToken, LastToken, TanhHead
from transforms.pooling.states import ModelShape
from transforms.pooling.static import StaticMean
from transforms.space.spec import PoolerPart, PoolerSpec


def build_pooler(spec: PoolerSpec, shape: ModelShape) -> Pooler:
    """The pooler of a SPEC for a model of this shape; `OptionError` where the model cannot serve it."""
    if spec.is_auto:
        raise OptionError("pooler auto means the model's own modules; resolve it to a pooler by name first")
    built = tuple(_build_part(part, shape) for part in spec.parts)
    return built[0] if len(built) == 1 else Concat(built, spec.dim(shape.hidden, shape.embedding))


def _build_part(part: PoolerPart, shape: ModelShape) -> Pooler:
    _check(part, shape)
    return _BUILDERS[part.name](part, shape)


def _check(part: PoolerPart, shape: ModelShape) -> None:
    if _layer(part, shape) > shape.layers:
        raise OptionError(f"pooler '{part}': the model has layers 0 to {shape.layers}")
    if part.name == "cls-tanh" and not shape.has_pooler_head:
        raise OptionError("pooler 'cls-tanh': the checkpoint holds no pooler weights; use cls or another pooler")
    if part.name == "last2" and shape.layers < 2:
        raise OptionError("pooler 'last2' needs two blocks; use mean")


def _layer(part: PoolerPart, shape: ModelShape) -> int:
    layer = dict(part.options).get("layer", "last")
    return shape.layers if layer == "last" else int(layer)


def _count(part: PoolerPart) -> str:
    return str(part.option("count"))


def _of_one_layer(kind: Callable[..., Pooler]) -> Callable[[PoolerPart, ModelShape], Pooler]:
    return lambda part, shape: kind(_layer(part, shape), shape.hidden, _count(part))


def _weighted_mean(part: PoolerPart, shape: ModelShape) -> Pooler:
    return WeightedMean(_layer(part, shape), shape.hidden, _count(part), str(part.option("rank")))


def _static(part: PoolerPart, shape: ModelShape) -> Pooler:
    if part.option("from") == "raw":
        return StaticMean(shape.embedding, _count(part))
    return Mean(0, shape.hidden, _count(part))


def _first_last(part: PoolerPart, shape: ModelShape) -> Pooler:
    first = 0 if part.option("first") == "embeddings" else 1
    return TwoLayerMean(first, shape.layers, shape.hidden, _count(part))


def _last2(part: PoolerPart, shape: ModelShape) -> Pooler:
    return TwoLayerMean(shape.layers - 1, shape.layers, shape.hidden, _count(part))


_BUILDERS: dict[str, Callable[[PoolerPart, ModelShape], Pooler]] = {
    "mean": _of_one_layer(Mean),
    "cls": _of_one_layer(FirstToken),
    "cls-tanh": _of_one_layer(TanhHead),
    "max": _of_one_layer(Max),
    "mean-sqrt-len": _of_one_layer(MeanSqrtLen),
    "last-token": _of_one_layer(LastToken),
    "weighted-mean": _weighted_mean,
    "static": _static,
    "first-last": _first_last,
    "last2": _last2,
}
