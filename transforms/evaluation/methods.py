"""Methods: what is compared on tasks. A pooler, a calibration of its vectors or none, and a
width.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from transforms.calibration import Calibration, check_space
from transforms.evaluation.encode_many import ModelSettings
from transforms.space import Space, parse_pooler, resolve_model
from transforms.store.calibrations import read_calibration

EVERY_HEAD = "ditto:*"
CROSS_ENCODER = "cross-encoder:"  # and its folder, in the place of a pooler


@dataclass(frozen=True)
class Method:
    """A pooler's SPEC, the folder of a calibration or None, the number of components; `search` is
    how a store is searched, None for vectors that are compared with every other. A cross-encoder
    has no components."""

    pooler: str
    calibration: str | None
    dim: int
    search: str | None = None

    @property
    def fields(self) -> dict[str, str | int | None]:
        """What names the method in a row of scores."""
        named: dict[str, str | int | None] = {
            "pooler": self.pooler,
            "calibration": self.calibration,
            "dim": self.dim,
        }
        return {**named, **({"search": self.search} if self.search else {})}

    def __str__(self) -> str:
        words = [self.pooler, *([self.calibration] if self.calibration else [])]
        words += [f"{self.dim} dims"] if self.dim else []
        return ", ".join([*words, *([self.search] if self.search else [])])

    @classmethod
    def of_cross_encoder(cls, folder: str) -> "Method":
        """The method of a cross-encoder."""
        return cls(f"{CROSS_ENCODER}{folder}", None, 0)


def expand(
    options: ModelSettings, specs: Sequence[str]
) -> tuple[list[str], tuple[int, int] | None]:
    """The poolers, `ditto:*` as one for each head, and the number of blocks and heads for it (None
    without it).
    """
    poolers: list[str] = []
    grid = None
    for spec in specs:
        if not spec.startswith(EVERY_HEAD):
            parse_pooler(spec)
            poolers.append(spec)
            continue
        files = resolve_model(options.model, options.revision)
        grid = (files.layers, files.heads)
        every = [(block, head) for block in range(1, grid[0] + 1) for head in range(1, grid[1] + 1)]
        poolers += [spec.replace("*", f"{block}-{head}", 1) for block, head in every]
    return list(dict.fromkeys(poolers)), grid


def matched(spaces: Mapping[str, Space], paths: Sequence[str]) -> dict[str, dict[str, Calibration]]:
    """The calibrations that were fitted on each pooler's vectors, by pooler and path.

    Raises SpaceMismatchError for a calibration of none of the poolers.
    """
    found: dict[str, dict[str, Calibration]] = {pooler: {} for pooler in spaces}
    for path in paths:
        calibration = read_calibration(path)
        fitting = [
            pooler for pooler, space in spaces.items() if space.pooled_id == calibration.pooled_id
        ]
        if not fitting:
            check_space(calibration.info, next(iter(spaces.values())), path)
        for pooler in fitting:
            found[pooler][path] = calibration
    return found


def methods_of(
    pooler: str, space: Space, calibrations: Mapping[str, Calibration], dims: Sequence[int]
) -> Iterator[Method]:
    """The methods of a pooler: without and with each calibration, in full and cut to each smaller
    width.
    """
    for path, full in [
        (None, space.dim),
        *((path, found.dim) for path, found in calibrations.items()),
    ]:
        for dim in dict.fromkeys([full, *(d for d in dims if d < full)]):
            yield Method(pooler, path, dim)
