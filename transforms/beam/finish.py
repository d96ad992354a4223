"""The last steps of a run of `embed`: from written units to the committed snapshot."""

from typing import Any

import apache_beam as beam

from sentence_beam.transforms.beam.commit import Commit
from sentence_beam.transforms.beam.index import BuildIndex, Hints
from sentence_beam.transforms.beam.settle import Settle
from sentence_beam.transforms.beam.watch import with_watch
from sentence_beam.transforms.steps.options.resolve import Resolved


def finish_run(
    settled_parts: tuple[beam.PCollection, ...],
    ranges: beam.PCollection | None,
    resolved: Resolved,
    indexing: Hints | None = None,
    raises: bool = False,
) -> Any:
    """Return the PCollection of the one Result of a run.

    `settled_parts` are all units and problems, `ranges` those of `Embed`. `indexing` are hints for
    the steps that find the lists of an index. `raises` makes a failed run a failed job.
    """
    job = resolved.job
    settled = settled_parts | "Commit/Settle" >> Settle(job.run)
    parts = [settled]
    if ranges:
        parts.append(ranges)
    if resolved.index is not None:
        index = BuildIndex(
            job.run, resolved.index, remembered=resolved.remembers_index, hints=indexing
        )
        parts.append(settled | "Index" >> index)
    model = job.recipe.model if job.recipe.model != job.run.options.model else None
    facts = with_watch(parts, job.run, model)
    return facts | "Commit" >> Commit(job.run, raises, ids=job.columns.id is not None)
