"""The plan of an evaluation: the methods to compare, by pooler, and what makes their vectors."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sentence_beam.transforms.base.errors import cite
from sentence_beam.transforms.calibration import Calibration
from sentence_beam.transforms.evaluation.compared_methods import (
    Method,
    expand,
    list_methods,
    match_calibrations,
)
from sentence_beam.transforms.evaluation.encode_many import ModelSettings
from sentence_beam.transforms.evaluation.evaluate_options import EvaluateOptions
from sentence_beam.transforms.evaluation.prediction_cache import make_key
from sentence_beam.transforms.evaluation.task import Task, hash_content
from sentence_beam.transforms.space import PoolerSpec, Space

if TYPE_CHECKING:
    from sentence_beam.transforms.encoder.pair_scorer import PairScorer


@dataclass(frozen=True)
class ScorePlan:
    """The methods to compare, by pooler, with what makes their vectors.

    `poolers` are by their requested SPECs. `queries` and `documents` are the settings for the texts
    of searches, None if these are encoded as other texts are. `grid` is the number of blocks and
    heads of `ditto:*`, if it is among the poolers.
    """

    model: ModelSettings
    queries: ModelSettings | None
    documents: ModelSettings | None
    poolers: Mapping[str, PoolerSpec]
    spaces: Mapping[str, Space]
    calibrations: Mapping[str, Mapping[str, Calibration]]
    methods: Mapping[str, tuple[Method, ...]]
    grid: tuple[int, int] | None
    cross_encoders: Mapping[Method, "PairScorer"]

    @property
    def vector_methods(self) -> list[Method]:
        """The methods of all poolers."""
        return [method for of_pooler in self.methods.values() for method in of_pooler]

    @property
    def all_methods(self) -> list[Method]:
        """All methods, in the order of the rows."""
        return [*self.vector_methods, *self.cross_encoders]

    def choose_model(self, task: Task) -> ModelSettings:
        """Return the settings for the texts of a task; if it has queries, they are documents."""
        if task.queries and self.documents is not None:
            return self.documents
        return self.model

    def key(self, task: Task, method: Method) -> str:
        """Return the key of what a method of vectors predicts for a task."""
        model = self.choose_model(task)
        pooler = self.poolers[method.pooler]
        space = self.spaces[method.pooler] if model is self.model else model.space(pooler)
        query_space = self.queries.space(pooler) if self.queries and task.queries else space
        digest = None
        if method.calibration:
            digest = self.calibrations[method.pooler][method.calibration].digest
        return make_key(hash_content(task), space.id, query_space.id, digest, method.dim)

    def make_cross_encoder_key(self, task: Task, scorer: "PairScorer") -> str:
        """Return the key of what a cross-encoder predicts for a task after the first method."""
        first = self.key(task, self.vector_methods[0])
        return make_key(hash_content(task), scorer.digest, first, None, 0)


def make_plan(options: EvaluateOptions) -> ScorePlan:
    """Return the plan of the options' methods; cross-encoders are loaded.

    Raises OptionError for poolers, calibrations and models that cannot be used.
    """
    model = ModelSettings(
        options.model,
        options.revision,
        options.max_tokens,
        options.dtype,
        options.device,
        options.prompt,
    )
    poolers, grid = expand(model, options.poolers)
    spaces = {name: model.space(pooler) for name, pooler in poolers.items()}
    calibrations = match_calibrations(model, poolers, options.calibrations)
    methods = {
        pooler: tuple(list_methods(pooler, space, calibrations[pooler], options.truncate_dims))
        for pooler, space in spaces.items()
    }
    return ScorePlan(
        model,
        model.for_queries(options.query_prompt),
        model.for_documents(),
        poolers,
        spaces,
        calibrations,
        methods,
        grid,
        _load_cross_encoders(options),
    )


def _load_cross_encoders(options: EvaluateOptions) -> dict[Method, "PairScorer"]:
    """Load the cross-encoders, by their methods."""
    if not options.cross_encoders:
        return {}
    from sentence_beam.transforms.encoder.pair_scorer import PairScorer

    flag = cite("cross_encoder")
    return {
        Method.cross_encoder(folder): PairScorer.load(folder, flag, options.device)
        for folder in dict.fromkeys(options.cross_encoders)
    }
