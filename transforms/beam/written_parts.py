"""Parts of a job that workers write, and the last step, which sees what all of them wrote."""

from collections.abc import Callable, Iterable
from typing import Any

import apache_beam as beam

from sentence_beam.transforms.beam.graph import Together


class WriteParts(beam.PTransform):
    """An element -> None, once every part of the job is written and `conclude` has been called.

    `parts_of(job)` gives the parts, `write_part(part, job)` writes one, and
    `conclude(results, job)` has what all of them returned.
    """

    def __init__(
        self,
        job: Any,
        parts_of: Callable[[Any], Iterable[Any]],
        write_part: Callable[[Any, Any], Any],
        conclude: Callable[[Any, Any], None],
    ):
        super().__init__()
        self._job = job
        self._parts_of = parts_of
        self._write_part = write_part
        self._conclude = conclude

    def expand(self, start: beam.PCollection) -> beam.PCollection:
        job = self._job
        return (
            start
            | "Parts" >> beam.FlatMap(lambda _, job, parts_of: parts_of(job), job, self._parts_of)
            | "Spread" >> beam.Reshuffle()
            | "Write" >> beam.Map(self._write_part, job)
            | "Together" >> Together()
            | "Conclude" >> beam.Map(self._conclude, job)
        )
