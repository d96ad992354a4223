"""Merging segments of an index into ranges of lists."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np

from sentence_beam.transforms.base import progress
from sentence_beam.transforms.index.choose import depth_for
from sentence_beam.transforms.steps.index import scratch
from sentence_beam.transforms.steps.index.files import DEEP, recall_grid
from sentence_beam.transforms.steps.index.ranges import (
    RangeSpan,
    leave_exact,
    leave_range_recall,
    spans,
    write_range,
)
from sentence_beam.transforms.steps.index.update import IndexUpdateJob
from sentence_beam.transforms.steps.index.update_recall import BuiltSegment, SegmentBuild


@dataclass(frozen=True)
class RangeTarget:
    """A segment that was built before, or a range to write."""

    built: SegmentBuild | None = None
    span: RangeSpan | None = None


def cut(
    found: list[tuple[IndexUpdateJob, SegmentBuild]],
) -> Iterator[tuple[IndexUpdateJob, RangeTarget]]:
    """Yield what was built, and the ranges to write of the rows that were left by list.

    If a file of the last index is damaged, no range is written.
    """
    job = found[0][0]
    builds = [build for _, build in found]
    targets = [RangeTarget(replace(build, listed=None)) for build in builds]
    if not any(build.damaged for build in builds):
        targets += _ranges_to_write(job, builds)
    # the last step needs an element, also if no row is left
    yield from ((job, target) for target in targets or [RangeTarget(SegmentBuild())])


def _ranges_to_write(job: IndexUpdateJob, builds: list[SegmentBuild]) -> list[RangeTarget]:
    """Return the ranges of the rows that were left by list."""
    sources = [build.listed for build in builds if build.listed is not None]
    if not sources:
        return []
    update = job.update()
    sources.sort(key=attrgetter("number"))
    leave_exact(job.folder, sources, update.metric)
    kept = [build.built.segment for build in builds if build.built is not None]
    ranges = [segment for segment in kept if segment.lists]
    used = max([*update.segments, *(segment.number for segment in kept)])
    found = spans(job.folder, job.plan(update), sources, ranges, itertools.count(1 + used))
    return [RangeTarget(span=span) for span in found]


@progress.stage("index: writing ranges")
def write(job: IndexUpdateJob, target: RangeTarget) -> SegmentBuild:
    """Write a range, and leave its part of the recall measurement; what was built passes."""
    if target.span is None:
        return target.built or SegmentBuild()
    update = job.update()
    current = update.current
    written = write_range(job.folder, target.span, job.plan(update))
    trained = (current.trained.path, current.trained.sha256)
    depth = depth_for(DEEP, current.rerank)
    leave_range_recall(job.folder, written, trained, update.metric, depth, recall_grid(current))
    new = [source.number for source in target.span.sources if source.is_new]
    local = np.flatnonzero(np.isin(written.origins >> 32, new))
    if len(local):
        job.folder.leave(scratch.fresh(written.segment.number), local)
    rows = written.segment.rows
    return SegmentBuild(BuiltSegment(written.segment, rows, has_new=len(local) > 0))
