"""Methods to compare on tasks: a pooler, a calibration of its vectors or none, and a width."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sentence_beam.transforms.calibration import Calibration, check_space
from sentence_beam.transforms.evaluation.encode_many import ModelSettings
from sentence_beam.transforms.evaluation.evaluate_options import EVERY_HEAD
from sentence_beam.transforms.space import PoolerSpec, Space, parse_pooler, resolve_model
from sentence_beam.transforms.store.calibrations import read_calibration

CROSS_ENCODER = "cross-encoder:"  # its folder follows, in the place of a pooler


@dataclass(frozen=True)
class Method:
    """A pooler's SPEC, the folder of a calibration or None, and the number of components.

    `search` is how a store is searched, or None for vectors that are compared with every other. A
    cross-encoder has no components.
    """

    pooler: str
    calibration: str | None
    dim: int
    search: str | None = None

    @property
    def fields(self) -> dict[str, str | int | None]:
        """The fields that name the method in a row of scores."""
        fields: dict[str, str | int | None] = {
            "pooler": self.pooler,
            "calibration": self.calibration,
            "dim": self.dim,
        }
        if self.search:
            fields["search"] = self.search
        return fields

    def __str__(self) -> str:
        words = [self.pooler]
        if self.calibration:
            words.append(self.calibration)
        if self.dim:
            words.append(f"{self.dim} dims")
        if self.search:
            words.append(self.search)
        return ", ".join(words)

    @classmethod
    def cross_encoder(cls, folder: str) -> "Method":
        """Return the method of a cross-encoder."""
        return cls(f"{CROSS_ENCODER}{folder}", None, 0)


def expand(
    options: ModelSettings, specs: Sequence[str]
) -> tuple[dict[str, PoolerSpec], tuple[int, int] | None]:
    """Return the poolers by their SPECs, with one for each head in the place of `ditto:*`.

    Also returns the number of blocks and heads, or None without `ditto:*`.
    """
    poolers: dict[str, PoolerSpec] = {}
    grid = None
    for spec in specs:
        if not spec.startswith(EVERY_HEAD):
            poolers[spec] = parse_pooler(spec)
            continue
        files = resolve_model(options.model, options.revision)
        grid = (files.layers, files.heads)
        every = [(block, head) for block in range(1, grid[0] + 1) for head in range(1, grid[1] + 1)]
        heads = [spec.replace("*", f"{block}-{head}", 1) for block, head in every]
        poolers |= {pooler: parse_pooler(pooler) for pooler in heads}
    return poolers, grid


def match_calibrations(
    model: ModelSettings, poolers: Mapping[str, PoolerSpec], paths: Sequence[str]
) -> dict[str, dict[str, Calibration]]:
    """Return the calibrations that were fitted on each pooler's vectors, by pooler and path.

    The vectors of the fit may have the prompt for documents. Raises SpaceMismatchError for a
    calibration of none of the poolers.
    """
    by_pooler: dict[str, dict[str, Calibration]] = {pooler: {} for pooler in poolers}
    if not paths:
        return by_pooler
    models = [settings for settings in (model, model.for_documents()) if settings is not None]
    spaces = [
        (name, settings.space(pooler)) for settings in models for name, pooler in poolers.items()
    ]
    for path in paths:
        calibration = read_calibration(path)
        fitting = [name for name, space in spaces if space.pooled_id == calibration.pooled_id]
        if not fitting:
            check_space(calibration.info, spaces[0][1], path)
        for pooler in fitting:
            by_pooler[pooler][path] = calibration
    return by_pooler


def list_methods(
    pooler: str, space: Space, calibrations: Mapping[str, Calibration], dims: Sequence[int]
) -> Iterator[Method]:
    """Yield the methods of a pooler: without and with each calibration, at each width.

    The widths are the full one and each smaller one in `dims`.
    """
    widths: dict[str | None, int] = {None: space.dim}
    widths |= {path: calibration.dim for path, calibration in calibrations.items()}
    for path, full in widths.items():
        smaller = [dim for dim in dims if dim < full]
        for dim in dict.fromkeys([full, *smaller]):
            yield Method(pooler, path, dim)
