"""Figures of the vectors that poolers and calibrations make of the texts and pairs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.calibration.quality import cosines
from sentence_beam.transforms.evaluation.compared_methods import match_calibrations
from sentence_beam.transforms.evaluation.diagnostics import pair_figures
from sentence_beam.transforms.evaluation.diagnostics.figure_rows import (
    PAIR_FIGURES,
    PAIRS,
    VECTOR_FIGURES,
    Row,
)
from sentence_beam.transforms.evaluation.diagnostics.material import Material
from sentence_beam.transforms.evaluation.diagnostics.vector_figures import vector_figures
from sentence_beam.transforms.evaluation.encode_many import encode_many, group_poolers
from sentence_beam.transforms.space import PoolerSpec, parse_pooler


@dataclass(frozen=True)
class PoolerFigures:
    """Figures of each pooler's vectors, without and with each calibration."""

    material: Material

    @cached_property
    def poolers(self) -> Mapping[str, PoolerSpec]:
        """The poolers to run, by their SPECs.

        They are those of the options; without a store `auto`, if any is needed.
        """
        options = self.material.options
        names = options.poolers
        if options.store is None:
            needed = self.material.requested & {*VECTOR_FIGURES, *PAIR_FIGURES, PAIRS}
            if not needed or not self.material.texts:
                names = ()
            elif not names:
                names = ("auto",)
        return {name: parse_pooler(name) for name in names}

    def check_calibrations(self) -> None:
        """Raise OptionError for calibrations without vectors of a pooler to apply them to."""
        if self.material.options.calibrations and not self.poolers:
            raise OptionError(
                f"{cite('calibration')} is of the vectors that {cite('pooler')} makes; say"
                f" {cite('pooler')} too"
            )

    def rows(self) -> list[Row]:
        """Return the figures of each method's vectors, and of the pairs that they make."""
        edits = [self._count_edits(task) for task in self.material.pairs]
        rows: list[Row] = []
        if "edit-distance" in self.material.requested:
            for task, distances in zip(self.material.pairs, edits, strict=True):
                rows += pair_figures.gold_figures(task, distances)
        if self.poolers:
            rows += self._measure_methods(edits)
        return rows

    def _measure_methods(self, edits: list[np.ndarray | None]) -> list[Row]:
        """Return the figures of each method; `edits` are the edit distances of each task."""
        requested = self.material.requested
        texts = list(dict.fromkeys(self.material.texts))
        place = {text: at for at, text in enumerate(texts)}
        cosines_by_task: list[dict[str, np.ndarray]] = [{} for _ in self.material.pairs]
        rows: list[Row] = []
        passes = len(group_poolers(self.material.model, self.poolers))
        with progress.stage("embedding", len(texts) * passes, "texts"):
            for name, vectors in self._compute_vectors(texts):
                order = [place[text] for text in self.material.texts]
                rows += vector_figures(name, vectors[order], requested)
                for task, distances, by_name in zip(
                    self.material.pairs, edits, cosines_by_task, strict=True
                ):
                    a = vectors[[place[text] for text in task.first]]
                    b = vectors[[place[text] for text in task.second]]
                    rows += pair_figures.pair_figures(name, task, a, b, distances, requested)
                    by_name[name] = cosines(a, b)
        if "agreement" in requested:
            for task, by_name in zip(self.material.pairs, cosines_by_task, strict=True):
                rows += pair_figures.agreement_figures(task, by_name)
        return rows

    def _compute_vectors(self, texts: list[str]) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the name and the vectors of the texts for each method.

        Raises SpaceMismatchError for a calibration of none of the poolers.
        """
        model = self.material.model
        calibrations = match_calibrations(model, self.poolers, self.material.options.calibrations)
        for encoded in encode_many(model, self.poolers, texts, progress.step):
            yield encoded.pooler, encoded.rows
            for path, calibration in calibrations[encoded.pooler].items():
                yield f"{encoded.pooler}, {path}", calibration.apply(encoded.rows)

    def _count_edits(self, task: pair_figures.Pairs) -> np.ndarray | None:
        """Return the edit distances of pairs in tokens of the lower-cased text, if requested."""
        if not self.material.requested & {"edit-distance", PAIRS}:
            return None
        first = self.material.token_ids([text.lower() for text in task.first])
        second = self.material.token_ids([text.lower() for text in task.second])
        return pair_figures.edit_distances(first, second)
