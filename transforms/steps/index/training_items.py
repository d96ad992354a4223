"""The elements of a training of an index, as its steps exchange them."""

from collections.abc import Iterable
from dataclasses import dataclass

from sentence_beam.transforms.steps.index.build import IndexJob, ShardGroup
from sentence_beam.transforms.store.records import Problem


@dataclass(frozen=True)
class SampledGroup:
    """A group of a build whose share of the sample is in the run's folder.

    `parts` are the rows of each part, `held_out` the rows held out; `problem` says why it failed.
    """

    job: IndexJob
    group: ShardGroup
    parts: tuple[int, ...] = ()
    held_out: int = 0
    problem: Problem | None = None


@dataclass(frozen=True)
class SamplePart:
    """Rows of the sample in one file."""

    name: str
    rows: int


@dataclass(frozen=True)
class PartWork:
    """A part, whose rows are to be sorted by cells in pass `turn` over all rows (0: first)."""

    job: IndexJob
    part: SamplePart
    turn: int = 0


@dataclass(frozen=True)
class CellWork:
    """A cell, whose lists `first` to `last` are to be `found` in pass `turn`.

    If `turn` is None, the cell is the whole sample, and one pass finds its lists.
    """

    job: IndexJob
    number: int
    first: int
    last: int
    turn: int | None = None
    found: bool = False


@dataclass(frozen=True)
class TrainingItem:
    """An element of a training; one field is set.

    It is a sampled group, a part to be sorted by cells, or a cell.
    """

    group: SampledGroup | None = None
    part: PartWork | None = None
    cell: CellWork | None = None


def groups_of(items: Iterable[TrainingItem]) -> list[SampledGroup]:
    """Return the sampled groups among the items, by their number."""
    groups = [item.group for item in items if item.group is not None]
    return sorted(groups, key=lambda sampled: sampled.group.number)


def cells_of(items: Iterable[TrainingItem]) -> list[CellWork]:
    """Return the cells among the items, in the order of their lists."""
    return sorted(
        (item.cell for item in items if item.cell is not None), key=lambda cell: cell.first
    )
