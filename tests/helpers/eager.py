"""A PTransform on lists: what a test gives goes in, what it makes comes out, by the runner in this
process.
"""

import uuid
from typing import Any

import apache_beam as beam

_KEPT: dict[str, list[Any]] = {}


def run(transform: beam.PTransform, *inputs: list[Any]) -> list[Any]:
    """The elements, in any order, of the one collection that a PTransform makes of its inputs."""
    return outputs(transform, *inputs, names=())[""]


def outputs(
    transform: beam.PTransform, *inputs: list[Any], names: tuple[str, ...]
) -> dict[str, list[Any]]:
    """The elements of each named output of a PTransform; an output that is None is left out."""
    with beam.Pipeline("FnApiRunner") as pipeline:
        given = [
            pipeline | f"Input{place}" >> beam.Create(items) for place, items in enumerate(inputs)
        ]
        made = (given[0] if len(given) == 1 else tuple(given)) | "Transform" >> transform
        collections = {name: _output(made, name) for name in names} if names else {"": made}
        collections = {
            name: collection for name, collection in collections.items() if collection is not None
        }
        keys = {name: uuid.uuid4().hex for name in collections}
        for name, collection in collections.items():
            _KEPT[keys[name]] = []
            _ = collection | f"Keep{name}" >> beam.Map(_keep, keys[name])
    return {name: _KEPT.pop(key) for name, key in keys.items()}


def _output(made: Any, name: str) -> beam.PCollection | None:
    return made[name] if isinstance(made, dict) else getattr(made, name)


def _keep(element: Any, key: str) -> None:
    _KEPT[key].append(element)
