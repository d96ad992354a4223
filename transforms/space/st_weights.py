"""Check the weights of a sentence-transformers directory's layers against their settings."""

from collections.abc import Mapping
from typing import Any

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.space.model_files import find_safetensors, read_safetensors_shapes
from sentence_beam.transforms.space.st_layers import StLayer

# the parameter with the width of a layer's input
_INPUTS = {"dense": "in_features", "layer-norm": "dim", "st-cnn": "width", "st-lstm": "width"}


def check_layer(layer: StLayer, width: int) -> None:
    """Raise OptionError if a layer does not take vectors of this width, or its weights do not."""
    if layer.kind not in _INPUTS:
        return
    wanted = layer.parameters[_INPUTS[layer.kind]]
    if wanted != width:
        raise OptionError(
            f"{layer.folder}: it takes {wanted} components by its config.json, but gets {width};"
            " fetch the model again"
        )
    for name, shape in _list_shapes(layer.kind, layer.parameters).items():
        _check_shape(layer, name, shape)


def check_mix(mix: StLayer, layers: int) -> None:
    """Raise OptionError if there is not one weight for each layer from the first that is mixed."""
    _check_shape(mix, "layer_weights", [layers + 1 - mix.parameters["start"]])


def _list_shapes(kind: str, parameters: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return the shape of a layer's first weight by its name; none for layers over tokens."""
    if kind == "dense":
        return {"linear.weight": [parameters["out_features"], parameters["in_features"]]}
    if kind == "layer-norm":
        return {"norm.weight": [parameters["dim"]]}
    return {}


def _check_shape(layer: StLayer, name: str, wanted: list[int]) -> None:
    path = find_safetensors(layer.folder)[0]
    shape = read_safetensors_shapes(path).get(name)
    if shape != wanted:
        raise OptionError(
            f"{path} does not fit its config.json: {name} is {shape or 'missing'}, not {wanted};"
            " fetch the model again"
        )
