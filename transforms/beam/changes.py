"""CountRows: what a run changed, and ids that occur twice; a few bytes a row of changed units
travel.
"""

import apache_beam as beam
from apache_beam.typehints import typehints

from transforms.beam.graph import Spread, keeping_lease
from transforms.steps.commit.changes import count_bucket, hashes_of, rows_to_count
from transforms.store.runs.commit import Run

Hashes = typehints.Tuple[typehints.Tuple[str, int], typehints.Any]


class CountRows(beam.PTransform):
    """What `Settle` gives -> the same; with Changes to sum up, or UnknownChanges, and DuplicateIds
    where `ids` says so.

    16 bytes a row of changed units travel, and eight bytes a row for the ids, packed by bucket. Of
    ids nothing is read where the last snapshot has the same rows; else a shard's are read once, and
    their hashes kept. Where the run is to fail nothing is read. All of it goes one way: an engine
    holds memory for each output of a step.
    """

    def __init__(self, run: Run, ids: bool):
        super().__init__()
        self._run, self._ids = run, ids

    def expand(self, settled: beam.PCollection) -> beam.PCollection:
        return (
            settled
            | "Choose"
            >> beam.FlatMap(keeping_lease, self._run.key, rows_to_count, self._run, self._ids)
            | "Spread" >> Spread()
            | "Hash"
            >> beam.FlatMap(keeping_lease, self._run.key, hashes_of).with_output_types(Hashes)
            | "Buckets" >> beam.GroupByKey()
            | "Count" >> beam.FlatMap(keeping_lease, self._run.key, count_bucket)
        )
