"""A model quantised to int8, as OpenVINO runs it: a graph and its weights."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from sentence_beam.transforms.base.errors import OptionError, cite, refuse_damage
from sentence_beam.transforms.space.hashing import canonical_json, sha256_text
from sentence_beam.transforms.space.identity import Space
from sentence_beam.transforms.space.recipe import Machine

INT8 = "int8"
GRAPH = "model.xml"
WEIGHTS = "model.bin"
ABOUT = "about.json"
MISSING = (
    "dtype int8: embed quantises a model for one store, on a sample of its corpus; say"
    f" {cite('dtype')} float32 here"
)


def restrict_to_cpu(machine: Machine) -> Machine:
    """Return the machine with its CPU alone, on which int8 runs. Raises OptionError for a GPU."""
    if machine.device.startswith("cuda"):
        raise OptionError(
            f"dtype int8 runs on the CPU; leave {cite('device')} {machine.device} out"
        )
    return replace(machine, device="cpu", refuses_unseen_gpu=False)


@dataclass(frozen=True)
class Int8Facts:
    """The facts of a quantised model that are known without reading it.

    `source` is the digest of the float weights that it was made of, `layers` are the numbers of
    the token states that it returns, in order. `cosine` is the mean, and `worst` the least, cosine
    between its vectors of the canary's texts and those of float32. `texts` is the number of texts
    on which its ranges were fitted; `versions` are those of the libraries that made it.
    """

    source: str
    layers: tuple[int, ...]
    cosine: float
    worst: float
    texts: int
    versions: Mapping[str, str]

    def to_bytes(self) -> bytes:
        """Return the JSON file of these facts."""
        return (json.dumps(vars(self), indent=1, sort_keys=True) + "\n").encode()

    @classmethod
    def from_bytes(cls, data: bytes, path: str) -> "Int8Facts":
        """Read the result of `to_bytes`. Raises OptionError that names the file for other bytes."""
        with refuse_damage(f"{path} does not describe a quantised model", kind=OptionError):
            values = json.loads(data)
            return cls(**{**values, "layers": tuple(values["layers"])})


@dataclass(frozen=True)
class Int8Model:
    """A quantised model: the bytes of its graph (XML) and of its weights, and its facts."""

    graph: bytes
    weights: bytes
    facts: Int8Facts

    @cached_property
    def digest(self) -> str:
        """The sha256 in hex over graph, weights, source and layers."""
        parts = {
            "graph": hashlib.sha256(self.graph).hexdigest(),
            "weights": hashlib.sha256(self.weights).hexdigest(),
            "source": self.facts.source,
            "layers": self.facts.layers,
        }
        return sha256_text(canonical_json(parts))

    def applied(self, space: Space) -> Space:
        """Return the space of this model in place of its source."""
        return quantised(space, self.facts, self.digest)

    def to_files(self) -> dict[str, bytes]:
        """Return the files by name, the facts last."""
        return {GRAPH: self.graph, WEIGHTS: self.weights, ABOUT: self.facts.to_bytes()}


def quantised(space: Space, facts: Int8Facts, digest: str) -> Space:
    """Return the space with the quantised model of this digest as its weights.

    A space of other weights than the source is returned unchanged, so that a comparison names them.
    """
    return replace(space, weights=digest) if space.weights == facts.source else space
